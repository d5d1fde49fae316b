"""Report feed events to Dagster: arrivals, evictions, and publications that Dagster does not know from its own runs.

An arrival or a restored instance colours its partition. A run reports itself what it publishes; if Dagster does not
know the run, because its storage was lost or restored or the state was rebuilt, the log tells it. An eviction cannot
remove the colour, so an observation on the partition says when the instance was evicted, why, and how to restore it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias, cast

import dagster as dg

from feed_assets.catalog.column_sets import ColumnSets
from feed_assets.context.tick import Tick
from feed_assets.entities.common import Kind
from feed_assets.instances.late.quality_checks import QUALITY
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import ARRIVING, COLUMNS, CONTENT, FeedEvent, FeedEventKind, FeedInstanceStatus
from feed_assets.log.run_names import find_run
from feed_assets.masking import mask
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout, column_lineage
from feed_assets.orchestration.runs.feed_checks import quality_metadata
from feed_assets.orchestration.runs.published_metadata import late_metadata, message_metadata, page_metadata
from feed_assets.plan.records import FeedRecord
from feed_assets.timing.dates import render_datetime

DagsterEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation

LOOKED_A_TICK = 100
RETOLD_A_TICK = 500
"""How many events of a feed are told again in a tick, if its asset was wiped or is another one."""

_PUBLISHED = frozenset({FeedEventKind.PRODUCED, FeedEventKind.REPLICATED})


def find_known_runs(instance: dg.DagsterInstance, events: Sequence[FeedEvent]) -> Collection[str]:
    """Return the runs that have published something in these events and that Dagster knows."""
    runs = {run for event in events if event.kind in _PUBLISHED and (run := find_run(event.origin)) is not None}
    return frozenset(instance.get_run_ids(dg.RunsFilter(run_ids=sorted(runs)))) if runs else frozenset()


def build_asset_events(
    tick: Tick, layout: AssetLayout, event: FeedEvent, known_runs: Collection[str]
) -> list[DagsterEvent]:
    """Return the Dagster events for a feed event at an existing partition; nothing for any other, nor for what a known
    run has published.
    """
    key = (event.feed, event.cluster)
    record = layout.plan.feeds.get(key)
    if record is None or not record.sequence.contains(event.nominal_time) or not event.is_of_data:
        return []
    asset_key, grid = layout.feed_asset(key)
    partition = grid.partition(event.nominal_time)
    if event.kind is FeedEventKind.EVICTED:
        return [_eviction(event, asset_key, partition)]
    if record.produced_by is not None and dg.AssetKey(list(record.produced_by)) == asset_key:
        return []
    if event.kind not in CONTENT or (event.kind in _PUBLISHED and find_run(event.origin) in known_runs):
        return []
    database, server_url = tick.database, tick.server_url
    more: dict[str, Any] = dict(page_metadata(server_url, Kind.FEED, event.feed, event.nominal_time))
    if event.kind in ARRIVING - {FeedEventKind.RESTORED}:  # what an undo restores had come before
        more |= late_metadata(database, record, event.nominal_time, event.recorded_at)
    if (digest := event.payload.get(COLUMNS)) is not None:
        with database.read() as connection:
            found = ColumnSets(connection).find([str(digest)])[str(digest)]
        more |= column_lineage(found, event.cluster, layout.find_asset)
    return [_arrival(record, event, asset_key, partition, more), *_ends_of_process(server_url, layout, event)]


def find_greyed(
    tick: Tick, layout: AssetLayout, instance: dg.DagsterInstance, after: int, until: float, wiped: str | None = None
) -> tuple[list[DagsterEvent], int]:
    """Look at the next few events of the log: an AVAILABLE instance whose run was deleted in Dagster, and with it what
    the run has reported, is told again; of a `wiped` feed each. Returns what to tell, and the event after which to go
    on; 0 at the end.
    """
    limit = LOOKED_A_TICK if wiped is None else RETOLD_A_TICK
    feeds, clusters = (None, None) if wiped is None else ([wiped], [tick.cluster])
    with tick.database.read() as connection:
        events = EventLog(connection).read(after, limit, feeds, clusters=clusters)
        rows = FeedInstances(connection).get_many([(each.feed, each.cluster, each.nominal_time) for each in events])
    newest = {row.event_seq for row in rows.values() if row.status is FeedInstanceStatus.AVAILABLE}
    shown = [each for each in events if each.cluster == tick.cluster and each.seq in newest and each.seq <= until]
    known = find_known_runs(instance, shown) if wiped is None else ()
    lost = [
        each for each in shown if wiped or (each.kind in _PUBLISHED and find_run(each.origin) not in (None, *known))
    ]
    told = [each for event in lost for each in build_asset_events(tick, layout, event, known)]
    storage, kind = instance.event_log_storage, dg.DagsterEventType.ASSET_MATERIALIZATION
    green: set[tuple[dg.AssetKey, str | None]] = {
        (asset, partition)
        for asset in {each.asset_key for each in told}
        for partition in storage.get_latest_storage_id_by_partition(
            asset, kind, {each.partition for each in told if each.asset_key == asset and each.partition}
        )
    }
    single = {each.asset_key for each in told if each.partition is None}
    green |= {(asset, None) for asset in single if instance.get_latest_materialization_event(asset) is not None}
    greyed = [each for each in told if (each.asset_key, each.partition) not in green]
    return greyed, events[-1].seq if len(events) == limit else 0


def _ends_of_process(server_url: str | None, layout: AssetLayout, event: FeedEvent) -> list[DagsterEvent]:
    """Return the materializations of a process that is an asset of its own and has published an instance."""
    process = layout.plan.processes.get((str(event.payload.get("process")), event.cluster))
    own = layout.find_own_asset(process) if process is not None else None
    if event.kind not in _PUBLISHED or process is None or own is None:
        return []
    asset_key, grid = own
    return [
        dg.AssetMaterialization(
            asset_key=asset_key,
            partition=grid.partition(time),
            metadata={
                **page_metadata(server_url, Kind.PROCESS, process.process, time),
                names.META_NOMINAL: render_datetime(time),
                names.META_EVENT: event.seq,
            },
        )
        for edge in process.own_outputs
        if edge.feed_key == (event.feed, event.cluster)
        for time in layout.plan.writer_times(edge, event.nominal_time, event.maker and event.maker.nominal_time)
    ]


def _arrival(
    record: FeedRecord, event: FeedEvent, asset_key: dg.AssetKey, partition: str | None, more: Mapping[str, Any]
) -> dg.AssetMaterialization:
    rows = event.payload.get("rows") if event.kind is FeedEventKind.ARRIVED else None
    return dg.AssetMaterialization(
        asset_key=asset_key,
        partition=partition,
        metadata={
            names.META_NOMINAL: render_datetime(event.nominal_time),
            names.META_BYTES: event.bytes or 0,
            names.META_FILES: event.files or 0,
            names.META_EVENT: event.seq,
            **_change_metadata(event),
            **more,
            **_copy_metadata(event),
            **quality_metadata(cast("Mapping[str, str]", event.payload.get(QUALITY) or {})),
            **({names.ROW_COUNT: rows} if isinstance(rows, int) else {}),
            **message_metadata(event.message, event.marking),
            **(_place(record, event) if record.has_data else {}),
        },
        tags={names.DATA_VERSION: event.manifest_digest} if event.manifest_digest else {},
    )


def _place(record: FeedRecord, event: FeedEvent) -> dict[str, dg.MetadataValue]:
    store, path = event.payload.get("store", record.store.url), event.payload.get("path")
    url = f"{str(store).rstrip('/')}/{path or record.path(event.nominal_time)}"
    return {"dagster/uri": dg.MetadataValue.url(mask(url))}


def _copy_metadata(event: FeedEvent) -> dict[str, str | int | float]:
    """Return the figures of a copy that was not made by a run."""
    figures = event.payload.get("copy")
    if event.kind is not FeedEventKind.REPLICATED or not isinstance(figures, dict):
        return {}
    return {names.META_DETAIL + name: value for name, value in figures.items()}


def _change_metadata(event: FeedEvent) -> dict[str, str]:
    """Return the changes of an instance since its arrival."""
    if event.kind is not FeedEventKind.CHANGED:
        return {}
    counts = [f"{event.payload[name]} {name}" for name in ("added", "replaced", "removed") if event.payload.get(name)]
    return {names.META_LATE_DATA: f"files: {', '.join(counts)}"}


def _eviction(event: FeedEvent, asset_key: dg.AssetKey, partition: str | None) -> dg.AssetObservation:
    reason, sweep = event.payload.get("reason", "it exceeded its retention"), event.payload.get("sweep")
    return dg.AssetObservation(
        asset_key=asset_key,
        partition=partition,
        description=f"evicted at {render_datetime(event.recorded_at)}: {reason}",
        metadata={
            names.META_STATUS: FeedEventKind.EVICTED.value,
            names.META_WHY: f"evicted at {render_datetime(event.recorded_at)} by sweep {sweep}: {reason}",
            names.META_SWEEP: str(sweep),
            names.META_NOMINAL: render_datetime(event.nominal_time),
            names.META_BYTES: event.bytes or 0,
            names.META_FILES: event.files or 0,
            names.META_EVENT: event.seq,
        },
    )
