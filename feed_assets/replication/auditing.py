"""`replication verify`: compares source and target of the copies of a feed, by manifests or byte by byte. An instance
evicted at the target is not missing; one evicted at the source is not looked for there.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter

from sqlalchemy import Connection

from feed_assets.context.operation import OperationContext
from feed_assets.entities.copies.options import RemovedFiles
from feed_assets.errors import FeedAssetsError, render_some
from feed_assets.instances.arrival.store_polls import find_records
from feed_assets.instances.lists.ranges import join_consecutive, render_range
from feed_assets.json_form import Hidden, NominalTime, shown
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.leases import find_held
from feed_assets.log.records import (
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.log.run_names import is_dead_command
from feed_assets.plan.copy_records import CopyOptions
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.replication.flows import find_siblings, is_last_slice
from feed_assets.replication.queries import AuditQuery
from feed_assets.replication.status import (
    AT_ONCE,
    CopyRow,
    CopyScope,
    OnProgress,
    find_flows,
    find_rows,
    find_scope,
    has_been_there,
)
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.records import Availability
from feed_assets.timing.dates import render_datetime
from feed_assets.transfer.auditing import Audit, audit_copy
from feed_assets.transfer.plans import CopyFilter, Side, copy_filter, source_side, target_side

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One instance of a flow, with what the record says of it. `is_running`: a live run copies it now. `others` are the
    parts of the same target that other flows copy.
    """

    row: CopyRow
    is_running: bool
    options: CopyOptions
    others: tuple[CopyFilter, ...]

    @property
    def flow(self) -> ProcessRecord:
        """The flow, by the definitions that govern the instance."""
        return self.row.active.record

    @property
    def target(self) -> Side:
        """The location of the replica."""
        return target_side(self.row.active.plan.feeds[self.flow.outputs[0].feed_key], self.row.nominal_time)

    def source(self, context: OperationContext) -> Side | None:
        """Return the location of the source; None if retention has removed the instance there."""
        if self.row.at_source is not None and self.row.at_source.status is FeedInstanceStatus.EVICTED:
            return None
        key = self.flow.inputs[0].feed_key
        feed, time = self.row.active.plan.feeds[key], self.row.nominal_time
        return source_side(find_records(context, feed, [time])[time], time)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TargetCases:
    """One instance of a target with the copies that form it; `is_whole` says that the query omits none of them."""

    record: FeedRecord
    nominal_time: datetime
    cases: tuple[Case, ...]
    is_whole: bool


def _find_on(
    context: OperationContext, connection: Connection, scope: CopyScope, target: str
) -> Iterator[_TargetCases]:
    """Find every due instance of a target in a range, and those that are not copied; oldest first."""
    record = context.plan.feeds[scope.feed, target]
    flows = [flow for flow in scope.flows if flow.cluster == target]
    is_whole = len(flows) == sum(flow.cluster == target for flow in find_flows(context, scope.feed))
    cases: dict[datetime, list[Case]] = defaultdict(list)
    planned: set[datetime] = set()
    for flow in flows:
        rows = find_rows(context, connection, scope, flow)
        planned.update(row.nominal_time for row in rows)
        for case in _cases(context, connection, [row for row in rows if row.is_due]):
            cases[case.row.nominal_time].append(case)
    known = FeedInstances(connection)
    if record.is_expected:
        times: Iterable[datetime] = record.sequence.between(scope.start, scope.end)
    else:
        times = known.available_times(*record.key, scope.start, scope.end - _MOMENT)
    others = [time for time in times if time not in planned]
    standing = known.get_many([FeedKey(*record.key, time) for time in others])
    for time in others if is_whole else ():
        found = standing.get(FeedKey(*record.key, time))
        if found is None or found.status is not FeedInstanceStatus.EVICTED:
            cases[time] = []
    for time in sorted(cases):
        yield _TargetCases(record=record, nominal_time=time, cases=tuple(cases[time]), is_whole=is_whole)


def _cases(context: OperationContext, connection: Connection, due: Sequence[CopyRow]) -> Iterator[Case]:
    running = _find_running(context, connection, [row.run for row in due if row.run is not None])
    for row in due:
        plan, flow, time = row.active.plan, row.active.record, row.nominal_time
        is_last = is_last_slice(connection, plan, flow, time)
        yield Case(
            row=row,
            is_running=row.run is not None and row.run.key in running,
            options=replace(flow.copied.options, instance_flag=is_last),
            others=tuple(copy_filter(each.copied.options) for each in find_siblings(plan, flow, time)),
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
    found: list[VerifiedCopy] = []
    settled, size = 0, 0
    with ThreadPoolExecutor(THREADS, "verify") as pool:
        for part in scope.iter_slices(context, AT_ONCE):
            with context.read() as connection:
                cases = [each for target in part.targets for each in _find_on(context, connection, part, target)]
            for copies in pool.map(lambda each: _verify_one(context, each, query.deep), cases):
                size += sum(each.audit.read for each in copies if each.audit is not None)
                found += (each if each.verdict.is_finding else replace(each, case=None, audit=None) for each in copies)
                settled += 1
                if progress is not None:
                    progress("verify", settled, max(settled, total))
    found.sort(key=lambda each: (each.target, each.nominal_time))
    return Verified(scope=scope, is_deep=query.deep, copies=tuple(found), bytes=size)


def _verify_one(context: OperationContext, target: _TargetCases, deep: bool) -> list[VerifiedCopy]:
    """Verify all copies of one instance at a target."""
    found = [_verify_case(context, case, deep) for case in target.cases]
    is_foreign = target.is_whole and all(map(_is_foreign, found))
    extra = _find_extra(context, target) if is_foreign else None
    return found if extra is None else [extra]


def _is_foreign(copy: VerifiedCopy) -> bool:
    """Return whether nothing connects this copy with the content of the target, now or in the past."""
    if copy.verdict is not CopyVerdict.WAITING or copy.case is None:
        return False
    row = copy.case.row
    return row.copy is None and not has_been_there(row.at_source, row.source_events)


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


def _verify_case(context: OperationContext, case: Case, deep: bool) -> VerifiedCopy:
    """Verify one copy. It is UNKNOWN if a storage fails."""
    row = case.row
    copy = VerifiedCopy(
        source=row.source,
        target=row.target,
        nominal_time=row.nominal_time,
        verdict=CopyVerdict.UNKNOWN,
        status=row.status,
        case=case,
    )
    if row.at_target is not None and row.at_target.status is FeedInstanceStatus.EVICTED:
        return replace(copy, verdict=CopyVerdict.EVICTED)
    if case.is_running:
        return replace(copy, verdict=CopyVerdict.RUNNING)
    try:
        audit = audit_copy(
            context.stores,
            case.source(context),
            case.target,
            case.options,
            context.real_clock,
            deep=deep,
            is_new=row.at_target is None,
            others=case.others,
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
    target = case.row.at_target
    if case.row.copy is None or target is None or target.status is FeedInstanceStatus.MISSING:
        return CopyVerdict.UNRECORDED, "the record does not have it"
    return CopyVerdict.IN_SYNC, ""


def _decide_without_replica(case: Case, audit: Audit) -> tuple[CopyVerdict, str]:
    there = "the instance there was not copied from this source" if audit.is_there else "it does not exist"
    if audit.has_source:
        return CopyVerdict.MISSING, there
    if case.row.copy is not None:
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
