"""`params` and `logs`: with what an instance runs or has run, and where to read how it went."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.engines.port import InputData, InputInstance
from feed_assets.lifecycle.governance import Governed
from feed_assets.lifecycle.job_properties import job_properties, text_context, with_inputs, with_overrides
from feed_assets.lifecycle.run_names import origin_of
from feed_assets.lifecycle.work_data import input_data, output_target, table_partition
from feed_assets.operations.consolidation import Consolidated, Result, consolidate
from feed_assets.operations.instances.lifecycles import find_work
from feed_assets.operations.instances.queries import VERSION, list_instances
from feed_assets.operations.instances.ranges import InstanceQuery, Lifecycle
from feed_assets.operations.instances.rows import InstanceRow, attempt_row, rendered
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import InputEdge
from feed_assets.state.attempts import Attempts
from feed_assets.state.event_log import EventLog
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import Attempt, FeedEvent, FeedEventKind, ProcessInstance, ProcessKey
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.text import render_text


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceParams:
    """What the work of one process instance is told. Empty while it waits: its inputs are not settled then."""

    process: str
    cluster: str
    nominal_time: datetime
    status: str
    properties: Mapping[str, str]
    arguments: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {
            "name": self.process,
            "cluster": self.cluster,
            "instance": render_datetime(self.nominal_time),
            "status": self.status,
            "params": dict(self.properties),
            "arguments": list(self.arguments),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One step of an attempt: the work itself, or the publication of an output."""

    name: str
    status: str
    ended_at: datetime | None
    log: str | None

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {"action": self.name, "status": self.status, "endTime": rendered(self.ended_at), "log": self.log}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLog:
    """One attempt at an instance, or an instance without any, with its steps."""

    row: InstanceRow
    actions: tuple[Action, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {**self.row.to_json(), "actions": [action.to_json() for action in self.actions]}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLogs:
    """The logs of a page of instances."""

    result: Result
    message: str
    instances: tuple[InstanceLog, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "status": self.result.value,
            "message": self.message,
            "instances": [each.to_json() for each in self.instances],
        }


def find_params(
    scene: Scene, name: str, nominal_time: datetime, clusters: Sequence[str], lifecycles: Collection[Lifecycle] = ()
) -> Consolidated[InstanceParams]:
    """What the instance of a process, or each copy of a feed's, is told on each of some clusters; paths of outputs are
    where they are published.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: nothing works on its instances, or the lifecycle is another one.
    """
    subjects = find_work(scene, name, lifecycles, clusters or None)
    with scene.read() as connection:

        def read(cluster: str) -> Sequence[InstanceParams]:
            governed = [scene.governed(connection, each.name, cluster, nominal_time) for each in subjects.on(cluster)]
            return [_params(scene, connection, each, nominal_time) for each in governed]

        return consolidate(subjects.clusters, read)


def _params(scene: Scene, connection: Connection, governed: Governed, nominal_time: datetime) -> InstanceParams:
    process, plan = governed.record, governed.plan
    row = ProcessInstances(connection).get(*process.key, nominal_time)
    status = row.status.value if row else "UNSCHEDULED"
    if row is None or not row.attempt:
        return InstanceParams(
            process=process.process,
            cluster=process.cluster,
            nominal_time=nominal_time,
            status=status,
            properties={},
            arguments=(),
        )
    process = with_overrides(process, row.overrides)
    data = [_input_data(scene, governed, edge, row) for edge in process.inputs]
    context = with_inputs(text_context(plan, process, nominal_time), data)
    outputs = [
        output_target(edge.name, record, time, scene.feed_url(record, time))
        for edge in process.outputs
        if (time := plan.output_time(edge, nominal_time)) is not None and (record := plan.feeds[edge.feed_key])
    ]
    return InstanceParams(
        process=process.process,
        cluster=process.cluster,
        nominal_time=nominal_time,
        status=status,
        properties=job_properties(process, context, data, outputs),
        arguments=tuple(render_text(text, context) for text in process.workflow.args) if process.workflow else (),
    )


def _input_data(scene: Scene, governed: Governed, edge: InputEdge, row: ProcessInstance) -> InputData:
    """An input as the newest attempt had it, newest instance first as in Falcon."""
    record = governed.plan.feeds[edge.feed_key]
    times = next((frozen.nominal_times for frozen in row.inputs if frozen.name == edge.name), ())
    context = text_context(governed.plan, governed.record, row.nominal_time)
    instances = (
        InputInstance(nominal_time=time, url=scene.feed_url(record, time), partition=table_partition(record, time))
        for time in reversed(times)
    )
    return input_data(edge, record, instances, context)


def find_logs(scene: Scene, query: InstanceQuery, attempt: int | None = None) -> InstanceLogs:
    """Where to read how the instances of a range went: of their newest attempt, or of attempt number `attempt`.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the range makes no sense.
    """
    page = list_instances(scene, query)
    with scene.read() as connection:
        keys = [ProcessKey(row.name, row.cluster, row.nominal_time) for row in page.instances]
        attempts = Attempts(connection).of_many(keys)
        logs = [
            InstanceLog(row=row, actions=())
            if chosen is None
            else InstanceLog(row=attempt_row(scene, row, chosen), actions=_actions(scene, connection, chosen))
            for row, key in zip(page.instances, keys, strict=True)
            if (chosen := _choose(attempts.get(key, ()), attempt)) is not None or attempt is None
        ]
    return InstanceLogs(result=page.result, message=page.message, instances=tuple(logs))


def _choose(attempts: Sequence[Attempt], number: int | None) -> Attempt | None:
    """The attempt with a number, or the newest one."""
    wanted = [each for each in attempts if number is None or each.attempt == number]
    return wanted[-1] if wanted else None


def _actions(scene: Scene, connection: Connection, attempt: Attempt) -> tuple[Action, ...]:
    """The work, and the outputs that it has published."""
    log = scene.run_url(attempt.run_id)
    actions = [Action(name=attempt.process, status=attempt.status.value, ended_at=attempt.ended_at, log=log)]
    governed = scene.governance.find(connection, (attempt.process, attempt.cluster), attempt.nominal_time)
    for edge in governed.record.outputs if governed else ():
        assert governed is not None
        time = governed.plan.output_time(edge, attempt.nominal_time)
        events = [] if time is None else EventLog(connection).for_instance(edge.feed, edge.cluster, time)
        actions.extend(
            Action(name=f"{attempt.process}/{edge.name}", status=event.kind.value, ended_at=event.recorded_at, log=log)
            for event in events
            if event.kind in (FeedEventKind.PRODUCED, FeedEventKind.REPLICATED) and _is_of(event, attempt)
        )
    return tuple(actions)


def _is_of(event: FeedEvent, attempt: Attempt) -> bool:
    return event.origin == origin_of(attempt.run_id or "") and event.payload.get("attempt") == attempt.attempt
