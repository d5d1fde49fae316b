"""Instances of a process as work in a Dagster run, each by the definitions that govern it, one after the other in one
session.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    Failure,
    MetadataValue,
    OpExecutionContext,
)
from dagster_pyspark import LazyPySparkResource

from feed_assets.engines.sessions import session_conf
from feed_assets.entities.process import Order
from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.errors import ReleaseError
from feed_assets.lifecycle.execution import InstanceRunner, Published
from feed_assets.lifecycle.governance import Governance, Governed
from feed_assets.lifecycle.places import Places, other_places
from feed_assets.orchestration import names
from feed_assets.orchestration.interrupts import repeated_interrupts
from feed_assets.orchestration.partitions import Grid
from feed_assets.orchestration.runtime import Runtime
from feed_assets.plan.records import ClusterRecord, Key, ProcessRecord
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstanceStatus, ProcessKey
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA_VERSION = "dagster/data_version"

FindAsset: TypeAlias = Callable[[Key], tuple[AssetKey, Grid] | None]
"""The asset and grid of a feed; None if it is not declared now."""

RunContext: TypeAlias = AssetExecutionContext | OpExecutionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRun:
    """One Dagster run that works on instances of one process. `find_asset` says what Dagster calls a feed."""

    context: RunContext
    runtime: Runtime
    process: ProcessRecord
    find_asset: FindAsset

    def run(
        self, times: Mapping[str, datetime], on_done: Callable[[str, tuple[Published, ...]], None] = lambda *_: None
    ) -> None:
        """Run instances in the order of the process, each published and told of by itself.

        Args:
            times: nominal times by the names that messages use for them.
            on_done: told of each that has succeeded, with what it has published.

        Raises:
            Failure: some have failed; names them, and the others are published.
        """
        context, database = self.context, self.runtime.database(self.context.instance)
        governance = self.runtime.governance()
        with database.read() as connection:
            governance.refresh_one(connection, self.process.key)
        request = None if context.run.parent_run_id else context.run.tags.get(names.TAG_REQUEST)
        failures: dict[str, str] = {}
        with repeated_interrupts(context.instance, context.run_id):
            for label in in_order(self.process.order, list(times)):
                try:
                    if request is not None and not self._is_wanted(times[label], request):
                        context.log.info(f"{label} needs no run any more")
                        continue
                    on_done(label, self._run_one(governance, times[label]))
                except Exception as exc:
                    failures[label] = f"{type(exc).__name__}: {exc}"
                    context.log.error(
                        f"{label} failed: {failures[label]}", exc_info=not isinstance(exc, FeedAssetsError)
                    )
        if failures:
            raise Failure(
                description=_describe(self.process, failures, len(times)),
                metadata={label: MetadataValue.text(reason) for label, reason in failures.items()},
                allow_retries=False,
            )

    def _run_one(self, governance: Governance, nominal_time: datetime) -> tuple[Published, ...]:
        with self.runtime.database(self.context.instance).read() as connection:
            governed = governance.find_or_present(connection, self.process.key, nominal_time)
            places = other_places(connection, governance, governed) if governed is not None else {}
        if governed is None:
            raise ReleaseError(
                process=self.process.process,
                cluster=self.process.cluster,
                reason=f"{render_datetime(nominal_time)} is no instance by any definition that governs it",
            )
        newest = governance.newest(self.process.key)
        if newest is not None:
            self.context.log.info(describe_governed(governed, newest.release))
        runner = self._runner(governed, places)
        return runner.run(governed.record, nominal_time, self._tell)

    def _runner(self, governed: Governed, places: Places) -> InstanceRunner:
        runtime, process = self.runtime, self.process
        spark: LazyPySparkResource = getattr(self.context.resources, names.spark_resource(process.cluster))
        return InstanceRunner(
            database=runtime.database(self.context.instance),
            stores=runtime.stores,
            plan=governed.plan,
            clock=runtime.clock,
            wall=runtime.wall,
            root=runtime.root,
            run_id=self.context.run_id,
            session=lambda: _session(spark, runtime.plan.clusters[process.cluster], self.context.run_id),
            release=governed.release,
            places=places,
        )

    def _is_wanted(self, nominal_time: datetime, request: str) -> bool:
        """Whether the instance still is what the sensor asked for; a run started or repeated by hand always is."""
        with self.runtime.database(self.context.instance).read() as connection:
            row = ProcessInstances(connection).get(*ProcessKey(*self.process.key, nominal_time))
        return row is None or (
            row.request_key == request and row.status in {ProcessInstanceStatus.READY, ProcessInstanceStatus.RUNNING}
        )

    def _tell(self, done: Published) -> None:
        found = self.find_asset(done.record.key)
        if found is None or not found[1].sequence.contains(done.nominal_time):
            self.context.log.info(f"{done.url} is published; it is no partition of what is declared now")
            return
        asset_key, grid = found
        self.context.log_event(
            AssetMaterialization(
                asset_key=asset_key,
                partition=grid.key(done.nominal_time),
                metadata=published_metadata(done),
                tags={DATA_VERSION: done.manifest.digest},
            )
        )


def in_order(order: Order, labels: Sequence[str]) -> Sequence[str]:
    """Instances that are given oldest first as the process takes them: newest first with LIFO, else oldest first."""
    return labels[::-1] if order is Order.LIFO else labels


def describe_governed(governed: Governed, newest: int) -> str:
    """Which definitions an instance is run by, in a sentence."""
    if governed.release is None:
        return "governed by what is declared now"
    which = "the newest" if governed.release == newest else f"of {newest}; it was in force at this nominal time"
    return f"governed by release {governed.release} ({which}), version {governed.version} of the process"


def published_metadata(done: Published) -> dict[str, MetadataValue | str | int | float]:
    """What a partition's page shows of a published instance."""
    metadata: dict[str, MetadataValue | str | int | float] = {
        "dagster/uri": MetadataValue.url(done.url),
        names.META_NOMINAL: render_datetime(done.nominal_time),
        names.META_BYTES: done.manifest.bytes,
        names.META_FILES: done.manifest.files,
        names.META_INPUTS: MetadataValue.json(dict(done.inputs)),
        names.META_ATTEMPT: done.attempt,
        names.META_SECONDS: round(done.seconds, 3),
    }
    if done.rows is not None:
        metadata["dagster/partition_row_count"] = MetadataValue.int(done.rows)
    if done.late:
        metadata[names.META_LATE_DATA] = f"made again for late data of {', '.join(done.late)}"
    if done.missing:
        missing = {name: [render_datetime(time) for time in times] for name, times in done.missing.items()}
        metadata[names.META_MISSING] = MetadataValue.json(missing)
    for name, value in done.details.items():
        metadata[names.META_DETAIL + name] = value
    return metadata


def _session(spark: LazyPySparkResource, cluster: ClusterRecord, run_id: str) -> "SparkSession":
    """The run's session; on a Spark Connect server it has the run's id, so that others can stop what it left behind."""
    if cluster.spark_remote is not None and spark.spark_config.get("spark.remote") == cluster.spark_remote:
        conf = session_conf(remote=cluster.spark_remote, conf=dict(cluster.spark_conf), run_id=run_id)
        spark = LazyPySparkResource(spark_config=conf)
    session: SparkSession = spark.spark_session
    return session


def _describe(process: ProcessRecord, failures: Mapping[str, str], total: int) -> str:
    others = "" if len(failures) == total else f" The other {total - len(failures)} are published."
    first = next(iter(failures.values()))
    return f"process '{process.process}' failed for {', '.join(failures)}: {first}{others}"
