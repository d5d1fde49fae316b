"""Reruns with what hangs on them: the plan of all instances that are to run again, and its start.

The instances that are named run again now. The others are noted, each by itself (`AgendaKind.RERUN`): it runs again
when those that write what it reads have, if anything has come out with other content. So the chain stands in the
record alone, and what runs is requested as any run.
"""

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.access.rights import require_acts
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import ChangeContext, OperationContext, Subject
from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import describe_process, source_of
from feed_assets.instances.attempts.attempt_inputs import require_queue
from feed_assets.instances.errors import RerunOutdatedError
from feed_assets.instances.gates.actions import InstanceAction, apply_to_rows, decide_action
from feed_assets.instances.gates.requests import find_median
from feed_assets.instances.late.hanging import find_hanging, find_outputs
from feed_assets.instances.late.lateness import plan_rerun
from feed_assets.instances.late.store import Asked, LateChecks
from feed_assets.instances.lists.control import discard_frames, find_restores, find_targets, note_control
from feed_assets.instances.lists.ranges import join_consecutive, render_range
from feed_assets.json_form import Hidden, NominalTime
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.edges import Key
from feed_assets.plan.rendering import counted
from feed_assets.sql.column_types import to_micros
from feed_assets.sql.database import lock_log

_REMARKS = {
    ProcessInstanceStatus.SUSPENDED: "it is suspended: it waits until somebody resumes it",
    ProcessInstanceStatus.KILLED: "it was killed: it runs again, unless somebody kills it again",
}
SHORTEST_DIGEST = 8
_WHOLE, _PART = 16, 4
_VERSION = 1
_AVAILABLE = FeedInstanceStatus.AVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Downstream:
    """How far a rerun goes: through so many `levels` (None: all), and `even_unchanged`: behind equal content, too."""

    levels: int | None = None
    even_unchanged: bool = False


@dataclass(frozen=True, slots=True)
class RerunRange:
    """Consecutive instances of a plan: `level` 0 are named, others hang on them, so many steps away. `hours` are those
    of work, by the median of the last successful attempts; `bytes` what the last attempts have read, as far as the
    record knows. What is `left_out` cannot run again; the remark says why.
    """

    level: int
    process: str
    cluster: str
    first: NominalTime
    last: NominalTime
    instances: int
    hours: float | None
    bytes: int
    left_out: bool
    remark: str | None

    @property
    def instance(self) -> str:
        """The range for people."""
        return render_range(self.first, self.last)


@dataclass(frozen=True, slots=True, kw_only=True)
class RerunPlan:
    """What a rerun of instances of `process` runs again, at most, in the order of levels. `digest` identifies the plan.
    `rows` are the named instances that run again now, `hanging` the others, and whether windows tell what each waits
    for. `stopped` is for those who end runs, as of other actions.
    """

    process: str
    digest: str
    even_unchanged: bool
    levels: int | None
    ranges: tuple[RerunRange, ...]
    remarks: tuple[str, ...]
    rows: Hidden[tuple[ProcessInstance, ...]]
    hanging: Hidden[Mapping[ProcessKey, bool]]
    stopped: Hidden[tuple[ProcessInstance, ...]] = ()
    dry_run: bool = False

    @property
    def shown_columns(self) -> str:
        """The columns of its table."""
        return "level, process, cluster, instance, instances, hours=hours:.2f, size=bytes:size, remark"

    @property
    def tick_clusters(self) -> frozenset[str]:
        """The clusters whose ticks go on with the instances."""
        return frozenset(key[1] for key in (*(row.key for row in self.rows), *self.hanging))

    @property
    def summary(self) -> str:
        """One line about all of it."""
        taken = [each for each in self.ranges if not each.left_out]
        hours = sum(each.hours or 0 for each in taken)
        run = f"{'would run' if self.dry_run else 'runs'} {counted(len(self.rows), 'instance')} of {self.process} again"
        number = len({key[:2] for key in self.hanging})
        of = "1 process" if number == 1 else f"{number:,} processes"
        then = f"up to {counted(len(self.hanging), 'instance')} of {of} that hang on them"
        then += "" if self.even_unchanged else ", as far as content comes out changed"
        told = f"rerun: {run}, and {then}: {hours:.2f} hours of work; plan {self.digest}"
        return "; ".join([told, *self.remarks])


