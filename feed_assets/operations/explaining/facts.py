"""What the record knows of an instance and of everything upstream that it may hang on, read level by level.

A level is the instances that are one step further up; each costs a few statements, however many instances it has.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from sqlalchemy import Connection

from feed_assets.entities.declaring import declared_by
from feed_assets.lifecycle.blockers import Launches
from feed_assets.lifecycle.governance import Governed
from feed_assets.lifecycle.input_states import InputState, closed_gates, input_states_many
from feed_assets.lifecycle.requests import INSTANCES_A_RUN, group_ready
from feed_assets.operations.instances.neighbours import iter_writers
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import Key
from feed_assets.state.definition_records import Schedule, ScheduleState
from feed_assets.state.event_log import EventLog
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.leases import find_held
from feed_assets.state.looks import Looks
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import (
    EntityKey,
    FeedEvent,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    FrontierKind,
    Lease,
    PlannedLook,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.state.schedules import Schedules

K = TypeVar("K", ProcessKey, FeedKey)

FOLLOWED_AN_INPUT = 5
FOLLOWED_AN_INSTANCE = 40
DEEPEST = 25
MOST_INSTANCES = 400

_GATED = frozenset({ProcessInstanceStatus.WAITING, ProcessInstanceStatus.SUSPENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """One process instance. `states` is empty where its gate does not matter any more; `next_time` is where the walk of
    the process stands; `launches` is None where its turn has not come into question.
    """

    row: ProcessInstance | None
    governed: Governed | None
    states: tuple[InputState, ...]
    schedule: ScheduleState
    next_time: datetime | None
    launches: Launches | None
    leases: tuple[Lease, ...]

    @property
    def followed(self) -> int:
        """How many missing instances of each input are followed: the more inputs lack some, the fewer of each."""
        lacking = len(closed_gates(self.states))
        return max(1, min(FOLLOWED_AN_INPUT, FOLLOWED_AN_INSTANCE // lacking)) if lacking else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedFacts:
    """One feed instance. `writers` are the process instances that write it."""

    row: FeedInstance | None
    look: PlannedLook | None
    events: tuple[FeedEvent, ...]
    writers: tuple[ProcessKey, ...]


@dataclass(slots=True)
class Dossier:
    """All that was read; an instance that is not in it was too far up, or one too many."""

    processes: dict[ProcessKey, ProcessFacts] = field(default_factory=dict)
    feeds: dict[FeedKey, FeedFacts] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many instances it has."""
        return len(self.processes) + len(self.feeds)


def load_dossier(
    scene: Scene, connection: Connection, *, process: ProcessKey | None = None, feed: FeedKey | None = None
) -> Dossier:
    """Read about an instance and what is upstream of it."""
    dossier = Dossier()
    processes = [process] if process else []
    feeds = [feed] if feed else []
    for depth in range(DEEPEST):
        dossier.processes |= _process_facts(scene, connection, processes, is_first=depth == 0)
        wanted = [*feeds, *(key for each in processes for key in missing_inputs(dossier.processes[each]))]
        feeds = _unknown(wanted, dossier.feeds, dossier)
        dossier.feeds |= _feed_facts(scene, connection, feeds)
        processes = _unknown(
            [writer for key in feeds for writer in dossier.feeds[key].writers], dossier.processes, dossier
        )
        feeds = []
        if not processes:
            break
    return dossier


def _unknown(keys: Sequence[K], known: Collection[K], dossier: Dossier) -> list[K]:
    return [key for key in dict.fromkeys(keys) if key not in known][: max(0, MOST_INSTANCES - dossier.size)]


def missing_inputs(facts: ProcessFacts) -> Iterator[FeedKey]:
    """The first missing instances of each input that keeps the gate closed."""
    followed = facts.followed
    for state in closed_gates(facts.states):
        for time in state.missing[:followed]:
            yield FeedKey(*state.edge.feed_key, time)


