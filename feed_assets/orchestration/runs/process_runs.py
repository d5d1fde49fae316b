"""Materialize the asset of a process: run the instances of a run's partitions and report the results to Dagster.

Each instance is published and reported separately, so a failed instance affects no other. The run then fails and names
it.
"""

from collections.abc import Iterator, Sequence

import dagster as dg

from feed_assets.engines.port import WorkReport
from feed_assets.instances.attempts.attempts import Published
from feed_assets.orchestration import names
from feed_assets.orchestration.graph.layout import FindAsset
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.feed_checks import RunResult, check_outputs
from feed_assets.orchestration.runs.instance_runs import InstanceRun
from feed_assets.orchestration.runs.published_metadata import work_metadata
from feed_assets.plan.records import ProcessRecord
from feed_assets.timing.dates import render_datetime

NO_DAGSTER_EVENT = "__source_asset_observation__"
"""Metadata key with which Dagster omits its own event for an output. Not a public API of Dagster.

A ranged run has already reported each partition. No public API yields an output without an event for every partition of
the range, including failed ones. `tests/orchestration` checks the key against real Dagster.
"""


def materialize_process(
    context: dg.AssetExecutionContext,
    runtime: Runtime,
    process: ProcessRecord,
    grid: Grid,
    find_asset: FindAsset,
    own_key: dg.AssetKey | None,
) -> Iterator[RunResult]:
    """Run the instances of the run's partitions, and report each output to Dagster when it is published.

    The checks of the run have their results also when an instance has failed. Nothing is yielded for an optional output
    that is left out, so that Dagster skips what comes after it.
    """
    sequence = process.sequence
    times = {key: grid.nominal_time(key) for key in ([] if grid.is_single else context.partition_keys)}
    times = times or {grid.key(sequence.start): sequence.start}
    run = InstanceRun(context=context, runtime=runtime, process=process, find_asset=find_asset)
    ended: list[tuple[Published, ...]] = []

    def report_own(partition: str, published: tuple[Published, ...]) -> None:
        ended.append(published)
        if own_key is not None:
            report = None if published else run.reports.get(times[partition])
            at = None if grid.is_single else partition
            context.log_event(_own_event(own_key, at, process, published, report))

    failure: dg.Failure | None = None
    try:
        run.run(times, report_own)
    except dg.Failure as exc:
        failure = exc
    yield from run.columns.results(context.selected_asset_check_keys)
    yield from check_outputs(context.assets_def, context.selected_asset_check_keys)
    if failure is not None:
        raise failure
    for key in context.selected_asset_keys - _left_out(process, find_asset, ended):
        yield dg.MaterializeResult(asset_key=key, metadata={NO_DAGSTER_EVENT: True})


def _left_out(
    process: ProcessRecord, find_asset: FindAsset, ended: Sequence[tuple[Published, ...]]
) -> frozenset[dg.AssetKey]:
    """Return the assets of the optional outputs that none of the instances has written; none if no instance ran."""
    written = {done.output for published in ended for done in published}
    edges = [edge for edge in process.own_outputs if edge.optional and edge.name not in written] if ended else []
    return frozenset(found[0] for edge in edges if (found := find_asset(edge.feed_key)) is not None)


def _own_event(
    key: dg.AssetKey,
    partition: str | None,
    process: ProcessRecord,
    published: tuple[Published, ...],
    report: WorkReport | None,
) -> dg.AssetMaterialization:
    written = {done.output: f"{done.record.feed} {render_datetime(done.nominal_time)}" for done in published}
    return dg.AssetMaterialization(
        asset_key=key,
        partition=partition,
        metadata={
            **{names.META_OUTPUT + name: text for name, text in written.items()},
            **(work_metadata(report.details, report.reported.facts) if report is not None else {}),
        },
        description=f"Process '{process.process}' has run.",
    )
