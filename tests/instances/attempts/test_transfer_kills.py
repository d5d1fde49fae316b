"""Whoever is killed while a feed is exported or imported: a reader sees what was there, or all that is new."""

import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from feed_assets.engines.databases.sessions import check_remote_driver
from tests.connect_server import ConnectServer
from tests.drills import drill, drill_seed, sized
from tests.instances.attempts.transfer_benches import (
    ExportBench,
    ImportBench,
    MarkBench,
    TransferBench,
    WindowBench,
    polled,
    transfer,
    transfer_until_killed,
)
from tests.processes import PROCESSES
from tests.shops import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.long, pytest.mark.sample]
_SECONDS = 4.0
"""A transfer takes about so long."""


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ConnectServer(log_file=tmp_path_factory.mktemp("connect") / "log", master="local[2]") as server:
        yield server.url


@pytest.mark.parametrize(
    ("kind", "shop", "kills"),
    [
        (ExportBench, "postgres", sized(1, 20)),
        drill(MarkBench, "postgres", 20),
        drill(ExportBench, "mariadb", 20),
        drill(ImportBench, "postgres", 20),
        drill(WindowBench, "postgres", 20),
        drill(MarkBench, "mariadb", 20),
    ],
    indirect=["shop"],
)
@pytest.mark.timeout(3600)
def test_whoever_is_killed_a_reader_sees_the_old_rows_or_the_new_ones(
    kind: type[TransferBench], shop: Shop, kills: int, connect: str, tmp_path: Path
) -> None:
    chosen, ends = random.Random(drill_seed()), list[int | None]()
    shop.run("CREATE TABLE orders (id serial PRIMARY KEY, name varchar(20), at timestamp)")
    check_remote_driver(connect, shop.address)  # as validate asks, in a session that ends
    bench = kind(tmp_path, shop)
    where = (kind, tmp_path, replace(shop, run=list), connect)  # another process does not ask the shop
    for night in range(kills):
        with bench.reading(night) as read:
            old = read()
        bench.bring(night)
        at = (chosen.randrange(1, kind.steps), 600.0) if night % 2 == 0 else (10_000, chosen.random() * _SECONDS)
        with polled(bench, night) as seen:
            ends.append(_end(transfer_until_killed, *where, night, *at))
            bench.disturb(night)
            assert _end(transfer, *where, night) == 0
        assert seen in ([old, bench.expected(night)], [bench.expected(night)]), (night, at)
        bench.require_end(night)
    assert -signal.SIGKILL in ends


def _end(call: Callable[..., None], *arguments: object) -> int | None:
    child = PROCESSES.Process(target=call, args=arguments)
    child.start()
    child.join()
    return child.exitcode
