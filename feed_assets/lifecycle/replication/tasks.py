"""The work of copies in portions: split by bytes, large files in stretches, small instances together.

A task is plain data. Whoever runs it opens the stores from their addresses: a thread here, or an executor elsewhere.
"""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from feed_assets.lifecycle.replication.plans import CopyPlan, Side
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.copy_options import OnError
from feed_assets.storage.copy_port import Assembly, SourceFile, Written

SMALL = 4 << 20
"""Files up to this size pass through memory whole."""
_FILE_COST = 64 << 10
_PORTIONS = 4
_LEAST_SEGMENT = 1 << 20
_LARGEST_SEGMENT = 32 << 20
_SEGMENTS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Part of a large file, copied in order in segments of `unit` bytes, each of which is noted when it is done."""

    file: SourceFile
    offset: int
    size: int
    unit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCopy:
    """What a task does for one copy: `number` is that of the staging (see `Assembly.open`), `key` that of the copy."""

    key: int
    source: Side
    target: Side
    token: str
    number: int
    on_error: OnError
    files: tuple[SourceFile, ...]
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTask:
    """A portion of work; `rate` is its limit in bytes a second."""

    number: int
    copies: tuple[TaskCopy, ...]
    rate: int | None = None

    @property
    def has_stretches(self) -> bool:
        """Whether there is something of large files in it."""
        return any(copy.stretches for copy in self.copies)

    @property
    def bytes(self) -> int:
        """How many bytes it transfers."""
        return sum(
            sum(file.size for file in copy.files) + sum(stretch.size for stretch in copy.stretches)
            for copy in self.copies
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCopy:
    """A copy whose staging is open: `resumed` was there already, `missing` are the files with all that is to be done.

    `missing` has the gaps of large files as (offset, size), none for a file that is copied whole.
    """

    plan: CopyPlan
    number: int
    resumed: tuple[Written, ...]
    missing: tuple[tuple[SourceFile, int, tuple[tuple[int, int], ...]], ...] = field(repr=False)

    @property
    def missing_bytes(self) -> int:
        """How many bytes have to be copied."""
        return sum([sum([size for _, size in gaps]) if unit else file.size for file, unit, gaps in self.missing])

    @property
    def resumed_bytes(self) -> int:
        """How many bytes an earlier try has copied."""
        return sum(written.size for written in self.resumed)


def open_copy(stores: StorePool, plan: CopyPlan) -> OpenCopy:
    """Make the staging of a copy, or take over what an earlier try has left in it.

    Raises:
        StorageError: the target's storage refused, or another process works on the same copy.
    """
    with closing(stores.get(plan.target.store).copying().assembly(plan.target.path, plan.token)) as assembly:
        return _open_copy(plan, assembly)


def _open_copy(plan: CopyPlan, assembly: Assembly) -> OpenCopy:
    number = assembly.open([file.path for file in plan.transfers], is_vacant=plan.may_be_in_place)
    noted = _find_noted(plan, assembly) if number > 1 else {}
    resumed: list[Written] = []
    missing: list[tuple[SourceFile, int, tuple[tuple[int, int], ...]]] = []
    wish = min(max(plan.bytes // _SEGMENTS, _LEAST_SEGMENT), _LARGEST_SEGMENT)
    for file in plan.transfers:
        done = _usable(noted[file.path], file) if file.path in noted else []
        resumed += done
        grain = assembly.grain(file.size) if file.size > SMALL else 0
        if not grain:
            if not done:
                missing.append((file, 0, ()))
            continue
        if not done:
            assembly.begin(file.path, file.size)
        if gaps := _gaps(done, file.size):
            missing.append((file, -(-wish // grain) * grain, gaps))
    return OpenCopy(plan=plan, number=number, resumed=tuple(resumed), missing=tuple(missing))


def _find_noted(plan: CopyPlan, assembly: Assembly) -> Mapping[str, list[Written]]:
    """What an earlier try has noted of files that are still the same."""
    wanted = {file.path: file for file in plan.transfers}
    noted: dict[str, list[Written]] = defaultdict(list)
    for written in assembly.journal():
        if written.file in wanted and written.sign == wanted[written.file].sign:
            noted[written.file].append(written)
    return noted


def _usable(noted: Sequence[Written], file: SourceFile) -> list[Written]:
    """Of what is noted of a file, what can be gone on with: the whole, or stretches that do not overlap."""
    whole = [each for each in noted if each.offset == 0 and each.size == file.size]
    if whole:
        return whole[:1]
    found: list[Written] = []
    end = 0
    for each in sorted(noted, key=lambda each: each.offset):
        if each.offset >= end and each.offset + each.size <= file.size:
            found.append(each)
            end = each.offset + each.size
    return found


def _gaps(done: Sequence[Written], size: int) -> tuple[tuple[int, int], ...]:
    """What is missing of a file, as (offset, size).

    >>> one = Written(file="a", offset=2, size=3, checksum="", sign="", is_settled=True)
    >>> _gaps([one], 9), _gaps([], 9)
    (((0, 2), (5, 4)), ((0, 9),))
    """
    gaps, end = [], 0
    for each in sorted(done, key=lambda each: each.offset):
        if each.offset > end:
            gaps.append((end, each.offset - end))
        end = each.offset + each.size
    if end < size:
        gaps.append((end, size - end))
    return tuple(gaps)


def part_tasks(copies: Sequence[OpenCopy], count: int, *, shares_bandwidth: bool = True) -> list[CopyTask]:
    """Part the work of copies into at most `count` tasks of about the same size.

    A file is cut only where it alone is more than such a share. The limits on bandwidth are those of the first copy;
    with `shares_bandwidth` each task has its share of that of all, because they run where they know nothing of others.
    """
    if not copies:
        return []
    costs = [copy.missing_bytes + _FILE_COST * len(copy.missing) for copy in copies]
    share = max(1, math.ceil(sum(costs) / max(count, 1)))
    blocks = [block for key, copy in enumerate(copies) for block in _blocks(key, copy, costs[key], share)]
    blocks.sort(key=lambda block: -block.cost)
    load = [(0, number) for number in range(max(count, 1))]
    heapq.heapify(load)
    portions: dict[int, list[_Block]] = defaultdict(list)
    for block in blocks:
        cost, number = heapq.heappop(load)
        portions[number].append(block)
        heapq.heappush(load, (cost + block.cost, number))
    rate = _rate(copies[0].plan, len(portions) if shares_bandwidth else None)
    return [
        CopyTask(number=number, copies=_task_copies(copies, portion), rate=rate)
        for number, portion in sorted(portions.items())
    ]


@dataclass(slots=True, kw_only=True)
class _Block:
    """Work of one copy that stays together."""

    key: int
    cost: int = 0
    files: list[SourceFile] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)


def _blocks(key: int, copy: OpenCopy, cost: int, share: int) -> Iterator[_Block]:
    most = share if cost <= share // 2 else max(share // _PORTIONS, 1)
    block = _Block(key=key)
    for file, unit, gaps in copy.missing:
        if unit:
            for offset, size in _cut(gaps, unit, share):
                stretch = Stretch(file=file, offset=offset, size=size, unit=unit)
                yield _Block(key=key, cost=size + _FILE_COST, stretches=[stretch])
            continue
        if block.cost and block.cost + file.size + _FILE_COST > most:
            yield block
            block = _Block(key=key)
        block.files.append(file)
        block.cost += file.size + _FILE_COST
    if block.files:
        yield block


def _cut(gaps: Sequence[tuple[int, int]], unit: int, share: int) -> Iterator[tuple[int, int]]:
    """Cut gaps at multiples of `unit` so that none is much more than a share.

    >>> list(_cut([(0, 10)], 2, 100)), list(_cut([(4, 20)], 2, 8))
    ([(0, 10)], [(4, 8), (12, 8), (20, 4)])
    """
    length = max(unit, -(-share // unit) * unit)
    for offset, size in gaps:
        if size <= share + share // 8:
            yield offset, size
            continue
        while size > 0:
            yield offset, min(length, size)
            offset, size = offset + length, size - length


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
            number=copies[key].number,
            on_error=copies[key].plan.options.on_error,
            files=tuple(file for block in blocks for file in block.files),
            stretches=tuple(stretch for block in blocks for stretch in block.stretches),
        )
        for key, blocks in sorted(by_key.items())
    )


def _rate(plan: CopyPlan, tasks: int | None) -> int | None:
    own, whole = plan.options.task_bandwidth, plan.options.bandwidth
    share = max(whole // tasks, 1) if whole and tasks else None
    return min((limit for limit in (own, share) if limit), default=None)


def open_assembly(stores: StorePool, copy: TaskCopy) -> Assembly:
    """The staging that a task writes into.

    Raises:
        StagingLostError: another process has taken the copy over.
    """
    assembly = stores.get(copy.target.store).copying().assembly(copy.target.path, copy.token)
    assembly.join(copy.number)
    return assembly