def _process_facts(
    scene: Scene, connection: Connection, keys: Sequence[ProcessKey], *, is_first: bool
) -> dict[ProcessKey, ProcessFacts]:
    if not keys:
        return {}
    rows = ProcessInstances(connection).get_many(keys)
    governed = {
        key: scene.governance.find_or_present(connection, (key.process, key.cluster), key.nominal_time) for key in keys
    }
    states = _states(scene, connection, [key for key in keys if key not in rows or rows[key].status in _GATED])
    owners = {key.process: declared_by(key.process) for key in keys}
    schedules: dict[tuple[str, str, str], Schedule] = {}
    for kind in {kind for kind, _ in owners.values()}:
        names = sorted({name for each, name in owners.values() if each is kind})
        schedules |= Schedules(connection).of_many(kind, names)
    leases = _leases(scene, connection, governed)
    launches = _launches(scene, connection, {key for key in keys if is_first or _is_ready(rows.get(key))})
    found = {}
    for key in keys:
        row, schedule = rows.get(key), schedules.get((*owners[key.process], key.cluster))
        frontier = None if row else Frontiers(connection).get(FrontierKind.PROCESS, key.process, key.cluster)
        found[key] = ProcessFacts(
            row=row,
            governed=governed[key],
            states=states.get(key, ()),
            schedule=schedule.state if schedule else scene.without_row,
            next_time=frontier.next_time if frontier else None,
            launches=launches.get((key.process, key.cluster)),
            leases=tuple(leases.get(key, ())),
        )
    return found


def _is_ready(row: ProcessInstance | None) -> bool:
    return row is not None and row.status is ProcessInstanceStatus.READY


def _states(
    scene: Scene, connection: Connection, keys: Sequence[ProcessKey]
) -> dict[ProcessKey, tuple[InputState, ...]]:
    times: dict[Key, list[datetime]] = defaultdict(list)
    for key in keys:
        times[key.process, key.cluster].append(key.nominal_time)
    return {
        ProcessKey(*key, time): states
        for plan, wanted in scene.governance.group(connection, times)
        for key, by_time in input_states_many(connection, plan, wanted, scene.as_of).items()
        for time, states in by_time.items()
    }


def _launches(scene: Scene, connection: Connection, keys: Collection[ProcessKey]) -> dict[Key, Launches]:
    instances = ProcessInstances(connection)
    processes = sorted({(key.process, key.cluster) for key in keys})
    in_flight = instances.in_flight(processes)
    found: dict[Key, Launches] = {}
    for key in processes:
        process = scene.plan.processes.get(key)
        if process is None:
            continue
        limit = 2 * process.parallel * INSTANCES_A_RUN
        rows = instances.with_status(ProcessInstanceStatus.READY, *key, limit=limit)
        times = [row.nominal_time for row in rows if row.request_key is None]
        declared = [time for time in times if scene.governance.find(connection, key, time) is not None]
        found[key] = Launches(
            ready=tuple(group_ready(connection, scene.governance, key, declared)),
            in_flight=in_flight.get(EntityKey(*key), 0),
        )
    return found


def _leases(
    scene: Scene, connection: Connection, governed: dict[ProcessKey, Governed | None]
) -> dict[ProcessKey, list[Lease]]:
    """Who works on the instances or on what they write, by instance."""
    wanted: dict[tuple[str, str, datetime], list[ProcessKey]] = defaultdict(list)
    for key, stretch in governed.items():
        wanted[f"process/{key.process}", key.cluster, key.nominal_time].append(key)
        for edge in stretch.record.outputs if stretch else ():
            time = stretch.plan.output_time(edge, key.nominal_time) if stretch else None
            if time is not None:
                wanted[f"feed/{edge.feed}", key.cluster, time].append(key)
    found: dict[ProcessKey, list[Lease]] = defaultdict(list)
    for lease in find_held(connection, wanted, scene.wall):
        for key in wanted[lease.entity, lease.cluster, lease.nominal_time]:
            found[key].append(lease)
    return found


def _feed_facts(scene: Scene, connection: Connection, keys: Sequence[FeedKey]) -> dict[FeedKey, FeedFacts]:
    if not keys:
        return {}
    rows = FeedInstances(connection).get_many(keys)
    looks = Looks(connection).find_many(keys)
    events = EventLog(connection).for_instances(keys)
    return {
        key: FeedFacts(
            row=rows.get(key),
            look=looks.get(key),
            events=tuple(events.get(key, ())),
            writers=tuple(_writers(scene, connection, key)) if _is_awaited(rows.get(key)) else (),
        )
        for key in keys
    }


def _is_awaited(row: FeedInstance | None) -> bool:
    return row is None or row.status is not FeedInstanceStatus.AVAILABLE


def _writers(scene: Scene, connection: Connection, key: FeedKey) -> Iterator[ProcessKey]:
    record = scene.plan.feeds.get((key.feed, key.cluster))
    if record is not None:
        for _, edge, time in iter_writers(scene, connection, record, key.nominal_time):
            yield ProcessKey(edge.process, key.cluster, time)
