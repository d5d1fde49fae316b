"""Feeds that assets of other Dagster code produce: their place in the graph, and what is wrong with the assets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from feed_assets.orchestration.errors import AssetClashError, ProducerError
from feed_assets.orchestration.graph.layout import AssetLayout, FindAsset
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.plan.records import FeedRecord, Plan

UserAsset = dg.AssetsDefinition | dg.AssetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """An asset whose materializations are the arrivals of a feed, and the feed's own asset with its grid."""

    record: FeedRecord
    asset: dg.AssetKey
    own: dg.AssetKey
    grid: Grid

    @property
    def is_own(self) -> bool:
        """Whether the feed has no asset beside this one."""
        return self.asset == self.own

    def require_partitions(self, definition: dg.PartitionsDefinition[str] | None) -> None:
        """Require that the keys of a partitions definition mean the feed's instances.

        Raises:
            ProducerError: the keys have another form, or mean other times.
        """
        reason = _find_mismatch(self.grid, definition) if self.record.has_data else None
        if reason is not None:
            raise ProducerError(
                asset=self.record.producer, feed=self.record.feed, reason=reason, next_step=_advise(self.grid)
            )


def find_producers(plan: Plan, find_asset: FindAsset, cluster: str | None = None) -> Iterator[Producer]:
    """Yield the producers of the feeds of a plan, or of one cluster."""
    for each in plan.clusters if cluster is None else (cluster,):
        for record in plan.announced_on(each):
            found = find_asset(record.key)
            if found is not None:
                asset = dg.AssetKey(list(record.produced_by or ()))
                yield Producer(record=record, asset=asset, own=found[0], grid=found[1])


def producer_dep(producer: Producer) -> dg.AssetDep:
    """Return the dependency of a feed's asset on the asset that produces it."""
    if not producer.record.has_data:
        return dg.AssetDep(producer.asset)
    mapping: dg.PartitionMapping = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)
    if producer.grid.is_dynamic:
        mapping = dg.AllPartitionMapping()
    return dg.AssetDep(producer.asset, partition_mapping=mapping)


def check_user_assets(layout: AssetLayout, own: Sequence[UserAsset], theirs: Iterable[UserAsset]) -> None:
    """Check the assets that a user adds to those of the location.

    Raises:
        AssetClashError: an asset has the key of one of the location's.
        ProducerError: an asset that produces a feed has other partitions than the feed.
    """
    specs = {spec.key: spec for asset in theirs for spec in _specs_of(asset)}
    taken = {spec.key for asset in own for spec in _specs_of(asset)}
    for key in specs:
        if key in taken:
            feed = layout.find_feed(key)
            raise AssetClashError(key=key.to_user_string(), feed=feed and feed[0])
    for producer in find_producers(layout.plan, layout.find_asset):
        if producer.asset in specs:
            producer.require_partitions(specs[producer.asset].partitions_def)


def _specs_of(asset: UserAsset) -> Iterable[dg.AssetSpec]:
    return [asset] if isinstance(asset, dg.AssetSpec) else asset.specs


def require_known(producer: Producer, graph: AssetGraph | None, is_materialized: bool) -> None:
    """Require of an asset in the graph of this code location that its partitions are the feed's instances.

    Raises:
        ProducerError: they are not; or neither this location nor the event log knows the asset.
    """
    if graph is None:
        return
    node = graph.get(producer.asset) if graph.has(producer.asset) else None
    if node is not None and node.is_materializable:
        producer.require_partitions(node.partitions_def)
    elif not is_materialized:
        raise ProducerError(
            asset=producer.record.producer,
            feed=producer.record.feed,
            reason="this code location has no such asset, and it has never been materialized",
            next_step="Correct produced_by, or add the asset; one of another code location is known once it has been "
            "materialized.",
        )


def _find_mismatch(grid: Grid, definition: dg.PartitionsDefinition[str] | None) -> str | None:
    if definition is None:
        return "it has no partitions"
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return "its partitions have several dimensions"
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition):
        return None if grid.is_dynamic else "its partitions are no times"
    if (definition.fmt, definition.timezone) != (grid.key_format, grid.key_zone.key):
        theirs = f"{definition.fmt} in {definition.timezone}"
        return f"its partition keys have the form {theirs}, those of the feed {grid.key_format} in {grid.key_zone.key}"
    if grid.cron is not None and definition.cron_schedule != grid.cron:
        return f"its partitions follow the schedule {definition.cron_schedule}, those of the feed {grid.cron}"
    return None


def _advise(grid: Grid) -> str:
    if grid.cron is None:
        return f"Give it partitions with keys such as {grid.key(grid.sequence.start)}."
    return (
        f"Give it TimeWindowPartitionsDefinition(start={grid.key(grid.sequence.start)!r}, fmt={grid.key_format!r}, "
        f"timezone={grid.key_zone.key!r}, cron_schedule={grid.cron!r})."
    )
