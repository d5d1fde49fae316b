"""Prepare the inputs of one attempt: freeze them with their digests, scan them for late data, give Spark their URLs."""

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from pathlib import Path

from sqlalchemy import Connection

from feed_assets.context.operation import AttemptContext, LifecycleContext
from feed_assets.engines.errors import UnknownFeedError
from feed_assets.engines.port import InputEvent, InputInstance
from feed_assets.instances.arrival.store_polls import find_records
from feed_assets.instances.attempts.work_data import table_partition
from feed_assets.instances.errors import BatchEndedError
from feed_assets.instances.late.contents import record_contents, scan_contents
from feed_assets.instances.late.lateness import UNSETTLED, decide_process_check
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import AgendaKey, AgendaKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.manifests import Manifests
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    CONTENT,
    Attempt,
    Cause,
    EntityKey,
    FeedEvent,
    FeedKey,
    FrozenInput,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.triggers.input_windows import InputState
from feed_assets.triggers.queue.batches import Batches
from feed_assets.triggers.queue.store import QueueEnds

_ASKED_FOR = frozenset({Cause.BY_HAND, Cause.COMMAND, Cause.ELSEWHERE, Cause.REPAIR})

DIRECT = "direct"
COPIED = "copied"


def scan_late_inputs(context: AttemptContext, key: ProcessKey, states: Sequence[InputState]) -> dict[FeedKey, str]:
    """Record the content of a run's late inputs before the run reads them, so that a change during the run is noticed
    too.

    Returns the digests of the instances of external feeds. The record has those of instances produced here.
    """
    wanted = _scanned_feeds(context.plan, states)
    if not wanted:
        return {}
    contents = scan_contents(context, wanted)
    with context.database.begin() as connection:
        takes_less = _is_asked_for(Attempts(connection).of(key))
        recorded = record_contents(connection, contents.values(), context.as_of, takes_less=takes_less)
    return {each: recorded.digests.get(each, UNSETTLED) for each in wanted}


def _is_asked_for(attempts: Sequence[Attempt]) -> bool:
    """Return whether a person has asked for the last of an instance's attempts, or for one that it repeats."""
    since = takewhile(lambda each: each.status is not ProcessInstanceStatus.SUCCEEDED, reversed(attempts))
    return any(each.cause in _ASKED_FOR for each in since)


def _scanned_feeds(plan: Plan, states: Sequence[InputState]) -> dict[FeedKey, FeedRecord]:
    """Return the instances of external feeds whose content counts for late data, or is that of a current instance: what
    a poll has seen does not.
    """
    read = [(plan.feeds[state.edge.feed_key], state) for state in states]
    late = [(feed, state.present) for feed, state in read if state.edge.is_late or feed.is_current]
    return {FeedKey(*feed.key, time): feed for feed, times in late if feed.is_external for time in times}


def find_other_versions(
    context: AttemptContext, states: Sequence[InputState], frozen: Sequence[FrozenInput]
) -> list[str]:
    """Return the feeds of current instances that have other content now than an attempt has frozen."""
    wanted = {
        FeedKey(*record.key, time): record
        for state in states
        if (record := context.plan.feeds[state.edge.feed_key]).is_current and record.has_data
        for time in state.present
    }
    if not wanted:
        return []
    scanned = scan_contents(context, {key: each for key, each in wanted.items() if each.is_external})
    with context.database.read() as connection:
        rows = FeedInstances(connection).get_many(wanted)
    digests = {key: row.manifest_digest for key, row in rows.items()}
    digests |= {key: each.scan.digest if each.scan is not None else None for key, each in scanned.items()}
    read = {(each.feed, *pair) for each in frozen for pair in zip(each.nominal_times, each.digests, strict=True)}
    others = {key.feed for key in wanted if (key.feed, key.nominal_time, digests.get(key)) not in read}
    return sorted(others)


def plan_late_check(
    connection: Connection, plan: Plan, process: ProcessRecord, nominal_time: datetime, as_of: datetime
) -> None:
    """Plan the first late check of a succeeded instance; its run has processed all late data found before."""
    if process.late is None:
        return
    check = decide_process_check(plan, process, nominal_time, as_of)
    if check is not None:
        LateChecks(connection).put([check])
    else:
        LateChecks(connection).remove([_key_of(process, nominal_time)])


def find_late_inputs(connection: Connection, process: ProcessRecord, nominal_time: datetime) -> tuple[str, ...]:
    """Return the inputs whose late data the next run must process; empty if it is no late re-run."""
    if process.late is None:
        return ()
    check = LateChecks(connection).get(*_key_of(process, nominal_time))
    return check.changed if check else ()


def _key_of(process: ProcessRecord, nominal_time: datetime) -> AgendaKey:
    return AgendaKey(AgendaKind.LATE_INPUTS, *process.key, nominal_time)


def freeze_inputs(
    connection: Connection, key: ProcessKey, states: Sequence[InputState], scanned: Mapping[FeedKey, str], now: datetime
) -> tuple[FrozenInput, ...]:
    """Record the inputs of the running attempt with their recorded digests, so that later changes can be detected, and
    return them.

    `scanned` has digests that were computed just now.
    """
    frozen = tuple(_iter_frozen(connection, states, scanned))
    ProcessInstances(connection).transition(key, {ProcessInstanceStatus.RUNNING}, updated_at=now)
    Attempts(connection).freeze(key, frozen)
    return frozen


