"""Follow the materializations of assets that produce feeds: each is the announcement of one instance.

One read of Dagster's event log by a cursor finds what is new, whatever has been materialized. Feeds that are new, or
whose asset was not as it must be, catch up one by one from a position of their own. Events are read again until they
are some seconds old, because events of other processes can become visible out of order.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Self

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from feed_assets.context.bulkheads import CHECKS_OF, Bulkheads, TickStep
from feed_assets.context.tick import Tick, open_tick, tick_step
from feed_assets.instances.arrival.recording import Announcement, Signal, apply_announcements
from feed_assets.log.cursors import Cursors
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.masking import mask
from feed_assets.orchestration import names
from feed_assets.orchestration.errors import ChecksAwaitedError, PartitionKeyError, StrayPartitionsError
from feed_assets.orchestration.graph.layout import FindAsset, Producer, find_producers, require_known
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.orchestration.location.runtime import Runtime

EVENTS_A_TICK = 1_000
SETTLED_SECONDS = 10.0
OVERLAP = 1_000
"""How many events before the newest one are read again when a reader begins."""

ROW_COUNTS = (names.ROW_COUNT, "dagster/row_count")
CHECKS_TOLD_AFTER = timedelta(minutes=10)
CHECKS_AWAITED = timedelta(days=1)
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderPosition:
    """What has been read of the event log: everything up to `settled`, and of later events those in `seen`.

    `behind` are feeds with a position of their own, `assets` the assets that have been followed, both by feed.
    """

    settled: int
    seen: frozenset[int] = frozenset()
    behind: Mapping[str, int] = field(default_factory=dict)
    assets: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the stored form. Raises `ValueError` if it has another version."""
        fields = json.loads(text)
        if fields["version"] != _VERSION:
            raise ValueError(f"position {text!r} does not have version {_VERSION}")
        return cls(
            settled=fields["settled"],
            seen=frozenset(fields["seen"]),
            behind=fields["behind"],
            assets=fields["assets"],
        )

    def render(self) -> str:
        fields = {"settled": self.settled, "seen": sorted(self.seen), "behind": self.behind, "assets": self.assets}
        return json.dumps({"version": _VERSION, **fields}, separators=(",", ":"))

    def following(self, producers: Mapping[str, Producer]) -> Self:
        """Return the position for these producers.

        A feed that is new begins with the first event of its asset; without data, where each event is news, with the
        next one.
        """
        assets = {feed: producer.asset.to_user_string() for feed, producer in producers.items()}
        behind = {
            feed: 0
            for feed, asset in assets.items()
            if self.assets.get(feed) != asset and producers[feed].record.has_data
        }
        behind |= {feed: at for feed, at in self.behind.items() if feed in assets and feed not in behind}
        return replace(self, behind=behind, assets=assets)

    def after(
        self,
        records: Sequence[dg.EventLogRecord],
        handled: Sequence[dg.EventLogRecord],
        behind: Mapping[str, int],
        now: float,
    ) -> Self:
        """Return the position after `records` were read and `handled`, some of them or of single assets, announced."""
        settled = self.settled
        is_full = len(records) == EVENTS_A_TICK
        for record in records:
            if is_full or record.timestamp < now - SETTLED_SECONDS:
                settled = record.storage_id
        seen = {*self.seen, *(record.storage_id for record in handled)}
        return replace(self, settled=settled, seen=frozenset(each for each in seen if each > settled), behind=behind)


@tick_step(TickStep.MATERIALIZATIONS, otherwise=0)
def follow_materializations(
    tick: Tick, find_asset: FindAsset, instance: dg.DagsterInstance, graph: AssetGraph | None
) -> int:
    """Do as `record_materializations`, as a step of a tick."""
    return record_materializations(tick, find_asset, instance, graph)


