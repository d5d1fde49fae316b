"""Partition keys that Dagster must be told: those that time brings about, and those of instances that come."""

from collections.abc import Sequence
from datetime import datetime

from dagster import AddDynamicPartitionsRequest, DagsterInstance

from feed_assets.lifecycle.bulkheads import Bulkheads
from feed_assets.lifecycle.instances.requests import LaunchRequest
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.state.records import FeedEvent
from feed_assets.state.tick_records import TickStep

KEYS_A_TICK = 2_000


def due_keys(
    layout: AssetLayout, cluster: str, instance: DagsterInstance, as_of: datetime, bulkheads: Bulkheads
) -> list[AddDynamicPartitionsRequest]:
    """Return requests for the keys that dynamic grids lack, oldest first."""
    requests: dict[str, AddDynamicPartitionsRequest] = {}
    for grid in layout.dynamic[cluster]:
        keys: Sequence[str] = bulkheads.run_unit(
            TickStep.PARTITIONS, grid.dynamic_name, (), _missing_keys, grid, instance, as_of
        )
        if keys:
            requests[grid.dynamic_name] = grid.add_request(keys)
    return list(requests.values())


def coming_keys(
    layout: AssetLayout, events: Sequence[FeedEvent], requests: Sequence[LaunchRequest]
) -> list[AddDynamicPartitionsRequest]:
    """Return requests for the keys of instances that came as they come: of feeds, and of what is to run now."""
    keys: dict[Grid, dict[str, None]] = {}
    for event in events:
        found = layout.find_asset((event.feed, event.cluster))
        if found is not None and found[1].owner:
            keys.setdefault(found[1], {})[found[1].key(event.nominal_time)] = None
    for request in requests:
        if (grid := layout.process_grid(request.process)).owner:
            keys.setdefault(grid, {}).update(dict.fromkeys(map(grid.key, request.nominal_times)))
    return [grid.add_request(list(names)) for grid, names in keys.items()]


def _missing_keys(grid: Grid, instance: DagsterInstance, as_of: datetime) -> Sequence[str]:
    sequence = grid.sequence
    stop = sequence.index_at_or_before(as_of) + 1
    if sequence.size is not None:
        stop = min(stop, sequence.size)
    if stop <= 0 or instance.has_dynamic_partition(grid.dynamic_name, grid.key(sequence.at(stop - 1))):
        return ()
    known = instance.get_dynamic_partitions(grid.dynamic_name)
    start = sequence.index(grid.nominal_time(known[-1])) + 1 if known else 0
    return [grid.key(sequence.at(index)) for index in range(start, min(stop, start + KEYS_A_TICK))]
