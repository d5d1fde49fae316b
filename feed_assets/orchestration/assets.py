"""Build Dagster assets for feeds and processes: dependencies and computations."""

from collections.abc import Iterator, Mapping, Sequence

from dagster import (
    AssetCheckSpec,
    AssetDep,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    multi_asset,
)

from feed_assets.entities.maps import EMPTY
from feed_assets.masking import masked_errors
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout
from feed_assets.orchestration.graph.mappings import output_mapping, window_mapping
from feed_assets.orchestration.graph.producers import find_producers, producer_dep
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.column_changes import build_column_check
from feed_assets.orchestration.runs.quality_checks import RunResult, build_quality_check
from feed_assets.plan.edges import InputEdge, Key, OutputEdge
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.timing.sequence import InstanceSequence


def build_feed_assets(
    runtime: Runtime, layout: AssetLayout, resources: Mapping[str, object] = EMPTY
) -> list[AssetSpec | AssetsDefinition]:
    """Build every asset of the location: external feeds, and processes with the feeds they write.

    Work elsewhere has specs only: Dagster shows it, and materializes nothing.

    `resources` are attached to the assets that need them.
    """
    plan = layout.plan
    producers = {each.record.key: each for each in find_producers(plan, layout.find_asset)}
    built: list[AssetSpec | AssetsDefinition] = []
    for record in plan.feeds.values():
        producer = producers.get(record.key)
        if record.key in layout.makers or (producer is not None and producer.is_own):
            continue
        deps = _writers(layout, record) if producer is None else [producer_dep(producer)]
        built.append(_with_deps(layout.feed_specs[record.key], deps))
    op_names = names.op_names(plan)
    for key, process in plan.processes.items():
        if process.is_elsewhere:
            built += _process_specs(layout, process)
        else:
            built.append(_build_process(runtime, layout, process, op_names[key], resources))
    return built


def _writers(layout: AssetLayout, record: FeedRecord) -> list[AssetDep]:
    return [
        AssetDep(
            _find_writer(layout, edge),
            partition_mapping=output_mapping(edge, record.sequence, layout.plan.processes[edge.process_key].sequence),
        )
        for edge in record.outputs_of
    ]


def _find_writer(layout: AssetLayout, edge: OutputEdge) -> AssetKey:
    """Return the asset whose runs write an output: the process, or of a quarantine the feed whose bad rows it takes."""
    own = layout.process_specs.get(edge.process_key)
    if own is not None:
        return own.key
    outputs = layout.plan.processes[edge.process_key].own_outputs
    return next(layout.feed_specs[each.feed_key].key for each in outputs if each.name == edge.quarantine_of)


def _with_deps(spec: AssetSpec, deps: Sequence[AssetDep]) -> AssetSpec:
    return spec.replace_attributes(deps=deps) if deps else spec


def _build_process(
    runtime: Runtime, layout: AssetLayout, process: ProcessRecord, op_name: str, resources: Mapping[str, object]
) -> AssetsDefinition:
    spark = names.spark_resource(process.cluster)
    run_grid = layout.process_grid(process)
    own = layout.process_specs.get(process.key)
    own_key = own.key if own is not None else None

    @multi_asset(
        name=op_name,
        specs=_process_specs(layout, process),
        check_specs=_checks(layout, process) if own is None else None,
        pool=names.pool_name(process),
        backfill_policy=BackfillPolicy.single_run(),
        required_resource_keys={spark},
        resource_defs={spark: resources[spark]} if spark in resources else None,
        op_tags={names.TAG_PROCESS: process.process, names.TAG_CLUSTER: process.cluster},
    )
    def process_asset(context: AssetExecutionContext) -> Iterator[RunResult]:
        from feed_assets.orchestration.runs.process_runs import materialize_process

        with masked_errors():
            yield from materialize_process(context, runtime, process, run_grid, layout.find_asset, own_key)

    return process_asset


def _process_specs(layout: AssetLayout, process: ProcessRecord) -> list[AssetSpec]:
    """Return the assets that the work of a process materializes. Those of work elsewhere stay specs, which nothing in
    Dagster materializes.
    """
    own = layout.process_specs.get(process.key)
    specs = [own] if own is not None else [_output_spec(layout, edge) for edge in process.own_outputs]
    deps = _input_deps(layout, process, layout.process_grid(process).sequence)
    return [_with_deps(spec, deps) for spec in specs]


def _output_spec(layout: AssetLayout, edge: OutputEdge) -> AssetSpec:
    """Return the asset of an output. What reads an optional one that is left out is skipped in the same run."""
    spec = layout.feed_specs[edge.feed_key]
    return spec.replace_attributes(skippable=True) if edge.optional else spec


def _checks(layout: AssetLayout, process: ProcessRecord) -> list[AssetCheckSpec]:
    found: list[AssetCheckSpec] = []
    for edge in process.own_outputs:
        feed, (asset, grid) = layout.plan.feeds[edge.feed_key], layout.feed_asset(edge.feed_key)
        found += build_column_check(asset, feed, process)
        found += build_quality_check(asset, feed, grid)
    return found


def _input_deps(layout: AssetLayout, process: ProcessRecord, sequence: InstanceSequence) -> list[AssetDep]:
    by_feed: dict[Key, list[InputEdge]] = {}
    for edge in process.inputs:
        by_feed.setdefault(edge.feed_key, []).append(edge)
    deps = []
    for key, edges in by_feed.items():
        if (key, process.key) in layout.omitted_inputs:
            continue
        asset_key, feed_grid = layout.feed_asset(key)
        deps.append(AssetDep(asset_key, partition_mapping=window_mapping(edges, feed_grid.sequence, sequence)))
    return deps
