"""The instances to audit, with everything that the record has of them; storage is not read."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.context.operation import OperationContext
from feed_assets.instances.arrival.store_polls import find_records
from feed_assets.instances.attempts.copy_records import copy_of
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
from feed_assets.replication.scope import CopyScope, find_flows, is_due, source_of
from feed_assets.replication.status import UNSCHEDULED, has_been_there
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
class TargetCases:
    """One instance of a target with the copies that form it; `is_whole` says that the query omits none of them."""

    record: FeedRecord
    nominal_time: datetime
    cases: tuple[Case, ...]
    is_whole: bool


def find_cases(context: OperationContext, scope: CopyScope) -> list[TargetCases]:
    """Find every due instance in a range, and those of the targets that are not copied; by target, oldest first."""
    with context.read() as connection:
        found = [_find_on(context, connection, scope, target) for target in scope.targets]
    return [each for cases in found for each in cases]


def _find_on(context: OperationContext, connection: Connection, scope: CopyScope, target: str) -> list[TargetCases]:
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
        TargetCases(record=record, nominal_time=time, cases=tuple(cases[time]), is_whole=is_whole)
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
    assert active.record.copy is not None
    is_last = is_last_slice(connection, active.plan, active.record, time)
    return replace(active.record.copy.options, instance_flag=is_last)


def _others(active: ActiveRelease, time: datetime) -> tuple[CopyFilter, ...]:
    siblings = find_siblings(active.plan, active.record, time)
    return tuple(copy_filter(each.copy.options) for each in siblings if each.copy is not None)
