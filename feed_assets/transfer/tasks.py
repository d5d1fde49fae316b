"""Divide the work of copies into tasks: sets of files of similar total size; small instances share a task.

A task is plain data. The thread or executor that runs it opens the stores from their addresses.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from feed_assets.entities.copies.options import Preserve
from feed_assets.plan.copy_records import OnError
from feed_assets.storage.copy_port import SourceFile, StagedFile
from feed_assets.storage.pool import StorePool
from feed_assets.transfer.plans import CopyPlan, Side

LARGE = 4 << 20
"""From this size on, moving a file takes longer than opening it."""
_FILE_COST = 64 << 10
_PORTIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCopy:
    """The files of one copy in a task. `key` is the index of the copy; `generation`: see `Staging.open`."""

    key: int
    source: Side
    target: Side
    token: str
    generation: int
    on_error: OnError
    files: tuple[SourceFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """A portion of work; `rate` is its limit in bytes per second."""

    copies: tuple[TaskCopy, ...]
    rate: int | None = None

    @property
    def has_large_files(self) -> bool:
        """Whether moving bytes takes most of the task's time."""
        return any(file.size >= LARGE for copy in self.copies for file in copy.files)

    @property
    def files(self) -> int:
        """The number of files in the task."""
        return sum(len(copy.files) for copy in self.copies)

    @property
    def bytes(self) -> int:
        """The number of bytes in the task."""
        return sum(file.size for copy in self.copies for file in copy.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCopy:
    """A copy whose staging is open. `resumed` files were copied by an earlier try; `missing` are all others."""

    plan: CopyPlan
    generation: int
    resumed: tuple[StagedFile, ...]
    missing: tuple[SourceFile, ...] = field(repr=False)

    @property
    def missing_bytes(self) -> int:
        """The number of bytes still to be copied."""
        return sum([file.size for file in self.missing])

    @property
    def resumed_bytes(self) -> int:
        """The number of bytes copied by an earlier try."""
        return sum(file.size for file in self.resumed)


def open_copy(stores: StorePool, plan: CopyPlan) -> OpenCopy:
    """Create the staging of a copy, or take over the staging of an earlier try with its files.

    Raises:
        StorageError: the target's storage refused, or another process works on the same copy.
    """
    with closing(stores.get(plan.target.store).staging(plan.target.path, plan.token)) as staging:
        generation = staging.open()
        recorded = {file.path: file for file in staging.recorded()} if generation > 1 else {}
    resumed: list[StagedFile] = []
    missing: list[SourceFile] = []
    for file in plan.transfers:
        found = recorded.get(file.path)
        if found is not None and (found.size, found.version) == (file.size, file.version):
            resumed.append(found)
        else:
            missing.append(file)
    return OpenCopy(plan=plan, generation=generation, resumed=tuple(resumed), missing=tuple(missing))


def part_tasks(copies: Sequence[OpenCopy], count: int, *, shares_bandwidth: bool = True) -> list[CopyTask]:
    """Divide the work of copies into at most `count` tasks of about the same size; a file is never split.

    The bandwidth limits are those of the first copy. With `shares_bandwidth` each task gets an equal share of the limit
    for all tasks, because tasks on executors cannot coordinate.
    """
    if not copies:
        return []
    costs = [copy.missing_bytes + _FILE_COST * len(copy.missing) for copy in copies]
    share = max(1, math.ceil(sum(costs) / max(count, 1)))
    blocks = [block for key, copy in enumerate(copies) for block in _blocks(key, copy, costs[key], share)]
    blocks.sort(key=lambda block: -block.cost)
    load = [(0, number) for number in range(max(count, 1))]
    portions: dict[int, list[_Block]] = defaultdict(list)
    for block in blocks:
        cost, number = heapq.heappop(load)
        portions[number].append(block)
        heapq.heappush(load, (cost + block.cost, number))
    rate = _rate(copies[0].plan, len(portions) if shares_bandwidth else None)
    return [CopyTask(copies=_task_copies(copies, portion), rate=rate) for _, portion in sorted(portions.items())]


@dataclass(slots=True, kw_only=True)
class _Block:
    """Files of one copy that stay together."""

    key: int
    cost: int = 0
    files: list[SourceFile] = field(default_factory=list)


def _blocks(key: int, copy: OpenCopy, cost: int, share: int) -> Iterator[_Block]:
    most = share if cost <= share // 2 else max(share // _PORTIONS, 1)
    block = _Block(key=key)
    for file in copy.missing:
        if block.files and block.cost + file.size + _FILE_COST > most:
            yield block
            block = _Block(key=key)
        block.files.append(file)
        block.cost += file.size + _FILE_COST
    if block.files:
        yield block


def _task_copies(copies: Sequence[OpenCopy], portion: Sequence[_Block]) -> tuple[TaskCopy, ...]:
    by_key: Mapping[int, list[_Block]] = defaultdict(list)
    for block in portion:
        by_key[block.key].append(block)
    return tuple(
        TaskCopy(
            key=key,
            source=copies[key].plan.source,
            target=copies[key].plan.target,
            token=copies[key].plan.token,
            generation=copies[key].generation,
            on_error=copies[key].plan.options.on_error,
            files=tuple(
                file if Preserve.BLOCK_SIZE in copies[key].plan.options.preserve else file._replace(traits=None)
                for block in blocks
                for file in block.files
            ),
        )
        for key, blocks in sorted(by_key.items())
    )


def _rate(plan: CopyPlan, tasks: int | None) -> int | None:
    own, whole = plan.options.task_bandwidth, plan.options.bandwidth
    share = max(whole // tasks, 1) if whole and tasks else None
    return min((limit for limit in (own, share) if limit), default=None)