def record_materializations(
    tick: Tick, find_asset: FindAsset, instance: dg.DagsterInstance, graph: AssetGraph | None = None
) -> int:
    """Record the instances of a cluster's feeds whose assets have been materialized since the last call; return how
    many have arrived.

    Does nothing if no asset produces a feed there. `graph` are the assets of this code location; without it, their
    partitions are not checked.
    """
    producers = {each.record.feed: each for each in find_producers(tick.plan, find_asset, tick.cluster)}
    if not producers:
        return 0
    name = f"materializations/{tick.cluster}"
    with tick.database.read() as connection:
        text = Cursors(connection).get(name)
    before = ReaderPosition.parse(text) if text is not None else begin_position(instance)
    records = read_materializations(instance, before.settled)
    if not records and before.settled > (instance.event_log_storage.get_maximum_record_id() or 0):
        before = begin_position(instance)
    position = before.following(producers)
    moved = [each.record.key for feed, each in producers.items() if position.assets[feed] != before.assets.get(feed)]
    if moved:  # these were polled until now
        with tick.database.begin() as connection:
            ArrivalPolls(connection).forget(moved)
    fresh = _sort(records, position, producers)
    behind: dict[str, int] = {}
    handled: list[dg.EventLogRecord] = []
    announcements: list[Announcement] = []
    signals: list[Signal] = []
    for feed, producer in producers.items():
        events: Sequence[dg.EventLogRecord] = fresh.get(feed, [])
        if not producer.record.has_data:
            is_new = before.assets.get(feed) != position.assets[feed]
            signals += [] if is_new else _signals(producer, events)
            handled += events
            continue
        start = position.behind.get(feed)
        if start is not None and not tick.bulkheads.is_put_off(TickStep.MATERIALIZATIONS, feed):
            events = read_materializations(instance, start, producer.asset)
        elif not events and start is None:
            continue
        checks = RunChecks.of(instance, producer.asset, events, tick.real_now)
        waiting = next((each for each in events if each.run_id in checks.unended), None)
        _tell_waiting(tick, producer, waiting)
        if waiting is not None:  # its checks are still to come
            behind[feed] = waiting.storage_id - 1
            events = [each for each in events if each.storage_id < waiting.storage_id]
        step, announce = TickStep.MATERIALIZATIONS, partial(_announce, tick, graph, producer, checks)
        found = tick.bulkheads.run_unit(step, feed, None, announce, events)
        if found is None:
            behind[feed] = start if start is not None else events[0].storage_id - 1
            continue
        announcements += found
        handled += events
        if start is not None and waiting is None and len(events) == EVENTS_A_TICK:
            behind[feed] = events[-1].storage_id
    following = position.after(records, handled, behind, tick.real_now.timestamp())
    if following == before:
        return 0
    return apply_announcements(tick, announcements, (name, following.render()), signals=signals)


def _tell_waiting(tick: Tick, producer: Producer, waiting: dg.EventLogRecord | None) -> None:
    """Tell of a materialization whose checks have been awaited for long, and with it all that came later."""
    step, subject = TickStep.MATERIALIZATIONS, f"{CHECKS_OF}{producer.record.feed}"
    if waiting is None:
        tick.bulkheads.succeed(step, subject)
    elif tick.real_now.timestamp() - waiting.timestamp >= CHECKS_TOLD_AFTER.total_seconds():
        until = datetime.fromtimestamp(waiting.timestamp, UTC) + CHECKS_AWAITED
        error = ChecksAwaitedError(asset=producer.record.producer, run=waiting.run_id, until=until)
        tick.bulkheads.fail(step, subject, error)


def follow_now(runtime: Runtime, find_asset: FindAsset, clusters: Iterable[str], instance: dg.DagsterInstance) -> None:
    """Record what has been materialized, for a run or a reader that no sensor has prepared."""
    database = runtime.database(instance)
    context = build_context(runtime, runtime.timeline(), database, runtime.clock.now())
    for cluster in sorted(clusters):
        tick = open_tick(
            replace(context, stores=runtime.run_stores), cluster, Bulkheads.open(database, cluster, runtime.real_clock)
        )
        record_materializations(tick, find_asset, instance)


def begin_position(instance: dg.DagsterInstance) -> ReaderPosition:
    """Return the position of a reader that begins."""
    newest = instance.event_log_storage.get_maximum_record_id() or 0
    return ReaderPosition(settled=max(0, newest - OVERLAP))


def read_materializations(
    instance: dg.DagsterInstance, after: int, asset: dg.AssetKey | None = None
) -> Sequence[dg.EventLogRecord]:
    """Read the next materializations of the event log, or of one asset."""
    wanted = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_MATERIALIZATION, asset_key=asset, after_cursor=after)
    return instance.event_log_storage.get_event_records(wanted, limit=EVENTS_A_TICK, ascending=True)


def _sort(
    records: Sequence[dg.EventLogRecord], position: ReaderPosition, producers: Mapping[str, Producer]
) -> dict[str, list[dg.EventLogRecord]]:
    """Return the new records of each feed that has no position of its own."""
    feeds: dict[dg.AssetKey, list[str]] = {}
    for feed, producer in producers.items():
        if feed not in position.behind:
            feeds.setdefault(producer.asset, []).append(feed)
    fresh: dict[str, list[dg.EventLogRecord]] = {}
    for record in records:
        if record.asset_key is not None and record.storage_id not in position.seen:
            for feed in feeds.get(record.asset_key, ()):
                fresh.setdefault(feed, []).append(record)
    return fresh