@dataclass(slots=True)
class _Planning:
    """A plan as it is made: the instances by level, what each has read, and why some are left out."""

    context: OperationContext
    connection: Connection
    downstream: Downstream
    found: dict[ProcessKey, tuple[int, ProcessInstance, bool]] = field(default_factory=dict)
    bytes: dict[ProcessKey, int] = field(default_factory=dict)
    gone: dict[ProcessKey, str] = field(default_factory=dict)
    batches: dict[str, None] = field(default_factory=dict)

    def walk(self, rows: Sequence[ProcessInstance]) -> None:
        """Go through the levels, until nothing more hangs on what would run."""
        new, level = {row.key: (row, True) for row in rows}, 0
        while new:
            self.found |= {key: (level, *each) for key, each in new.items()}
            self._measure([row for row, _ in new.values()])
            if level == self.downstream.levels:
                break
            going = [key for key in new if key not in self.gone]
            changed = find_outputs(self.connection, self.context.timeline, going)
            self._note_batches(changed)
            hanging = find_hanging(self.connection, self.context.timeline, changed)
            new, level = {key: each for key, each in hanging.items() if key not in self.found}, level + 1

    def _note_batches(self, changed: Mapping[Key, object]) -> None:
        for feed in changed:
            record = self.context.plan.feeds.get(feed)
            takers = {edge.process for edge in (record.inputs_of if record else ()) if edge.window is None}
            self.batches |= {
                f"{describe_process(each)} takes other content of {feed[0]} as new": None for each in takers
            }

    def _measure(self, rows: Sequence[ProcessInstance]) -> None:
        """Add up what instances have read, and find those whose inputs are gone; one statement for each feed."""
        times: dict[Key, set[datetime]] = defaultdict(set)
        for row in rows:
            for each in row.inputs:
                times[each.feed, source_of(row.process) or row.cluster].update(each.nominal_times)
        there: dict[Key, dict[datetime, int]] = {}
        evicted: set[tuple[Key, datetime]] = set()
        for feed, read in times.items():
            found = FeedInstances(self.connection).find_between(*feed, min(read), max(read)) if read else []
            there[feed] = {each.nominal_time: each.bytes or 0 for each in found if each.status is _AVAILABLE}
            evicted |= {(feed, each.nominal_time) for each in found if each.status is FeedInstanceStatus.EVICTED}
        for row in rows:
            self.bytes[row.key] = 0
            for each in row.inputs:
                feed = (each.feed, source_of(row.process) or row.cluster)
                sizes = [there[feed].get(time) for time in each.nominal_times]
                self.bytes[row.key] += sum(filter(None, sizes))
                lost = [time for time, size in zip(each.nominal_times, sizes, strict=True) if size is None]
                if any((feed, time) in evicted for time in lost):
                    self.gone[row.key] = f"left out: of {each.feed}, what it has read was evicted"
                elif lost and not self._is_optional(row, each.name):
                    self.gone[row.key] = f"left out: of {each.feed}, what it has read is gone"

    def _is_optional(self, row: ProcessInstance, name: str) -> bool:
        record = self.context.plan.processes.get((row.process, row.cluster))
        return record is not None and any(edge.optional for edge in record.inputs if edge.name == name)

    def ranges(self) -> tuple[RerunRange, ...]:
        """Return consecutive instances together, by level and process."""
        context, by_process = self.context, dict[tuple[int, str, str], list[ProcessKey]]()
        for key, (level, _, _) in self.found.items():
            by_process.setdefault((level, *key[:2]), []).append(key)
        schedules = load_schedules(self.connection)
        medians = {key[1:]: find_median(self.connection, key[1:]) for key in by_process}
        ranges: list[RerunRange] = []
        for (level, process, cluster), keys in sorted(by_process.items()):
            record = context.plan.processes.get((process, cluster))
            is_on = record is None or schedules.is_scheduled(*record.entity, cluster)
            rest = None if is_on else "its process is not scheduled or suspended: it waits for that"
            states = {key[2]: _REMARKS.get(self.found[key][1].status) for key in keys} if level else {}
            sequence, times = context.find_sequence(Kind.PROCESS, process, cluster), sorted(key[2] for key in keys)
            reasons = {key[2]: self.gone.get(key, rest or states.get(key[2])) for key in keys}
            median = medians[process, cluster]
            for first, last, (why,) in join_consecutive((time, sequence, (reasons[time],)) for time in times):
                those = times[bisect_left(times, first) : bisect_right(times, last)]
                those = [time for time in those if reasons[time] == why]
                is_out = ProcessKey(process, cluster, first) in self.gone
                hours = None if is_out or median is None else len(those) * (median / timedelta(hours=1))
                size = sum(self.bytes[ProcessKey(process, cluster, time)] for time in those)
                ranges.append(RerunRange(level, process, cluster, first, last, len(those), hours, size, is_out, why))
        return tuple(ranges)

    def digest(self) -> str:
        """Return a digest of all of it, and behind that a short one of the instances of each process."""
        parts: dict[tuple[str, ...], list[tuple[int, bool, bool]]] = defaultdict(list)
        for key, (level, _, _) in sorted(self.found.items(), key=lambda each: each[0]):
            parts[key[:2]].append((to_micros(key[2]), key in self.gone, level == 0))
        options = [_VERSION, self.downstream.levels, self.downstream.even_unchanged]
        return _sha256([options, sorted(parts.items())])[:_WHOLE] + "".join(
            _sha256(part)[:_PART] for _, part in sorted(parts.items())
        )


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def plan_reruns(
    context: OperationContext,
    connection: Connection,
    process: str,
    rows: Sequence[ProcessInstance],
    downstream: Downstream,
) -> RerunPlan:
    """Plan the rerun of instances, and of what hangs on them: of those that have ended.

    What cannot run again, because retention has removed what it has read or that is gone, is left out, and so is what
    hangs on that alone.
    """
    again = [row for row in rows if decide_action(InstanceAction.RERUN, row.status) is not row.status]
    others = Counter(row.status for row in rows) - Counter(row.status for row in again)
    stay = (f"{counted(number, 'named instance')} {status}: not run again" for status, number in others.items())
    planning = _Planning(context, connection, downstream)
    planning.walk(again)
    taken = {key: each for key, each in planning.found.items() if key not in planning.gone}
    require_acts((Kind.PROCESS.value, row.process) for _, row, _ in taken.values())
    gone = [row for key, (_, row, _) in planning.found.items() if key in planning.gone]
    restores = (f"to restore: {each}" for each in find_restores(context, connection, gone))
    return RerunPlan(
        process=process,
        digest=planning.digest(),
        even_unchanged=downstream.even_unchanged,
        levels=downstream.levels,
        ranges=planning.ranges(),
        remarks=(*stay, *planning.batches, *restores),
        rows=tuple(row for level, row, _ in taken.values() if level == 0),
        hanging={key: is_told for key, (level, _, is_told) in taken.items() if level > 0},
        dry_run=True,
    )


