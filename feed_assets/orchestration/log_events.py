"""What Dagster is told of the event log: arrivals of feeds that it does not make itself, and what retention did.

An arrival or a restored instance colours its partition; an eviction cannot take the colour away, so the observation on
the partition says when the instance went, why, and how to get it back.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from dagster import AssetKey, AssetMaterialization, AssetObservation, MetadataValue

from feed_assets.entities.common import LocationKind
from feed_assets.orchestration import names
from feed_assets.orchestration.instance_runs import DATA_VERSION
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.plan.records import FeedRecord
from feed_assets.state.records import FeedEvent, FeedEventKind
from feed_assets.timing.dates import render_datetime

Told: TypeAlias = AssetMaterialization | AssetObservation

_THERE = frozenset({FeedEventKind.ARRIVED, FeedEventKind.REPLICATED, FeedEventKind.RESTORED, FeedEventKind.CHANGED})


def build_told(layout: AssetLayout, events: Iterable[FeedEvent]) -> Iterator[Told]:
    """What Dagster is told of some events, at partitions that exist."""
    for event in events:
        key = (event.feed, event.cluster)
        record = layout.plan.feeds.get(key)
        if record is None or not record.sequence.contains(event.nominal_time) or not _is_of_data(event):
            continue
        asset_key, grid = layout.feed_asset(key)
        partition = grid.key(event.nominal_time)
        if event.kind in _THERE and not (event.kind is FeedEventKind.REPLICATED and event.origin.startswith("run:")):
            yield _arrival(record, event, asset_key, partition)
        elif event.kind is FeedEventKind.EVICTED:
            yield _eviction(event, asset_key, partition)


def _is_of_data(event: FeedEvent) -> bool:
    """Whether an event is about an instance itself, and not about the stats, say, that belong to it."""
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
            "dagster/uri": MetadataValue.url(f"{record.store.url.rstrip('/')}/{record.path(event.nominal_time)}"),
        },
        tags={DATA_VERSION: event.manifest_digest} if event.manifest_digest else {},
    )


def _copy_metadata(event: FeedEvent) -> dict[str, str | int | float]:
    """The figures of a copy that no run has made."""
    figures = event.payload.get("copy")
    if event.kind is not FeedEventKind.REPLICATED or not isinstance(figures, dict):
        return {}
    return {names.META_DETAIL + name: value for name, value in figures.items()}


def _change_metadata(event: FeedEvent) -> dict[str, str]:
    """What is another in an instance that has changed since it arrived."""
    if event.kind is not FeedEventKind.CHANGED:
        return {}
    counts = [f"{event.payload[name]} {name}" for name in ("added", "replaced", "removed") if event.payload.get(name)]
    return {names.META_LATE_DATA: f"files: {', '.join(counts)}"}


def _eviction(event: FeedEvent, asset_key: AssetKey, partition: str) -> AssetObservation:
    reason, sweep = event.payload.get("reason", "it was older than its retention"), event.payload.get("sweep")
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
