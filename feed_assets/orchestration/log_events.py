"""Report feed events to Dagster: arrivals of feeds that Dagster does not make itself, and evictions.

An arrival or a restored instance colours its partition. An eviction cannot remove the colour, so an observation on the
partition says when the instance was evicted, why, and how to restore it.
"""

from typing import TypeAlias

from dagster import AssetKey, AssetMaterialization, AssetObservation, MetadataValue

from feed_assets.entities.common import LocationKind
from feed_assets.masking import mask
from feed_assets.orchestration import names
from feed_assets.orchestration.instance_runs import DATA_VERSION
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.plan.records import FeedRecord
from feed_assets.state.records import FeedEvent, FeedEventKind
from feed_assets.timing.dates import render_datetime

DagsterEvent: TypeAlias = AssetMaterialization | AssetObservation

_THERE = frozenset({FeedEventKind.ARRIVED, FeedEventKind.REPLICATED, FeedEventKind.RESTORED, FeedEventKind.CHANGED})


def build_asset_events(layout: AssetLayout, event: FeedEvent) -> list[DagsterEvent]:
    """Return the Dagster event for a feed event at an existing partition; nothing for any other."""
    key = (event.feed, event.cluster)
    record = layout.plan.feeds.get(key)
    if record is None or not record.sequence.contains(event.nominal_time) or not _is_of_data(event):
        return []
    asset_key, grid = layout.feed_asset(key)
    partition = grid.key(event.nominal_time)
    if event.kind in _THERE and not (event.kind is FeedEventKind.REPLICATED and event.origin.startswith("run:")):
        return [_arrival(record, event, asset_key, partition)]
    if event.kind is FeedEventKind.EVICTED:
        return [_eviction(event, asset_key, partition)]
    return []


def _is_of_data(event: FeedEvent) -> bool:
    """Return whether an event concerns the instance itself, not for example its stats."""
    return event.payload.get("kind", LocationKind.DATA) == LocationKind.DATA


def _arrival(record: FeedRecord, event: FeedEvent, asset_key: AssetKey, partition: str) -> AssetMaterialization:
    return AssetMaterialization(
        asset_key=asset_key,
        partition=partition,
        metadata={
            names.META_NOMINAL: render_datetime(event.nominal_time),
            names.META_BYTES: event.bytes or 0,
            names.META_FILES: event.files or 0,
            names.META_EVENT: event.seq,
            **_change_metadata(event),
            **_copy_metadata(event),
            "dagster/uri": MetadataValue.url(mask(f"{record.store.url.rstrip('/')}/{record.path(event.nominal_time)}")),
        },
        tags={DATA_VERSION: event.manifest_digest} if event.manifest_digest else {},
    )


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


def _eviction(event: FeedEvent, asset_key: AssetKey, partition: str) -> AssetObservation:
    reason, sweep = event.payload.get("reason", "it exceeded its retention"), event.payload.get("sweep")
    return AssetObservation(
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