def require_digest(plan: RerunPlan, digest: str) -> None:
    """Require that the digest is that of the plan; its first eight characters suffice.

    Raises:
        RerunOutdatedError: it is of another plan, or too short to tell.
    """
    given = digest.rstrip("…").lower()
    if len(given) < SHORTEST_DIGEST or not plan.digest.startswith(given):
        names = sorted({(each.process, each.cluster) for each in plan.ranges})
        then = [given[at : at + _PART] for at in range(_WHOLE, len(given), _PART)]
        now = [plan.digest[at : at + _PART] for at in range(_WHOLE, len(plan.digest), _PART)]
        is_whole = len(then) == len(now) and len(then[-1]) == _PART
        other = [key for key, one, two in zip(names, then, now, strict=True) if one != two] if is_whole else ()
        counts = {
            key: sum(each.instances for each in plan.ranges if (each.process, each.cluster) == key) for key in names
        }
        changed = tuple(f"{describe_process(key[0])} on {key[1]} ({counted(counts[key], 'instance')})" for key in other)
        raise RerunOutdatedError(digest=digest, changed=changed, processes=len(names), was=len(then) or None)


def rerun_downstream(
    context: ChangeContext,
    subject: Subject,
    start: datetime | None,
    end: datetime | None,
    downstream: Downstream,
    *,
    digest: str | None = None,
    confirm: Callable[[str], None] | None = None,
    is_confirmed: bool = False,
    overrides: Mapping[str, str] | None = None,
    from_start: bool = False,
) -> RerunPlan:
    """Run instances of a process again, as `control_instances`, and then what hangs on them; or plan it.

    If anything hangs on them, the `digest` of the plan is needed, or somebody who is asked to `confirm` it.

    Raises:
        InstanceQueryError: as of `control_instances`.
        RerunOutdatedError: the digest is of another plan; nothing was changed.
    """
    targets = find_targets(context, subject, start, end)
    if context.dry_run or digest is None:
        with context.read() as connection:
            plan = plan_reruns(context, connection, subject.name, targets.rows, downstream)
        if digest is not None:
            require_digest(plan, digest)
        if context.dry_run:
            return plan
        if plan.hanging and not is_confirmed:
            if confirm is None:
                raise InstanceQueryError(
                    subject=targets.label,
                    reason=f"{counted(len(plan.hanging), 'other instance')} hang on what is to run again",
                    next_step=f"Review the plan by a dry run, and give its digest: {plan.digest}",
                )
            lines = (f"{each.process} on {each.cluster}: {each.instance} ({each.instances})" for each in plan.ranges)
            confirm("\n".join([*lines, plan.summary, "Run these again?"]))
            digest = plan.digest
    with context.database.begin() as connection:
        lock_log(connection)
        context.timeline.refresh(connection, context.as_of)
        found = ProcessInstances(connection).get_many([row.key for row in targets.rows])
        require_queue(connection, targets.rows)
        plan = plan_reruns(context, connection, subject.name, [*found.values()], downstream)
        if digest is not None:
            require_digest(plan, digest)
        action, rows = InstanceAction.RERUN, plan.rows
        effects = apply_to_rows(context, connection, action, rows, overrides=overrides, from_start=from_start)
        _note_reruns(connection, plan, context.author, context.as_of)
    discard_frames(context, effects)
    note_control(context, InstanceAction.RERUN, targets, len(plan.rows), digest=plan.digest)
    return replace(plan, dry_run=False)


def _note_reruns(connection: Connection, plan: RerunPlan, author: str, as_of: datetime) -> None:
    """Note what is asked for, of each instance of a plan."""
    after, label = EventLog(connection).last_seq(), plan.digest[:SHORTEST_DIGEST]
    begun = Asked(label, author, after, plan.even_unchanged, is_woken=True, has_begun=True)
    wishes = {row.key: begun for row in plan.rows} if plan.hanging else {}
    wishes |= {key: begun._replace(is_woken=told, has_begun=False) for key, told in plan.hanging.items()}
    LateChecks(connection).put(plan_rerun(key, asked, as_of) for key, asked in wishes.items())
