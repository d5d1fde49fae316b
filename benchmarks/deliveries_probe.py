"""Measures deliveries to a receiver in a process of its own, and plain POSTs of the same documents. Arguments: folder,
messages, repeats.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import TypeVar
from urllib.request import Request, urlopen

from feed_assets.alerts.delivery.port import Letter
from feed_assets.alerts.delivery.receivers import Receiver, apply_receivers
from feed_assets.alerts.delivery.rounds import deliver
from feed_assets.alerts.delivery.senders import WEBHOOK_THREADS
from feed_assets.clock import Stopwatch, SystemClock, TimeBudget
from feed_assets.entities.common import Kind
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import InstanceEnd, InstanceOperation, InstancePayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.receivers import Channel
from feed_assets.sql.database import Database, open_database

ENTITIES = 400
_JSON = {"Content-Type": "application/json"}
_Item = TypeVar("_Item")
_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def main(folder: str, count: str, repeats: str) -> None:
    """Print the median seconds of both."""
    database = open_database(f"sqlite:///{folder}/state.db")
    database.migrate()
    seconds: dict[str, list[float]] = {"ours": [], "urlopen": [], "ready": []}
    with _receiver() as port:
        way = Receiver(
            name="ops", channel=Channel.WEBHOOK, address=f"http://127.0.0.1:{port}/hook", secret="of the benchmark"
        )
        apply_receivers(database, {way.name: way}, SystemClock().now())
        for turn in range(int(repeats)):
            messages = [_message(n + turn * int(count)) for n in range(int(count))]
            bodies = [json.dumps(Letter(message=each).document).encode() for each in messages]
            seconds["ready"].append(_in_threads(partial(_post_ready, port), bodies))
            seconds["urlopen"].append(_in_threads(partial(_open_urls, port), messages))
            seconds["ours"].append(_deliver_all(database, way, messages))
    print(json.dumps({name: median(found) for name, found in seconds.items()} | {"threads": WEBHOOK_THREADS}))


def _message(n: int) -> OutboxMessage:
    entity = f"process-{n % ENTITIES}"
    payload = InstancePayload(
        cluster="primary",
        entity_name=entity,
        entity_type=Kind.PROCESS,
        nominal_time=_NOON + timedelta(hours=n // ENTITIES),
        operation=InstanceOperation.GENERATE,
        feed_names="clicks",
        feed_instance_paths=f"file:///data/primary/clicks/{n}",
        workflow_id="0b0d3a5e-7f0c-4a8e-9f0e-2f7a43a0a1c1",
        run_id="1",
        status=InstanceEnd.SUCCEEDED,
        time_stamp=_NOON,
    )
    return OutboxMessage(recorded_at=_NOON, payload=payload, idempotency_key=f"instance/{entity}/{n}")


def _deliver_all(database: Database, way: Receiver, messages: list[OutboxMessage]) -> float:
    with database.begin() as connection:
        Outbox(connection).append_many(messages)
    watch = Stopwatch()
    done = deliver(database, way, SystemClock(), TimeBudget.ample(), "benchmark")
    seconds = watch.seconds
    assert done.delivered == len(messages), done
    return seconds


def _in_threads(post: Callable[[list[_Item]], None], items: list[_Item]) -> float:
    """Return the seconds until all items are posted by as many threads as a way has."""
    watch = Stopwatch()
    with ThreadPoolExecutor(WEBHOOK_THREADS) as pool:
        list(pool.map(post, [items[n::WEBHOOK_THREADS] for n in range(WEBHOOK_THREADS)]))
    return watch.seconds


def _post_ready(port: int, bodies: list[bytes]) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    for body in bodies:
        connection.request("POST", "/hook", body, _JSON)
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status
    connection.close()


def _open_urls(port: int, messages: list[OutboxMessage]) -> None:
    for each in messages:
        body = json.dumps(Letter(message=each).document).encode()
        with urlopen(Request(f"http://127.0.0.1:{port}/hook", body, _JSON)) as response:
            response.read()


@contextmanager
def _receiver() -> Iterator[int]:
    """Run a receiver that takes everything; yields its port."""
    command = [sys.executable, "-m", "benchmarks.deliveries_receiver"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    main(*sys.argv[1:])
