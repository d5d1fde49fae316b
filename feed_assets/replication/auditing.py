"""`replication verify`: compares source and target of the copies of a feed, by manifests or byte by byte. An instance
evicted at the target is not missing; one evicted at the source is not looked for there.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from threading import Lock

from sqlalchemy import Connection

from feed_assets.context.operation import OperationContext
from feed_assets.entities.copies.options import RemovedFiles
from feed_assets.errors import FeedAssetsError, render_some
from feed_assets.instances.arrival.store_polls import find_records
from feed_assets.instances.attempts.copy_records import copy_of
from feed_assets.instances.lists.ranges import join_consecutive, render_range
from feed_assets.json_form import Hidden, NominalTime, shown
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import find_held
from feed_assets.log.records import (
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.log.run_names import is_dead_command
from feed_assets.plan.copy_records import CopyOptions
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.replication.flows import find_siblings, is_last_slice
from feed_assets.replication.queries import AuditQuery
from feed_assets.replication.status import (
    AT_ONCE,
    UNSCHEDULED,
    CopyScope,
    OnProgress,
    find_flows,
    find_scope,
    has_been_there,
    is_due,
    source_of,
)
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.records import Availability
from feed_assets.timing.dates import render_datetime
from feed_assets.transfer.auditing import Audit, audit_copy
from feed_assets.transfer.plans import CopyFilter, Side, copy_filter, source_side, target_side

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One instance of a flow. `is_running`: a live run copies it now. `is_known_source`: the source has the instance,
    or once had it. `others` are the parts of the same target that other flows copy.
    """

    active: ActiveRelease
    nominal_time: datetime
    run: ProcessInstance | None
    at_source: FeedInstance | None
    at_target: FeedInstance | None
    is_running: bool
    is_known_source: bool
    was_copied: bool
    options: CopyOptions
    others: tuple[CopyFilter, ...]

    @property
    def flow(self) -> ProcessRecord:
        """The flow, by the definitions that govern the instance."""
        return self.active.record

    @property
    def status(self) -> str:
        """The status of the flow's instance."""
        return self.run.status.value if self.run else UNSCHEDULED

    @property
    def is_evicted(self) -> bool:
        """Whether retention has removed the instance from the target."""
        return self.at_target is not None and self.at_target.status is FeedInstanceStatus.EVICTED

    @property
    def target(self) -> Side:
        """The location of the replica."""
        return target_side(self.active.plan.feeds[self.flow.outputs[0].feed_key], self.nominal_time)

    def source(self, context: OperationContext) -> Side | None:
        """Return the location of the source; None if retention has removed the instance there."""
        if self.at_source is not None and self.at_source.status is FeedInstanceStatus.EVICTED:
            return None
        key = self.flow.inputs[0].feed_key
        feed, time = self.active.plan.feeds[key], self.nominal_time
        return source_side(find_records(context.database, context.stores, feed, [time])[time], time)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TargetCases:
    """One instance of a target with the copies that form it; `is_whole` says that the query omits none of them."""

    record: FeedRecord
    nominal_time: datetime
    cases: tuple[Case, ...]
    is_whole: bool


def _find_cases(context: OperationContext, scope: CopyScope) -> list[_TargetCases]:
    """Find every due instance in a range, and those of the targets that are not copied; by target, oldest first."""
    with context.read() as connection:
        found = [_find_on(context, connection, scope, target) for target in scope.targets]
    return [each for cases in found for each in cases]


def _find_on(context: OperationContext, connection: Connection, scope: CopyScope, target: str) -> list[_TargetCases]:
    record = context.plan.feeds[scope.feed, target]
    flows = [flow for flow in scope.flows if flow.cluster == target]
    is_whole = len(flows) == sum(flow.cluster == target for flow in find_flows(context, scope.feed))
    cases: dict[datetime, list[Case]] = defaultdict(list)
    planned: set[datetime] = set()
    for flow in flows:
        pairs = list(scope.iter_governed(context, connection, flow))
        planned.update(time for _, time in pairs)
        due = [(active, time) for active, time in pairs if is_due(active, time, context.as_of)]
        for case in _cases(context, connection, scope.feed, flow, due):
            cases[case.nominal_time].append(case)
    known = FeedInstances(connection)
    if record.is_expected:
        times: Iterable[datetime] = record.sequence.between(scope.start, scope.end)
    else:
        times = known.available_times(*record.key, scope.start, scope.end - _MOMENT)
    others = [time for time in times if time not in planned]
    rows = known.get_many([FeedKey(*record.key, time) for time in others])
    for time in others if is_whole else ():
        row = rows.get(FeedKey(*record.key, time))
        if row is None or row.status is not FeedInstanceStatus.EVICTED:
            cases[time] = []
    return [
        _TargetCases(record=record, nominal_time=time, cases=tuple(cases[time]), is_whole=is_whole)
        for time in sorted(cases)
    ]


