"""The threads that make copies: many where they wait, one where they would only wait for each other.

Small files are many short system calls between a little Python. Several threads of that take the interpreter's lock
from one another at every call, and together take twice as long as one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.replication.plans import Side
from feed_assets.lifecycle.replication.running import TaskResult
from feed_assets.lifecycle.replication.tasks import CopyTask
from feed_assets.lifecycle.stores import StorePool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyThreads:
    """`many` are for what moves many bytes, `small` for everything else: the same ones where a storage is remote."""

    many: Executor
    small: Executor

    def run(self, work: Callable[[CopyTask], TaskResult], tasks: Sequence[CopyTask]) -> list[TaskResult]:
        """Run tasks, in no order."""
        large = self.many.map(work, [task for task in tasks if task.has_stretches])
        small = self.small.map(work, [task for task in tasks if not task.has_stretches])
        return [*large, *small]


@contextmanager
def copy_threads(count: int, stores: StorePool, sides: Iterable[Side]) -> Iterator[CopyThreads]:
    """At most `count` threads for copies between these places."""
    with ThreadPoolExecutor(max(count, 1), "copy") as many:
        if any(_is_remote(stores, side) for side in {side.store: side for side in sides}.values()):
            yield CopyThreads(many=many, small=many)
        else:
            with ThreadPoolExecutor(1, "small") as small:
                yield CopyThreads(many=many, small=small)


def _is_remote(stores: StorePool, side: Side) -> bool:
    try:
        return stores.get(side.store).copying().is_remote
    except FeedAssetsError:  # what cannot be opened fails copy by copy
        return True
