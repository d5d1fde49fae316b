"""The reasons besides blockers: runs, times, inputs, contents, and the location of the data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.command_lines import command_line, instance_command, materialize_command
from feed_assets.context.operation import OperationContext
from feed_assets.entities.flow_names import declared_by, describe_process, is_flow
from feed_assets.entities.process import OnTimeout
from feed_assets.errors import render_some
from feed_assets.explain.events import (
    event_facts,
    explain_availability,
    explain_history,
    find_read,
    left_to_newer,
    shorten_digest,
)
from feed_assets.explain.facts import FeedFacts, ProcessFacts
from feed_assets.explain.records import Explanation, Reason, ReasonCode, blocking
from feed_assets.external_work.attempts import init_command
from feed_assets.instances.gates.reconciliation import suspend_command
from feed_assets.instances.late.quality_checks import QualityCheck
from feed_assets.instances.late.store import LateChecks
from feed_assets.instances.lists.ranges import render_ranges
from feed_assets.instances.lists.rows import next_attempt, rendered
from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, Entry
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.instances.process_instances import ENDED
from feed_assets.log.records import (
    Cause,
    FeedEvent,
    FeedEventKind,
    FeedInstanceStatus,
    FeedKey,
    FrozenInput,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
    WatermarkKind,
)
from feed_assets.log.removals.records import WHILE_A_VERSION, Sweep
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.run_names import describe_run
from feed_assets.log.watermarks import Watermarks, part_past
from feed_assets.plan.edges import InputEdge
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.rendering import counted
from feed_assets.releases.store import find_changed_paths
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.timing.sequence import render_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """An output that the newest attempt has left out; `former` is the attempt that wrote what is there, if one did."""

    output: str
    feed: FeedKey
    former: int | None

    def render(self) -> str:
        """Return it as the end of a sentence about the process instance."""
        place = f"feed {self.feed.feed} {render_datetime(self.feed.nominal_time)}"
        kept = "" if self.former is None else f"; what attempt {self.former} wrote stays"
        return f"left out its optional output {self.output}, {place}{kept}"


def iter_omissions(connection: Connection, active: ActiveRelease, row: ProcessInstance) -> Iterator[Omission]:
    """Yield the optional outputs that an instance has left out; none unless it has succeeded.

    An output that was recorded from storage, or was evicted and has no events any more, counts as written.
    """
    if row.status is not ProcessInstanceStatus.SUCCEEDED:
        return
    optional = {
        FeedKey(*edge.feed_key, time): edge.name
        for edge in active.record.own_outputs
        if edge.optional and (time := active.plan.output_time(edge, row.nominal_time)) is not None
    }
    found, rows = EventLog(connection).for_instances(optional), FeedInstances(connection).get_many(optional)
    for feed, output in optional.items():
        is_evicted = feed in rows and rows[feed].status is FeedInstanceStatus.EVICTED
        written = [event for event in found.get(feed, ()) if event.kind is FeedEventKind.PRODUCED]
        former = written[-1].payload.get("attempt") if written else None
        if (not written and not is_evicted) or (isinstance(former, int) and former < row.attempt):
            yield Omission(output=output, feed=feed, former=former if isinstance(former, int) else None)


def explain_process_state(
    context: OperationContext,
    connection: Connection,
    key: ProcessKey,
    facts: ProcessFacts,
    *,
    is_root: bool,
    is_blocked: bool,
) -> Iterator[Reason]:
    """Yield the other reasons of a process instance. Its inputs are described only for the instance that the query
    names.
    """
    row = facts.row
    if row is not None:
        yield from _progress(context, row, facts.active, is_blocked=is_blocked, take=_find_take(context, row))
    if is_root:
        yield from _optional_inputs(facts)
        yield from _made_from(context, connection, key, facts)
        yield from late_check(connection, AgendaKey(AgendaKind.LATE_INPUTS, *key))
        yield from _update(connection, key)
        yield from _rerun(connection, key, facts.awaited)


def _find_take(context: OperationContext, row: ProcessInstance) -> str | None:
    """Return the call by which a program takes a batch of work elsewhere; None for work that runs here."""
    record = context.plan.processes.get((row.process, row.cluster))
    return init_command(record) if record is not None and record.is_elsewhere else None


def _progress(
    context: OperationContext, row: ProcessInstance, active: ActiveRelease | None, *, is_blocked: bool, take: str | None
) -> Iterator[Reason]:
    facts: dict[str, object]
    match row.status:
        case ProcessInstanceStatus.WAITING:
            if not is_blocked:
                yield Reason(code=ReasonCode.NEXT_TICK, text="nothing is missing: the next tick makes it READY")
            if row.deadline_at is not None:
                is_run = active is not None and active.record.on_timeout is OnTimeout.RUN
                text = f"it {'runs with what is there' if is_run else 'times out'} at {rendered(row.deadline_at)}"
                yield Reason(code=ReasonCode.TIMES_OUT, text=text, facts={"at": rendered(row.deadline_at)})
        case ProcessInstanceStatus.READY if row.request_key is not None:
            text = f"a run was requested at {rendered(row.requested_at)}, but has not begun"
            facts = {"request": row.request_key, "at": rendered(row.requested_at)}
            yield Reason(code=ReasonCode.REQUESTED, text=text, facts=facts)
        case ProcessInstanceStatus.READY if take is not None:
            yield Reason(code=ReasonCode.NEXT_BATCH, text="the next program takes it", command=take)
        case ProcessInstanceStatus.READY if not is_blocked:
            yield Reason(code=ReasonCode.NEXT_TICK, text="nothing is missing: the next tick requests its run")
        case ProcessInstanceStatus.RUNNING:
            text = (
                f"{describe_run(row.run_id)} has been running since {rendered(row.started_at)}, attempt {row.attempt}"
            )
            facts = {"run": row.run_id, "attempt": row.attempt, "since": rendered(row.started_at)}
            yield Reason(code=ReasonCode.RUNNING, text=text, facts=facts)
        case _:
            pass
    if row.status is ProcessInstanceStatus.SUCCEEDED or row.status in _FAILURES:
        yield _ended(context, row, take)
        if row.cause in {Cause.INTERRUPTED, Cause.RUN_CANCELLED}:
            text = f"cancelling a run ends only what it works on; to stop {describe_process(row.process)}"
            yield Reason(code=ReasonCode.STOPS, text=text, command=suspend_command(row.process, row.cluster))
    elif row.reason is not None:
        yield Reason(code=ReasonCode.LAST_CHANGE, text=f"last change: {row.reason}", facts={"reason": row.reason})
    if take is not None and row.status is ProcessInstanceStatus.FAILED:
        text = "the next program that takes a batch takes it again, with the same events"
        yield Reason(code=ReasonCode.NEXT_BATCH, text=text)
    else:
        yield from _retry(row)


_FAILURES = ENDED - {ProcessInstanceStatus.SUCCEEDED}


def _ended(context: OperationContext, row: ProcessInstance, take: str | None) -> Reason:
    log = context.run_url(row.run_id)
    facts = {"at": rendered(row.ended_at), "reason": row.reason, "run": row.run_id, "log": log}
    where = f" in {log or describe_run(row.run_id)}" if row.run_id else ""
    text = f"it ended at {rendered(row.ended_at)}{where}" + (f": {row.reason}" if row.reason else "")
    has_failed = row.status in _FAILURES
    again = instance_command("rerun", row.process, row.nominal_time, row.cluster) if has_failed else None
    if take is not None and row.status is ProcessInstanceStatus.FAILED:
        again = take
    return Reason(code=ReasonCode.ENDED, text=text, blocks=has_failed, facts=facts, command=again)


def _retry(row: ProcessInstance) -> Iterator[Reason]:
    again = next_attempt(row)
    if again is not None:
        text = f"the next retry is at {rendered(again)}"
        yield Reason(code=ReasonCode.RETRY, text=text, facts={"at": rendered(again), "retries": row.retries})
    elif row.status in _FAILURES and row.retry_at == NEVER:
        text = "no retry is left" if row.retries else "it is not retried"
        yield Reason(code=ReasonCode.RETRY, text=text, facts={"at": None, "retries": row.retries})


def describe_missing(active: ActiveRelease | None, edge: InputEdge, missing: Sequence[datetime]) -> str:
    """Return the ranges of several missing instances, as the end of a sentence; empty for a single one."""
    if active is None or len(missing) < 2:
        return ""
    return f", {render_ranges(missing, active.plan.feeds[edge.feed_key].sequence)}"


def _optional_inputs(facts: ProcessFacts) -> Iterator[Reason]:
    for state in facts.states:
        if state.edge.optional and state.missing:
            name, expected = state.edge.name, len(state.expected or ())
            missing = [render_datetime(time) for time in state.missing]
            text = f"optional input {name} lacks {len(missing)} of {expected} instances"
            text += describe_missing(facts.active, state.edge, state.missing) + "; it can run without them"
            lacks = {"input": name, "feed": state.edge.feed, "missing": missing}
            yield Reason(code=ReasonCode.OPTIONAL_INPUT, text=text, facts=lacks)


def _made_from(
    context: OperationContext, connection: Connection, key: ProcessKey, facts: ProcessFacts
) -> Iterator[Reason]:
    row, active = facts.row, facts.active
    if row is None or not row.attempt:
        return
    attempts = Attempts(connection).of(key)
    if attempts and attempts[-1].trigger:
        tried, trigger = attempts[-1], attempts[-1].trigger
        yield Reason(
            code=ReasonCode.TRIGGER,
            text=f"attempt {tried.attempt} began at {rendered(tried.started_at)}: {trigger}",
            facts={"trigger": trigger, "run": tried.run_id, "log": context.run_url(tried.run_id)},
        )
    if active is not None and active.release is not None:
        owner = declared_by(key.process)[0].value
        version = "" if active.version is None else f", version {active.version} of the {owner}"
        release = row.release or active.release
        declared = context.plan.processes.get(active.record.key)
        changed = find_changed_paths(connection, active.record, declared) if declared is not None else ()
        own = f", with its own content of {', '.join(changed)}, changed since" if changed else ""
        yield Reason(
            code=ReasonCode.GOVERNED_BY,
            text=f"it follows release {release}{version}{own}",
            facts={"release": release, "version": active.version, **({"changed_files": changed} if changed else {})},
        )
    for newest in attempts[-1:]:
        for frozen in newest.inputs:
            yield explain_read(frozen, find_read(connection, context.plan, newest, frozen))
        yield from map(explain_written, EventLog(connection).of_numbers(newest.outputs).values())
    for each in iter_omissions(connection, active, row) if active is not None else ():
        yield explain_left_out(f"it {each.render()}", each)
    if active is not None and row.status is ProcessInstanceStatus.SUCCEEDED:
        yield from left_to_newer(connection, active, attempts[-1])


def late_check(connection: Connection, key: AgendaKey, *, is_current: bool = False) -> Iterator[Reason]:
    """Yield the next check for late data, and the late data that a run is to process; of a current instance the next
    look at its place.
    """
    check = LateChecks(connection).get(*key)
    if check is None:
        return
    if check.changed:
        text = f"late data was found in {', '.join(check.changed)}; a run will process it"
        yield Reason(code=ReasonCode.LATE_DATA, text=text, facts={"changed": list(check.changed)})
    if check.due_at is not None:
        due_at, cut_off_at = rendered(check.due_at), rendered(check.cut_off_at)
        if is_current:
            text, facts = f"the next look at its place is at {due_at}", {"at": due_at}
            yield Reason(code=ReasonCode.LATE_CHECK, text=text, facts=facts)
            return
        text = f"the next check for late data is at {due_at}; checks end at {cut_off_at}"
        yield Reason(code=ReasonCode.LATE_CHECK, text=text, facts={"at": due_at, "until": cut_off_at})


def _update(connection: Connection, key: ProcessKey) -> Iterator[Reason]:
    """Yield that something which the instance may have read was updated, until it is decided whether it runs again."""
    check = LateChecks(connection).get(AgendaKind.UPDATE, *key)
    if check is not None and check.due_at is not None:
        updated_at, due_at = rendered(check.planned_at), rendered(check.due_at)
        text = f"what it reads was updated at {updated_at}; the next look at whether it must run again is at {due_at}"
        yield Reason(code=ReasonCode.UPDATE, text=text, facts={"updated_at": updated_at, "at": due_at})


def _rerun(
    connection: Connection, key: ProcessKey, awaited: Mapping[ProcessKey, ProcessInstanceStatus]
) -> Iterator[Reason]:
    """Yield that a rerun is asked for of which the instance is a part, until it has ended."""
    for check, asked in LateChecks(connection).reruns_of([key]).values():
        at = rendered(check.planned_at)
        text = f"it is a part of {asked.label}, which was asked for at {at}"
        if not asked.has_begun:
            text += ": it runs again" + ("" if asked.goes_on else " if what it has read comes out with other content")
            text += f", when these have run: {describe_awaited(awaited)}" if awaited else ", with the next tick"
        facts: dict[str, object] = {"rerun": asked.plan, "by": asked.author, "asked_at": at}
        facts |= {"at": rendered(check.due_at), "waits_for": [*iter_awaited(awaited)]}
        command = None if asked.has_begun else instance_command("kill", key.process, key.nominal_time, key.cluster)
        yield Reason(code=ReasonCode.RERUN, text=text, facts=facts, command=command)


def iter_awaited(awaited: Mapping[ProcessKey, ProcessInstanceStatus]) -> Iterator[str]:
    """Yield instances that are awaited, each with its state."""
    for (process, _, time), status in awaited.items():
        state = "it waits itself" if status is ProcessInstanceStatus.SUCCEEDED else status.value
        yield f"{describe_process(process)} {render_datetime(time)} ({state})"


def describe_awaited(awaited: Mapping[ProcessKey, ProcessInstanceStatus]) -> str:
    """Return instances that are awaited, for people: the first few."""
    return render_some(tuple(iter_awaited(awaited)), 3)


def explain_feed_state(
    context: OperationContext,
    connection: Connection,
    key: FeedKey,
    facts: FeedFacts,
    writers: Sequence[Explanation],
    omissions: Mapping[ProcessKey, Omission],
    *,
    is_root: bool,
) -> Iterator[Reason]:
    """Yield all reasons of a feed instance; `writers` explain the process instances that write it, and `omissions`
    are those that have left it out. Its expiry is described only for the instance that the query names.
    """
    record = facts.record
    status = facts.row.status if facts.row else FeedInstanceStatus.MISSING
    if status is FeedInstanceStatus.AVAILABLE:
        yield from explain_availability(facts)
        yield from explain_former_place(context, connection, facts)
        yield from _explain_keeping(context, connection, record, key) if is_root else ()
        return
    if status is FeedInstanceStatus.EVICTED:
        yield from _explain_eviction(connection, key, facts)
    elif key.nominal_time > context.as_of:
        text, at = "its nominal time is in the future", {"at": rendered(key.nominal_time)}
        yield blocking(ReasonCode.NOT_DUE, text, at)
    elif facts.lost is not None:
        yield explain_lost(facts, facts.lost)
        if status is FeedInstanceStatus.PARTIAL:
            yield _absence(context, facts, key, status)
        if facts.poll is not None:
            yield _polls(facts, context.as_of)
    elif facts.check is not None and status is FeedInstanceStatus.PARTIAL:
        yield _held_back(key, facts.check)
        if facts.poll is not None:
            yield _polls(facts, context.as_of)
    elif record.produced_by is not None and facts.poll is None:
        yield _not_materialized(context, record, key)
    elif record.is_external and facts.row is None and not record.is_expected:
        yield _not_noticed(context, record, key)
    elif record.is_external and facts.row is None and facts.poll is None:
        yield _not_polled(context, record, key)
    elif record.is_external:
        obstacle = facts.poll.obstacle if facts.poll is not None else None
        yield (
            _absence(context, facts, key, status) if obstacle is None else _obstruction(context, record, key, obstacle)
        )
        yield _polls(facts, context.as_of)
    elif omissions:
        for writer, each in omissions.items():
            text = f"process {writer.process} has succeeded, and has {each.render()}"
            yield explain_left_out(text, each, blocks=True)
    else:
        yield _not_written(context, record, key, writers)
    yield from explain_history(facts)


def _absence(context: OperationContext, known: FeedFacts, key: FeedKey, status: FeedInstanceStatus) -> Reason:
    """Return what the last look has seen, which may be another thing than what is there now."""
    record = known.record
    url = context.feed_url(record, key.nominal_time)
    looked_at = known.poll.polled_at if known.poll else known.row.updated_at if known.row else None
    at = f"at {rendered(looked_at)}"
    facts: dict[str, object] = {"url": url, "flag": record.flag, "at": rendered(looked_at)}
    arrival = _arrival_command(context, record, key)
    told = f"asset {record.producer} was materialized, but " if record.produced_by is not None else ""
    if status is FeedInstanceStatus.PARTIAL:
        settling = "had been written less than a minute before" if record.is_current else "was being published"
        lacked = f"lacked its flag {record.flag}" if record.flag else settling
        text = f"{told}{url} {lacked} {at}"
        return blocking(ReasonCode.FLAG_MISSING, text, facts, arrival)
    if status is FeedInstanceStatus.EMPTY:
        text = f"{told}{url} existed {at}, but was empty"
        return blocking(ReasonCode.EMPTY, text, facts, arrival)
    flag = f", and neither did its flag {record.flag}" if record.flag else ""
    text = f"{told}{url} did not exist {at}{flag}"
    return blocking(ReasonCode.NOT_THERE, text, facts, arrival)


def _arrival_command(context: OperationContext, record: FeedRecord, key: FeedKey) -> str | None:
    """Return the command with which an instance arrives: of its asset, or a notice; None if it is not declared."""
    if record.key not in context.plan.feeds:
        return None
    if record.produced_by is not None:
        return materialize_command(record.producer, render_key(record.sequence, key.nominal_time))
    return command_line("feed", "notify", key.feed, key.nominal_time, cluster=key.cluster)


def _not_noticed(context: OperationContext, record: FeedRecord, key: FeedKey) -> Reason:
    """Return that an instance that nobody expects has not come."""
    text = "nobody has given notice of it"
    if record.watch is not None:
        url = context.feed_url(record, key.nominal_time)
        text += f", and no look at {url} has found it: there is one every {record.watch}"
    if record.inbox is not None:
        url = context.stores.url(record.inbox.store, record.inbox.directory)
        text += f", and nothing was taken from {url} then"
    return blocking(ReasonCode.NOT_THERE, text)


def _not_polled(context: OperationContext, record: FeedRecord, key: FeedKey) -> Reason:
    """Return that nothing is known of the storage."""
    url = context.feed_url(record, key.nominal_time)
    with context.database.read() as connection:
        standing = Watermarks(connection).get(WatermarkKind.FEED, *record.key)
    when, due = "the next one does", (record.sequence, record.sequence.start, context.as_of + timedelta(microseconds=1))
    past = part_past(standing, [due]).past_towards(key.nominal_time) if standing is not None else None
    if past is not None:
        when = f"ticks poll the past behind what is due, {render_datetime(past)} next"
    text = f"no tick has polled {url} yet: {when}"
    return blocking(ReasonCode.NOT_POLLED, text, {"url": url, "flag": record.flag})


def _not_materialized(context: OperationContext, record: FeedRecord, key: FeedKey) -> Reason:
    """Return that the asset which makes the instance has not been materialized for it."""
    text = f"asset {record.producer} has not been materialized for it: materialize that partition in Dagster"
    arrival = _arrival_command(context, record, key)
    return blocking(ReasonCode.NOT_MATERIALIZED, text, {"asset": record.producer}, arrival)


def _obstruction(context: OperationContext, record: FeedRecord, key: FeedKey, obstacle: str) -> Reason:
    url = context.feed_url(record, key.nominal_time)
    text, facts = f"{url} cannot be polled: {obstacle}", {"url": url, "obstacle": obstacle}
    return blocking(ReasonCode.OBSTRUCTED, text, facts, command_line("validate", live=True))


def _held_back(key: FeedKey, check: QualityCheck) -> Reason:
    """Return that the rows of an instance hold it back, or are being judged."""
    can_be_taken = check.summary is not None or check.error is not None
    accept = command_line("feed", "notify", key.feed, key.nominal_time, cluster=key.cluster, accept="REASON")
    facts = {"request": check.request, "content": check.content, **check.facts}
    return blocking(ReasonCode.QUALITY, check.sentence, facts, accept if can_be_taken else None)


def _polls(facts: FeedFacts, as_of: datetime) -> Reason:
    if facts.poll is None:
        return Reason(code=ReasonCode.POLLS, text="the next tick polls it")
    polled_at, next_poll_at = rendered(facts.poll.polled_at), rendered(facts.poll.next_poll_at)
    again = "is at" if facts.poll.next_poll_at > as_of else "has been due since"
    return Reason(
        code=ReasonCode.POLLS,
        text=f"the last poll was at {polled_at}, the next poll {again} {next_poll_at}",
        facts={"polled_at": polled_at, "next_poll_at": next_poll_at},
    )


def _not_written(context: OperationContext, record: FeedRecord, key: FeedKey, writers: Sequence[Explanation]) -> Reason:
    if not writers:
        names = ", ".join(sorted({edge.process for edge in record.outputs_of}))
        text = f"no instance of {names} produces it"
        return blocking(ReasonCode.NO_WRITER, text, {"processes": names})
    text = "it has not been copied" if all(is_flow(each.name) for each in writers) else "it has not been produced"
    return blocking(ReasonCode.NOT_WRITTEN, text, {"url": context.feed_url(record, key.nominal_time)}, causes=writers)


def explain_written(event: FeedEvent) -> Reason:
    """Return that an attempt has written an output."""
    output, time = event.payload["output"], render_datetime(event.nominal_time)
    text = f"it wrote feed {event.feed} {time} as output {output} ({shorten_digest(event.manifest_digest)})"
    return Reason(code=ReasonCode.OUTPUT, text=text, facts={"feed": event.feed, "instance": time, **event_facts(event)})


def explain_left_out(text: str, omission: Omission, *, blocks: bool = False) -> Reason:
    """Return that an attempt has left out an output."""
    feed = omission.feed
    facts = {"output": omission.output, "feed": feed.feed, "instance": render_datetime(feed.nominal_time)}
    return Reason(code=ReasonCode.LEFT_OUT, text=text, blocks=blocks, facts=facts)


def explain_read(frozen: FrozenInput, version: FeedEvent | None = None) -> Reason:
    """Return what an attempt has read as an input; of a current instance the version."""
    pairs = list(zip(frozen.nominal_times, frozen.digests, strict=True))
    if not pairs:
        text = f"it read nothing as input {frozen.name}"
    else:
        span = f"the version of {rendered(version.recorded_at)}" if version else render_datetime(pairs[0][0])
        span += f" to {render_datetime(pairs[-1][0])}" if len(pairs) > 1 else ""
        digest = f" ({shorten_digest(pairs[0][1])})" if len(pairs) == 1 else ""
        text = f"it read {counted(len(pairs), 'instance')} of feed {frozen.feed} as input {frozen.name}: {span}{digest}"
    instances = [{"instance": render_datetime(time), "digest": digest} for time, digest in pairs]
    at = {"version": rendered(version.recorded_at)} if version else {}
    facts = {"input": frozen.name, "feed": frozen.feed, "instances": instances, **at}
    return Reason(code=ReasonCode.INPUT_READ, text=text, facts=facts)


def explain_former_place(context: OperationContext, connection: Connection, facts: FeedFacts) -> Iterator[Reason]:
    """Yield that an instance is where its feed had its data before, if it is."""
    assert facts.row is not None
    there, time = FeedPlaces(connection).at_place(facts.record, facts.row), facts.row.nominal_time
    if (url := context.feed_url(there, time)) != context.feed_url(facts.record, time):
        text = f"it is at {url}, a former place of its feed"
        yield Reason(code=ReasonCode.FORMER_PLACE, text=text, facts={"url": url})


def explain_lost(facts: FeedFacts, lost: FeedEvent) -> Reason:
    """Return that storage has lost an instance, and the command by which it is produced again."""
    store, path, found_at = lost.payload["store"], lost.payload["path"], rendered(lost.recorded_at)
    url = f"{str(store).rstrip('/')}/{path}"
    is_back = facts.row is not None and facts.row.status is FeedInstanceStatus.PARTIAL
    gone = f"was gone, noticed at {found_at}" if is_back else f"is not there any more, noticed at {found_at}"
    text = f"storage has lost it: {url} {gone} by {lost.origin}"
    writers = ((key.process, key.nominal_time, key.cluster) for key in facts.writers)
    command = next((instance_command("rerun", *writer) for writer in writers), None)
    return blocking(ReasonCode.VANISHED, text, {"url": url, "at": found_at}, command)


def _explain_eviction(connection: Connection, key: FeedKey, facts: FeedFacts) -> Iterator[Reason]:
    """Yield when, by which sweep and why an instance was evicted, where it is now and how to restore it."""
    gone = [event for event in facts.events if event.kind is FeedEventKind.EVICTED and event.is_of_data]
    if not gone:  # cleaned up, long after
        at = rendered(facts.row.updated_at) if facts.row else None
        yield blocking(ReasonCode.EVICTED, f"it was evicted at {at}", {"at": at})
        return
    event = gone[-1]
    sweep_id = event.payload.get("sweep")
    because = f": {event.payload['reason']}" if event.payload.get("reason") else ""
    by = f"sweep {sweep_id}" if sweep_id else event.origin
    told = {"at": rendered(event.recorded_at), "origin": event.origin, "bytes": event.bytes, "files": event.files}
    text = f"it was evicted at {rendered(event.recorded_at)} by {by}{because}"
    yield blocking(ReasonCode.EVICTED, text, {**told, **event.payload})
    sweep = Sweeps(connection).find(str(sweep_id)) if sweep_id else None
    if sweep is not None:
        yield from explain_whereabouts(key, event, sweep)


def explain_whereabouts(key: FeedKey, event: FeedEvent, sweep: Sweep) -> Iterator[Reason]:
    """Yield where what a sweep has removed is now."""
    undo = command_line("retention", "undo", sweep.sweep_id, feed=key.feed, instance=key.nominal_time)
    archive = event.payload.get("archive")
    if isinstance(archive, dict):
        url = f"{str(archive['store']).rstrip('/')}/{archive['path']}"
        yield Reason(code=ReasonCode.ARCHIVED, text=f"it is archived at {url}", facts={"url": url}, command=undo)
    elif sweep.purged_at is not None:
        text = f"the trash was emptied at {rendered(sweep.purged_at)}: it cannot be restored"
        yield Reason(code=ReasonCode.PURGED, text=text, facts={"at": rendered(sweep.purged_at)})
    else:
        until = rendered(sweep.purge_at)
        end = until if sweep.purge_at else "the sweep has ended and the trash expires"
        end = "newer versions take its place" if sweep.purge_at == WHILE_A_VERSION else end
        facts = {"until": until, "sweep": sweep.sweep_id}
        yield Reason(code=ReasonCode.TRASHED, text=f"it is in the trash until {end}", facts=facts, command=undo)


def _explain_keeping(
    context: OperationContext, connection: Connection, record: FeedRecord, key: FeedKey
) -> Iterator[Reason]:
    """Yield the time until which an available instance is kept, and its protections after that."""
    # Measured: 15 ms, and the data that are missing need none of it.
    from feed_assets.retention.rules.protections import ProtectionQuery, find_protections

    policy = record.retention
    if policy is None:
        text = "it stays: its feed has no retention here"
        if record.is_current:
            text = "it stays: it is the one instance of its feed"
            if record.versions:
                text += f"; up to {counted(record.versions, 'former version')} stay in the trash"
        yield Reason(code=ReasonCode.KEPT, text=text)
        return
    expires_at = None
    if policy.limit is not None:
        expires_at = key.nominal_time + policy.limit.as_duration()
        over = "ended at" if expires_at < context.as_of else "ends at"
        text = f"its retention of {policy.limit} {over} {rendered(expires_at)}"
        yield Reason(code=ReasonCode.EXPIRES, text=text, facts={"at": rendered(expires_at), "limit": str(policy.limit)})
    query = ProtectionQuery(as_of=context.as_of, real_now=context.real_now, holder="")
    for kept in find_protections(connection, context.timeline, record, [key.nominal_time], query).get(
        key.nominal_time, []
    ):
        facts = {"protection": kept.kind.value, "reason": kept.reason}
        yield Reason(code=ReasonCode.KEPT, text=f"it is protected ({kept.kind}): {kept.reason}", facts=facts)
    next_sweep = AgendaKey.of_entity(AgendaKind.RETENTION, *record.key)
    scheduled = Agenda[Entry](connection).get_many([next_sweep]).get(next_sweep)
    if scheduled is not None and scheduled.due_at is not None and expires_at is not None and expires_at < context.as_of:
        text = f"retention of its feed is next due at {rendered(scheduled.due_at)}"
        yield Reason(code=ReasonCode.NEXT_SWEEP, text=text, facts={"at": rendered(scheduled.due_at)})
