"""`why`: explains the state of an instance of a process or feed, up to the root causes.

`instances/gates/blockers.py` finds the blockers of a process instance, with the same decisions as the tick.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import assert_never

from sqlalchemy import Connection

from feed_assets.command_lines import command_line, follow_command, instance_command
from feed_assets.context.consolidation import Consolidated, consolidate
from feed_assets.context.heartbeat import find_silence
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.context.safe_mode import HELD
from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import declared_by, describe_process, is_flow, is_of_feed
from feed_assets.explain.facts import FeedFacts, InstanceFacts, ProcessFacts, is_ready, load_instance_facts
from feed_assets.explain.lateness import explain_deadlines, explain_messages
from feed_assets.explain.records import Explanation, Reason, ReasonCode, blocking
from feed_assets.explain.sentences import (
    Omission,
    describe_awaited,
    describe_missing,
    explain_feed_state,
    explain_process_state,
    iter_awaited,
    iter_omissions,
    late_check,
)
from feed_assets.explain.tick_failures import explain_feed_failures, explain_process_failures
from feed_assets.instances.gates.blockers import (
    Blocker,
    EarlierUnread,
    InputMissing,
    InputUnresolved,
    LeaseHeld,
    NoSlot,
    NotDue,
    NotItsTurn,
    NotReached,
    NotScheduled,
    RerunAwaited,
    Suspended,
    decide_blockers,
    existence_blockers,
    launch_blockers,
)
from feed_assets.instances.gates.end_messages import keys_of_end
from feed_assets.instances.late.quality_checks import count_held
from feed_assets.instances.late.store import LateChecks
from feed_assets.instances.lists.ranges import join_consecutive, render_range
from feed_assets.instances.lists.rows import rendered
from feed_assets.log.agenda import AgendaKey, AgendaKind
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, FeedKey, ProcessInstanceStatus, ProcessKey
from feed_assets.pages import Page
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import counted
from feed_assets.releases.left_out import find_writers
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.triggers.waiting import Queue

UNSCHEDULED = "UNSCHEDULED"
_ABSENT = frozenset({FeedInstanceStatus.MISSING.value, FeedInstanceStatus.PARTIAL.value})
_UNDONE = frozenset({*ProcessInstanceStatus} - {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.SKIPPED})
_SAFE_MODE = Reason(
    code=ReasonCode.SAFE_MODE,
    text="safe mode is on: late data starts no runs, and it cannot be rerun",
    command=command_line("admin", "safemode", "off"),
)
_RESTORED = Reason(code=ReasonCode.RESTORED, text=HELD, command=command_line("state", "rebuild"))
_ENDED = frozenset({ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED, ProcessInstanceStatus.KILLED})


def explain(context: OperationContext, subject: Subject) -> Consolidated[Explanation]:
    """Explain the state of an instance on each of some clusters. A cluster where the time is no instance fails without
    the others.
    """
    with context.read() as connection:
        return consolidate(
            subject.asked,
            lambda cluster: [
                explain_instance(context, connection, subject.kind, subject.name, cluster, subject.instance)
            ],
        )


def explain_instance(
    context: OperationContext, connection: Connection, kind: Kind, name: str, cluster: str, nominal_time: datetime
) -> Explanation:
    """Explain the state of an instance of a feed or process.

    Raises:
        InstanceQueryError: the feed or process is not on the cluster.
        InstanceError: the time is no instance of it.
    """
    if kind is Kind.PROCESS:
        context.active_release(connection, name, cluster, nominal_time)
        process = ProcessKey(name, cluster, nominal_time)
        return explain_process_instances(context, connection, [process])[process]
    context.feed_on(name, cluster).sequence.index(nominal_time)
    feed = FeedKey(name, cluster, nominal_time)
    return _Explainer(context, connection, load_instance_facts(context, connection, feeds=[feed])).feed(feed)


def explain_process_instances(
    context: OperationContext, connection: Connection, keys: Sequence[ProcessKey]
) -> dict[ProcessKey, Explanation]:
    """Explain the states of process instances, each by itself; the facts of all are loaded together.

    Their processes have these instances, by the definitions that govern them.
    """
    all_facts = load_instance_facts(context, connection, processes=keys)
    return {key: _Explainer(context, connection, all_facts).process(key) for key in keys}


def find_blockers(
    context: OperationContext, facts: ProcessFacts, key: ProcessKey, *, is_root: bool = True
) -> tuple[Blocker, ...]:
    """Return everything that keeps a process instance from running. Of an instance upstream (not `is_root`), the launch
    order matters only once it is ready.
    """
    process = context.plan.processes.get((key.process, key.cluster))
    if process is None or facts.active is None:
        return ()
    launch = (
        launch_blockers(process, facts.active.record, key.nominal_time, facts.launches, context.real_now)
        if facts.launches is not None and (is_root or is_ready(facts.row))
        else ()
    )
    existence = existence_blockers(facts.row, key.nominal_time + process.delay, facts.reached, context.as_of)
    return decide_blockers(facts.row, existence, facts.states, facts.schedule, launch, facts.leases, facts.awaited)


class _Explainer:
    """Builds the tree of explanations from loaded facts. An instance that occurs again is only named."""

    def __init__(self, context: OperationContext, connection: Connection, all_facts: InstanceFacts) -> None:
        self._context = context
        self._connection = connection
        self._all_facts = all_facts
        self._explained: set[tuple[object, ...]] = set()

    def process(self, key: ProcessKey) -> Explanation:
        """Explain a process instance."""
        facts = self._all_facts.processes.get(key)
        status = UNSCHEDULED if facts is None or facts.row is None else facts.row.status.value
        if facts is None or self._is_explained(key):
            return _named(key, status, is_known=facts is not None)
        is_root = len(self._explained) == 1
        followed = facts.followed
        found = find_blockers(self._context, facts, key, is_root=is_root)
        is_blocked = bool(found) or self._all_facts.is_restored
        blockers = [self._reason(blocker, followed, key) for blocker in found]
        state = explain_process_state(
            self._context, self._connection, key, facts, is_root=is_root, is_blocked=is_blocked
        )
        record = None if facts.active is None else facts.active.record
        failures = explain_process_failures(self._all_facts.tick_failures, key, record)
        held = self._held() if is_root else ()
        is_due = facts.row is None or facts.row.status in _UNDONE
        deadlines = explain_deadlines(self._context, self._connection, key, is_due=is_due) if is_root else ()
        ends = keys_of_end(record, facts.row) if is_root else []
        told = tuple(explain_messages(self._context, self._connection, ends, "its end"))
        return Explanation.of(key, status, *blockers, *state, *deadlines, *failures, *held, *told)

    def feed(self, key: FeedKey) -> Explanation:
        """Explain a feed instance."""
        facts = self._all_facts.feeds.get(key)
        row = facts.row if facts else None
        status = (row.status if row else FeedInstanceStatus.MISSING).value
        if facts is None or self._is_explained(key):
            return _named(key, status, is_known=facts is not None)
        is_root = len(self._explained) == 1
        writers = [self.process(writer) for writer in facts.writers]
        state = explain_feed_state(
            self._context, self._connection, key, facts, writers, self._omissions(key, facts), is_root=is_root
        )
        return Explanation.of(key, status, *state, *(self._around(key, facts, status) if is_root else ()))

    def _around(self, key: FeedKey, facts: FeedFacts, status: str) -> Iterator[Reason]:
        """Yield what is told besides of the feed instance that the query names."""
        context, connection, record = self._context, self._connection, facts.record
        yield from explain_deadlines(context, connection, key, is_due=status in _ABSENT)
        if status == FeedInstanceStatus.AVAILABLE:
            yield from explain_remakes(context, connection, record, key)
        yield from late_check(connection, AgendaKey(AgendaKind.LATE_FEED, *key), is_current=record.is_current)
        yield from explain_behind(context, connection, record, key)
        yield from explain_feed_failures(connection, self._all_facts.tick_failures, key)

    def _omissions(self, key: FeedKey, facts: FeedFacts) -> dict[ProcessKey, Omission]:
        """Return why the process instances that write a feed instance will not: it is optional, and was left out."""
        return {
            writer: each
            for writer in facts.writers
            if (known := self._all_facts.processes.get(writer)) is not None and known.row and known.active
            for each in iter_omissions(self._connection, known.active, known.row)
            if each.feed == key
        }

    def _is_explained(self, key: ProcessKey | FeedKey) -> bool:
        name = (type(key), *key)
        is_explained = name in self._explained
        self._explained.add(name)
        return is_explained

    def _held(self) -> Iterator[Reason]:
        if self._all_facts.is_safe_mode:
            yield _SAFE_MODE
        if self._all_facts.is_restored:
            yield _RESTORED

    def _reason(self, blocker: Blocker, followed: int, key: ProcessKey) -> Reason:
        match blocker:
            case InputMissing():
                return self._missing(blocker, followed, key)
            case InputUnresolved(edge=edge):
                facts: dict[str, object] = {"input": edge.name, "feed": edge.feed, "window": edge.taken}
                text = f"input {edge.name}: feed {edge.feed} has too few available instances for {edge.taken}"
                causes = [each for each in self._all_facts.feeds if each[:2] == edge.feed_key and self._is_lacked(each)]
                text = f"input {edge.name} waits for a version of feed {edge.feed}" if causes else text
                return blocking(ReasonCode.INPUT_UNRESOLVED, text, facts, causes=map(self.feed, causes))
            case EarlierUnread(nominal_time=time):
                text = f"it reads what is new since the instance of {render_datetime(time)}, which has not succeeded"
                earlier, told = self.process(key._replace(nominal_time=time)), {"instance": render_datetime(time)}
                return blocking(ReasonCode.EARLIER_UNREAD, text, told, causes=[earlier])
            case _:
                return _plain(blocker, key)

    def _is_lacked(self, key: FeedKey) -> bool:
        """Whether it is a current instance that is not there."""
        facts = self._all_facts.feeds[key]
        is_there = facts.row is not None and facts.row.status is FeedInstanceStatus.AVAILABLE
        return facts.record.is_current and not is_there

    def _missing(self, blocker: InputMissing, followed: int, key: ProcessKey) -> Reason:
        edge, missing = blocker.edge, blocker.missing
        text = f"input {edge.name} lacks {len(missing)} of {blocker.expected} instances of feed {edge.feed}"
        is_gone = edge.feed_key not in self._context.plan.feeds
        text += ", which is not declared any more" if is_gone else ""
        text += describe_missing(self._all_facts.processes[key].active, edge, missing)
        if len(missing) > followed:
            text += f"; the oldest {followed} are" if followed > 1 else "; the oldest is"
        if is_flow(edge.process):
            text = f"its source instance does not exist on {edge.feed_cluster}"
        facts: dict[str, object] = {"input": edge.name, "feed": edge.feed, "missing": [*map(render_datetime, missing)]}
        command = follow_command(*key) if is_gone and not is_of_feed(edge.process) else None
        causes = (self.feed(FeedKey(*edge.feed_key, time)) for time in missing[:followed])
        return blocking(ReasonCode.INPUT_MISSING, text, facts | {"expected": blocker.expected}, command, causes)


def _named(key: ProcessKey | FeedKey, status: str, *, is_known: bool) -> Explanation:
    if is_known:
        return Explanation.of(key, status, Reason(code=ReasonCode.SEE_ABOVE, text="see above"))
    kind, (name, cluster, time) = Kind.FEED if isinstance(key, FeedKey) else Kind.PROCESS, key
    command = command_line("why", name, time, kind=kind.value, cluster=cluster)
    text = "too far upstream to follow from here"
    return Explanation.of(key, status, Reason(code=ReasonCode.NOT_FOLLOWED, text=text, command=command))


def _plain(blocker: Blocker, key: ProcessKey) -> Reason:
    owner, declared = declared_by(key.process)
    match blocker:
        case NotDue(nominal_time=time):
            is_later = time > key.nominal_time
            text = f"it is due at {rendered(time)}" if is_later else "its nominal time is in the future"
            return blocking(ReasonCode.NOT_DUE, text, {"at": rendered(time)})
        case NotScheduled(state=ScheduleState.SUSPENDED):
            text = f"its {owner.value} is suspended"
            command = command_line("entity", "resume", owner.value, declared, clusters=[key.cluster])
            return blocking(ReasonCode.NOT_SCHEDULED, text, {"state": blocker.state.value}, command)
        case NotScheduled(state=state):
            text = f"its {owner.value} is not scheduled"
            command = command_line("entity", "schedule", owner.value, declared, clusters=[key.cluster])
            return blocking(ReasonCode.NOT_SCHEDULED, text, {"state": state.value}, command)
        case NotReached(next_time=time, is_past=is_past, awaited=awaited):
            if time is None:
                text = f"no tick has created it: its {owner.value} is new, or ticks are past this time"
            elif time > key.nominal_time:
                text = f"ticks are past it and go on with {render_datetime(time)}: a release from then on creates it"
            elif awaited:
                feeds = " and ".join(f"{feed} on {cluster}" for feed, cluster in awaited)
                text = f"it is not yet created: that waits until ticks have looked for the past of {feeds}"
            elif is_past:
                text = f"it is not yet created: ticks create the past behind what is due, {render_datetime(time)} next"
            else:
                text = f"it is not yet created: the next instance that ticks create is {render_datetime(time)}"
            return blocking(ReasonCode.NOT_REACHED, text, {"next": rendered(time)})
        case Suspended():
            command = instance_command("resume", key.process, key.nominal_time, key.cluster)
            return blocking(ReasonCode.SUSPENDED, "it is suspended", command=command)
        case RerunAwaited(writers=writers):
            text = f"it waits until what it reads was made again, as somebody has asked: {describe_awaited(writers)}"
            return blocking(ReasonCode.RERUN_AWAITED, text, {"instances": [*iter_awaited(writers)]})
        case NoSlot(parallel=parallel, in_flight=in_flight):
            text = f"its {owner.value} has {counted(in_flight, 'active run')}, and the limit is {parallel}"
            return blocking(ReasonCode.NO_SLOT, text, {"parallel": parallel, "in_flight": in_flight})
        case NotItsTurn(order=order, ahead=ahead):
            text = f"{ahead} other ready instances go first ({order.value})"
            return blocking(ReasonCode.NOT_ITS_TURN, text, {"order": order.value, "ahead": ahead})
        case LeaseHeld(lease=lease):
            text = f"{lease.holder} has leased {lease.entity} until at least {rendered(lease.expires_at)}"
            facts = {"entity": lease.entity, "holder": lease.holder, "expires_at": rendered(lease.expires_at)}
            return blocking(ReasonCode.LEASE_HELD, text, facts)
        case InputMissing() | InputUnresolved() | EarlierUnread():
            raise AssertionError(blocker)
        case _:
            assert_never(blocker)


def explain_remakes(
    context: OperationContext, connection: Connection, record: FeedRecord, key: FeedKey
) -> Iterator[Reason]:
    """Yield what was to make an instance anew that is there, and has not. Of copies, `explain_behind` tells that."""
    writers = [writer for _, writer in find_writers(context.timeline, connection, record, key.nominal_time)]
    for row in ProcessInstances(connection).get_many(writers).values():
        if row.status in _UNDONE and not is_flow(row.process):
            yield Reason(
                code=ReasonCode.RERUN,
                text=f"{describe_process(row.process)} was to make it again, and is {row.status}; this stays",
                facts={"process": row.process, "status": row.status.value},
                command=command_line("why", row.process, row.nominal_time, cluster=row.cluster),
            )


def explain_behind(
    context: OperationContext, connection: Connection, record: FeedRecord, key: FeedKey
) -> Iterator[Reason]:
    """Yield which replicas of an instance are behind, or that it is one; each with the state of the copy."""
    plan = context.plan
    related = [edge.process_key for edge in record.outputs_of] + [edge.process_key for edge in record.inputs_of]
    flows = [flow for each in related if (flow := plan.processes.get(each)) is not None and flow.is_flow]
    keys = {ProcessKey(*flow.key, key.nominal_time): flow for flow in flows}
    rows, checks = ProcessInstances(connection).get_many(keys), LateChecks(connection)
    for copy, flow in keys.items():
        check, row = checks.get(AgendaKind.UPDATE, *copy), rows.get(copy)
        if check is None or row is None:
            continue
        source, since = flow.inputs[0].feed_cluster, rendered(check.planned_at)
        is_target = key.cluster == flow.cluster
        text = f"it is behind its source on {source}" if is_target else f"its copy on {flow.cluster} is behind"
        text += f", which has other content since {since}: " if is_target else f" since it changed at {since}: "
        text += f"{describe_process(flow.process)} is {row.status.value}"
        text += f" ({row.reason})" if row.reason else ""
        again = instance_command("rerun", copy.process, copy.nominal_time, copy.cluster)
        command = again if row.status in _ENDED else None
        facts = {"source": source, "target": flow.cluster, "since": since, "status": row.status.value}
        yield Reason(code=ReasonCode.BEHIND, text=text, facts=facts, command=command)


LINES = 20
"""The most lines of a summary, which leave room for the command and the prompt on a screen of 24."""

_ROOTS = 3
_BACKGROUND = frozenset(
    {
        ReasonCode.GOVERNED_BY,
        ReasonCode.INPUT_READ,
        ReasonCode.LAST_CHANGE,
        ReasonCode.OPTIONAL_INPUT,
        ReasonCode.OUTPUT,
        ReasonCode.TRIGGER,
    }
)
"""What the short form of a blocked instance leaves out."""

FindSequence = Callable[[Kind, str, str], InstanceSequence | None]
"""Returns the instances of a feed or process on a cluster; None if it is not declared."""


def render_summary(explanation: Explanation, find_sequence: FindSequence) -> str:
    """Return at most `LINES` lines: the instance and its state, its root causes, its own reasons, each with the command
    that ends it. Equal root causes of consecutive instances are one.
    """
    own = (line for reason in _told(explanation) for line in _lines(reason, "  "))
    lines = [explanation.headline, *_iter_roots(explanation, find_sequence), *own]
    if len(lines) <= LINES:
        return "\n".join(lines)
    return "\n".join([*lines[: LINES - 1], f"  … and {len(lines) - LINES + 1} more lines; --all shows everything"])


def _iter_roots(explanation: Explanation, find_sequence: FindSequence) -> Iterator[str]:
    roots = [root for root in explanation.root_causes() if root != explanation]
    groups = group_roots(roots, find_sequence)
    for first, last, root, count in groups[:_ROOTS]:
        number = f" ({counted(count, 'instance')})" if count > 1 else ""
        yield f"  because {root.label} at {render_range(first, last)} is {root.status}{number}"
        for reason in islice(_told(root), 2):
            yield from _lines(reason, "    ")
    if len(groups) > _ROOTS:
        yield f"  and {len(groups) - _ROOTS} more root causes; --all shows them"


def group_roots(
    roots: Sequence[Explanation], find_sequence: FindSequence
) -> list[tuple[datetime, datetime, Explanation, int]]:
    """Join root causes of consecutive instances that have the same state and the same kinds of reasons.

    Returns the first and last nominal time, the explanation of the first one, and the number of instances.
    """
    firsts: dict[tuple[object, datetime], Explanation] = {}
    rows = []
    for root in roots:
        cells = (root.label, root.status, tuple(reason.code for reason in root.reasons))
        firsts[cells, root.nominal_time] = root
        rows.append((root.nominal_time, find_sequence(root.kind, root.name, root.cluster), cells))
    groups = []
    for first, last, cells in join_consecutive(rows):
        count = sum(of == cells and first <= time <= last for of, time in firsts)
        groups.append((first, last, firsts[cells, first], count))
    return groups


def _told(explanation: Explanation) -> Iterator[Reason]:
    """Yield the reasons of an instance itself, of a blocked one without the background."""
    is_blocked = bool(explanation.blockers)
    for reason in explanation.reasons:
        if not (is_blocked and reason.code in _BACKGROUND):
            yield reason


def _lines(reason: Reason, indent: str) -> Iterator[str]:
    yield f"{indent}- {reason.text}"
    if reason.command is not None:
        yield f"{indent}  $ {reason.command}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained(Consolidated[Explanation]):
    """What is told of an instance on each of its clusters, in `rows` for people; `silence` says that no ticks come."""

    silence: str | None
    rows: tuple[str, ...]

    def document(self, name: str) -> Mapping[str, object]:
        """Return the members of the JSON form."""
        causes = [root for each in self.items for root in each.root_causes()]
        return {**Consolidated.document(self, name), "root_causes": causes, "no_ticks": self.silence}


def tell_why(
    context: OperationContext, subject: Subject, remark: str = "", *, shows_all: bool, look: bool, author: str
) -> Explained:
    """Explain an instance in the short form, or with `shows_all` in the whole one; a `remark` says how it was chosen.
    With `look`, storage is asked first, and what has arrived or is gone is recorded in the name of `author`.
    """
    found, remarks = explain(context, subject), [*filter(None, [remark])]
    if look:
        from feed_assets.instances.lists.polled_ranges import poll_instances_now, record_vanished_now

        if lost := record_vanished_now(context.by(author), subject, {each.cluster for each in found.items}):
            remarks.append(f"{counted(lost, 'instance')} lost by storage, and recorded as missing")
            found = explain(context, subject)
        roots = [root for each in found.items for root in each.root_causes() if root.kind is Kind.FEED]
        missing = [FeedKey(root.name, root.cluster, root.nominal_time) for root in roots]
        arrived, absent = poll_instances_now(context.by(author), missing)
        if absent:
            remarks.append(f"{counted(absent, 'instance')} looked for in storage now, and not there or incomplete")
        if arrived:
            remarks.append(f"{counted(arrived, 'instance')} found in storage and recorded")
        if missing:
            found = explain(context, subject)
    undone = {each.cluster for each in found.items if each.status not in ("AVAILABLE", "SUCCEEDED")}
    silence = find_silence(context, undone)
    told = (each.render() if shows_all else render_summary(each, context.find_sequence) for each in found.items)
    rows = (*filter(None, [silence]), *told)
    return Explained(parts=found.parts, remarks=tuple(remarks), silence=silence, rows=rows)


def tell_held_back(context: OperationContext, queues: Sequence[Queue]) -> list[Queue]:
    """Return queues that say, too, how many of the newest instances that they would take are held back."""
    found, plan = list[Queue](), context.plan
    for queue in queues:
        trigger = plan.processes[queue.process, queue.cluster].trigger
        keys = dict.fromkeys((each.feed, each.feed_cluster) for each in trigger.inputs) if trigger else ()
        with context.read() as connection:
            held = {key[0]: count_held(connection, plan.feeds[key]) for key in keys if key in plan.feeds}
        told = (
            f"{name} has {counted(each, 'instance')} held back because of rows" for name, each in held.items() if each
        )
        found.append(replace(queue, waits=(*queue.waits, *told)))
    return found


class NextBatches(Page[Queue]):
    """What the next batch of a process waits for, on each of its clusters."""

    def document(self, name: str) -> Mapping[str, object]:  # noqa: ARG002
        """Return the members of the JSON form."""
        return Page.document(self, "queues")

    @property
    def rows(self) -> tuple[str, ...]:
        """What it lacks and waits for, of each queue."""
        return tuple("\n  - ".join((each.headline, each.lacks, *each.waits)) for each in self.items)
