"""Kill, suspend, resume and rerun instances of processes, and copies, in a range of nominal times."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.heartbeat import find_silence
from feed_assets.context.operation import ChangeContext, OperationContext, Subject, note_target
from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import describe_process
from feed_assets.errors import Fault
from feed_assets.instances.attempts.attempt_inputs import require_queue
from feed_assets.instances.gates.actions import (
    ActionEffects,
    ActionResult,
    InstanceAction,
    apply_action,
    decide_action,
)
from feed_assets.instances.lists.lifecycles import find_work
from feed_assets.instances.lists.ranges import join_consecutive, render_range, render_ranges
from feed_assets.instances.steps.frames import StepFrames
from feed_assets.instances.steps.records import StepStatus
from feed_assets.json_form import Hidden, shown
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, FeedKey, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import Key
from feed_assets.plan.records import ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.triggers.input_windows import find_gone

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlled:
    """The effects of an action on each instance of its range, oldest first. The caller ends the runs of `stopped`.
    `process` is the given name: of a process, a flow, or a copied feed. `restores` are commands that bring back evicted
    inputs of instances that are to run again, which else wait for them. `absent` are those that are not created.
    `obstacles` say why instances that wait go on waiting.
    """

    action: InstanceAction
    process: str
    instances: tuple[ActionResult, ...]
    find_sequence: Hidden[Callable[[Kind, str, str], InstanceSequence | None]]
    stopped: Hidden[tuple[ProcessInstance, ...]] = ()
    dry_run: bool = False
    restores: tuple[str, ...] = ()
    absent: Hidden[str] = ""
    obstacles: Hidden[tuple[str, ...]] = ()

    @shown
    def changed(self) -> int:
        """How many instances the action changed."""
        return sum(each.is_changed for each in self.instances)

    @property
    def ranges(self) -> tuple[tuple[str | None, ...], ...]:
        """The range, the cluster, the status before and after, and the source of consecutive instances."""
        joined = join_consecutive(
            (
                each.instance.nominal_time,
                self.find_sequence(Kind.PROCESS, each.instance.process, each.instance.cluster),
                (each.instance.cluster, each.instance.status.value, each.after.value, each.source_cluster),
            )
            for each in self.instances
        )
        return tuple((render_range(first, last), *cells) for first, last, cells in joined)

    @property
    def tick_clusters(self) -> frozenset[str]:
        """The clusters whose ticks go on with the instances."""
        goes_on = self.action in (InstanceAction.RESUME, InstanceAction.RERUN)
        return frozenset(each.instance.cluster for each in self.instances if goes_on)

    @property
    def summary(self) -> str:
        """One line about the effects."""
        would = "would change" if self.dry_run else "changed"
        said = f"{self.action.value}: {would} {self.changed} of {len(self.instances)} instances of {self.process}"
        said += f"; not created yet: {self.absent}" if self.absent else ""
        restored = (f"it waits for inputs that were evicted, to restore them: {each}" for each in self.restores)
        return "; ".join([said, *restored, *self.obstacles])


def control_instances(
    context: ChangeContext,
    action: InstanceAction,
    subject: Subject,
    start: datetime | None = None,
    end: datetime | None = None,
    *,
    overrides: Mapping[str, str] | None = None,
    force: bool = False,
    from_start: bool = False,
) -> Controlled:
    """Apply an action to the instances of a process, or the copies of a feed, with `start <= nominal time < end`, or to
    the one that the subject names. It skips instances that are not created yet. Instances on which the action has no
    effect stay as they are; that is no error.

    Args:
        context: the definitions and the record.
        action: the action.
        subject: a process or flow, or a copied feed.
        start: the first nominal time.
        end: the first nominal time after the range.
        overrides: properties of the next runs, which override those of the process; only for reruns.
        force: discard the properties of earlier reruns; only for reruns.
        from_start: repeat steps that have finished, too; only for reruns.

    Raises:
        InstanceQueryError: the end is before the start, the process is not on a cluster, an option is only for
            reruns, the lifecycle does not apply, or no instance is there.
        BatchEndedError: a batch is to run again whose events are gone with its queue; nothing was changed.
    """
    if (overrides or force or from_start) and action is not InstanceAction.RERUN:
        raise InstanceQueryError(
            subject="properties and a start", reason="only a rerun accepts them", next_step="Use rerun."
        )
    targets = find_targets(context, subject, start, end)
    rows, process, absent = targets.rows, subject.name, targets.absent
    done = Controlled(action=action, process=process, instances=(), find_sequence=context.find_sequence, absent=absent)
    if action is InstanceAction.RERUN:
        with context.read() as connection:
            require_queue(connection, rows)
            restores = find_restores(context, connection, rows)
            waiting: dict[Key, list[datetime]] = defaultdict(list)
            for row in rows:
                if decide_action(action, row.status) is ProcessInstanceStatus.WAITING:
                    waiting[row.process, row.cluster].append(row.nominal_time)
            gone = find_gone(connection, context.timeline, context.plan.feeds, waiting, context.as_of)
            done = replace(done, restores=restores, obstacles=tuple(text for _, text in gone))
    if context.dry_run:
        instances = tuple(ActionResult(instance=row, after=decide_action(action, row.status)) for row in rows)
        return replace(done, instances=instances, dry_run=True)
    wanted = {} if force and overrides is None else overrides
    effects = apply_action(context, action, [row.key for row in rows], overrides=wanted, from_start=from_start)
    discard_frames(context, effects)
    if effects.called_off:
        done = replace(done, obstacles=(f"{counted(effects.called_off, 'rerun')} that was asked for will not be",))
    done = replace(done, instances=effects.results, stopped=effects.stopped)
    note_control(context, action, targets, done.changed)
    return done


class Targets(NamedTuple):
    """The created instances of a range on which somebody acts, for people a `label`; `absent` are not created."""

    label: str
    start: datetime
    end: datetime
    rows: Sequence[ProcessInstance]
    absent: str


def find_targets(context: OperationContext, subject: Subject, start: datetime | None, end: datetime | None) -> Targets:
    """Return the instances of a range, or the one that the subject names. Raises as `control_instances`."""
    if start is None or end is None:
        start, end = subject.instance, subject.instance + timedelta(seconds=1)
    work = find_work(context, replace(subject, clusters=())).all
    label = " and ".join(describe_process(each.name) for each in work)
    _check(work, label, subject.clusters, start, end)
    rows = _rows(context, work, subject.clusters, start, end)
    absent, due_at = _find_absent(work, subject.clusters, start, end, rows)
    if not rows:
        due = "due" if due_at <= context.as_of else "not due yet"
        later = f"It is {due}: ticks create what is due and scheduled, a long past last."
        if silence := find_silence(context, subject.clusters or {cluster for each in work for cluster in each.on}):
            later = f"{silence[0].upper()}{silence[1:]}"
        is_one = subject.nominal_time == start
        when = f"at {render_datetime(start)}" if is_one else f"from {render_datetime(start)} to {render_datetime(end)}"
        raise InstanceQueryError(
            subject=f"{label} {when}",
            reason=f"no tick has created {absent} yet" if absent else "it has no instance there",
            next_step=later if absent else "Ask for other times.",
            fault=Fault.MISSING,
        )
    return Targets(label, start, end, rows, absent)


def _rows(
    context: OperationContext, work: Sequence[Subject], clusters: Collection[str], start: datetime, end: datetime
) -> list[ProcessInstance]:
    with context.database.read() as connection:
        instances = ProcessInstances(connection)
        return [
            row
            for each in work
            for cluster in each.on
            if not clusters or cluster in clusters
            for row in instances.find_between(each.name, cluster, start, end - _MOMENT)
        ]


def discard_frames(context: OperationContext, effects: ActionEffects) -> None:
    """Discard what steps have left that are repeated."""
    frames = StepFrames(stores=context.stores, plan=context.plan)
    frames.discard(run for run in effects.abandoned if run.status is not StepStatus.KEPT)


def _check(work: Sequence[Subject], label: str, clusters: Collection[str], start: datetime, end: datetime) -> None:
    known = sorted({cluster for each in work for cluster in each.on})
    if end < start:
        raise InstanceQueryError(
            subject=f"end {render_datetime(end)}",
            reason=f"it is before the start {render_datetime(start)}",
            next_step="Give a later end; the end is exclusive.",
        )
    unknown = sorted(set(clusters) - set(known))
    if unknown:
        raise InstanceQueryError(
            subject=f"cluster {', '.join(unknown)}",
            reason=f"{label} is not on it",
            next_step=f"It is on {', '.join(known)}.",
            fault=Fault.MISSING,
        )


def _find_absent(
    work: Sequence[Subject],
    clusters: Collection[str],
    start: datetime,
    end: datetime,
    rows: Sequence[ProcessInstance],
) -> tuple[str, datetime]:
    """Return what is not there, as `2013-11-01T00:00Z to 2013-11-03T00:00Z on primary`, and when the first is due."""
    there, due_at = {row.key for row in rows}, NEVER
    found = []
    for record in (record for each in work for record in each.records if not clusters or record.cluster in clusters):
        if isinstance(record, ProcessRecord) and record.is_enumerated:
            times = [t for t in record.sequence.between(start, end) if ProcessKey(*record.key, t) not in there]
            found += [f"{render_ranges(times, record.sequence)} on {record.cluster}"] if times else []
            due_at = min([due_at, *(time + record.delay for time in times[:1])])
    return ", ".join(found), due_at


def find_restores(
    context: OperationContext, connection: Connection, rows: Sequence[ProcessInstance]
) -> tuple[str, ...]:
    """Return a command for each sweep and feed that has evicted what instances have read."""
    read: set[FeedKey] = set()
    for row in rows:
        process = context.plan.processes.get((row.process, row.cluster))
        feeds = {edge.name: edge.feed_key for edge in process.inputs if not edge.optional} if process else {}
        inputs = (each for each in row.inputs if each.name in feeds)
        read |= {FeedKey(*feeds[each.name], time) for each in inputs for time in each.nominal_times}
    found = FeedInstances(connection).get_many(read).values()
    gone = [row.event_seq for row in found if row.status is FeedInstanceStatus.EVICTED and row.event_seq is not None]
    events = EventLog(connection).of_numbers(gone).values() if gone else ()
    swept = sorted({(str(event.payload["sweep"]), event.feed) for event in events if event.payload.get("sweep")})
    return tuple(command_line("retention", "undo", sweep, feed=feed) for sweep, feed in swept)


def note_control(
    context: ChangeContext, action: InstanceAction, targets: Targets, changed: int, **more: object
) -> None:
    """Write an audit entry about an action, if it has changed instances."""
    if changed:
        span = {"start": render_datetime(targets.start), "end": render_datetime(targets.end)}
        note_target(context, f"instance {action.value}", targets.label, **span, instances=changed, **more)
