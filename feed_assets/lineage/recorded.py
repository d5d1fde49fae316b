"""Lineage from the record: the event log, attempts with what they have frozen, batches, sweeps and inboxes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, TypeAlias

from sqlalchemy import Connection

from feed_assets.context.operation import OperationContext, Subject, as_version
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import declared_by, is_of_feed, source_of
from feed_assets.entities.process import Process
from feed_assets.instances.inbox.store import TakenFiles
from feed_assets.instances.inbox.taken import ORIGIN as INBOX
from feed_assets.instances.late.hanging import iter_run_pages
from feed_assets.instances.late.lateness import UNSETTLED
from feed_assets.lineage.port import Giver, LineagePort, Reading
from feed_assets.lineage.records import EdgeKind, LineageGraph, NodeKind
from feed_assets.lineage.walk import no_version, walk_lineage
from feed_assets.log.definitions.records import Member
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    Attempt,
    FeedEvent,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.log.removals.records import Sweep
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.edges import Key
from feed_assets.plan.records import ProcessRecord
from feed_assets.releases.left_out import iter_touches
from feed_assets.releases.store import Releases
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.timing.dates import parse_timezone, render_datetime
from feed_assets.timing.errors import InstanceError
from feed_assets.timing.sequence import UTC_KEYS, parse_instance, zone_of_keys
from feed_assets.triggers.queue.batches import Batches, TakenEvent

_GIVERS = {"notice:": NodeKind.AUTHOR, "asset:": NodeKind.ASSET}
_UNSEEN = "whether {process} has read it at instances {where} was not looked for: many before have not"
_MOMENT = timedelta(microseconds=1)
_Span: TypeAlias = tuple[str, str, datetime, datetime]


def find_lineage(
    context: OperationContext,
    name: str,
    instance: str,
    *,
    kind: Kind | None = None,
    clusters: Sequence[str] = (),
    **asked: Any,
) -> LineageGraph:
    """Return the lineage of an instance of a name, whatever is declared now: of a feed that was deleted, if the record
    has it, rather than of a process that was declared since. What is `asked` is as for `show_lineage`.

    Raises:
        EntityNotFoundError: nothing of this name was ever declared.
        DateTimeError: the instance is not a time.
    """
    with context.read() as connection:
        kinds = context.kinds_ever(connection, name, kind)
        subjects = [_find_subject(context, connection, each, name, instance) for each in kinds]
    for subject in subjects:
        graph = show_lineage(context, replace(subject, clusters=tuple(clusters)), **asked)
        if graph.nodes and subject.kind is not kinds[-1]:
            told = f"feed {name!r} is meant, which is not declared any more; begin with KIND to ask of the process"
            return replace(graph, remarks=(*graph.remarks, told))
    return graph


def find_current(context: OperationContext, name: str, kind: Kind | None) -> list[str]:
    """Return the instance of a feed that has but a current one, as text; empty for any other name."""
    own = [each for (of, _), each in context.plan.feeds.items() if of == name and each.is_current]
    return [render_datetime(each.sequence.start) for each in own[:1] if kind in (None, Kind.FEED)]


def _find_subject(context: OperationContext, connection: Connection, kind: Kind, name: str, instance: str) -> Subject:
    """Return what is declared now, or was once; its days and keys are in the time zone of its last version."""
    records = tuple(record for (of, _), record in sorted(context.records(kind).items()) if of == name)
    if records:
        zone = zone_of_keys(records[0].sequence)
    else:
        by = declared_by(name) if is_of_feed(name) else (kind, name)
        versions = [each for each in Definitions(connection).history(*by) if each.text is not None]
        last = [Member(kind=each.kind, name=each.name, version=each.version) for each in versions[-1:]]
        loaded = context.timeline.load_recorded(connection, last)
        entities = (each for each in (*loaded.bundle.entities, *loaded.salvaged) if isinstance(each, Feed | Process))
        is_local = (each for each in entities if each.frequency is not None and each.frequency.is_calendar)
        zone = next((parse_timezone(each.timezone) for each in is_local), UTC_KEYS)
    found = Subject(kind=kind, name=name, records=records, nominal_time=parse_instance(instance, zone))
    return as_version(found) if found.is_current else found


def show_lineage(
    context: OperationContext, subject: Subject, *, up: bool, down: bool, levels: int, as_of: datetime | None = None
) -> LineageGraph:
    """Return what an instance came of, and what came of it; both if neither is asked for. It is looked for on all
    clusters that ever were, or on those of the subject; where the record does not have it, it is to be an instance.

    Raises:
        InstanceError: the time is no instance on any cluster.
        InstanceQueryError: the subject is not on a cluster, or there never was this cluster.
    """
    key = FeedKey if subject.kind is Kind.FEED else ProcessKey
    ways: dict[str, Any] = {"up": up or up is down, "down": down or up is down, "levels": levels}
    ways |= {"at": subject.version}
    with context.read() as connection:
        clusters = context.clusters_ever(connection, subject.clusters)
        starts: list[FeedKey | ProcessKey] = [key(subject.name, each, subject.instance) for each in clusters]
        port = RecordedLineage(context.timeline, connection, as_of)
        graph, told = walk_lineage(port, starts, **ways), ""
        if not graph.nodes and subject.version is not None:
            events = port.find_events([each for each in starts if isinstance(each, FeedKey)]).values()
            raise no_version(chain.from_iterable(events), subject.version)
        if not graph.nodes:
            told = f"nothing is recorded of {subject.kind} {subject.name!r} at {render_datetime(subject.instance)}"
            told += f" up to {render_datetime(as_of)}" if as_of else ""
            log = EventLog(connection)
            gone = [each for each in starts if isinstance(each, FeedKey) and log.count_removed(*each[:2])]
            writers = port.find_writers(gone) if gone else {}
            if makers := {each.key for listed in writers.values() for each in listed}:
                graph = walk_lineage(port, sorted(makers), **ways)
                told += " any more: it was cleaned up; here are the attempts that were to write it"
            else:
                _require_instance(context, connection, subject)
    return replace(graph, remarks=(*graph.remarks, *sorted(filter(None, {*port.remarks, told}))))


def _require_instance(context: OperationContext, connection: Connection, subject: Subject) -> None:
    """Require of what is declared that it has the instance on some cluster that is asked for."""
    refused: list[InstanceError] = []
    for cluster in subject.asked if subject.records else ():
        try:
            if subject.kind is Kind.FEED:
                context.feed_on(subject.name, cluster).sequence.index(subject.instance)
            else:
                context.active_release(connection, subject.name, cluster, subject.instance)
            return
        except InstanceError as exc:
            refused.append(exc)
    if refused:
        raise refused[0]


class RecordedLineage(LineagePort):
    """The record as one transaction sees it, up to a time, if one is given, whatever is declared now. `remarks` say
    what was not looked for.
    """

    def __init__(self, timeline: ReleaseTimeline, connection: Connection, as_of: datetime | None = None) -> None:
        self._timeline = timeline
        self._connection = connection
        self._as_of = as_of
        self.remarks: set[str] = set()
        self._has_batches = Batches(connection).has_any()

    def _is_known(self, at: datetime | None) -> bool:
        return self._as_of is None or (at is not None and at <= self._as_of)

    def _as_it_was(self, attempts: Iterable[Attempt]) -> list[Attempt]:
        running = ProcessInstanceStatus.RUNNING
        return [
            each if self._is_known(each.ended_at) else replace(each, status=running, ended_at=None, reason=None)
            for each in attempts
            if self._is_known(each.started_at)
        ]

    def find_events(self, keys: Collection[FeedKey]) -> Mapping[FeedKey, Sequence[FeedEvent]]:
        found = EventLog(self._connection).for_instances(keys)
        return {key: [*self._known(events)] for key, events in found.items()}

    def _known(self, events: Iterable[FeedEvent]) -> Iterator[FeedEvent]:
        return (each for each in events if each.is_of_data and self._is_known(each.recorded_at))

    def find_attempts(self, keys: Collection[ProcessKey]) -> Mapping[ProcessKey, Sequence[Attempt]]:
        found = Attempts(self._connection).of_many(keys)
        return self._complete({key: found.get(key, []) for key in keys})

    def _find_there(self, spans: Iterable[_Span]) -> Mapping[ProcessKey, Sequence[Attempt]]:
        return self._complete(Attempts(self._connection).in_spans(spans))

    def _complete(self, found: Mapping[ProcessKey, Sequence[Attempt]]) -> Mapping[ProcessKey, Sequence[Attempt]]:
        lacking = [key for key, attempts in found.items() if not attempts]
        rows = ProcessInstances(self._connection).get_many(lacking) if lacking else {}
        last = {key: [_last_attempt(row)] for key, row in rows.items() if row.attempt}
        return {key: self._as_it_was(attempts) for key, attempts in {**found, **last}.items()}

    def find_writers(self, keys: Collection[FeedKey]) -> Mapping[FeedKey, Sequence[Attempt]]:
        touches = [
            (FeedKey(*feed, time), each, span)
            for feed, times in _by_feed(keys).items()
            for each in iter_touches(self._timeline, self._connection, feed, times, is_read=False)
            for time, span in (each.spans or {}).items()
            if span is not None
        ]
        found: dict[FeedKey, list[Attempt]] = defaultdict(list)
        for process, attempts in self._find_there((*each.process, *span) for _, each, span in touches).items():
            for key, each, (first, last) in touches:
                if process[:2] == each.process and first <= process.nominal_time <= last:
                    found[key] += [a for a in attempts if each.release is None or a.release in (None, each.release)]
        return found

    def find_read(self, attempts: Collection[Attempt]) -> Sequence[Reading]:
        taken = Batches(self._connection).taken_by({each.key for each in attempts}) if self._has_batches else []
        return [*(read for each in attempts for read in _iter_frozen(each)), *_iter_taken(taken, attempts)]

    def find_readers(self, keys: Collection[FeedKey]) -> Sequence[Reading]:
        by_feed, instances = _by_feed(keys), set(keys)
        spans: set[_Span] = set()
        untold: dict[Key, set[datetime]] = defaultdict(set)
        for feed, times in by_feed.items():
            told: dict[Key, set[datetime]] = defaultdict(set)
            for each in iter_touches(self._timeline, self._connection, feed, times, is_read=True):
                if each.spans is None:
                    untold[each.process].update(times)
                else:
                    spans |= {(*each.process, *span) for span in each.spans.values() if span is not None}
                    told[each.process].update(each.spans)
            for process, known in told.items():
                untold[process].update(set(times) - known)
        for process, asked in untold.items():
            spans |= self._page(process, by_feed, min(asked), max(asked)) if asked else set()
        taken = Batches(self._connection).takers(keys) if self._has_batches else []
        spans |= {_span(each.batch) for each in taken}
        attempts = [attempt for listed in self._find_there(spans).values() for attempt in listed]
        read = (each for attempt in attempts for each in _iter_frozen(attempt, by_feed))
        return [*(each for each in read if each.instance in instances), *_iter_taken(taken, attempts)]

    def _page(self, process: Key, feeds: Collection[Key], oldest: datetime, newest: datetime) -> set[_Span]:
        """Return the instances of a process that may have read one of a feed, if its definitions do not tell: from the
        oldest of these on, and before it, as far as what they have read does not lie behind all of them. It ends, and
        is remarked, where many have not read the feed at all.
        """
        found: set[_Span] = set()
        for backwards in (False, True):
            end = oldest if backwards else oldest - _MOMENT
            for page in iter_run_pages(self._connection, process, feeds, oldest, newest, backwards=backwards):
                found |= {_span(row.key) for row in page}
                end = page[-1].nominal_time if page else end
                if not page:
                    where = f"{'before' if backwards else 'after'} {render_datetime(end)}"
                    self.remarks.add(_UNSEEN.format(process="process {} on {}".format(*process), where=where))
        return found

    def find_published(self, attempts: Collection[Attempt]) -> Mapping[FeedKey, Sequence[FeedEvent]]:
        seqs = {seq for each in attempts for seq in each.outputs}
        found = EventLog(self._connection).beside(seqs) if seqs else {}
        return {key: [*self._known(events)] for key, events in found.items()}

    def find_sweeps(self, sweep_ids: Collection[str]) -> Mapping[str, Sweep]:
        found = Sweeps(self._connection).find_many(sweep_ids)
        return {key: sweep.at(self._as_of) if self._as_of else sweep for key, sweep in found.items()}

    def find_givers(self, events: Collection[FeedEvent]) -> Mapping[int, Sequence[Giver]]:
        found: dict[int, list[Giver]] = defaultdict(list)
        for event in events:
            for prefix, kind in _GIVERS.items():
                if event.origin.startswith(prefix):
                    found[event.seq].append(Giver(kind, event.origin.removeprefix(prefix)))
        is_taken = any(each.origin == INBOX for each in events)
        for seq, files in (TakenFiles(self._connection).brought_by(events) if is_taken else {}).items():
            found[seq] += [Giver(NodeKind.FILE, file.name) for file in files]
        return found

    def find_places(self, attempts: Collection[Attempt]) -> Sequence[tuple[Attempt, EdgeKind, str]]:
        found: list[tuple[Attempt, EdgeKind, str]] = []
        for each in attempts:
            key = each.key[:2]
            declared = self._timeline.plan.processes.get(key)
            record: ProcessRecord | None = None
            if declared is not None and any(declared.places):
                active = self._timeline.find_or_declared(self._connection, key, each.nominal_time)
                record = active.record if active is not None else None
            elif declared is None and not (each.inputs and each.outputs):
                releases = (row for row in Releases(self._connection).of(*key) if row.release == each.release)
                record = next((self._timeline.compile_release(self._connection, row) for row in releases), None)
            sides = zip((EdgeKind.READ, EdgeKind.MADE), record.places if record is not None else (), strict=False)
            found += [(each, kind, name) for kind, names in sides for name in names]
        return found


def _by_feed(keys: Iterable[FeedKey]) -> dict[Key, list[datetime]]:
    found: dict[Key, list[datetime]] = defaultdict(list)
    for feed, cluster, time in keys:
        found[feed, cluster].append(time)
    return found


def _span(key: ProcessKey) -> _Span:
    return (*key, key.nominal_time)


def _iter_frozen(attempt: Attempt, feeds: Collection[Key] | None = None) -> Iterator[Reading]:
    """Yield what an attempt has frozen, of some feeds if given; a flow reads at its source."""
    cluster = source_of(attempt.process) or attempt.cluster
    for frozen in attempt.inputs:
        if feeds is None or (frozen.feed, cluster) in feeds:
            for time, digest in zip(frozen.nominal_times, frozen.digests, strict=True):
                known = None if digest == UNSETTLED else digest
                yield Reading(attempt, frozen.name, FeedKey(frozen.feed, cluster, time), known)


def _iter_taken(taken: Iterable[TakenEvent], attempts: Collection[Attempt]) -> Iterator[Reading]:
    """Yield the events that the batches of attempts have taken, unless they have frozen that input."""
    for each in taken:
        for attempt in attempts:
            if attempt.key == each.batch and all(frozen.name != each.input for frozen in attempt.inputs):
                yield Reading(attempt, each.input, each.event.key, each.event.manifest_digest, each.event.seq)


def _last_attempt(row: ProcessInstance) -> Attempt:
    """Return the last attempt at an instance as the instance has it."""
    return Attempt(
        **row.key._asdict(),
        attempt=row.attempt,
        run_id=row.run_id,
        status=row.status,
        started_at=row.started_at or row.updated_at,
        ended_at=row.ended_at,
        cause=row.cause,
        release=row.release,
        inputs=row.inputs,
    )