@dataclass(frozen=True, slots=True)
class RunChecks:
    """What the checks of an asset have found in the runs that have materialized it: the runs whose checks have not
    `unended`, and why blocking ones have failed, by run and partition, None for all of the run.
    """

    unended: frozenset[str]
    failed: Mapping[tuple[str, str | None], str]

    @classmethod
    def of(
        cls, instance: dg.DagsterInstance, asset: dg.AssetKey, events: Sequence[dg.EventLogRecord], now: datetime
    ) -> Self:
        """Read the checks of the runs of some events: one query a run, and another one while checks are missing. Those
        of a run that does not end are awaited for a day, and have failed then.
        """
        since = now.timestamp() - CHECKS_AWAITED.total_seconds()
        unended, failed = set[str](), dict[tuple[str, str | None], str]()
        of_type = {dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED, dg.DagsterEventType.ASSET_CHECK_EVALUATION}
        newest = {event.run_id: event.timestamp for event in events if event.run_id}
        for run_id, made_at in newest.items():
            planned, ended = set[str](), set[str]()
            for entry in instance.event_log_storage.get_logs_for_run(run_id, of_type=of_type):
                done = entry.dagster_event.event_specific_data if entry.dagster_event is not None else None
                if isinstance(done, AssetCheckEvaluationPlanned) and done.asset_key == asset:
                    planned.add(done.check_name)
                if not isinstance(done, dg.AssetCheckEvaluation) or done.asset_key != asset:
                    continue
                ended.add(done.check_name)
                if done.blocking and not done.passed and done.severity is dg.AssetCheckSeverity.ERROR:
                    said = f": {mask(done.description)}" if done.description else ""
                    failed[run_id, done.partition] = f"its asset's blocking check {done.check_name!r} has failed{said}"
            run = instance.get_run_by_id(run_id) if planned - ended else None
            if run is None or run.is_finished:
                continue
            if made_at > since:
                unended.add(run_id)
            else:
                failed.setdefault((run_id, None), f"the checks of run {run_id} have not ended in {CHECKS_AWAITED}")
        return cls(frozenset(unended), failed)

    def find(self, event: dg.EventLogRecord) -> str | None:
        """Return why a materialization is refused; None if it is not."""
        return self.failed.get((event.run_id, event.partition_key), self.failed.get((event.run_id, None)))


def _announce(
    tick: Tick,
    graph: AssetGraph | None,
    producer: Producer,
    checks: RunChecks,
    events: Sequence[dg.EventLogRecord],
) -> list[Announcement]:
    """Return the announcements of events. Partitions that are no instances are named and passed over.

    Raises:
        ProducerError: the asset is unknown, or its partitions are not the feed's instances.
    """
    require_known(producer, graph, bool(events))
    found: list[Announcement] = []
    strays: list[str | None] = []
    for event in events:
        try:
            nominal_time = producer.grid.nominal_time(event.partition_key or "")
        except PartitionKeyError:
            strays.append(event.partition_key)
        else:
            origin = f"asset:{producer.record.producer}"
            announced = Announcement(
                record=producer.record,
                nominal_time=nominal_time,
                origin=origin,
                facts=_facts(event),
                refused=checks.find(event),
            )
            found.append(announced)
    if strays:
        stray = StrayPartitionsError(
            asset=producer.record.producer, feed=producer.record.feed, partitions=tuple(dict.fromkeys(strays))
        )
        tick.bulkheads.fail(TickStep.MATERIALIZATIONS, f"other partitions of {producer.record.feed}", stray)
    return found


def _signals(producer: Producer, events: Sequence[dg.EventLogRecord]) -> list[Signal]:
    """Return one signal for each event within the feed's validity."""
    found: list[Signal] = []
    sequence = producer.record.sequence
    for event in events:
        at = datetime.fromtimestamp(event.timestamp, UTC)
        if sequence.start <= at and (sequence.end is None or at < sequence.end):
            origin = f"asset:{producer.record.producer}"
            key = f"{origin}/{event.storage_id}/{event.timestamp}"
            partition = {"partition": event.partition_key} if event.partition_key else {}
            found.append(
                Signal(record=producer.record, at=at, origin=origin, payload={**_facts(event), **partition}, key=key)
            )
    return found


def _facts(event: dg.EventLogRecord) -> dict[str, object]:
    materialization = event.asset_materialization
    assert materialization is not None
    counts = (materialization.metadata.get(name) for name in ROW_COUNTS)
    rows = next((count.value for count in counts if count is not None), None)
    facts = {"rows": rows, "data_version": (materialization.tags or {}).get(names.DATA_VERSION), "run": event.run_id}
    return {name: value for name, value in facts.items() if value}
