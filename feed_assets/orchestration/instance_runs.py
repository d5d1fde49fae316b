"""Instances of a process as work in a Dagster run, each by the definitions that govern it, one after the other in one
session.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    Failure,
    MetadataValue,
    OpExecutionContext,
)
from dagster_pyspark import LazyPySparkResource

from feed_assets.clock import Clock, Stopwatch
from feed_assets.engines.sessions import session_conf
from feed_assets.entities.flow_names import describe_process
from feed_assets.entities.process import Order
from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.attempt_steps import Published
from feed_assets.lifecycle.errors import ReleaseError
from feed_assets.lifecycle.execution import InstanceRunner
from feed_assets.lifecycle.governance import Governance, Governed
from feed_assets.lifecycle.places import Places, other_places
from feed_assets.lifecycle.replication.executors import run_where_worth
from feed_assets.lifecycle.replication.flows import FlowRunner
from feed_assets.lifecycle.replication.requests import Progress
from feed_assets.lifecycle.replication.workers import useful_workers
from feed_assets.lifecycle.stores import StorePool
from feed_assets.orchestration import names
from feed_assets.orchestration.interrupts import repeated_interrupts
from feed_assets.orchestration.partitions import Grid
from feed_assets.orchestration.runtime import Runtime
from feed_assets.plan.records import ClusterRecord, Key, Plan, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstanceStatus, ProcessKey
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA_VERSION = "dagster/data_version"

PROGRESS_EVERY = 10.0
"""Seconds between two lines of a run's log about how far its copies have come."""

FindAsset: TypeAlias = Callable[[Key], tuple[AssetKey, Grid] | None]
"""The asset and grid of a feed; None if it is not declared now."""

OnEnded: TypeAlias = Callable[[str, tuple[Published, ...] | Exception], None]

RunContext: TypeAlias = AssetExecutionContext | OpExecutionContext


@dataclass(slots=True)
class _ProgressLog:
    """Tells a run's log how far copies have come, now and then."""

    context: RunContext
    watch: Stopwatch = field(default_factory=Stopwatch)
    told: float = 0.0

    def tell(self, progress: Progress) -> None:
        if self.watch.seconds - self.told >= PROGRESS_EVERY:
            self.told = self.watch.seconds
            self.context.log.info(
                f"copied {progress.bytes:,} of {progress.all_bytes:,} bytes, {progress.files:,} of "
                f"{progress.all_files:,} files"
            )