def _cases(
    context: OperationContext,
    connection: Connection,
    feed: str,
    flow: ProcessRecord,
    due: Sequence[tuple[ActiveRelease, datetime]],
) -> Iterator[Case]:
    source = source_of(flow)
    at_source = [FeedKey(feed, source, time) for _, time in due]
    at_target = [FeedKey(feed, flow.cluster, time) for _, time in due]
    rows = FeedInstances(connection).get_many([*at_source, *at_target])
    events = EventLog(connection).for_instances([*at_source, *at_target])
    runs = ProcessInstances(connection).get_many([ProcessKey(*flow.key, time) for _, time in due])
    running = _find_running(context, connection, runs.values())
    for (active, time), on_source, on_target in zip(due, at_source, at_target, strict=True):
        was_copied = copy_of(events.get(on_target, ()), flow.process) is not None
        yield Case(
            active=active,
            nominal_time=time,
            run=runs.get(ProcessKey(*flow.key, time)),
            at_source=rows.get(on_source),
            at_target=rows.get(on_target),
            is_running=ProcessKey(*flow.key, time) in running,
            is_known_source=was_copied or has_been_there(rows.get(on_source), events.get(on_source, ())),
            was_copied=was_copied,
            options=_options(connection, active, time),
            others=_others(active, time),
        )


def _find_running(
    context: OperationContext, connection: Connection, runs: Iterable[ProcessInstance]
) -> frozenset[ProcessKey]:
    """Return the instances whose worker still holds the lease; the workers of others have died."""
    found = [row.key for row in runs if row.status is ProcessInstanceStatus.RUNNING]
    keys = [(f"process/{key.process}", key.cluster, key.nominal_time) for key in found]
    leases = (lease for lease in find_held(connection, keys, context.real_now) if not is_dead_command(lease.holder))
    held = {(lease.entity, lease.cluster, lease.nominal_time) for lease in leases}
    return frozenset(key for key, lease in zip(found, keys, strict=True) if lease in held)


def _options(connection: Connection, active: ActiveRelease, time: datetime) -> CopyOptions:
    is_last = is_last_slice(connection, active.plan, active.record, time)
    return replace(active.record.copied.options, instance_flag=is_last)


def _others(active: ActiveRelease, time: datetime) -> tuple[CopyFilter, ...]:
    siblings = find_siblings(active.plan, active.record, time)
    return tuple(copy_filter(each.copied.options) for each in siblings)


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
            cases = _find_cases(context, part)
            for copies in pool.map(lambda each: list(_verify_one(context, each, query.deep, meter)), cases):
                found += (each if each.verdict.is_finding else replace(each, case=None, audit=None) for each in copies)
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


def _verify_one(context: OperationContext, target: _TargetCases, deep: bool, meter: _Meter) -> Iterator[VerifiedCopy]:
    """Verify all copies of one instance at a target."""
    found = [verify_case(context, case, deep=deep, on_bytes=meter.add) for case in target.cases]
    if target.is_whole and all(_is_foreign(each) for each in found):
        extra = _find_extra(context, target)
        found = [extra] if extra is not None else found
    yield from found


def _is_foreign(copy: VerifiedCopy) -> bool:
    """Return whether nothing connects this copy with the content of the target, now or in the past."""
    return copy.verdict is CopyVerdict.WAITING and copy.case is not None and not copy.case.is_known_source


def _find_extra(context: OperationContext, target: _TargetCases) -> VerifiedCopy | None:
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
