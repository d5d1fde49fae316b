"""`params`, `logs` and `steps`: the parameters of an instance's work, the links to its logs, and the steps of its
attempts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.context.consolidation import Consolidated, consolidate
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.engines.port import InputData, InputInstance
from feed_assets.entities.workflow import Workflow
from feed_assets.instances.attempts.work_data import (
    input_data,
    job_properties,
    output_target,
    table_partition,
    text_context,
    with_inputs,
    with_overrides,
)
from feed_assets.instances.lists.lifecycles import find_work
from feed_assets.instances.lists.queries import InstancePage, list_instances
from feed_assets.instances.lists.ranges import InstanceQuery
from feed_assets.instances.lists.rows import Action, InstanceRow, rows_of_attempts
from feed_assets.instances.steps.frames import StepResult
from feed_assets.instances.steps.records import StepRun, StepStatus
from feed_assets.instances.steps.store import Steps
from feed_assets.json_form import Hidden, NominalTime, shown, shows
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Attempt, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import InputEdge
from feed_assets.plan.rendering import counted
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.text import render_text

LEFT_OUT = "LEFT_OUT"
"""The status of an optional output that a successful attempt has not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceParams:
    """The parameters of the work on one process instance. Empty while it waits: its inputs are not frozen then."""

    name: str
    cluster: str
    nominal_time: NominalTime
    status: str
    properties: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


class ParamsFound(Consolidated[InstanceParams]):
    """The parameters of the work on each cluster."""

    @property
    def instances(self) -> tuple[tuple[str, str, str], ...]:
        """The cluster, the name and the value of each property."""
        return tuple((each.cluster, *pair) for each in self.items for pair in sorted(each.properties.items()))


def find_params(context: OperationContext, subject: Subject) -> ParamsFound:
    """Return the parameters of a process instance, or of each copy of a feed instance, on each of some clusters. Paths
    of outputs are their published locations.

    Raises:
        InstanceQueryError: its instances have no work, or the lifecycle does not apply.
    """
    with context.read() as connection:

        def read(each: Subject, cluster: str) -> Sequence[InstanceParams]:
            active = context.active_release(connection, each.name, cluster, each.instance)
            row = ProcessInstances(connection).get(*active.record.key, each.instance)
            return [read_params(context, active, each.instance, row)]

        found = find_work(context, subject).consolidate(read)
    begins = (f"{each.cluster}: {each.status}, it has not begun" for each in found.items if not each.properties)
    return ParamsFound(parts=found.parts, remarks=tuple(begins))


def read_params(
    context: OperationContext, active: ActiveRelease, nominal_time: datetime, row: ProcessInstance | None
) -> InstanceParams:
    """Return the parameters of the newest attempt at a process instance, by the definitions that govern it."""
    process, plan = active.record, active.plan
    params = InstanceParams(
        name=process.process,
        cluster=process.cluster,
        nominal_time=nominal_time,
        status=row.status.value if row else "UNSCHEDULED",
    )
    if row is None or not row.attempt:
        return params
    process = with_overrides(process, row.overrides)
    data = [_input_data(context, active, edge, row) for edge in process.inputs]
    texts = with_inputs(text_context(plan, process, nominal_time), data)
    outputs = [
        output_target(edge.name, record, time, context.feed_url(record, time))
        for edge in process.own_outputs
        if (time := plan.output_time(edge, nominal_time)) is not None and (record := plan.feeds[edge.feed_key])
    ]
    args = process.work.args if isinstance(process.work, Workflow) else ()
    return replace(
        params,
        properties=job_properties(process, texts, data, outputs),
        arguments=tuple(render_text(text, texts) for text in args),
    )


def _input_data(context: OperationContext, active: ActiveRelease, edge: InputEdge, row: ProcessInstance) -> InputData:
    """Return an input of the newest attempt, newest instance first as in Falcon."""
    record = active.plan.feeds[edge.feed_key]
    times = next((frozen.nominal_times for frozen in row.inputs if frozen.name == edge.name), ())
    texts = text_context(active.plan, active.record, row.nominal_time)
    instances = (
        InputInstance(nominal_time=time, url=context.feed_url(record, time), partition=table_partition(record, time))
        for time in reversed(times)
    )
    return input_data(edge, record, instances, texts)


