"""The instances that an audit looks at, with all that the record has of them; storage is asked of none of them here."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.lifecycle.governance import Governed
from feed_assets.lifecycle.places import Places, find_place, other_places
from feed_assets.lifecycle.replication.filters import CopyFilter
from feed_assets.lifecycle.replication.flows import find_siblings, is_last_slice, source_side, target_side
from feed_assets.lifecycle.replication.plans import Side, copy_filter
from feed_assets.lifecycle.run_names import is_dead_command
from feed_assets.operations.replication.scope import CopyScope, find_flows, is_due, source_of
from feed_assets.operations.replication.status import UNSCHEDULED, copy_of, has_been_there
from feed_assets.operations.scene import Scene
from feed_assets.plan.copy_options import CopyOptions
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.leases import find_held
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One instance of a flow. `is_running`: somebody who is alive copies it now. `is_known_source`: the source has it,
    or had it once. `others` are the parts of the same target that other flows bring.
    """

    governed: Governed
    places: Places
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
        return self.governed.record

    @property
    def status(self) -> str:
        """That of the flow's instance."""
        return self.run.status.value if self.run else UNSCHEDULED

    @property
    def is_evicted(self) -> bool:
        """Whether retention has taken it away from the target."""
        return self.at_target is not None and self.at_target.status is FeedInstanceStatus.EVICTED

    @property
    def target(self) -> Side:
        """Where the replica should be."""
        return target_side(self.governed.plan.feeds[self.flow.outputs[0].feed_key], self.nominal_time)

    def source(self, scene: Scene) -> Side | None:
        """What was copied; None if retention has taken it away."""
        if self.at_source is not None and self.at_source.status is FeedInstanceStatus.EVICTED:
            return None
        key = self.flow.inputs[0].feed_key
        record = find_place(scene.stores, self.governed.plan.feeds[key], self.places.get(key, ()), self.nominal_time)
        return source_side(record, self.nominal_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCases:
    """One instance of a target with the copies that it is made of; `is_whole` says that none of them is left out."""

    record: FeedRecord
    nominal_time: datetime
    cases: tuple[Case, ...]
    is_whole: bool


def find_cases(scene: Scene, scope: CopyScope) -> list[TargetCases]:
    """Every instance in a range that is to be copied by now, and those of the targets that nobody copies; by target,
    oldest first.
    """
    with scene.read() as connection:
        found = [_find_on(scene, connection, scope, target) for target in scope.targets]
    return [each for cases in found for each in cases]


def _find_on(scene: Scene, connection: Connection, scope: CopyScope, target: str) -> list[TargetCases]:
    record = scene.plan.feeds[scope.feed, target]
    wanted = [flow for flow in scope.flows if flow.cluster == target]
    is_whole = len(wanted) == sum(flow.cluster == target for flow in find_flows(scene, scope.feed))
    cases: dict[datetime, list[Case]] = defaultdict(list)
    planned: set[datetime] = set()
    for flow in wanted:
        pairs = list(scope.iter_governed(scene, connection, flow))
        planned.update(time for _, time in pairs)
        due = [(governed, time) for governed, time in pairs if is_due(governed, time, scene.as_of)]
        for case in _cases(scene, connection, scope.feed, flow, due):
            cases[case.nominal_time].append(case)
    others = [time for time in record.sequence.between(scope.start, scope.stop) if time not in planned]
    rows = FeedInstances(connection).get_many([FeedKey(*record.key, time) for time in others])
    for time in others if is_whole else ():
        row = rows.get(FeedKey(*record.key, time))
        if row is None or row.status is not FeedInstanceStatus.EVICTED:
            cases[time] = []
    return [
        TargetCases(record=record, nominal_time=time, cases=tuple(cases[time]), is_whole=is_whole)
        for time in sorted(cases)
    ]


def _cases(
    scene: Scene,
    connection: Connection,
    feed: str,
    flow: ProcessRecord,
    due: Sequence[tuple[Governed, datetime]],
) -> Iterator[Case]:
    source = source_of(flow)
    at_source = [FeedKey(feed, source, time) for _, time in due]
    at_target = [FeedKey(feed, flow.cluster, time) for _, time in due]
    rows = FeedInstances(connection).get_many([*at_source, *at_target])
    events = EventLog(connection).for_instances([*at_source, *at_target])
    runs = ProcessInstances(connection).get_many([ProcessKey(*flow.key, time) for _, time in due])
    running = _find_running(scene, connection, runs.values())
    places: dict[int, Places] = {}
    for (governed, time), on_source, on_target in zip(due, at_source, at_target, strict=True):
        if id(governed) not in places:
            places[id(governed)] = other_places(connection, scene.governance, governed)
        was_copied = copy_of(events.get(on_target, ()), flow.process) is not None
        yield Case(
            governed=governed,
            places=places[id(governed)],
            nominal_time=time,
            run=runs.get(ProcessKey(*flow.key, time)),
            at_source=rows.get(on_source),
            at_target=rows.get(on_target),
            is_running=ProcessKey(*flow.key, time) in running,
            is_known_source=was_copied or has_been_there(rows.get(on_source), events.get(on_source, ())),
            was_copied=was_copied,
            options=_options(connection, governed, time),
            others=_others(governed, time),
        )


def _find_running(scene: Scene, connection: Connection, runs: Iterable[ProcessInstance]) -> frozenset[ProcessKey]:
    """Those of the instances on which somebody works who still holds the lease; others have died at it."""
    found = [row.key for row in runs if row.status is ProcessInstanceStatus.RUNNING]
    keys = [(f"process/{key.process}", key.cluster, key.nominal_time) for key in found]
    leases = (lease for lease in find_held(connection, keys, scene.wall) if not is_dead_command(lease.holder))
    held = {(lease.entity, lease.cluster, lease.nominal_time) for lease in leases}
    return frozenset(key for key, lease in zip(found, keys, strict=True) if lease in held)


def _options(connection: Connection, governed: Governed, time: datetime) -> CopyOptions:
    assert governed.record.copy is not None
    is_last = is_last_slice(connection, governed.plan, governed.record, time)
    return replace(governed.record.copy.options, instance_flag=is_last)


def _others(governed: Governed, time: datetime) -> tuple[CopyFilter, ...]:
    siblings = find_siblings(governed.plan, governed.record, time)
    return tuple(copy_filter(each.copy.options) for each in siblings if each.copy is not None)
