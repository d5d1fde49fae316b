"""Map the feeds and processes of a plan to Dagster assets and their partitions; also feeds that assets of other Dagster
code produce, with what is wrong with the assets.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeAlias

import dagster as dg
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import describe_process
from feed_assets.entities.graph import iter_rings
from feed_assets.masking import get_logger
from feed_assets.orchestration.errors import AssetClashError, AssetKeyClashError, NoAssetError, ProducerError
from feed_assets.orchestration.graph.keys import iter_specs
from feed_assets.orchestration.graph.metadata import NOTHING_MORE, Shown
from feed_assets.orchestration.graph.partitions import Grid, feed_grid, process_grid
from feed_assets.orchestration.graph.translator import (
    DEFAULT_TRANSLATOR,
    FeedAssetsTranslator,
    asset_data,
    translate,
)
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.plan.transfers import ExportRecord, ImportRecord

if TYPE_CHECKING:  # a location is loaded without what keeps records
    from feed_assets.catalog.column_sets import ColumnSet

_logger = get_logger(__name__)

FindAsset: TypeAlias = Callable[[Key], tuple[dg.AssetKey, Grid] | None]
"""Returns the asset key and the grid of a feed; None if the feed is not currently declared."""


def column_lineage(found: "ColumnSet", cluster: str, find_asset: FindAsset) -> dict[str, dg.TableColumnLineage]:
    """Return what columns were made of in the form of Dagster, as metadata; `cluster` is that of the feeds that were
    read. What has only decided which rows are there is left out: all columns would come of it.
    """
    deps = {}
    for name, sources in found.columns.items():
        read = {(each.feed, each.column): find_asset((each.feed, cluster)) for each in sources}
        deps[name] = [dg.TableColumnDep(asset[0], column) for (_, column), asset in read.items() if asset is not None]
    return {"dagster/column_lineage": dg.TableColumnLineage(deps)} if deps else {}


@dataclass(frozen=True, slots=True)
class AssetLayout:
    """The mapping of feeds and processes to assets.

    `makers` has the process whose multi-asset contains a feed. `grids` has the grid that partitions each feed's asset.
    `dynamic` has the grids of each cluster whose keys must be added to Dagster. `omitted_inputs` are the inputs that
    Dagster's graph omits. `feed_specs` has the asset of each feed, `process_specs` that of each process that is an
    asset of its own, both without dependencies.

    A process is the `@multi_asset` of its feeds if it writes the instance of its own nominal time to each of them and
    is their only writer. Otherwise it is an asset of its own, and its feeds are external assets downstream. A
    quarantine is always external, downstream of the feed whose bad rows it takes.
    """

    plan: Plan
    makers: Mapping[Key, ProcessRecord]
    grids: Mapping[Key, Grid]
    dynamic: Mapping[str, frozenset[Grid]]
    omitted_inputs: frozenset[tuple[Key, Key]]
    feed_specs: Mapping[Key, dg.AssetSpec]
    process_specs: Mapping[Key, dg.AssetSpec]

    def feed_asset(self, key: Key) -> tuple[dg.AssetKey, Grid]:
        """Return the asset key and the grid of a feed."""
        return self.feed_specs[key].key, self.grids[key]

    def find_asset(self, key: Key) -> tuple[dg.AssetKey, Grid] | None:
        """Return the asset key and the grid of a feed; None if it is not declared."""
        return self.feed_asset(key) if key in self.feed_specs else None

    def find_feed(self, asset: dg.AssetKey) -> Key | None:
        """Return the feed whose asset has this key; None if it is the asset of no feed."""
        return next((key for key, spec in self.feed_specs.items() if spec.key == asset), None)

    def find_own_asset(self, process: ProcessRecord) -> tuple[dg.AssetKey, Grid] | None:
        """Return the asset key and the grid of a process; None if it is not an asset of its own."""
        spec = self.process_specs.get(process.key)
        return (spec.key, process_grid(process)) if spec is not None else None

    def run_assets(self, process: ProcessRecord) -> list[tuple[dg.AssetKey, Grid]]:
        """Return the asset keys and grids that a run of the process materializes: its own asset, or its feeds."""
        own = self.find_own_asset(process)
        return [own] if own is not None else [self.feed_asset(edge.feed_key) for edge in process.own_outputs]

    def find_partitions(self, kind: str, key: Key, nominal_time: datetime) -> list[tuple[dg.AssetKey, str | None]]:
        """Return the partitions that show an instance: that of the feed's asset, or of each asset that a run of the
        process materializes; None for one without partitions. There are none if it is no instance by this plan.
        """
        process, asset = self.plan.processes.get(key), self.find_asset(key)
        places = [asset] if asset is not None and kind == Kind.FEED else []
        places += self.run_assets(process) if process is not None and kind == Kind.PROCESS else []
        return [(own, grid.partition(nominal_time)) for own, grid in places if grid.sequence.contains(nominal_time)]

    def process_grid(self, process: ProcessRecord) -> Grid:
        """Return the grid that partitions the runs of the process."""
        return self.run_assets(process)[0][1]


def lay_out(
    plan: Plan, translator: FeedAssetsTranslator = DEFAULT_TRANSLATOR, shown: Shown = NOTHING_MORE
) -> AssetLayout:
    """Decide which asset represents each feed and process, which say what is `shown` beside the plan.

    Raises:
        TranslationError: the translator fails, or changes what follows from the entities.
        AssetKeyClashError: two feeds or processes have the same key.
    """
    makers: dict[Key, ProcessRecord] = {}
    grids = {key: feed_grid(record) for key, record in plan.feeds.items()}
    own: list[ProcessRecord] = []
    for process in plan.processes.values():
        feeds = [plan.feeds[edge.feed_key] for edge in process.own_outputs]
        makes_all = all(
            len(feed.outputs_of) == 1 and edge.shift == 0 for edge, feed in zip(process.own_outputs, feeds, strict=True)
        )
        if not feeds or not makes_all:
            own.append(process)
            continue
        shared = _shared_grid(feeds, process)
        for feed in feeds:
            makers[feed.key] = process
            grids[feed.key] = shared
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # references to code are one of Dagster's beta features
        feed_specs = {
            key: translate(translator, asset_data(plan, record, makers.get(key), grids[key], shown))
            for key, record in plan.feeds.items()
        }
        process_specs = {
            each.key: translate(translator, asset_data(plan, each, each, process_grid(each), shown)) for each in own
        }
    layout = AssetLayout(
        plan=plan,
        makers=makers,
        grids=grids,
        dynamic=_dynamic_grids(plan, grids, own),
        omitted_inputs=_find_omitted_inputs(plan),
        feed_specs=feed_specs,
        process_specs=process_specs,
    )
    _check_keys(layout)
    return layout


def tables_of(process: ProcessRecord) -> tuple[list[dg.AssetKey], list[dg.AssetKey]]:
    """Return the external assets of the tables of datasources that a process reads, and that it writes."""
    read, written = process.places if isinstance(process.work, ImportRecord | ExportRecord) else ((), ())
    return [dg.AssetKey(each.split("/", 2)) for each in read], [dg.AssetKey(each.split("/", 2)) for each in written]


def _dynamic_grids(plan: Plan, grids: Mapping[Key, Grid], own: Sequence[ProcessRecord]) -> dict[str, frozenset[Grid]]:
    used: dict[str, set[Grid]] = {cluster: set() for cluster in plan.clusters}
    for (_, cluster), each in grids.items():
        used[cluster].add(each)
    for process in own:
        used[process.cluster].add(process_grid(process))
    return {cluster: frozenset(each for each in found if each.is_filled_by_time) for cluster, found in used.items()}


def _check_keys(layout: AssetLayout) -> None:
    known: dict[dg.AssetKey, str] = {}
    feeds = ((f"feed {name!r}", cluster, spec) for (name, cluster), spec in layout.feed_specs.items())
    processes = ((describe_process(name), cluster, spec) for (name, cluster), spec in layout.process_specs.items())
    found = [(spec.key, f"{what} on cluster {cluster!r}") for what, cluster, spec in (*feeds, *processes)]
    tables = {table: None for process in layout.plan.processes.values() for table in chain(*tables_of(process))}
    for key, entity in (*found, *((table, "a table of a datasource") for table in tables)):
        first = known.setdefault(key, entity)
        if first is not entity:
            raise AssetKeyClashError(asset_key=key.to_user_string(), first=first, second=entity)


def _shared_grid(feeds: Sequence[FeedRecord], process: ProcessRecord) -> Grid:
    first = feed_grid(feeds[0])
    if all(feed_grid(feed).definition() is first.definition() for feed in feeds):
        return first
    return process_grid(process)


def _find_omitted_inputs(plan: Plan) -> frozenset[tuple[Key, Key]]:
    """Return (feed, process) pairs to omit from the graph: of each cycle, the input that reads furthest into the
    past. Dagster's assets form no cycle, but a feed may depend on its own past instances.
    """
    before: dict[tuple[str, Key], set[tuple[str, Key]]] = {}
    reach: dict[tuple[Key, Key], int] = {}
    for process in plan.processes.values():
        for edge in process.inputs:
            feed = edge.feed_key
            before.setdefault(("process", process.key), set()).add(("feed", feed))
            last = edge.shifts[1] if edge.shifts else 0
            reach[feed, process.key] = max(last, reach.get((feed, process.key), last))
        for out in process.outputs:
            before.setdefault(("feed", out.feed_key), set()).add(("process", process.key))
    omitted_inputs: set[tuple[Key, Key]] = set()
    while (ring := next(iter_rings(before), None)) is not None:
        inputs = [(feed, process) for (_, process), (kind, feed) in pairwise((*ring, ring[0])) if kind == "feed"]
        feed, process_key = min(inputs, key=lambda pair: (reach[pair], pair))
        before["process", process_key].discard(("feed", feed))
        omitted_inputs.add((feed, process_key))
    return frozenset(omitted_inputs)


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
    """Check the assets that a user adds to those of the location. A dependency on a feed that is not there is logged:
    another code location may have an asset of that key.

    Raises:
        AssetClashError: an asset has the key of one of the location's.
        ProducerError: an asset that produces a feed has other partitions than the feed.
    """
    specs = {spec.key: spec for spec in iter_specs(theirs)}
    taken = {spec.key for spec in iter_specs(own)}
    for key in specs:
        if key in taken:
            feed = layout.find_feed(key)
            raise AssetClashError(key=key.to_user_string(), feed=feed and feed[0])
    for producer in find_producers(layout.plan, layout.find_asset):
        taken.add(producer.asset)
        if producer.asset in specs:
            producer.require_partitions(specs[producer.asset].partitions_def)
    for spec in specs.values():
        for dep in spec.deps:
            cluster, *names = dep.asset_key.path
            if dep.asset_key not in taken | specs.keys() and cluster in layout.plan.clusters and len(names) == 1:
                error = NoAssetError(kind=Kind.FEED, name=names[0], cluster=cluster, known=layout.feed_specs.keys())
                _logger.warning("a dependency of asset %s: %s", spec.key.to_user_string(), error)


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
