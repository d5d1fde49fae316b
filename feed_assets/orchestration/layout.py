"""Map the feeds and processes of a plan to Dagster assets and their partitions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dagster import AssetKey

from feed_assets.orchestration import names
from feed_assets.orchestration.cycles import find_omitted_inputs
from feed_assets.orchestration.partitions import Grid, grid
from feed_assets.plan.records import FeedRecord, Key, Plan, ProcessRecord

FindAsset: TypeAlias = Callable[[Key], tuple[AssetKey, Grid] | None]
"""Returns the asset key and the grid of a feed; None if the feed is not currently declared."""


@dataclass(frozen=True, slots=True)
class AssetLayout:
    """The mapping of feeds and processes to assets.

    `makers` has the process whose multi-asset contains a feed. `grids` has the grid that partitions each feed's asset.
    `dynamic` has the grids of each cluster whose keys must be added to Dagster. `omitted_inputs` are the inputs that
    Dagster's graph omits.

    A process is the `@multi_asset` of its feeds if it writes the instance of its own nominal time to each of them and
    is their only writer. Otherwise it is an asset of its own, and its feeds are external assets downstream.
    """

    plan: Plan
    makers: Mapping[Key, ProcessRecord]
    grids: Mapping[Key, Grid]
    dynamic: Mapping[str, frozenset[Grid]]
    omitted_inputs: frozenset[tuple[Key, Key]]

    def feed_asset(self, key: Key) -> tuple[AssetKey, Grid]:
        """Return the asset key and the grid of a feed."""
        return names.feed_key(self.plan.feeds[key]), self.grids[key]

    def find_asset(self, key: Key) -> tuple[AssetKey, Grid] | None:
        """Return the asset key and the grid of a feed; None if it is not declared."""
        return self.feed_asset(key) if key in self.plan.feeds else None

    def is_own_asset(self, process: ProcessRecord) -> bool:
        """Return whether the process is an asset of its own."""
        return not process.outputs or any(self.makers.get(edge.feed_key) is not process for edge in process.outputs)

    def process_grid(self, process: ProcessRecord) -> Grid:
        """Return the grid that partitions the runs of the process."""
        if self.is_own_asset(process):
            return grid(process.sequence)
        return self.grids[process.outputs[0].feed, process.cluster]


def lay_out(plan: Plan) -> AssetLayout:
    """Decide which asset represents each feed and process."""
    makers: dict[Key, ProcessRecord] = {}
    grids = {key: grid(record.sequence) for key, record in plan.feeds.items()}
    for process in plan.processes.values():
        feeds = [plan.feeds[edge.feed_key] for edge in process.outputs]
        own = all(
            len(feed.outputs_of) == 1 and edge.shift == 0 for edge, feed in zip(process.outputs, feeds, strict=True)
        )
        if not feeds or not own:
            continue
        shared = _shared_grid(feeds, process)
        for feed in feeds:
            makers[feed.key] = process
            grids[feed.key] = shared
    layout = AssetLayout(plan=plan, makers=makers, grids=grids, dynamic={}, omitted_inputs=find_omitted_inputs(plan))
    return replace(layout, dynamic=_dynamic_grids(layout))


def _dynamic_grids(layout: AssetLayout) -> dict[str, frozenset[Grid]]:
    used: dict[str, set[Grid]] = {cluster: set() for cluster in layout.plan.clusters}
    for (_, cluster), each in layout.grids.items():
        used[cluster].add(each)
    for process in layout.plan.processes.values():
        used[process.cluster].add(layout.process_grid(process))
    return {cluster: frozenset(each for each in found if each.is_dynamic) for cluster, found in used.items()}


def _shared_grid(feeds: Sequence[FeedRecord], process: ProcessRecord) -> Grid:
    first = grid(feeds[0].sequence)
    if all(grid(feed.sequence).definition() is first.definition() for feed in feeds):
        return first
    return grid(process.sequence)