def _iter_frozen(
    connection: Connection, states: Sequence[InputState], scanned: Mapping[FeedKey, str]
) -> Iterator[FrozenInput]:
    instances = FeedInstances(connection)
    for state in states:
        rows = instances.get_many([FeedKey(*state.edge.feed_key, time) for time in state.present])
        digests = {key.nominal_time: scanned.get(key, row.manifest_digest) for key, row in rows.items()}
        yield FrozenInput(
            name=state.edge.name,
            feed=state.edge.feed,
            nominal_times=state.present,
            digests=tuple(digests.get(time) for time in state.present),
        )


def has_same_inputs(connection: Connection, plan: Plan, row: ProcessInstance, states: Sequence[InputState]) -> bool:
    """Return whether an attempt now would read what the last one at an instance has read, by the record."""
    scanned = Manifests(connection).get_many(list(_scanned_feeds(plan, states)))
    return row.inputs == tuple(_iter_frozen(connection, states, {key: each.digest for key, each in scanned.items()}))


def find_batch_events(
    connection: Connection, process: ProcessRecord, nominal_time: datetime
) -> dict[str, tuple[InputEvent, ...]]:
    """Return the events that a batch has taken, by the names of its trigger; nothing for other instances.

    They are rows of the event log, so each attempt at the batch has the same ones.

    Raises:
        BatchEndedError: it has none any more, because its queue has ended.
    """
    if process.trigger is None:
        return {}
    key = ProcessKey(*process.key, nominal_time)
    require_queue(connection, ProcessInstances(connection).get_many([key]).values())
    taken = Batches(connection).events_of(key)
    return {each.input: tuple(map(_input_event, each.events)) for each in taken}


def find_newest_event(
    context: AttemptContext, process: ProcessRecord, nominal_time: datetime, feed: str
) -> InputEvent | None:
    """Return the newest event of a feed on the cluster after which an instance has other content; None if nothing has
    come. Of a feed that the process writes, it is one of another instance: a repetition begins where the first attempt
    began.

    Raises:
        UnknownFeedError: no such feed is declared on the cluster.
    """
    known = {name for name, cluster in (*context.plan.feeds, *context.declared.feeds) if cluster == process.cluster}
    if feed not in known:
        raise UnknownFeedError(process=process.process, cluster=process.cluster, feed=feed, known=sorted(known))
    own = [context.plan.output_time(edge, nominal_time) for edge in process.outputs if edge.feed == feed]
    with context.database.read() as connection:
        event = EventLog(connection).newest(feed, process.cluster, CONTENT, besides=[time for time in own if time])
    return None if event is None else _input_event(event)


def require_queue(connection: Connection, batches: Iterable[ProcessInstance]) -> None:
    """Require that the queues from which batches were cut have not ended since; it does not matter for other instances.

    Raises:
        BatchEndedError: the queue of one has.
    """
    ends: dict[EntityKey, datetime | None] = {}
    for row in batches:
        consumer = EntityKey(row.process, row.cluster)
        if consumer not in ends:
            ends[consumer] = QueueEnds(connection).find(consumer)
        end = ends[consumer]
        if end is not None and row.materialized_at is not None and row.materialized_at <= end:
            raise BatchEndedError(process=row.process, nominal_time=row.nominal_time)


def _input_event(event: FeedEvent) -> InputEvent:
    return InputEvent(
        number=event.seq,
        feed=event.feed,
        nominal_time=event.nominal_time,
        recorded_at=event.recorded_at,
        digest=event.manifest_digest,
        marking=event.marking,
        payload=event.message,
    )


class InstanceAddresses:
    """Gives instances URLs that Spark can open; copies instances that Spark cannot reach into scratch space.

    Without a connector (`is_spark` is False) what is not on this machine is copied. The copies are removed by `close`.
    """

    def __init__(self, context: LifecycleContext, *, is_spark: bool = True) -> None:
        self._context = context
        self._is_spark = is_spark
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._access_modes: dict[str, str] = {}

    def close(self) -> None:
        """Remove the copies."""
        if self._scratch is not None:
            self._scratch.cleanup()

    def access_modes(self) -> Mapping[str, str]:
        """Return for each input whether Spark reads it in place (`direct`) or a copy (`copied`)."""
        return {f"input {name}": mode for name, mode in self._access_modes.items()}

    def find(self, name: str, record: FeedRecord, times: Collection[datetime]) -> list[InputInstance]:
        """Return instances with their addresses; `name` is that of the input."""
        self._access_modes[name] = DIRECT
        found = find_records(self._context, record, times)
        return [self._address(name, found[time], time) for time in times]

    def _address(self, name: str, record: FeedRecord, nominal_time: datetime) -> InputInstance:
        partition = table_partition(record, nominal_time)
        if partition is None:
            return InputInstance(nominal_time=nominal_time, url=self._url(name, record, nominal_time))
        url = self._context.stores.url(record.store, record.path(nominal_time))
        return InputInstance(nominal_time=nominal_time, url=url, partition=partition)

    def _url(self, name: str, record: FeedRecord, nominal_time: datetime) -> str:
        store = self._context.stores.get(record.store)
        path = record.path(nominal_time)
        local = store.local_path(path)
        direct = store.spark_url(path) if self._is_spark else None if local is None else f"file://{local}"
        if direct is not None:
            return direct
        self._access_modes[name] = COPIED
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="feed-assets-")
        copy = Path(self._scratch.name) / name / f"{nominal_time:%Y%m%dT%H%M%S}"
        store.fetch(path, copy, record.flag)
        return f"file://{copy}"
