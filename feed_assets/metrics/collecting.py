"""Collect the metrics of a project from the record: what is open now, and the totals of what has ended.

The cost grows with the series and with what is open, never with the history. There is a series for each declared entity
on each of its clusters, also for what has not happened yet, so that rates count the first time.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypedDict

from sqlalchemy import Connection, Row, TextClause, func, select

from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.alerts.delivery.store import ReceiverStates
from feed_assets.alerts.delivery.tables import IS_DEAD, IS_OPEN, deliveries
from feed_assets.context.bulkheads import TickFailures
from feed_assets.context.operation import OperationContext, open_context
from feed_assets.context.safe_mode import is_restored
from feed_assets.entities.common import Kind
from feed_assets.instances.gates.reconciliation import find_last_times
from feed_assets.instances.inbox.inbox_files import find_ahead
from feed_assets.instances.late.store import LateChecks
from feed_assets.loading.entity_files import digest_files, read_declared_files, values_of
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.instances.tables import arrival_polls, process_instances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.outbox import Outbox, outbox
from feed_assets.log.records import Cause, FeedEventKind, ProcessInstanceStatus
from feed_assets.log.removals.records import OPEN_STATES, SweepState
from feed_assets.log.removals.tables import sweeps
from feed_assets.metrics import families
from feed_assets.metrics.records import Family, Label, Metrics, MetricType, Sample
from feed_assets.plan.location import find_plan_cache, load_location
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.releases.left_out import find_last_known
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import Settings
from feed_assets.sql.database import Database
from feed_assets.sql.rows import TableStore
from feed_assets.sql.totals import Total, TotalKind, Totals
from feed_assets.triggers.queue.tables import HAS_PENDING, trigger_inputs

SERIES_LIMIT = 50_000
"""How many series an exposition has at most, unless a command says otherwise."""

_MICROS = 1_000_000
_ENDS = (ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED, ProcessInstanceStatus.TIMEDOUT)
_CAUSES = (Cause.INPUTS, Cause.RETRY)
_OF_TOTALS = {
    TotalKind.ATTEMPTS: (families.PROCESSING,),
    TotalKind.STARTS: (families.ATTEMPTS,),
    TotalKind.START_DELAY: (families.START_DELAY,),
    TotalKind.QUEUE: (families.LAUNCH_DELAY,),
    TotalKind.ENDS: (families.INSTANCE_ENDS,),
    TotalKind.PROCESS_MISSES: (families.PROCESS_MISSES,),
    TotalKind.EVENTS: (families.FEED_EVENTS, families.FEED_BYTES),
    TotalKind.ARRIVAL_DELAY: (families.ARRIVAL_DELAY,),
    TotalKind.COPIED: (families.COPY_BYTES,),
    TotalKind.COPYING: (families.COPY_SECONDS,),
    TotalKind.FEED_MISSES: (families.FEED_MISSES,),
    TotalKind.SWEEPS: (families.SWEEP_ENDS,),
}
_OWN = (families.LIMIT, families.LEFT_OUT)
_BYTES = frozenset({families.FEED_BYTES, families.COPY_BYTES})
_P = process_instances.c
_A = arrival_polls.c
_I = trigger_inputs.c
_S = sweeps.c
_D = deliveries.c
_O = outbox.c
_NONE = (0, 0)

UNFINISHED = (
    ProcessInstanceStatus.WAITING,
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.RUNNING,
    ProcessInstanceStatus.SUSPENDED,
    ProcessInstanceStatus.FAILED,
    ProcessInstanceStatus.TIMEDOUT,
)
"""The statuses of instances that have not ended, or have ended without success and wait for a retry or a person."""


class PendingInputs(NamedTuple):
    """How many events the queue of a process has, and since when the oldest waits."""

    process: str
    cluster: str
    events: int
    since: datetime


class OpenMessages(NamedTuple):
    """How many messages have not reached a receiver, when the oldest of them was written, and its dead letters.

    Messages that the receiver does not want count until it has moved over them.
    """

    way: str
    messages: int
    oldest: datetime | None
    dead: int


class OpenWork(TableStore):
    """What is open, as one transaction sees it."""

    def instances(self) -> Sequence[Row[Any]]:
        """Return how many `instances` of each process have each status of `UNFINISHED`, and the `oldest` of them."""
        oldest = func.min(_P.nominal_time, type_=_P.nominal_time.type).label("oldest")
        statement = select(_P.process, _P.cluster, _P.status, func.count().label("instances"), oldest)
        statement = statement.where(_P.status.in_(UNFINISHED)).group_by(_P.process, _P.cluster, _P.status)
        return self._connection.execute(statement).all()

    def missing(self, clusters: Collection[str], as_of: datetime) -> Sequence[Row[Any]]:
        """Return the external feeds that lack `instances` with a nominal time until `as_of`, the `oldest` of them, and
        how many are `obstructed`: storage could not be read.
        """
        oldest = func.min(_A.nominal_time, type_=_A.nominal_time.type).label("oldest")
        counts = func.count().label("instances"), oldest, func.count(_A.obstacle).label("obstructed")
        statement = select(_A.feed, _A.cluster, *counts)
        statement = statement.where(_A.cluster.in_(sorted(clusters)), _A.nominal_time <= as_of)
        return self._connection.execute(statement.group_by(_A.cluster, _A.feed)).all()

    def pending(self, clusters: Collection[str]) -> list[PendingInputs]:
        """Return the processes whose queues have events that no batch has taken."""
        since = func.min(_I.first_at, type_=_I.first_at.type)
        statement = select(_I.process, _I.cluster, func.sum(_I.pending), since)
        statement = statement.where(_I.cluster.in_(sorted(clusters)), HAS_PENDING)
        found = self._connection.execute(statement.group_by(_I.process, _I.cluster))
        return [PendingInputs(process, cluster, int(events), since) for process, cluster, events, since in found]

    def sweeps(self) -> Sequence[Row[Any]]:
        """Return how many sweeps are planned, wait for an approval, run, or are being undone."""
        statement = select(_S.cluster, _S.state, func.count().label("sweeps")).where(_S.state.in_(sorted(OPEN_STATES)))
        return self._connection.execute(statement.group_by(_S.cluster, _S.state)).all()

    def messages(self) -> list[OpenMessages]:
        """Return what each receiver has still to get. Costs what is tried again, however many messages there are."""
        receivers, last = ReceiverStates(self._connection).all(), Outbox(self._connection).last_seq()
        again = self._count_deliveries(IS_OPEN, receivers)
        dead = self._count_deliveries(IS_DEAD, receivers)
        first = {name: again[name][1] if name in again else receiver.cursor + 1 for name, receiver in receivers.items()}
        statement = select(_O.seq, _O.recorded_at).where(_O.seq.in_(sorted(set(first.values()))))
        written = {row.seq: row.recorded_at for row in self._connection.execute(statement)}
        return [
            OpenMessages(
                way=name,
                messages=max(last - receiver.cursor, 0) + again.get(name, _NONE)[0],
                oldest=written.get(first[name]),
                dead=dead.get(name, _NONE)[0],
            )
            for name, receiver in receivers.items()
        ]

    def _count_deliveries(self, condition: TextClause, receivers: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return how many deliveries of each receiver meet a condition, and the number of the first message of them."""
        statement = select(_D.way, func.count(), func.min(_D.seq)).where(_D.way.in_(sorted(receivers)), condition)
        found = self._connection.execute(statement.group_by(_D.way))
        return {receiver: (count, first) for receiver, count, first in found}


