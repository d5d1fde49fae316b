"""Poll storage for instances of external feeds: decide which to poll, record the results, and plan the next polls.

An instance is polled from its nominal time on, often while it is young and less and less often as it ages. An instance
that was found is never polled again, so the cost of a tick depends on the missing instances, not on history. What older
releases wait for, of feeds that have moved or have other instances now, is polled by their own definitions.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, zip_longest

from sqlalchemy import Connection

from feed_assets.context.bulkheads import Bulkheads, TickStep, pause_by_age
from feed_assets.context.operation import LifecycleContext
from feed_assets.context.tick import Tick, tick_step
from feed_assets.errors import describe_error
from feed_assets.instances.arrival.store_polls import Candidate, poll_confined, require_unobstructed
from feed_assets.instances.late.contents import Content, note_content, scan_contents
from feed_assets.instances.late.lateness import decide_feed_check, is_young
from feed_assets.instances.late.quality_checks import digest_rules, hold_back
from feed_assets.instances.late.store import LateCheck, LateChecks
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    ArrivalPoll,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    NewFeedEvent,
    ProcessInstanceStatus,
    Watermark,
    WatermarkKind,
)
from feed_assets.log.watermarks import PAST_A_TICK, Watermarks, part_past
from feed_assets.plan.copy_records import endpoint_of
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.storage.records import Availability, Look, obstructed
from feed_assets.timing.dates import render_datetime
from feed_assets.triggers.input_windows import InputState, input_states_many

ORIGIN = "arrival"
BATCH = 2_000
POLLS_A_TICK = 20_000
LONGEST_PAUSE = timedelta(hours=6)
LONGEST_PAUSE_BEGUN = timedelta(minutes=10)

_Batch = tuple[list[Candidate], list[tuple[Watermark, Watermark]]]
"""What is polled together, and the watermarks to write with the results: as they were read, and as they are then."""

_STATUS = {
    Availability.MISSING: FeedInstanceStatus.MISSING,
    Availability.PARTIAL: FeedInstanceStatus.PARTIAL,
    Availability.EMPTY: FeedInstanceStatus.EMPTY,
    Availability.AVAILABLE: FeedInstanceStatus.AVAILABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """The result of a poll: the instance's row, and either an ARRIVED event or the next poll.

    `row` is None if the store could not look into the instance, or if it `is_gone`. `late_check` plans a check for late
    data if no process does; `content` is that of a current one that arrived. `is_news` says that the result differs
    from the last poll, or that no earlier result is known.
    """

    candidate: Candidate
    row: FeedInstance | None = None
    event: NewFeedEvent | None = None
    next_poll: ArrivalPoll | None = None
    is_news: bool = True
    late_check: LateCheck | None = None
    content: Content | None = None

    @property
    def record(self) -> FeedRecord:
        """The feed."""
        return self.candidate.record

    @property
    def key(self) -> FeedKey:
        """The instance."""
        return self.candidate.key

    @property
    def is_gone(self) -> bool:
        """Whether nobody expects it any more."""
        return self.row is None and self.next_poll is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalResult:
    """The results of the polls of one tick: how many there were, and how many instances have arrived."""

    polled: int = 0
    arrived: int = 0
    is_complete: bool = True

    @classmethod
    def sum_of(cls, *results: "ArrivalResult") -> "ArrivalResult":
        """Return the results of several steps as one."""
        return cls(
            polled=sum(each.polled for each in results),
            arrived=sum(each.arrived for each in results),
            is_complete=all(each.is_complete for each in results),
        )


def pause_after_poll(nominal_time: datetime, as_of: datetime, *, has_begun: bool = False) -> timedelta:
    """Return the pause before the next poll of a missing instance: a fiftieth of its age, at least a second.

    At most six hours, or ten minutes if the instance `has_begun` to arrive.
    """
    return pause_by_age(as_of - nominal_time, LONGEST_PAUSE_BEGUN if has_begun else LONGEST_PAUSE)


def fingerprint(look: Look) -> str:
    """Return a cheap fingerprint of an instance's content, without reading it: from bytes, files and times."""
    modified = look.modified_at.isoformat() if look.modified_at else ""
    return "look:" + hashlib.sha256(f"{look.bytes}|{look.files}|{modified}".encode()).hexdigest()[:32]


def wait_until_settled(record: FeedRecord, look: Look, real_now: datetime) -> Look:
    """Return a look as polls take it: a current instance without a flag is PARTIAL as long as somebody writes it."""
    is_told = record.flag is not None or look.availability is not Availability.AVAILABLE
    if not record.is_current or is_told or not is_young(look.modified_at, real_now):
        return look
    return replace(look, availability=Availability.PARTIAL)


