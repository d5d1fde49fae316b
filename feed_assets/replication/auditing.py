"""`replication verify`: compares source and target of the copies of a feed, by manifests or byte by byte. An instance
evicted at the target is not missing; one evicted at the source is not looked for there.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from threading import Lock
from typing import Self

from feed_assets.context.operation import OperationContext
from feed_assets.entities.copies.options import RemovedFiles
from feed_assets.errors import FeedAssetsError, render_some
from feed_assets.instances.lists.ranges import join_consecutive, render_range
from feed_assets.json_form import Hidden, NominalTime, shown
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.replication.cases import Case, TargetCases, find_cases
from feed_assets.replication.queries import AuditQuery
from feed_assets.replication.scope import AT_ONCE, CopyScope, OnProgress, find_scope, source_of
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.records import Availability
from feed_assets.timing.dates import render_datetime
from feed_assets.transfer.auditing import Audit, audit_copy

THREADS = 8


class CopyVerdict(StrEnum):
    """The verdict on a replica.

    MISSING: the source has the instance, or it was copied once, but the target lacks it. ROTTEN: files are lost, or
    differ from their manifest. EXTRA: a file or the whole instance was not brought by any copy. BEHIND: the source has
    changed since. UNRECORDED: the target has the instance, but the record does not. UNKNOWN: a storage failed. KEPT:
    the source no longer has the instance. WAITING: the source does not have it yet. RUNNING: it is being copied.
    """

    MISSING = "missing"
    ROTTEN = "rotten"
    EXTRA = "extra"
    BEHIND = "behind"
    UNRECORDED = "unrecorded"
    UNKNOWN = "unknown"
    IN_SYNC = "in sync"
    KEPT = "kept"
    EVICTED = "evicted"
    WAITING = "waiting"
    RUNNING = "running"

    @property
    def is_finding(self) -> bool:
        """Whether the verdict is a problem."""
        return self in _FINDINGS


_FINDINGS = frozenset(
    {
        CopyVerdict.MISSING,
        CopyVerdict.ROTTEN,
        CopyVerdict.EXTRA,
        CopyVerdict.BEHIND,
        CopyVerdict.UNRECORDED,
        CopyVerdict.UNKNOWN,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedCopy:
    """The verdict on one replica. `source` is None for an instance that is not copied. `case` has the facts of the
    record and `audit` those of storage; None if that was not read, and for replicas without problems.
    """

    source: str | None
    target: str
    nominal_time: NominalTime
    verdict: CopyVerdict
    status: str | None = None
    reason: str = ""
    case: Hidden[Case | None] = None
    audit: Hidden[Audit | None] = None

    def without_facts(self) -> Self:
        """Return the verdict alone, which takes little memory."""
        return replace(self, case=None, audit=None)

    @shown
    def files(self) -> dict[str, tuple[str, ...]]:
        """The files with problems, by problem."""
        names = ("lost", "rotten", "extra", "behind", "removed")
        found: dict[str, tuple[str, ...]] = {name: getattr(self.audit, name) for name in names} if self.audit else {}
        return {name: paths for name, paths in found.items() if paths}


_CELLS = attrgetter("source", "target", "verdict", "status", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The verdicts on the nominal times of `scope`; `bytes` were read for them."""

    scope: CopyScope
    is_deep: bool
    copies: tuple[VerifiedCopy, ...]
    bytes: int

    @property
    def findings(self) -> tuple[VerifiedCopy, ...]:
        """The copies with problems."""
        return tuple(each for each in self.copies if each.verdict.is_finding)

    @shown
    def counts(self) -> Mapping[CopyVerdict, int]:
        """The number of copies by verdict."""
        found = Counter(each.verdict for each in self.copies)
        return {verdict: found[verdict] for verdict in CopyVerdict if found[verdict]}

    @property
    def ranges(self) -> tuple[tuple[str | None, ...], ...]:
        """Source, target, instance, verdict, status and reason; those of consecutive instances are one row."""
        sequences = {flow.cluster: flow.sequence for flow in self.scope.flows}
        found = join_consecutive((each.nominal_time, sequences.get(each.target), _CELLS(each)) for each in self.copies)
        return tuple((*cells[:2], render_range(first, last), *cells[2:]) for first, last, cells in found)

    @property
    def has_failed(self) -> bool:
        """Whether there are findings."""
        return bool(self.findings)

    @property
    def summary(self) -> str:
        """What was compared, and the findings."""
        found = ", ".join(f"{count} {verdict.value}" for verdict, count in self.counts.items()) or "nothing to compare"
        span = f"{render_datetime(self.scope.start)} to {render_datetime(self.scope.end)}"
        read = f"; {self.bytes:,} bytes read" if self.is_deep else ""
        return f"feed {self.scope.feed!r}, {span}: {found}{read}"


def verify(context: OperationContext, query: AuditQuery, *, progress: OnProgress | None = None) -> Verified:
    """Compare the replicas of a range with their manifests and with their sources; by target, oldest first.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: the feed has no such copies, or the range is invalid.
    """
    scope = find_scope(context, query, query.results)
    total = scope.count_instances(context)
    meter = _Meter()
    found: list[VerifiedCopy] = []
    settled = 0
    with ThreadPoolExecutor(THREADS, "verify") as pool:
        for part in scope.iter_slices(context, AT_ONCE):
            cases = find_cases(context, part)
            for copies in pool.map(lambda each: list(_verify_one(context, each, query.deep, meter)), cases):
                found += (each if each.verdict.is_finding else each.without_facts() for each in copies)
                settled += 1
                if progress is not None:
                    progress("verify", settled, max(settled, total))
    found.sort(key=lambda each: (each.target, each.nominal_time))
    return Verified(scope=scope, is_deep=query.deep, copies=tuple(found), bytes=meter.bytes)