class _Found(NamedTuple):
    """A sample of a family; its `owner` is a cluster and an entity, if it is not about the system."""

    family: Family
    labels: tuple[str, ...]
    value: float
    occurrences: int = 0
    owner: tuple[str, str] = ("", "")


_Key: TypeAlias = tuple[str, str]  # (entity, cluster)


class Scraper:
    """Collects the metrics of a project again and again; it keeps the definitions while their files are unchanged."""

    def __init__(self, settings: Settings, database: Database, limit: int = SERIES_LIMIT) -> None:
        self._settings = settings
        self._database = database
        self._limit = limit
        self._known: tuple[tuple[str, int], ReleaseTimeline, Mapping[str, int]] | None = None

    def scrape(self) -> Metrics:
        """Return the metrics now; what is left out because of errors has those of its last usable definition.

        Raises:
            DefinitionsError: the location of the definitions cannot be read.
            StateError: the database cannot be used.
        """
        settings, values = self._settings, values_of(self._settings)
        with self._database.read() as connection:
            found = digest_files(read_declared_files(settings), values), Definitions(connection).revision()
            if self._known is None or self._known[0] != found:
                location = load_location(settings, find_plan_cache(os.environ))
                plan = find_last_known(connection, ReleaseTimeline(location.plan, values))
                errors = {(each.source.file, each.entity) for each in location.errors if each.source is not None}
                self._known = found, ReleaseTimeline(plan, values), Counter(file for file, _ in errors)
        _, timeline, invalid = self._known
        return collect_metrics(open_context(settings, self._database, timeline), self._limit, invalid)


