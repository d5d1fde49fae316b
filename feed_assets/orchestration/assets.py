"""Build Dagster assets for feeds and processes: dependencies and computations."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

import dagster as dg

from feed_assets.entities.maps import EMPTY
from feed_assets.masking import masked_errors
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import AssetLayout, find_producers, producer_dep, tables_of
from feed_assets.orchestration.graph.partitions import grid
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.feed_checks import RunResult, build_column_check, build_quality_check
from feed_assets.plan.edges import InputEdge, Key, OutputEdge
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.timing.dates import offset_spread
from feed_assets.timing.expressions import TimeExpression, Truncation
from feed_assets.timing.sequence import Frequency, InstanceSequence, Unit
from feed_assets.timing.windows import Window


def build_feed_assets(
    runtime: Runtime, layout: AssetLayout, resources: Mapping[str, object] = EMPTY
) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """Build every asset of the location: external feeds, and processes with the feeds they write.

    Work elsewhere has specs only: Dagster shows it, and materializes nothing.

    `resources` are attached to the assets that need them.
    """
    plan = layout.plan
    producers = {each.record.key: each for each in find_producers(plan, layout.find_asset)}
    built: list[dg.AssetSpec | dg.AssetsDefinition] = []
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
    return [*built, *_table_specs(layout)]


def _table_specs(layout: AssetLayout) -> Iterator[dg.AssetSpec]:
    """Yield the tables of datasources: each comes of the exports to it, unless it is imported, too, since Dagster's
    assets form no cycle.
    """
    found: dict[dg.AssetKey, list[dg.AssetDep]] = {}
    for process in sorted(layout.plan.processes.values(), key=lambda each: bool(each.outputs)):
        reads, writes = tables_of(process)
        for written in writes:
            found.setdefault(written, []).append(dg.AssetDep(layout.run_assets(process)[0][0]))
        found |= {read: [] for read in reads}
    for key, deps in found.items():
        _, datasource, table = key.path
        said = f"The table {table} of the datasource {datasource}."
        yield dg.AssetSpec(key, deps=deps, description=said, kinds={"table"}, group_name=names.word(datasource))


def _writers(layout: AssetLayout, record: FeedRecord) -> list[dg.AssetDep]:
    return [
        dg.AssetDep(
            _find_writer(layout, edge),
            partition_mapping=output_mapping(edge, record.sequence, layout.plan.processes[edge.process_key].sequence),
        )
        for edge in record.outputs_of
    ]


def _find_writer(layout: AssetLayout, edge: OutputEdge) -> dg.AssetKey:
    """Return the asset whose runs write an output: the process, or of a quarantine the feed whose bad rows it takes."""
    own = layout.process_specs.get(edge.process_key)
    if own is not None:
        return own.key
    outputs = layout.plan.processes[edge.process_key].own_outputs
    return next(layout.feed_specs[each.feed_key].key for each in outputs if each.name == edge.quarantine_of)


def _with_deps(spec: dg.AssetSpec, deps: Sequence[dg.AssetDep]) -> dg.AssetSpec:
    return spec.replace_attributes(deps=deps) if deps else spec


def _build_process(
    runtime: Runtime, layout: AssetLayout, process: ProcessRecord, op_name: str, resources: Mapping[str, object]
) -> dg.AssetsDefinition:
    spark = names.OfCluster.SPARK.of(process.cluster)
    run_grid = layout.process_grid(process)
    own = layout.process_specs.get(process.key)
    own_key = own.key if own is not None else None

    @dg.multi_asset(
        name=op_name,
        specs=_process_specs(layout, process),
        check_specs=_checks(layout, process) if own is None else None,
        pool=names.pool_name(process),
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys={spark},
        resource_defs={spark: resources[spark]} if spark in resources else None,
        op_tags={names.TAG_PROCESS: process.process, names.TAG_CLUSTER: process.cluster},
    )
    def process_asset(context: dg.AssetExecutionContext) -> Iterator[RunResult]:
        from feed_assets.orchestration.runs.process_runs import materialize_process

        with masked_errors():
            yield from materialize_process(context, runtime, process, run_grid, layout.find_asset, own_key)

    return process_asset


def _process_specs(layout: AssetLayout, process: ProcessRecord) -> list[dg.AssetSpec]:
    """Return the assets that the work of a process materializes. Those of work elsewhere stay specs, which nothing in
    Dagster materializes.
    """
    own = layout.process_specs.get(process.key)
    specs = [own] if own is not None else [_output_spec(layout, edge) for edge in process.own_outputs]
    deps = _input_deps(layout, process, layout.process_grid(process).sequence)
    deps += map(dg.AssetDep, tables_of(process)[0])
    return [_with_deps(spec, deps) for spec in specs]


def _output_spec(layout: AssetLayout, edge: OutputEdge) -> dg.AssetSpec:
    """Return the asset of an output. What reads an optional one that is left out is skipped in the same run."""
    spec = layout.feed_specs[edge.feed_key]
    return spec.replace_attributes(skippable=True) if edge.optional else spec


def _checks(layout: AssetLayout, process: ProcessRecord) -> list[dg.AssetCheckSpec]:
    found: list[dg.AssetCheckSpec] = []
    for edge in process.own_outputs:
        feed, (asset, grid) = layout.plan.feeds[edge.feed_key], layout.feed_asset(edge.feed_key)
        found += build_column_check(asset, feed, process)
        found += build_quality_check(asset, feed, grid) if not process.is_flow else []
    return found


def _input_deps(layout: AssetLayout, process: ProcessRecord, sequence: InstanceSequence) -> list[dg.AssetDep]:
    by_feed: dict[Key, list[InputEdge]] = {}
    for edge in process.inputs:
        by_feed.setdefault(edge.feed_key, []).append(edge)
    deps = []
    for key, edges in by_feed.items():
        if (key, process.key) in layout.omitted_inputs:
            continue
        asset_key, feed_grid = layout.feed_asset(key)
        deps.append(dg.AssetDep(asset_key, partition_mapping=window_mapping(edges, feed_grid.sequence, sequence)))
    return deps


_DAY = timedelta(days=1)
_SHORTEST_MONTH = timedelta(days=28)
_SHORTEST_DAY = timedelta(hours=23)


def window_mapping(
    edges: Sequence[InputEdge], feed: InstanceSequence, process: InstanceSequence
) -> dg.PartitionMapping | None:
    """Return the mapping from a process's partitions (downstream) to those of a feed (upstream), over all edges; None
    if one of them has none.
    """
    if feed.is_single or process.is_single:
        return None
    upstream, downstream = grid(feed), grid(process)
    if any(edge.is_data_driven for edge in edges):
        return dg.AllPartitionMapping()
    if upstream.is_dynamic or downstream.is_dynamic:
        same = upstream.definition() is downstream.definition() and all(edge.shifts == (0, 0) for edge in edges)
        return dg.IdentityPartitionMapping() if same else dg.AllPartitionMapping()
    if upstream.key_zone.key != downstream.key_zone.key:
        return dg.AllPartitionMapping()
    spans = [edge.shifts or _covering(edge.window, feed, process) for edge in edges if edge.window is not None]
    return dg.TimeWindowPartitionMapping(
        start_offset=min(first for first, _ in spans),
        end_offset=max(last for _, last in spans),
        allow_nonexistent_upstream_partitions=True,
    )


def output_mapping(edge: OutputEdge, feed: InstanceSequence, process: InstanceSequence) -> dg.PartitionMapping | None:
    """Return the mapping from a feed's partitions (downstream) to those of its process (upstream); None if one of them
    has none.
    """
    if feed.is_single or process.is_single:
        return None
    upstream, downstream = grid(process), grid(feed)
    is_dynamic = upstream.is_dynamic or downstream.is_dynamic
    if edge.shift is None or is_dynamic or upstream.key_zone.key != downstream.key_zone.key:
        return dg.AllPartitionMapping()
    return dg.TimeWindowPartitionMapping(
        start_offset=-edge.shift, end_offset=-edge.shift, allow_nonexistent_upstream_partitions=True
    )


def _covering(window: Window, feed: InstanceSequence, process: InstanceSequence) -> tuple[int, int]:
    """Return offsets in process periods whose span, from the first to the last, covers the window at every instance.

    Dagster's rule: the partitions that overlap [start of period T + start, end of period T + end).
    """
    (before, earliest, _), (after, _, latest) = _bounds(window.start, process), _bounds(window.end, process)
    is_midnight = window.start.truncation is not Truncation.NONE and not window.start.elapsed
    period, slack = _shortest_period(process), _slack(earliest, feed, process, is_midnight=is_midnight)
    first = before + (earliest - slack) // period
    last = after + latest // period
    return first, max(first, last)


def _bounds(expression: TimeExpression, process: InstanceSequence) -> tuple[int, timedelta, timedelta]:
    """Return bounds of (result − nominal time) over the instances of a process, behind a number of whole periods; exact
    if truncation has no effect on them.
    """
    wall = process.wall_start
    starts_days = process.frequency.is_calendar and (wall.hour, wall.minute) == (0, 0)
    starts_months = starts_days and wall.day == 1 and process.frequency.unit is Unit.MONTHS
    is_day = expression.truncation is Truncation.DAY and starts_days
    months, rest = divmod(expression.months, process.frequency.count)
    is_month = expression.truncation is Truncation.MONTH and starts_months and not rest
    if not is_day and not is_month:
        return 0, *expression.bounds(process.timezone)
    fixed = expression.days * _DAY + expression.elapsed
    spread = offset_spread(process.timezone) if is_day or expression.elapsed else timedelta(0)
    return months if is_month else 0, fixed - spread, fixed + spread


def _slack(earliest: timedelta, feed: InstanceSequence, process: InstanceSequence, *, is_midnight: bool) -> timedelta:
    """Return how far back the floor to a feed instance can reach; zero if the bound always is an instance, as a local
    midnight is one of each day.
    """
    wall, days = feed.wall_start, Frequency(unit=Unit.DAYS, count=1)
    if is_midnight and feed.frequency == days and (wall.hour, wall.minute) == (0, 0):
        return timedelta(0)
    if feed.is_elapsed and process.is_elapsed:
        step, stride = feed.frequency.as_duration(), process.frequency.as_duration()
        if not (process.start + earliest - feed.start) % step and not stride % step:
            return timedelta(0)
    return feed.frequency.as_duration()


def _shortest_period(process: InstanceSequence) -> timedelta:
    match process.frequency.unit:
        case Unit.MONTHS:
            return _SHORTEST_MONTH * process.frequency.count
        case Unit.DAYS if not process.is_elapsed:
            return _SHORTEST_DAY * process.frequency.count
        case _:
            return process.frequency.as_duration()
