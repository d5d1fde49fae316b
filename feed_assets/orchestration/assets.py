"""Build Dagster assets for feeds and processes: dependencies, metadata and computations."""

from collections.abc import Iterator, Sequence

from dagster import (
    AssetDep,
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    AssetSpec,
    BackfillPolicy,
    CodeReferencesMetadataValue,
    LocalFileCodeReference,
    MaterializeResult,
    MetadataValue,
    TableColumn,
    TableSchema,
    multi_asset,
)

from feed_assets.entities.columns import parse_columns
from feed_assets.masking import mask, mask_values, masked_errors
from feed_assets.orchestration import names
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.orchestration.mappings import output_mapping, window_mapping
from feed_assets.orchestration.partitions import Grid
from feed_assets.orchestration.runtime import Runtime
from feed_assets.plan.records import EntityFacts, FeedRecord, InputEdge, Key, ProcessRecord
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence


def build_assets(runtime: Runtime, layout: AssetLayout) -> list[AssetSpec | AssetsDefinition]:
    """Build every asset of the location: external feeds, and processes with the feeds they write."""
    plan = layout.plan
    built: list[AssetSpec | AssetsDefinition] = []
    for record in plan.feeds.values():
        if record.key not in layout.makers:
            built.append(_feed_spec(layout, record, _writers(layout, record)))
    built.extend(_build_process(runtime, layout, process) for process in plan.processes.values())
    return built


def _writers(layout: AssetLayout, record: FeedRecord) -> list[AssetDep]:
    plan = layout.plan
    return [
        AssetDep(
            names.process_key(plan, process := plan.processes[edge.process_key]),
            partition_mapping=output_mapping(edge, record.sequence, process.sequence),
        )
        for edge in record.outputs_of
    ]


def _build_process(runtime: Runtime, layout: AssetLayout, process: ProcessRecord) -> AssetsDefinition:
    plan = layout.plan
    run_grid = layout.process_grid(process)
    own_key = names.process_key(plan, process) if layout.is_own_asset(process) else None
    deps = _input_deps(layout, process, run_grid.sequence)
    if own_key is not None:
        specs = [_process_spec(process, own_key, run_grid, deps)]
    else:
        specs = [_feed_spec(layout, plan.feeds[edge.feed_key], deps, made_by=process) for edge in process.outputs]

    @multi_asset(
        name=names.op_name(process),
        specs=specs,
        pool=names.pool_name(process),
        backfill_policy=BackfillPolicy.single_run(),
        required_resource_keys={names.spark_resource(process.cluster)},
        op_tags={names.TAG_PROCESS: process.process, names.TAG_CLUSTER: process.cluster},
    )
    def process_asset(context: AssetExecutionContext) -> Iterator[MaterializeResult[None]]:
        from feed_assets.orchestration.materialization import materialize_process

        with masked_errors():
            yield from materialize_process(context, runtime, process, run_grid, layout.find_asset, own_key)

    return process_asset


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


def _feed_spec(
    layout: AssetLayout, record: FeedRecord, deps: Sequence[AssetDep], made_by: ProcessRecord | None = None
) -> AssetSpec:
    facts = record.facts
    metadata: dict[str, object] = {
        **_common_metadata(record.sequence, facts),
        names.META_FORMAT: record.format.value,
        names.META_TEMPLATE: record.template.text,
        "dagster/uri": f"{record.store.url.rstrip('/')}/{record.template.text.lstrip('/')}",
    }
    if record.columns is not None:
        metadata["dagster/column_schema"] = TableSchema(
            columns=[TableColumn(name=name, type=kind) for name, kind in parse_columns(record.columns)]
        )
    optional = {
        names.META_FLAG: record.flag,
        names.META_LATE: record.late_cut_off and record.late_cut_off.render(),
        names.META_RETENTION: record.retention_limit and record.retention_limit.render(),
        names.META_SLA: record.sla and f"low {record.sla[0].render()}, high {record.sla[1].render()}",
        names.META_MADE_BY: made_by and made_by.process,
    }
    metadata.update({name: value for name, value in optional.items() if value})
    if made_by is not None:
        metadata.update(_process_metadata(made_by))
    asset_key, feed_grid = layout.feed_asset(record.key)
    return AssetSpec(
        asset_key,
        deps=deps,
        partitions_def=feed_grid.definition(),
        group_name=names.word(facts.groups[0]) if facts.groups else names.word(record.cluster),
        description=facts.description and mask(facts.description),
        metadata=mask_values(metadata),
        owners=_owners(facts),
        tags=_tags(facts),
        kinds={record.format.value, *(("spark", made_by.engine) if made_by else ("feed",))},
    )


def _process_spec(process: ProcessRecord, key: AssetKey, run_grid: Grid, deps: Sequence[AssetDep]) -> AssetSpec:
    facts = process.facts
    return AssetSpec(
        key,
        deps=deps,
        partitions_def=run_grid.definition(),
        group_name=names.word(facts.groups[0]) if facts.groups else names.word(process.cluster),
        description=facts.description and mask(facts.description),
        metadata=mask_values({**_common_metadata(process.sequence, facts), **_process_metadata(process)}),
        owners=_owners(facts),
        tags=_tags(facts),
        kinds={"process", "spark", process.engine},
    )


def _common_metadata(sequence: InstanceSequence, facts: EntityFacts) -> dict[str, object]:
    until = render_datetime(sequence.end) if sequence.end else "no end"
    metadata: dict[str, object] = {
        names.META_FREQUENCY: sequence.frequency.render(),
        names.META_VALIDITY: f"{render_datetime(sequence.start)} to {until}",
        names.META_TIMEZONE: sequence.timezone.key,
    }
    if facts.file is not None and "://" not in facts.file:
        metadata["dagster/code_references"] = CodeReferencesMetadataValue(
            code_references=[LocalFileCodeReference(file_path=facts.file, line_number=facts.line)]
        )
    return metadata


def _process_metadata(process: ProcessRecord) -> dict[str, object]:
    metadata: dict[str, object] = {
        names.META_WORKFLOW: process.work,
        names.META_PARALLEL: MetadataValue.int(process.parallel),
        names.META_ORDER: process.order.value,
        names.META_CATCH_UP: process.catch_up.value,
        names.META_TIMEOUT: process.timeout.render(),
    }
    for edge in process.inputs:
        optional = ", optional" if edge.optional else ""
        metadata[names.META_INPUT + edge.name] = f"{edge.feed} {edge.window.start} to {edge.window.end}{optional}"
    for out in process.outputs:
        metadata[names.META_OUTPUT + out.name] = f"{out.feed} {out.window.start}"
    if process.retry is not None:
        retry = process.retry
        metadata[names.META_RETRY] = f"{retry.policy.value}, {retry.delay.render()}, {retry.attempts} attempts"
    return metadata


def _owners(facts: EntityFacts) -> list[str]:
    if facts.owner is None:
        return []
    return [facts.owner if "@" in facts.owner else f"team:{facts.owner}"]


def _tags(facts: EntityFacts) -> dict[str, str]:
    """Return tags in the form that Dagster allows (letters, digits, `_`, `-`, `.`, 63 characters), adapting them if
    needed.
    """
    return {names.tag_text(name): names.tag_text(mask(value)) for name, value in facts.tags}