def collect_metrics(
    context: OperationContext, limit: int = SERIES_LIMIT, invalid: Mapping[str, int] = MappingProxyType({})
) -> Metrics:
    """Return all metrics now, in at most `limit` series. `invalid` has the entities with errors, by file.

    Of what is more, whole entities are left out, the last ones by cluster and name; what is about no entity stays.
    """
    as_of = context.real_clock.now()
    with context.database.read() as connection:
        reader = _Reader(context, connection)
        system, entities = [*reader.system(sum(invalid.values()))], [*reader.entities()]
    system.append(_Found(families.BUILD, (_find_version(),), 1))
    system += [_Found(families.INVALID, (file,), count) for file, count in (invalid or {"": 0}).items()]
    kept, left_out = _limit(entities, limit - len(system) - len(_OWN))
    system += [_Found(family, (), value) for family, value in zip(_OWN, (limit, left_out), strict=True)]
    samples: dict[str, list[Sample]] = defaultdict(list)
    for each in (*system, *kept):
        samples[each.family.name].append(Sample(labels=each.labels, value=each.value, occurrences=each.occurrences))
    sampled = {each: tuple(sorted(samples[each.name], key=attrgetter("labels"))) for each in families.FAMILIES}
    return Metrics(as_of=as_of, families=sampled, limit=limit, left_out=left_out)


def _find_version() -> str:
    try:
        return version("feed-assets")
    except PackageNotFoundError:
        return ""


def _limit(found: Iterable[_Found], limit: int) -> tuple[list[_Found], int]:
    """Return what the limit allows, and how many series are left out."""
    by_owner: dict[tuple[str, str], list[_Found]] = defaultdict(list)
    for each in found:
        by_owner[each.owner].append(each)
    kept: list[_Found] = []
    series = left_out = 0
    for _, of_owner in sorted(by_owner.items()):
        size = sum(len(each.family.sample_names) for each in of_owner)
        if left_out or series + size > limit:
            left_out += size
        else:
            series += size
            kept.extend(of_owner)
    return kept, left_out