class _AttemptContext(TypedDict):
    database: Database
    stores: StorePool
    plan: Plan
    clock: Clock
    wall: Clock
    run_id: str
    release: int | None
    places: Places


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRun:
    """One Dagster run that works on instances of one process. `find_asset` says what Dagster calls a feed.

    `details` has what the attempts that have succeeded say of themselves, by nominal time.
    """

    context: RunContext
    runtime: Runtime
    process: ProcessRecord
    find_asset: FindAsset
    details: dict[datetime, Mapping[str, str | int | float]] = field(default_factory=dict)

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
        ordered = {label: times[label] for label in in_order(self.process.order, list(times))}
        failures: dict[str, str] = {}

        def end(label: str, outcome: tuple[Published, ...] | Exception) -> None:
            if not isinstance(outcome, Exception):
                on_done(label, outcome)
                return
            failures[label] = f"{type(outcome).__name__}: {outcome}"
            is_ours = isinstance(outcome, FeedAssetsError)
            context.log.error(f"{label} failed: {failures[label]}", exc_info=None if is_ours else outcome)

        run = self._run_each if self.process.copy is None else self._run_copies
        with repeated_interrupts(context.instance, context.run_id):
            run(governance, ordered, request, end)
        if failures:
            raise Failure(
                description=_describe(self.process, failures, len(times)),
                metadata={label: MetadataValue.text(reason) for label, reason in failures.items()},
                allow_retries=False,
            )

    def _run_each(
        self, governance: Governance, times: Mapping[str, datetime], request: str | None, end: OnEnded
    ) -> None:
        for label, nominal_time in times.items():
            outcome: tuple[Published, ...] | Exception
            try:
                if not self._is_wanted(label, nominal_time, request):
                    continue
                outcome = self._run_one(governance, nominal_time)
            except Exception as exc:
                self.context.log.debug(label, exc_info=True)
                outcome = exc
            end(label, outcome)

    def _run_copies(
        self, governance: Governance, times: Mapping[str, datetime], request: str | None, end: OnEnded
    ) -> None:
        """Copy many instances at once, as far as the same definitions govern them."""
        wanted = {label: time for label, time in times.items() if self._is_wanted(label, time, request)}
        labels = {nominal_time: label for label, nominal_time in wanted.items()}
        groups: dict[int, tuple[Governed, Places, list[datetime]]] = {}
        for label, nominal_time in wanted.items():
            try:
                governed, places = self._govern(governance, nominal_time)
            except FeedAssetsError as exc:
                self.context.log.debug(label, exc_info=True)
                end(label, exc)
            else:
                groups.setdefault(id(governed.record), (governed, places, []))[2].append(nominal_time)

        def tell(nominal_time: datetime, outcome: Published | Exception) -> None:
            end(labels[nominal_time], outcome if isinstance(outcome, Exception) else (outcome,))

        is_remote = self.runtime.plan.clusters[self.process.cluster].spark_remote is not None
        for governed, places, found in groups.values():
            assert governed.record.copy is not None
            tasks = governed.record.copy.options.max_tasks
            runner = FlowRunner(
                **self._context_of(governed, places),
                run_tasks=run_where_worth(self.runtime.stores, self._session, is_remote=is_remote, threads=tasks),
                processes=useful_workers(tasks),
                on_progress=_ProgressLog(self.context).tell,
            )
            runner.run(governed.record, found, self._tell, tell)

    def _run_one(self, governance: Governance, nominal_time: datetime) -> tuple[Published, ...]:
        governed, places = self._govern(governance, nominal_time)
        runner = InstanceRunner(
            **self._context_of(governed, places),
            root=self.runtime.root,
            session=self._session,
            on_report=lambda time, report: self.details.__setitem__(time, report.details),
            on_progress=_ProgressLog(self.context).tell,
        )
        return runner.run(governed.record, nominal_time, self._tell)

    def _govern(self, governance: Governance, nominal_time: datetime) -> tuple[Governed, Places]:
        """The definitions that govern an instance, and where else its inputs may lie."""
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
        return governed, places

    def _context_of(self, governed: Governed, places: Places) -> "_AttemptContext":
        runtime = self.runtime
        return {
            "database": runtime.database(self.context.instance),
            "stores": runtime.stores,
            "plan": governed.plan,
            "clock": runtime.clock,
            "wall": runtime.wall,
            "run_id": self.context.run_id,
            "release": governed.release,
            "places": places,
        }

    def _session(self) -> "SparkSession":
        cluster = self.process.cluster
        spark: LazyPySparkResource = getattr(self.context.resources, names.spark_resource(cluster))
        return _session(spark, self.runtime.plan.clusters[cluster], self.context.run_id)

    def _is_wanted(self, label: str, nominal_time: datetime, request: str | None) -> bool:
        """Whether the instance still is what the sensor asked for; a run started or repeated by hand always is."""
        if request is None:
            return True
        with self.runtime.database(self.context.instance).read() as connection:
            row = ProcessInstances(connection).get(*ProcessKey(*self.process.key, nominal_time))
        is_wanted = row is None or (
            row.request_key == request and row.status in {ProcessInstanceStatus.READY, ProcessInstanceStatus.RUNNING}
        )
        if not is_wanted:
            self.context.log.info(f"{label} needs no run any more")
        return is_wanted

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
                tags={DATA_VERSION: done.content.digest},
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
        names.META_BYTES: done.content.bytes,
        names.META_FILES: done.content.files,
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
    return f"{describe_process(process.process)} failed for {', '.join(failures)}: {first}{others}"
