"""The threads that make copies: many where they wait, one where they would only wait for each other.

Small files are many short system calls between a little Python. Several threads of that take the interpreter's lock
from one another at every call, and together take twice as long as one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.replication.plans import Side
from feed_assets.lifecycle.replication.running import TaskResult
from feed_assets.lifecycle.replication.tasks import CopyTask
from feed_assets.lifecycle.stores import StorePool

Answer = TypeVar("Answer")


class Inline(Executor):
    """Maps at once, in the thread that asks for it; nothing else is asked of it."""

    def map(
        self,
        work: Callable[..., Answer],
        /,
        *arguments: Iterable[object],
        timeout: float | None = None,  # noqa: ARG002 - nothing is waited for
        chunksize: int = 1,  # noqa: ARG002
    ) -> Iterator[Answer]:
        return iter(list(map(work, *arguments)))


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
def copy_threads(
    count: int, stores: StorePool, sides: Collection[Side], *, is_alone: bool = False
) -> Iterator[CopyThreads]:
    """At most `count` threads for copies between these places. `is_alone`: one thread uses them, and no others."""
    with ThreadPoolExecutor(max(count, 1), "copy") as many:
        if not are_near(stores, sides):
            yield CopyThreads(many=many, small=many)
            return
        with Inline() if is_alone else ThreadPoolExecutor(1, "small") as small:
            yield CopyThreads(many=many, small=small)


def are_near(stores: StorePool, sides: Collection[Side]) -> bool:
    """Whether all places are filesystems of this machine."""
    try:
        return not any(stores.get(side.store).copying().is_remote for side in sides)
    except FeedAssetsError:  # what cannot be opened fails copy by copy
        return False