def find_logs(context: OperationContext, query: InstanceQuery, attempt: int | None = None) -> InstancePage:
    """Return links to the logs of the instances of a range: of their newest attempt, or of number `attempt`.

    Raises:
        InstanceQueryError: the range is invalid.
    """
    page = list_instances(context, query)
    with context.read() as connection:
        keys = [ProcessKey(row.name, row.cluster, row.nominal_time) for row in page.instances]
        attempts = Attempts(connection).of_many(keys)
        found = [
            (row, chosen)
            for row, key in zip(page.instances, keys, strict=True)
            if (chosen := _choose(attempts.get(key, ()), attempt)) is not None or attempt is None
        ]
        logs = [
            replace(row, actions=_actions(context, connection, row))
            for row in rows_of_attempts(context, connection, found)
        ]
    return replace(page, instances=tuple(logs))


def _choose(attempts: Sequence[Attempt], number: int | None) -> Attempt | None:
    """Return the attempt with a number, or the newest one."""
    found = [each for each in attempts if number is None or each.attempt == number]
    return found[-1] if found else None


def _actions(context: OperationContext, connection: Connection, row: InstanceRow) -> tuple[Action, ...]:
    """Return the work of an attempt, and the outputs that it has published or left out; nothing for an instance without
    one.
    """
    if row.outputs is None:
        return ()
    ends: list[tuple[str, str, datetime | None]] = [(row.name, row.status, row.ended_at)]
    ends += [(f"{row.name}/{each.name}", each.row.kind.value, each.row.recorded_at) for each in row.outputs]
    active = context.timeline.find(connection, (row.name, row.cluster), row.nominal_time)
    if active is not None and row.status == ProcessInstanceStatus.SUCCEEDED:
        published = {each.name for each in row.outputs}
        left_out = (each for each in active.record.own_outputs if each.optional and each.name not in published)
        ends += [(f"{row.name}/{edge.name}", LEFT_OUT, row.ended_at) for edge in left_out]
    return tuple(Action(name=name, status=status, ended_at=at, log=row.log) for name, status, at in ends)


@shows("run", "cluster, nominal_time, attempt, step, status, made_in, started_at, ended_at, reason")
@dataclass(frozen=True, slots=True)
class InstanceStep:
    """One step of one attempt. `made_in` is the attempt that has run it, an earlier one if it was KEPT.

    `frames` are the rows of what it has yielded, None if they are not known.
    """

    run: Hidden[StepRun]

    @shown
    def frames(self) -> Mapping[str, int | None]:
        """The rows of each frame."""
        return StepResult.of(self.run).rows if self.run.is_done else {}

    @property
    def written(self) -> str:
        """The frames, for people."""
        found = self.frames.items()
        return ", ".join(f"{name} ({counted(rows, 'row')})" if rows is not None else name for name, rows in found)

    @property
    def state(self) -> str:
        """The status, or the attempt that has made what was kept."""
        run = self.run
        return f"KEPT from {run.made_in}" if run.made_in != run.attempt else run.status.value


def find_steps(context: OperationContext, subject: Subject) -> Consolidated[InstanceStep]:
    """Return the steps of an instance on each of some clusters, in the order of attempts and of running."""
    with context.read() as connection:

        def read(cluster: str) -> Sequence[InstanceStep]:
            return list(_iter_steps(connection, ProcessKey(subject.name, cluster, subject.instance)))

        found = consolidate(subject.asked, read)
    nothing = f"{subject.name} at {render_datetime(subject.instance)}: no attempt with steps has begun"
    return found if found.items else replace(found, remarks=(nothing,))


def _iter_steps(connection: Connection, key: ProcessKey) -> Iterator[InstanceStep]:
    """Yield the steps; one that was running when its attempt ended has ended with it."""
    attempts = {attempt.attempt: attempt for attempt in Attempts(connection).of(key)}
    for run in Steps(connection).of(key):
        attempt = attempts.get(run.attempt)
        if run.status is StepStatus.RUNNING and attempt is not None and attempt.ended_at is not None:
            is_killed = attempt.status is ProcessInstanceStatus.KILLED
            status = StepStatus.KILLED if is_killed else StepStatus.FAILED
            yield InstanceStep(replace(run, status=status, ended_at=attempt.ended_at, reason=attempt.reason))
        else:
            yield InstanceStep(run)
