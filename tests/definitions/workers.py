"""What the tests let other processes do to a store, and how they die in the middle of it."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from feed_assets.sql.database import Database, open_database
from tests.definitions.harness import DefinitionsHarness, put

FORK = multiprocessing.get_context("fork")
KILLED = 9


def die_at(step: int, harness: DefinitionsHarness, work: Callable[[DefinitionsHarness], object]) -> bool:
    """Let another process do the work and end without a word before its effect number `step`; whether it came so far.

    Effects are whatever another process, or this one after a breakdown of the machine, could see: the commit of a
    transaction, content forced to the disk, a file renamed or removed.
    """
    worker = FORK.Process(target=_work_until, args=(step, harness.database, harness.location, work))
    worker.start()
    worker.join()
    assert worker.exitcode in (0, KILLED)
    return worker.exitcode == KILLED


def _work_until(step: int, database: Database, location: str, work: Callable[[DefinitionsHarness], object]) -> None:
    left = [step]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os._exit(KILLED)

    def counted(effect: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **named: Any) -> Any:
            count()
            return effect(*args, **named)

        return wrapped

    begin = Database.begin

    @contextmanager
    def counted_begin(self: Database) -> Iterator[Connection]:
        with begin(self) as connection:
            yield connection
            count()
        count()

    Database.begin = counted_begin  # type: ignore[method-assign]
    os.fsync = counted(os.fsync)
    Path.replace = counted(Path.replace)  # type: ignore[method-assign]
    Path.unlink = counted(Path.unlink)  # type: ignore[method-assign]
    work(DefinitionsHarness(database=database, location=location))
    os._exit(0)


def raise_together(url: str, location: str, name: str, others: tuple[str, ...], times: int) -> None:
    """Change a feed, and each of the others in the same change, `times` times."""
    database = open_database(url)
    harness = DefinitionsHarness(database=database, location=location)
    for hours in range(2, times + 2):
        harness.change(put(name, hours), *(put(other, hours) for other in others), author=name)
    database.close()
