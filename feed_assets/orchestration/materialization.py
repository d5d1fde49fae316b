"""A process as an asset that is materialized: the instances of a run's partitions, and what Dagster is told at the end.

Each instance is published and told of by itself, so one that fails takes no other along; the run then fails naming it.
"""

from collections.abc import Iterator, Mapping

from dagster import AssetExecutionContext, AssetKey, AssetMaterialization, MaterializeResult

from feed_assets.lifecycle.attempt_steps import Published
from feed_assets.orchestration import names
from feed_assets.orchestration.instance_runs import FindAsset, InstanceRun
from feed_assets.orchestration.partitions import Grid
from feed_assets.orchestration.runtime import Runtime
from feed_assets.plan.records import ProcessRecord
from feed_assets.timing.dates import render_datetime

ALREADY_TOLD = "__source_asset_observation__"
"""Metadata key by which Dagster leaves out the event it would write for an output. It is Dagster's own, not public:
a ranged run has told of each partition already, and there is no public way to yield an output without an event for
every partition of the range, those that failed included. `tests/orchestration` holds it against the real thing.
"""


def materialize_process(
    context: AssetExecutionContext,
    runtime: Runtime,
    process: ProcessRecord,
    grid: Grid,
    find_asset: FindAsset,
    own_key: AssetKey | None,
) -> Iterator[MaterializeResult[None]]:
    """Run the instances of the run's partitions and tell Dagster of each output as it is published."""

    times = {partition: grid.nominal_time(partition) for partition in context.partition_keys}
    run = InstanceRun(context=context, runtime=runtime, process=process, find_asset=find_asset)

    def tell_own(partition: str, published: tuple[Published, ...]) -> None:
        if own_key is not None:
            details = {} if published else run.details.get(times[partition], {})
            context.log_event(_own_event(own_key, partition, process, published, details))

    run.run(times, tell_own)
    for key in context.selected_asset_keys:
        yield MaterializeResult(asset_key=key, metadata={ALREADY_TOLD: True})


def _own_event(
    key: AssetKey,
    partition: str,
    process: ProcessRecord,
    published: tuple[Published, ...],
    details: Mapping[str, str | int | float],
) -> AssetMaterialization:
    written = {done.output: f"{done.record.feed} {render_datetime(done.nominal_time)}" for done in published}
    return AssetMaterialization(
        asset_key=key,
        partition=partition,
        metadata={
            **{names.META_OUTPUT + name: text for name, text in written.items()},
            **{names.META_DETAIL + name: value for name, value in details.items()},
        },
        description=f"process '{process.process}' has run",
    )
