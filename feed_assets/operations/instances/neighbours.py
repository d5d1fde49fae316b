"""Which instances an instance reads, writes, is written by and is read by: Falcon's `dependency`.

Each process instance is asked through the definitions that govern it, so releases with other windows are met as well.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.lifecycle.governance import Governed
from feed_assets.lifecycle.input_states import input_states
from feed_assets.operations.consolidation import Consolidated, consolidate
from feed_assets.operations.instances.lifecycles import find_single
from feed_assets.operations.instances.ranges import Lifecycle
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import FeedRecord, InputEdge, Key, OutputEdge
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.windows import Window, parse_window

INPUT = "Input"
OUTPUT = "Output"
_OWN_TIME = parse_window("now(0,0)", "now(0,0)")


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourInstance:
    """An instance one step away. `tag` says whether the feed is input or output of the process, `by` its name there."""

    kind: Kind
    name: str
    cluster: str
    nominal_time: datetime
    tag: str
    by: str

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "kind": self.kind.value,
            "name": self.name,
            "cluster": self.cluster,
            "instance": render_datetime(self.nominal_time),
            "tags": [self.tag],
            "by": self.by,
        }


def find_dependencies(
    scene: Scene,
    kind: Kind,
    name: str,
    nominal_time: datetime,
    clusters: Iterable[str] = (),
    lifecycles: Collection[Lifecycle] = (),
) -> Consolidated[NeighbourInstance]:
    """What an instance depends on and what depends on it, one step away, on each of some clusters.

    Of a process: the instances of its inputs, optional ones included, and of its outputs; so of a copy the instances at
    source and target. Of a feed: the process instances and copies that write it, and those that read it. A cluster
    where the time is no instance fails without the others.

    Differs from Falcon: several producers of a feed are all found, exactly also across changes of the clock; `latest`
    and `future` are resolved as they were when the instance ran, or as they are now. Only what reads a feed through
    them is guessed, as in Falcon: as if they were `now(0,0)`.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the lifecycle is none of the entity's.
    """
    subjects = find_single(scene, kind, name, lifecycles, tuple(clusters) or None)
    with scene.read() as connection:

        def read(cluster: str) -> Sequence[NeighbourInstance]:
            found: list[NeighbourInstance] = []
            for subject in subjects.on(cluster):
                ask = _of_process if subject.kind is Kind.PROCESS else _of_feed
                found += ask(scene, connection, subject.name, cluster, nominal_time)
            return found

        return consolidate(subjects.clusters, read)


def _of_process(
    scene: Scene, connection: Connection, name: str, cluster: str, nominal_time: datetime
) -> Iterator[NeighbourInstance]:
    governed = scene.governed(connection, name, cluster, nominal_time)
    yield from _inputs(scene, connection, governed, nominal_time)
    yield from _outputs(governed, nominal_time)


def _of_feed(
    scene: Scene, connection: Connection, name: str, cluster: str, nominal_time: datetime
) -> Iterator[NeighbourInstance]:
    record = scene.feed_on(name, cluster)
    record.sequence.index(nominal_time)
    for _, written, time in iter_writers(scene, connection, record, nominal_time):
        yield _process(written, time, OUTPUT)
    for _, read, time in iter_readers(scene, connection, record, nominal_time):
        yield _process(read, time, INPUT)


def _inputs(
    scene: Scene, connection: Connection, governed: Governed, nominal_time: datetime
) -> Iterator[NeighbourInstance]:
    process = governed.record
    states = input_states(connection, governed.plan, process, [nominal_time], scene.as_of)[nominal_time]
    row = ProcessInstances(connection).get(*process.key, nominal_time)
    frozen = {entry.name: entry.nominal_times for entry in row.inputs} if row else {}
    for state in states:
        edge = state.edge
        times = frozen.get(edge.name) if edge.window.is_data_driven else None
        for time in times or state.expected or ():
            yield NeighbourInstance(
                kind=Kind.FEED, name=edge.feed, cluster=edge.feed_cluster, nominal_time=time, tag=INPUT, by=edge.name
            )


def _outputs(governed: Governed, nominal_time: datetime) -> Iterator[NeighbourInstance]:
    for edge in governed.record.outputs:
        time = governed.plan.output_time(edge, nominal_time)
        if time is not None:
            yield NeighbourInstance(
                kind=Kind.FEED, name=edge.feed, cluster=edge.cluster, nominal_time=time, tag=OUTPUT, by=edge.name
            )


def _process(edge: InputEdge | OutputEdge, time: datetime, tag: str) -> NeighbourInstance:
    return NeighbourInstance(
        kind=Kind.PROCESS, name=edge.process, cluster=edge.cluster, nominal_time=time, tag=tag, by=edge.name
    )


def iter_writers(
    scene: Scene, connection: Connection, record: FeedRecord, nominal_time: datetime
) -> Iterator[tuple[Governed, OutputEdge, datetime]]:
    """The process instances that write an instance of a feed, with the definitions that govern them."""
    for governed in _stretches(scene, connection, record, [edge.process_key for edge in record.outputs_of]):
        for edge in governed.record.outputs:
            if edge.feed_key == record.key:
                for time in _times(governed, record, edge.window, nominal_time):
                    yield governed, edge, time


def iter_readers(
    scene: Scene, connection: Connection, record: FeedRecord, nominal_time: datetime
) -> Iterator[tuple[Governed, InputEdge, datetime]]:
    """The process instances that read an instance of a feed, with the definitions that govern them."""
    for governed in _stretches(scene, connection, record, [edge.process_key for edge in record.inputs_of]):
        for edge in governed.record.inputs:
            if edge.feed_key == record.key:
                window = _OWN_TIME if edge.window.is_data_driven else edge.window
                for time in _times(governed, record, window, nominal_time):
                    yield governed, edge, time


def _stretches(
    scene: Scene, connection: Connection, record: FeedRecord, processes: Iterable[Key]
) -> Iterator[Governed]:
    """All that governs the processes that are declared to touch a feed now, or did by a release that still counts."""
    governance = scene.governance
    older = [*governance.older(record.cluster), *governance.older_readers(record.cluster)]
    for process in sorted({*processes, *(each.record.key for each in older)}):
        yield from governance.stretches(connection, process)


def _times(governed: Governed, record: FeedRecord, window: Window, nominal_time: datetime) -> Iterator[datetime]:
    """The instances of a stretch whose window has the feed's instance, as the feed is in that stretch."""
    feed = governed.plan.feeds.get(record.key)
    if feed is None or not feed.sequence.contains(nominal_time):
        return
    sequence = governed.record.sequence
    for index in window.consumers(feed.sequence.index(nominal_time), feed.sequence, sequence):
        time = sequence.at(index)
        if governed.contains(time):
            yield time
