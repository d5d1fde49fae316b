"""Servers that are no Spark Connect servers, or do not answer."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import grpc
import pytest

from feed_assets.clock import Stopwatch

pytestmark = pytest.mark.server

SECONDS = 0.5
_CHECK = """
import sys
from feed_assets.engines.spark import addresses as spark_addresses
from feed_assets.engines.errors import ServiceError

spark_addresses._ANSWER_SECONDS = {seconds}
try:
    spark_addresses.check_spark_remote("{url}")
except ServiceError as exc:
    print(exc)
"""


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that takes calls and never answers."""
    end = Event()

    class Silent(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _details: object) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda _request, _context: end.wait(60))

    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Silent(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"sc://127.0.0.1:{port}"
    end.set()
    server.stop(None).wait()


def test_a_process_that_has_asked_a_silent_server_says_so_and_ends(silent: str) -> None:
    watch = Stopwatch()
    code = _CHECK.format(seconds=SECONDS, url=silent)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=50)
    assert watch.seconds < 40
    assert done.stdout == (
        f"Spark Connect at {silent}: it does not answer as a Spark Connect server does. "
        "Check the address, and the server's log.\n"
    ), done.stderr