class _Meter:
    """Adds up the bytes that threads read."""

    def __init__(self) -> None:
        self.bytes = 0
        self._mutex = Lock()

    def add(self, size: int) -> None:
        with self._mutex:
            self.bytes += size


def _verify_one(context: OperationContext, target: TargetCases, deep: bool, meter: _Meter) -> Iterator[VerifiedCopy]:
    """Verify all copies of one instance at a target."""
    found = [verify_case(context, case, deep=deep, on_bytes=meter.add) for case in target.cases]
    if target.is_whole and all(_is_foreign(each) for each in found):
        extra = _find_extra(context, target)
        found = [extra] if extra is not None else found
    yield from found


def _is_foreign(copy: VerifiedCopy) -> bool:
    """Return whether nothing connects this copy with the content of the target, now or in the past."""
    return copy.verdict is CopyVerdict.WAITING and copy.case is not None and not copy.case.is_known_source


def _find_extra(context: OperationContext, target: TargetCases) -> VerifiedCopy | None:
    """Return an instance of the target that no source has or ever had."""
    record = target.record
    copy = VerifiedCopy(
        source=None,
        target=record.cluster,
        nominal_time=target.nominal_time,
        verdict=CopyVerdict.EXTRA,
        reason="no source has it, or ever had",
    )
    try:
        (look,) = context.stores.get(record.store).look([record.path(target.nominal_time)], None)
    except FeedAssetsError as exc:
        return replace(copy, verdict=CopyVerdict.UNKNOWN, reason=str(exc))
    if look.obstacle is not None:
        return replace(copy, verdict=CopyVerdict.UNKNOWN, reason=look.obstacle)
    return None if look.availability is Availability.MISSING else copy


def verify_case(
    context: OperationContext,
    case: Case,
    *,
    deep: bool = False,
    on_bytes: Callable[[int], None] | None = None,
) -> VerifiedCopy:
    """Verify one copy. It is UNKNOWN if a storage fails."""
    copy = VerifiedCopy(
        source=source_of(case.flow),
        target=case.flow.cluster,
        nominal_time=case.nominal_time,
        verdict=CopyVerdict.UNKNOWN,
        status=case.status,
        case=case,
    )
    if case.is_evicted or case.is_running:
        return replace(copy, verdict=CopyVerdict.EVICTED if case.is_evicted else CopyVerdict.RUNNING)
    try:
        audit = audit_copy(
            context.stores,
            case.source(context),
            case.target,
            case.options,
            context.real_clock,
            deep=deep,
            is_new=case.at_target is None,
            others=case.others,
            on_bytes=on_bytes,
        )
    except InstanceNotFoundError as exc:  # removed since it was listed
        return replace(copy, verdict=CopyVerdict.MISSING, reason=str(exc))
    except FeedAssetsError as exc:
        return replace(copy, reason=str(exc))
    verdict, reason = decide_verdict(case, audit)
    told = "; ".join(filter(None, [reason, _describe_others(audit)]))
    return replace(copy, verdict=verdict, reason=told, audit=audit)


def decide_verdict(case: Case, audit: Audit) -> tuple[CopyVerdict, str]:
    """Decide the verdict on a replica, with a description."""
    if audit.replica is None and not audit.rotten:
        return _decide_without_replica(case, audit)
    wrong = _describe({"lost": audit.lost, "rotten": audit.rotten})
    extra = () if case.options.removed_files is RemovedFiles.KEEP else audit.extra
    if wrong:
        return CopyVerdict.ROTTEN, "; ".join(filter(None, [wrong, _describe({"extra": extra})]))
    if extra:
        return CopyVerdict.EXTRA, _describe({"extra": extra})
    if not audit.has_source:
        return CopyVerdict.KEPT, _describe_source(audit) or "retention has evicted it at the source"
    if audit.behind or audit.removed:
        names = {"different at the source": audit.behind, "no longer at the source": audit.removed}
        return CopyVerdict.BEHIND, _describe(names)
    if not case.was_copied or case.at_target is None or case.at_target.status is FeedInstanceStatus.MISSING:
        return CopyVerdict.UNRECORDED, "the record does not have it"
    return CopyVerdict.IN_SYNC, ""


def _decide_without_replica(case: Case, audit: Audit) -> tuple[CopyVerdict, str]:
    there = "the instance there was not copied from this source" if audit.is_there else "it does not exist"
    if audit.has_source:
        return CopyVerdict.MISSING, there
    if case.was_copied:
        return CopyVerdict.MISSING, f"{there}, and the source no longer has it"
    return CopyVerdict.WAITING, _describe_source(audit)


def _describe_source(audit: Audit) -> str:
    """Return why there is nothing to copy, alike for all instances of which the source lacks the same."""
    return f"the source is {audit.source_state}" if audit.source_state else audit.reason


def _describe_others(audit: Audit) -> str:
    """Return what of the source cannot be copied."""
    others = audit.plan.survey.others if audit.plan is not None else ()
    return f"not copied, since no file: {render_some(others, 3)}" if others else ""


def _describe(files: Mapping[str, tuple[str, ...]]) -> str:
    """Return the number of files by problem, with the names of some.

    >>> _describe({"lost": ("a", "b"), "rotten": ()})
    '2 lost (a, b)'
    """
    return ", ".join(f"{len(paths)} {what} ({render_some(paths, 3)})" for what, paths in files.items() if paths)