def decide_poll_result(candidate: Candidate, look: Look, as_of: datetime, origin: str = ORIGIN) -> PollResult:
    """Decide the result of a poll; `origin` is who asked for it.

    An instance without a flag that exists and is empty stays EMPTY: a writer may still be at work; the place of a
    current one that is empty has no version. Of instances that
    come as they come none is MISSING: one that had begun to come and is not there any more is forgotten. One whose
    rows are judged is polled until it is available: it may get other content.
    """
    record = candidate.record
    if look.obstacle is not None:
        found = f"obstacle|{look.obstacle}"
        planned = _plan_poll(candidate, found, as_of, has_begun=True, obstacle=look.obstacle)
        return PollResult(candidate=candidate, next_poll=planned, is_news=found != candidate.known)
    status = _STATUS[look.availability]
    if record.is_current and status is FeedInstanceStatus.EMPTY:
        status = FeedInstanceStatus.MISSING
    if status is FeedInstanceStatus.MISSING and not record.is_expected:
        return PollResult(candidate=candidate)
    arrived = status is FeedInstanceStatus.AVAILABLE
    digest = fingerprint(look) if arrived else None
    row = FeedInstance(
        **candidate.key._asdict(),
        status=status,
        manifest_digest=digest,
        bytes=look.bytes,
        files=look.files,
        available_at=as_of if arrived else None,
        updated_at=as_of,
        place=record.place,
    )
    if not arrived:
        found = f"{status}|{look.bytes}|{look.files}"
        has_begun = look.availability is not Availability.MISSING
        planned = _plan_poll(candidate, found, as_of, has_begun=has_begun)
        return PollResult(candidate=candidate, row=row, next_poll=planned, is_news=found != candidate.known)
    again: ArrivalPoll | None = None
    if record.is_judged:
        assert record.quality is not None
        found = f"{status}|{digest}|{digest_rules(record.quality)}"
        again = _plan_poll(candidate, found, as_of, has_begun=True)
    event = arrival_of(row, look.path, origin)
    late_check = decide_feed_check(record, candidate.nominal_time, as_of)
    is_news = again is None or again.found != candidate.known
    return PollResult(
        candidate=candidate, row=row, event=event, next_poll=again, is_news=is_news, late_check=late_check
    )


def arrival_of(row: FeedInstance, path: str, origin: str) -> NewFeedEvent:
    """Return the event of an arrival that a row tells of."""
    return NewFeedEvent(
        **row.key._asdict(),
        kind=FeedEventKind.ARRIVED,
        origin=origin,
        manifest_digest=row.manifest_digest,
        bytes=row.bytes,
        files=row.files,
        payload={"path": path},
        recorded_at=row.updated_at,
    )


def read_versions(
    context: LifecycleContext, seen: Sequence[PollResult], bulkheads: Bulkheads | None = None
) -> list[PollResult]:
    """Return results with the content of the current instances that arrive, as looks for other versions compare it. One
    that cannot be read now is looked at again.
    """
    arriving = [each for each in seen if each.event is not None and each.is_news]
    wanted = {each.key: each.record for each in arriving if each.record.is_current}
    if not wanted:
        return [*seen]
    contents = scan_contents(context, wanted, bulkheads, follows_declared=True)
    return [_with_content(each, contents[each.key]) if each.key in contents else each for each in seen]


def _with_content(seen: PollResult, content: Content) -> PollResult:
    assert seen.event is not None
    assert seen.row is not None
    if content.scan is None or not content.is_available:
        obstacle = "it is changing" if content.error is None else describe_error(content.error)
        return _obstruct(seen, obstacle, seen.row.updated_at)
    digest, size, files = content.scan.digest, content.scan.bytes, len(content.scan.files)
    row = replace(seen.row, manifest_digest=digest, bytes=size, files=files)
    event = replace(seen.event, manifest_digest=digest, bytes=size, files=files)
    return replace(seen, row=row, event=event, content=content)


def _obstruct(seen: PollResult, obstacle: str, as_of: datetime) -> PollResult:
    """Return the result for an instance that has not arrived after all."""
    return decide_poll_result(replace(seen.candidate, known=""), obstructed("", obstacle), as_of)