class _Reader:
    """Reads the metrics as one transaction sees them."""

    def __init__(self, context: OperationContext, connection: Connection) -> None:
        self._plan: Plan = context.plan
        self._as_of = context.as_of
        self._connection = connection
        self._work = OpenWork(connection)
        self._totals = Totals(connection).all()

    def system(self, invalid: int) -> Iterator[_Found]:
        """Yield what is about no entity; `invalid` entities are left out because of errors."""
        for cluster, at in find_last_times(self._connection, self._plan.clusters).items():
            yield _Found(families.TICK_AGE, (cluster,), self._age(at))
        failures = Counter((each.cluster, each.step.value) for each in TickFailures(self._connection).all())
        for labels, count in failures.items():
            yield _Found(families.TICK_FAILURES, labels, count)
        for cause, count in self._wrong(invalid, failures).items():
            yield _Found(families.CHECK_FAILURES, (cause,), count)
        yield from self._sweeps()
        for each in self._work.messages():
            age = 0.0 if each.oldest is None else self._age(each.oldest)
            yield _Found(families.UNDELIVERED, (each.way,), each.messages)
            yield _Found(families.OLDEST_MESSAGE, (each.way,), age)
            yield _Found(families.DEAD_LETTERS, (each.way,), each.dead)

    def entities(self) -> Iterator[_Found]:
        """Yield what is about processes and feeds."""
        yield from self._instances()
        yield from self._queues()
        yield from self._arrivals()
        yield from self._copies()
        yield from self._deadlines()
        for total in (*self._totals, *self._zeros()):
            for family in _OF_TOTALS[total.kind]:
                key = (total.entity, total.cluster)
                if key in self._declared(family):
                    yield self._of(family, key, total.label, **_figures(family, total))

    def _wrong(self, invalid: int, failures: Mapping[tuple[str, str], int]) -> dict[str, int]:
        """Return how much the check of the location finds wrong, by cause."""
        plan, polls = self._plan, ArrivalPolls(self._connection)
        produced = {key for key, record in plan.feeds.items() if record.produced_by is not None}
        inboxes = (record for name in plan.clusters for record in plan.with_inbox_on(name))
        return {
            "invalid_entity": invalid,
            "failing_tick": sum(count for (cluster, _), count in failures.items() if cluster in plan.clusters),
            "unreadable_feed": sum((each.feed, each.cluster) in plan.feeds for each in polls.obstructed()),
            "feed_without_data": len(polls.lacking(produced)) if produced else 0,
            "replica_behind": sum(
                (each.flow, each.cluster) in plan.processes for each in LateChecks(self._connection).behind(self._as_of)
            ),
            "inbox_ahead": len(find_ahead(self._connection, inboxes)),
            "restored_state": int(is_restored(self._connection)),
        }

    def _sweeps(self) -> Iterator[_Found]:
        sweeps = {(cluster, state.value): 0 for cluster in self._plan.clusters for state in OPEN_STATES}
        sweeps |= {(each.cluster, each.state.value): each.sweeps for each in self._work.sweeps()}
        for labels, count in sweeps.items():
            yield _Found(families.SWEEPS, labels, count)
        ends = {(cluster, SweepState.DONE.value): 0 for cluster in self._plan.clusters}
        ends |= {(each.cluster, each.label): each.occurrences for each in self._totals if each.kind is TotalKind.SWEEPS}
        for labels, count in ends.items():
            yield _Found(families.SWEEP_ENDS, labels, count)

    def _instances(self) -> Iterator[_Found]:
        groups = {(each.process, each.cluster, each.status): each for each in self._work.instances()}
        for key in self._plan.processes:
            for status in UNFINISHED:
                group = groups.get((*key, status))
                yield self._of(families.INSTANCES, key, status, value=group.instances if group else 0)
                if group is not None:
                    yield self._of(families.OLDEST_INSTANCE, key, status, value=self._age(group.oldest))

    def _queues(self) -> Iterator[_Found]:
        queues = {(each.process, each.cluster): each for each in self._work.pending(self._plan.clusters)}
        for key, record in self._plan.processes.items():
            if record.trigger is not None:
                queue = queues.get(key)
                yield self._of(families.PENDING_EVENTS, key, value=queue.events if queue else 0)
                if queue is not None:
                    yield self._of(families.OLDEST_EVENT, key, value=self._age(queue.since))

    def _arrivals(self) -> Iterator[_Found]:
        lacking = {(each.feed, each.cluster): each for each in self._work.missing(self._plan.clusters, self._as_of)}
        for key, record in self._plan.feeds.items():
            if record.is_polled:
                missing = lacking.get(key)
                yield self._of(families.MISSING, key, value=missing.instances if missing else 0)
                yield self._of(families.OBSTRUCTED, key, value=missing.obstructed if missing else 0)
                if missing is not None:
                    yield self._of(families.OLDEST_MISSING, key, value=self._age(missing.oldest))

    def _copies(self) -> Iterator[_Found]:
        behind = {(each.flow, each.cluster): each for each in LateChecks(self._connection).behind(self._as_of)}
        for key, record in self._plan.processes.items():
            if record.is_flow:
                yield self._of(families.BEHIND, key, value=behind[key].instances if key in behind else 0)

    def _deadlines(self) -> Iterator[_Found]:
        late = SlaMisses(self._connection).open_counts(self._as_of, tuple(self._plan.clusters))
        of_feeds = {((each.name, each.cluster), each.level): each for each in late if each.kind == Kind.FEED}
        of_processes = {((each.name, each.cluster), each.level): each for each in late if each.kind == Kind.PROCESS}
        for key, level in sorted({*of_feeds, *_find_levels(self._plan.feeds)}):
            if key in self._plan.feeds:
                found = of_feeds.get((key, level))
                yield self._of(families.LATE_FEEDS, key, level, value=found.instances if found else 0)
        for key, level in sorted({*of_processes, *_find_levels(self._plan.processes)}):
            if key in self._plan.processes:
                found = of_processes.get((key, level))
                yield self._of(families.LATE_PROCESSES, key, level, value=found.instances if found else 0)
                if level is SlaLevel.HIGH:
                    yield self._of(families.BACKLOG, key, value=found.nominal_seconds if found else 0)

    def _zeros(self) -> Iterator[Total]:
        """Yield the totals that are still 0."""
        of_processes = [(TotalKind.ENDS, label) for label in _ENDS] + [(TotalKind.STARTS, label) for label in _CAUSES]
        zeros = [
            Total(kind, *key, label, occurrences=0) for key in self._plan.processes for kind, label in of_processes
        ]
        for key, record in self._plan.feeds.items():
            zeros.append(Total(TotalKind.EVENTS, *key, self._find_origin(record), occurrences=0))
        with_levels = [(TotalKind.FEED_MISSES, each) for each in _find_levels(self._plan.feeds)]
        with_levels += [(TotalKind.PROCESS_MISSES, each) for each in _find_levels(self._plan.processes)]
        zeros += [Total(kind, *key, level, occurrences=0) for kind, (key, level) in with_levels]
        known = {each[:4] for each in self._totals}
        return (zero for zero in zeros if zero[:4] not in known)

    def _find_origin(self, record: FeedRecord) -> FeedEventKind:
        """Return the kind of the events that bring the instances of a feed."""
        if record.is_external:
            return FeedEventKind.ARRIVED
        writers = (self._plan.processes.get(edge.process_key) for edge in record.outputs_of)
        is_replica = any(writer is not None and writer.is_flow for writer in writers)
        return FeedEventKind.REPLICATED if is_replica else FeedEventKind.PRODUCED

    def _declared(self, family: Family) -> Mapping[_Key, FeedRecord | ProcessRecord]:
        """Return the entities that have series of a family; none for a family of the system."""
        if Label.ENTITY not in family.labels:
            return {}
        return self._plan.processes if Label.PIPELINE in family.labels else self._plan.feeds

    def _of(self, family: Family, key: _Key, *labels: str, value: float, occurrences: int = 0) -> _Found:
        """Return a sample about an entity, with the labels that stand last. The empty label of a total is none."""
        entity, cluster = key
        pipelines = []
        if Label.PIPELINE in family.labels:
            record = self._plan.processes[key]
            pipelines = ["" if record.is_of_feed else ",".join(record.facts.groups)]
        of_it = (cluster, *pipelines, entity, *filter(None, labels))
        return _Found(family, of_it, value, occurrences, owner=(cluster, entity))

    def _age(self, since: datetime) -> float:
        return max(timedelta(0), self._as_of - since).total_seconds()


def _find_levels(records: Mapping[_Key, FeedRecord | ProcessRecord]) -> Iterator[tuple[_Key, SlaLevel]]:
    """Yield the deadlines that entities declare."""
    for key, record in records.items():
        if record.sla is not None:
            limits = ((SlaLevel.LOW, record.sla.low), (SlaLevel.HIGH, record.sla.high))
            yield from ((key, level) for level, limit in limits if limit is not None)


class _Figures(TypedDict):
    value: float
    occurrences: int


def _figures(family: Family, total: Total) -> _Figures:
    """Return what a total is in a family."""
    if family.type is MetricType.SUMMARY:
        return {"value": total.amount / _MICROS, "occurrences": total.occurrences}
    return {"value": total.amount if family in _BYTES else total.occurrences, "occurrences": 0}
