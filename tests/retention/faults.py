"""Databases and filesystems that fail at the n-th operation, once or from then on."""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from feed_assets.storage.local.calls import LocalCalls
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore

_BEGINNINGS = ("BEGIN", "PRAGMA")  # failing here is failing at the statement that follows
_NEVER_FAIL = {"close", "opened"}


class Fault:
    """Counts operations and fails at one of them, or from one on; it does nothing while it is not armed."""

    def __init__(self) -> None:
        self.at = 0
        self.seen = 0
        self.forever = False

    @property
    def has_struck(self) -> bool:
        return 0 < self.at <= self.seen

    def strikes(self) -> bool:
        """Count an operation; whether it fails."""
        if not self.at:
            return False
        self.seen += 1
        return self.seen == self.at or (self.forever and self.seen > self.at)

    @contextmanager
    def armed(self, at: int, *, forever: bool = False) -> Iterator[None]:
        """A block in which the operation `at` fails, counted from 1."""
        self.at, self.seen, self.forever = at, 0, forever
        try:
            yield
        finally:
            self.struck = self.seen >= self.at
            self.at = 0

    struck = False


class FaultyCalls(LocalCalls):
    """System calls of which one fails."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name in _NEVER_FAIL or not callable(found):
            return found
        if self._fault.strikes():
            raise OSError(EIO, f"injected into {name}")
        return found


def faulty_stores(fault: Fault) -> StorePool:
    """Local stores of which one system call fails."""

    def open_faulty(url: str, _options: dict[str, object]) -> InstanceStore:
        return LocalStore(url.removeprefix("file://"), FaultyCalls(fault))

    return StorePool(open_faulty)


@contextmanager
def faulty_database(fault: Fault) -> Iterator[None]:
    """A block in which one SQL statement, or commit, fails."""

    def before(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if not statement.startswith(_BEGINNINGS) and fault.strikes():
            raise OperationalError(statement, {}, Exception("injected"))

    def commit(_connection: object) -> None:
        if fault.strikes():
            raise OperationalError("COMMIT", {}, Exception("injected"))

    event.listen(Engine, "before_cursor_execute", before)
    event.listen(Engine, "commit", commit)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", before)
        event.remove(Engine, "commit", commit)