def plan_first_poll(candidate: Candidate, as_of: datetime) -> PollResult:
    """Return the result for an instance that is to be polled at its nominal time, which is still to come."""
    return PollResult(candidate=candidate, next_poll=_plan_poll(candidate, "", as_of, has_begun=False))


def _plan_poll(
    candidate: Candidate, found: str, as_of: datetime, *, has_begun: bool, obstacle: str | None = None
) -> ArrivalPoll:
    record, key = candidate.record, candidate.key
    longest = record.watch.as_duration() if record.is_current and record.watch is not None else LONGEST_PAUSE
    pause = min(pause_after_poll(key.nominal_time, as_of, has_begun=has_begun), longest)
    again = max(as_of + pause, key.nominal_time)
    return ArrivalPoll(*key, found=found, polled_at=as_of, next_poll_at=again, obstacle=obstacle)


@tick_step(TickStep.ARRIVALS, otherwise=ArrivalResult())
def apply_arrivals(tick: Tick) -> ArrivalResult:
    """Poll the due instances of a cluster's external feeds and record arrivals; stop when the budget is spent.

    Each batch is one transaction, and recorded results need no second poll, so the next tick continues an interrupted
    one. What keeps a store from looking is recorded with the polls of the instances that it concerns. Of the past there
    is a batch even if the budget is spent before it.
    """
    polled, arrived, is_complete = 0, 0, True
    for candidates, watermarks in _due(tick):
        arrived += _apply_polls(tick, candidates, watermarks)
        polled += len(candidates)
        if tick.budget.is_spent:
            is_complete = False
            break
    for candidates, watermarks in _of_past(tick):
        arrived += _apply_polls(tick, candidates, watermarks)
        polled += len(candidates)
        is_complete = False
        if tick.budget.left < tick.budget.seconds / 2:
            break
    return ArrivalResult(polled=polled, arrived=arrived, is_complete=is_complete)


def missing_inputs(plan: Plan, states: Sequence[InputState]) -> list[Candidate]:
    """Return the instances that the inputs of a process instance lack by the record, and that a poll may find."""
    found = ((plan.feeds[state.edge.feed_key], state.missing) for state in states)
    return [Candidate(record=each, nominal_time=time) for each, times in found if each.is_polled for time in times]


def poll_missing_inputs(
    context: LifecycleContext,
    plan: Plan,
    states: Sequence[InputState],
    poll: Callable[[Sequence[Candidate]], list[Look]],
) -> None:
    """Poll missing external instances now and record arrivals, for runs that no sensor has prepared, and for ticks.

    Raises:
        StorageError: a store could not look into one of them; the arrivals of the others are recorded.
    """
    as_of = context.as_of
    candidates = [each for each in missing_inputs(plan, states) if each.nominal_time <= as_of]
    looks = poll(candidates)
    seen = [decide_poll_result(candidate, look, as_of) for candidate, look in zip(candidates, looks, strict=True)]
    arrived = read_versions(context, [each for each in seen if each.event is not None])
    if arrived:
        with context.database.begin() as connection:
            record_poll_results(connection, arrived)
    require_unobstructed(candidates, looks)


def _due(tick: Tick) -> Iterator[_Batch]:
    """Yield batches of new instances and of instances that an earlier poll missed, alternately.

    Neither kind delays the other if there is more work than a tick can do.
    """
    new = _newly_due(tick)
    missed = chain(_due_at_addresses(tick), _due_again(tick))
    again: Iterator[_Batch] = ((batch, []) for batch in missed)
    return (batch for pair in zip_longest(new, again) for batch in pair if batch is not None)


def _due_at_addresses(tick: Tick) -> Iterator[list[Candidate]]:
    """Yield an instance of each store that could not be polled, if the next try of its address is due."""
    again = tick.bulkheads.to_try_again(TickStep.STORAGE)
    if not again:
        return
    with tick.database.read() as connection:
        found = [each for each in ArrivalPolls(connection).obstructed() if each.cluster == tick.cluster]
    by_store = {
        record.store: Candidate(record=record, nominal_time=each.oldest)
        for each in found
        if (record := tick.plan.feeds.get((each.feed, tick.cluster)))
        and again & {endpoint_of(record.store), record.store.url}
    }
    if by_store:
        yield list(by_store.values())


