import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection as Pipe

import pytest

from feed_assets.log.definitions.store import Definitions
from feed_assets.sql.database import Database, open_database
from tests.log.workers import PATIENCE_SECONDS
from tests.processes import PROCESSES

pytestmark = pytest.mark.both_databases


def hold_turn(url: str, pipe: Pipe) -> None:
    """Take the turn, say so, and keep it for ever."""
    with open_database(url).changing_definitions():
        pipe.send("mine")
        time.sleep(PATIENCE_SECONDS)


def test_threads_take_turns(database: Database) -> None:
    inside = threading.Semaphore(1)

    def work(_number: int) -> bool:
        with database.changing_definitions():
            alone = inside.acquire(blocking=False)
            time.sleep(0.01)
            inside.release()
            return alone

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_transactions_go_on_during_a_turn(database: Database) -> None:
    with database.changing_definitions():
        for _ in range(2):
            with database.begin() as connection:
                Definitions(connection).bump_revision()
            with database.read() as connection:
                assert Definitions(connection).revision() > 0


def test_the_turn_ends_with_a_process_that_is_killed(database: Database, database_url: str) -> None:
    ours, theirs = PROCESSES.Pipe()
    holder = PROCESSES.Process(target=hold_turn, args=(database_url, theirs), daemon=True)
    holder.start()
    assert ours.poll(PATIENCE_SECONDS)
    taken = threading.Event()

    def wait() -> None:
        with database.changing_definitions():
            taken.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert not taken.wait(0.3)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    assert taken.wait(PATIENCE_SECONDS)
    waiter.join()
    holder.join()


def test_the_turn_ends_with_an_error(database: Database) -> None:
    for _ in range(2):
        try:
            with database.changing_definitions():
                raise KeyError("ours")
        except KeyError:
            pass