def _due_again(tick: Tick) -> Iterator[list[Candidate]]:
    """Yield batches of instances that were missing. Polls of instances unknown to the plan are put off."""
    with tick.database.read() as connection:
        due = ArrivalPolls(connection).due(tick.cluster, tick.as_of, POLLS_A_TICK)
    candidates, unknown = [], []
    for poll in due:
        record = tick.plan.feeds.get((poll.feed, poll.cluster))
        if record is None or not record.is_external or not record.sequence.contains(poll.nominal_time):
            unknown.append(poll._replace(next_poll_at=tick.as_of + LONGEST_PAUSE))
        else:
            candidates.append(Candidate(record=record, nominal_time=poll.nominal_time, known=poll.found))
    if unknown:
        with tick.database.begin() as connection:
            ArrivalPolls(connection).move(unknown)
    for start in range(0, len(candidates), BATCH):
        yield candidates[start : start + BATCH]


def _newly_due(tick: Tick) -> Iterator[_Batch]:
    """Yield batches of instances whose nominal time has come, with the watermarks to write with the batch.

    The feeds share a batch evenly, so that a feed with a long past does not delay the others.
    """
    while True:
        with tick.database.read() as connection:
            due = Watermarks(connection).due(WatermarkKind.FEED, tick.as_of, BATCH, cluster=tick.cluster)
        if not due:
            return
        candidates: list[Candidate] = []
        moved: list[tuple[Watermark, Watermark]] = []
        share = max(1, BATCH // len(due))
        for read in due:
            record = tick.plan.feeds.get((read.entity, read.cluster))
            if record is None or not record.is_polled:
                moved.append((read, replace(read, next_time=None)))  # none comes until its definition changes
                continue
            sequence, until = record.sequence, tick.as_of + _MOMENT
            watermark = part_past(read, [(sequence, sequence.start, until)])
            indices = sequence.indices_between(watermark.ahead[-1][0], until)[:share]
            candidates.extend(Candidate(record=record, nominal_time=sequence.at(index)) for index in indices)
            moved.append((read, _moved(record, watermark, indices)))
        yield candidates, moved
        if len(due) < BATCH and all(each.next_time is None or each.next_time > tick.as_of for _, each in moved):
            return


def _of_past(tick: Tick) -> Iterator[_Batch]:
    """Yield batches of the past, oldest first, with the watermarks to write with the batch; the feeds share it evenly.

    Of each feed at most `PAST_A_TICK`.
    """
    plan, polled, now = tick.plan, Counter[Key](), tick.as_of + _MOMENT
    while True:
        with tick.database.read() as connection:
            found = Watermarks(connection).due(WatermarkKind.FEED, tick.as_of, None, tick.cluster, of_past=True)
        known = [each for each in found if each.key in plan.feeds and plan.feeds[each.key].is_polled]
        due = [each for each in known if polled[each.key] < PAST_A_TICK]
        if not due:
            return
        candidates: list[Candidate] = []
        moved: list[tuple[Watermark, Watermark]] = []
        share = max(1, BATCH // len(due))
        for watermark in due[:BATCH]:
            record = plan.feeds[watermark.key]
            sequence, (first, until) = record.sequence, watermark.ahead[0]
            indices, is_due = sequence.indices_between(first, until), sequence.indices_between(first, now)
            size = min(share, PAST_A_TICK - polled[watermark.key], len(is_due))
            taken, left = indices[:size], indices[size:]
            polled[watermark.key] += share
            candidates.extend(Candidate(record=record, nominal_time=sequence.at(index)) for index in taken)
            moved.append((watermark, replace(watermark, past_time=sequence.at(left.start) if left else None)))
        yield candidates, moved


def _moved(record: FeedRecord, watermark: Watermark, indices: range) -> Watermark:
    size = record.sequence.size
    ended = size is not None and indices.stop >= size
    next_time = None if ended else record.sequence.at(indices.stop)
    return replace(watermark, next_index=indices.stop, next_time=next_time)


def _apply_polls(tick: Tick, candidates: Sequence[Candidate], watermarks: Sequence[tuple[Watermark, Watermark]]) -> int:
    looks = poll_confined(tick, candidates)
    seen = [
        decide_poll_result(candidate, wait_until_settled(candidate.record, look, tick.real_now), tick.as_of)
        for candidate, look in zip(candidates, looks, strict=True)
    ]
    seen = read_versions(tick, seen, tick.bulkheads)
    with tick.database.begin() as connection:
        arrived = record_poll_results(connection, seen)
        Watermarks(connection).move(watermarks)
    return arrived


def record_poll_results(connection: Connection, seen: Sequence[PollResult]) -> int:
    """Record the results of polls; return the number of instances that arrived.

    An instance that became AVAILABLE or EVICTED meanwhile keeps its status and gets no second event. An unchanged
    result only updates the planned poll. One whose path is another's, since the place of the feed has changed, has not
    arrived, nor has one whose rows are still to be judged.
    """
    instances, planned = FeedInstances(connection), ArrivalPolls(connection)
    settled = instances.find_settled([each.key for each in seen if each.is_news])
    news = [each for each in seen if each.is_news and each.key not in settled]
    came = [(each.record, each.key.nominal_time) for each in news if each.event is not None]
    owners = FeedPlaces(connection).find_owners(came)
    news = [
        _obstruct(each, describe_owner(owners[each.key]), each.row.updated_at)
        if owners and each.key in owners and each.row is not None
        else each
        for each in news
    ]
    news = _without_held(connection, news)
    arrived = [(each.row, each.event) for each in news if each.event is not None and each.row is not None]
    seqs = EventLog(connection).append([event for _, event in arrived])
    for each in news:
        if each.event is not None:
            note_content(connection, each.content, each.event.recorded_at)
    rows = [each.row for each in news if each.event is None and each.row is not None]
    gone = [each.key for each in news if each.is_gone]
    instances.remove(gone)
    planned.remove(gone)
    instances.put([*rows, *(replace(row, event_seq=seq) for (row, _), seq in zip(arrived, seqs, strict=True))])
    LateChecks(connection).add([each.late_check for each in news if each.late_check is not None])
    planned.put([each.next_poll for each in news if each.next_poll is not None])
    planned.move([each.next_poll for each in seen if each.next_poll is not None and not each.is_news])
    return len(arrived)


def describe_owner(owner: datetime) -> str:
    """Return why an instance has not arrived that has the path of another one."""
    return f"its path is that of instance {render_datetime(owner)}, which came before the place of the feed changed"


def _without_held(connection: Connection, news: Sequence[PollResult]) -> list[PollResult]:
    """Return the results without the arrivals that are held back until their rows are judged."""
    arriving = [(each.record, each.row, each.event) for each in news if each.row is not None and each.event is not None]
    held = hold_back(connection, arriving)
    return [
        replace(each, row=held[each.key], event=None, late_check=None)
        if held and each.key in held
        else replace(each, next_poll=None)
        if each.event is not None
        else each
        for each in news
    ]


PAUSE = timedelta(minutes=1)
INSTANCES_A_LOOK = 500
_MOMENT = timedelta(microseconds=1)
_WAITING = frozenset({ProcessInstanceStatus.WAITING})


@tick_step(TickStep.PAST_ARRIVALS, otherwise=None)
def apply_past_polls(tick: Tick) -> None:
    """Poll the inputs that older releases wait for and the arrival sensor does not poll, once a minute.

    Does nothing, and reads nothing, while no older release has waiting instances.
    """
    older = tick.timeline.older(tick.cluster)
    if not older:
        return
    with tick.database.read() as connection:
        due = Cursors(connection).get(_cursor(tick.cluster))
        if due is not None and timedelta(0) < datetime.fromisoformat(due) - tick.as_of <= PAUSE:
            return
        waited = [(each, _missing(connection, tick.plan, each, tick.as_of)) for each in older]
    for each, states in waited:
        poll = partial(poll_missing_inputs, tick, each.plan, states, partial(poll_confined, tick))
        tick.bulkheads.run_unit(TickStep.PAST_ARRIVALS, each.record.process, None, poll)
    with tick.database.begin() as connection:
        Cursors(connection).put(_cursor(tick.cluster), (tick.as_of + PAUSE).isoformat())


def _cursor(cluster: str) -> str:
    return f"arrival/former/{cluster}"


def _missing(connection: Connection, present: Plan, older: ActiveRelease, as_of: datetime) -> list[InputState]:
    """Return the inputs with missing instances that the arrival sensor does not poll."""
    key = older.record.key
    waiting = ProcessInstances(connection).times_in({key: [(older.start, older.stop - _MOMENT)]}, _WAITING)
    times = [time for found in waiting.values() for time in found if older.contains(time)][:INSTANCES_A_LOOK]
    states = input_states_many(connection, older.plan, {key: times}, as_of)[key]
    return [
        state
        for by_input in states.values()
        for state in by_input
        if _is_unpolled(state, older.plan, present.feeds.get(state.edge.feed_key))
    ]


def _is_unpolled(state: InputState, plan: Plan, present: FeedRecord | None) -> bool:
    record = plan.feeds[state.edge.feed_key]
    if present is None or record.place != present.place:
        return bool(state.missing)
    return not all(map(present.sequence.contains, state.missing))
