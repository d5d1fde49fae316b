"""A location in a temporary folder whose work really runs, in this process, as runs of Dagster on Spark."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from feed_assets.clock import FrozenClock
from feed_assets.context.operation import OperationContext
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster, SparkConfig
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import DefinitionsError
from feed_assets.entities.feed import Feed
from feed_assets.entities.flow_names import describe_process
from feed_assets.entities.maps import EMPTY, FrozenMap
from feed_assets.explain.explanations import explain_instance
from feed_assets.instances.arrival.arrival_notices import Notice, NoticeResult, record_notice
from feed_assets.loading.bundles import load_files
from feed_assets.loading.entity_files import read_declared_files, values_of
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.orchestration import names
from feed_assets.orchestration.definitions import assemble_definitions, open_location, without_beta_warnings
from feed_assets.orchestration.location.reloading import build_context
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.location.spark import resource_of_process
from feed_assets.orchestration.user_assets.loading import Partition, load_instance, locate_instance
from feed_assets.plan.location import Declared, load_location
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.settings import ScheduleMode, Settings, load_settings
from feed_assets.timing.dates import parse_datetime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AUTHOR = "test"
ROUNDS = 100
_HOME = "DAGSTER_HOME"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRun:
    """A run of a job, and its process if it has one; its partition, or the first and the last of a range.

    `error` says why it has failed.
    """

    job: str
    process: str | None
    partitions: tuple[str, ...]
    succeeded: bool
    error: str | None


@dataclass
class GivenSpark:
    """A session that is there already, in the place of those that runs open."""

    spark_session: "SparkSession"


@dataclass(kw_only=True)
class Project:
    """A location on a clock that stands still, with storage, state and Dagster in a temporary folder.

    Times are texts such as `2026-01-01T00:00Z`; a cluster is named if there are several.
    """

    definitions: dg.Definitions
    instance: dg.DagsterInstance
    _runtime: Runtime = field(repr=False)
    _spark: "GivenSpark | None" = field(repr=False)
    _cursors: dict[str, str | None] = field(default_factory=dict, repr=False)

    @property
    def now(self) -> datetime:
        """The time of the clock."""
        return self._runtime.clock.now()

    def set_clock(self, moment: str) -> None:
        """Set the clock."""
        self._runtime.clock = self._runtime.real_clock = FrozenClock(_parse(moment))

    @property
    def spark(self) -> "SparkSession":
        """The session of the runs."""
        if self._spark is not None:
            return self._spark.spark_session
        cluster = next(iter(self._runtime.plan.clusters.values()))
        session: SparkSession = resource_of_process(cluster, self._runtime.root).spark_session
        return session

    def put(
        self,
        feed: str,
        instance: str,
        data: "DataFrame | Mapping[str, str | bytes]",
        cluster: str | None = None,
    ) -> Path:
        """Put an instance where the feed's data belong, with its availability flag; return its folder.

        Args:
            feed: the name of the feed.
            instance: its nominal time.
            data: a DataFrame, which is written in the format of the feed, with its options; or contents by file name.
            cluster: needed if the feed is on several.

        Raises:
            EntityNotFoundError, InstanceQueryError: the feed is not declared, or not on the cluster.
            InstanceError: the time is no instance of it.
            OutputMismatchError: the columns are not those of the feed.
        """
        record = self._feed(feed, cluster)
        folder = Path(locate_instance(self.definitions, feed, _parse(instance), cluster=record.cluster).path)
        if isinstance(data, Mapping):
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in data.items():
                (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        else:
            _write(record, _parse(instance), data, folder)
        if record.flag is not None:
            (folder / record.flag).touch()
        return folder

    def notify(
        self,
        feed: str,
        instance: str | None = None,
        *,
        cluster: str | None = None,
        marking: str | None = None,
        payload: Mapping[str, object] = EMPTY,
        accept: str | None = None,
    ) -> NoticeResult:
        """Give notice that an instance has come, as `feed-assets feed notify`; without a time, of a signal. With
        `accept`, take one that is held back because of its rows.

        Raises:
            ArrivalRefusedError: the instance is not there, or the feed is produced here.
        """
        notice = Notice(
            feed=feed,
            nominal_time=None if instance is None else _parse(instance),
            cluster=cluster,
            marking=marking,
            payload=dict(payload),
            accept=accept,
        )
        return record_notice(self._context().by(AUTHOR), notice)

    def run(self) -> list[ProjectRun]:
        """Do what a daemon does at this time: tick each sensor and schedule, and run what they request, until nothing
        is requested any more; return the runs in order.

        Raises:
            RuntimeError: there is no end of requests.
        """
        runs: list[ProjectRun] = []
        for _ in range(ROUNDS):
            with dg.partition_loading_context(effective_dt=self.now, dynamic_partitions_store=self.instance):
                done = [self._execute(*request) for request in self._tick()]
            if not done:
                return runs
            runs += done
        raise RuntimeError(f"after {ROUNDS} rounds of ticks there are still new runs; the last is {runs[-1]}")

    def status(self, process: str, instance: str, cluster: str | None = None) -> ProcessInstanceStatus | None:
        """Return the status of a process instance; None if there is no instance of this time yet.

        Raises:
            EntityNotFoundError, InstanceQueryError: the process is not declared, or not on the cluster.
        """
        key = self._context().only_process(process, cluster).key
        with self._runtime.database(self.instance).read() as connection:
            row = ProcessInstances(connection).get(*key, _parse(instance))
        return row.status if row is not None else None

    def why(self, process: str, instance: str, cluster: str | None = None) -> str:
        """Return why a process instance is as it is, as `feed-assets why`: a sentence in a line.

        Raises:
            EntityNotFoundError, InstanceQueryError: the process is not declared, or not on the cluster.
        """
        context = self._context()
        where = context.only_process(process, cluster).cluster
        with context.read() as connection:
            found = explain_instance(context, connection, Kind.PROCESS, process, where, _parse(instance))
        return "\n".join([found.headline, *(reason.text for reason in found.reasons)])

    def load(self, feed: str, instances: Partition, *, cluster: str | None = None, as_: str = "spark") -> Any:
        """Return instances of a feed in one of the forms of `load_instance`.

        Raises:
            InstanceNotThereError: an instance is missing, partial, empty or evicted.
        """
        return load_instance(self.definitions, feed, instances, cluster=cluster, as_=as_)  # type: ignore[call-overload]

    @cached_property
    def _repository(self) -> Any:
        return self.definitions.get_repository_def()

    def _context(self) -> OperationContext:
        database = self._runtime.database(self.instance)
        return build_context(self._runtime, self._runtime.timeline(), database, self.now)

    def _feed(self, feed: str, cluster: str | None) -> FeedRecord:
        feeds = (self.definitions.resources or {})[names.FEED_IO_MANAGER]
        return self._runtime.plan.feeds[feeds.find_key(None, feed, cluster)]

    def _tick(self) -> Iterator[tuple[str | None, dg.RunRequest]]:
        """Yield what each sensor and schedule requests, and the job that it names."""
        for sensor in self._repository.sensor_defs:
            with dg.SensorEvaluationContext(
                self.instance.get_ref(),  # Dagster reads new dynamic partitions by it only
                cursor=self._cursors.get(sensor.name),
                repository_def=self._repository,
                instance=self.instance,
                sensor_name=sensor.name,
            ) as context:
                result = sensor.evaluate_tick(context)
            self._cursors[sensor.name] = result.cursor
            for change in result.dynamic_partitions_requests or ():
                self.instance.add_dynamic_partitions(change.partitions_def_name, change.partition_keys)
            for event in result.asset_events:
                self.instance.report_runless_asset_event(event)
            yield from ((request.job_name or sensor.job_name, request) for request in result.run_requests or ())
        for schedule in self._repository.schedule_defs:
            due = schedule.evaluate_tick(dg.build_schedule_context(self.instance, self.now))
            yield from ((schedule.job_name, request) for request in due.run_requests or ())

    def _execute(self, job_name: str | None, request: dg.RunRequest) -> ProjectRun:
        of_assets = self._repository.get_implicit_global_asset_job_def()
        is_assets = job_name in (None, of_assets.name)
        job = of_assets if is_assets else self._repository.get_job(job_name)
        result = job.execute_in_process(
            run_config=dict(request.run_config),
            asset_selection=request.asset_selection if is_assets else None,
            partition_key=request.partition_key,
            tags=dict(request.tags),
            instance=self.instance,
            raise_on_error=False,
        )
        first, last = (request.tags.get(tag) for tag in (names.RANGE_START, names.RANGE_END))
        return ProjectRun(
            job=job.name,
            process=request.tags.get(names.TAG_PROCESS),
            partitions=tuple(key for key in (request.partition_key, first, last) if key),
            succeeded=result.success,
            error=failure_of(result) or None,
        )


@contextmanager
def open_project(
    now: str,
    *,
    entities: Sequence[Declared] | None = None,
    folder: Path | None = None,
    settings: Settings | None = None,
    spark: "SparkSession | None" = None,
) -> Iterator[Project]:
    """Open a location in a temporary folder, and remove it with the context.

    Each cluster gets a folder there as its storage, and a Spark of this process. Every process is scheduled.

    Args:
        now: the time of the clock, such as `2026-01-02T06:00Z`.
        entities: entities built in Python and functions declared with `process`; None loads the files named in the
            settings.
        folder: the folder of the project, where the search for `feed_assets.yaml` begins.
        settings: None reads them.
        spark: the session for all work; None opens one when the first work needs it.

    Raises:
        DefinitionsError: an entity is wrong, or its data lie outside of the clusters' storages: in a table, a database
            or a place with a URL of its own.
    """
    settings = settings or load_settings(start=folder)
    settings = settings.model_copy(
        update={"state": None, "demo": None, "schedule": ScheduleMode.AUTOMATIC, "strict": True}
    )
    declared = entities if entities is not None else _load(settings)
    with tempfile.TemporaryDirectory(prefix="feed-assets-") as scratch, _open_dagster(scratch) as instance:
        data = Path(scratch, "data")
        with without_beta_warnings(), _dagster_home(scratch):
            runtime, layout = open_location([_relocate(each, data) for each in declared], None, settings, None)
        _require_inside(runtime.plan, data)
        given = GivenSpark(spark) if spark is not None else None
        resources = {
            names.OfCluster.SPARK.of(cluster.name): given or resource_of_process(cluster, runtime.root)
            for cluster in runtime.plan.clusters.values()
        }
        with without_beta_warnings():
            definitions = assemble_definitions(runtime, layout, resources)
        project = Project(
            definitions=definitions,
            instance=instance,
            _runtime=runtime,
            _spark=given,
        )
        project.set_clock(now)
        with _dagster_home(scratch):
            yield project


@contextmanager
def _dagster_home(folder: str) -> Iterator[None]:
    before = os.environ.get(_HOME)
    os.environ[_HOME] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ[_HOME]
        else:
            os.environ[_HOME] = before


def _open_dagster(folder: str) -> AbstractContextManager[dg.DagsterInstance]:
    """Return a Dagster instance of its own, which reports nothing to anybody."""
    Path(folder, "dagster.yaml").write_text("telemetry: {enabled: false}\n", "utf-8")
    return dg.DagsterInstance.from_config(folder)


def _load(settings: Settings) -> Sequence[AnyEntity]:
    """Return the entities of files, which have no errors."""
    load_location(settings)
    return load_files(read_declared_files(settings), values_of(settings)).bundle.entities


def _relocate(declared: Declared, data: Path) -> Declared:
    """Return what is declared; a cluster with a storage and a Spark of this machine, a feed without exports."""
    if isinstance(declared, Feed):
        clusters = {name: each.model_copy(update={"export": None}) for name, each in declared.clusters.items()}
        return declared.model_copy(update={"clusters": FrozenMap(clusters)})
    if not isinstance(declared, Cluster):
        return declared
    spark = SparkConfig(master="local[2]", conf=declared.spark.conf)
    return declared.model_copy(
        update={
            "storage": f"file://{data / declared.name}",
            "storage_options": EMPTY,
            "catalog": None,
            "catalog_options": EMPTY,
            "interfaces": EMPTY,
            "spark": spark,
        }
    )


def _require_inside(plan: Plan, data: Path) -> None:
    """Raise DefinitionsError if data lie elsewhere: a test must not change them."""
    root = f"file://{data}/"
    lying = [(f"feed {each.feed!r}", "table" if each.table else each.store.url) for each in plan.feeds.values()]
    lying += [
        (describe_process(each.process), side.store.url)
        for each in plan.processes.values()
        for pair in each.directories
        for side in pair
    ]
    outside = [f"{subject} in {url}" for subject, url in lying if not f"{url}/".startswith(root)]
    if outside:
        raise DefinitionsError(
            location="a project in a temporary folder",
            reason=f"data lie outside of the storages of its clusters: {', '.join(sorted(outside))}",
            next_step="Pass entities= without them.",
        )


def _write(record: FeedRecord, nominal_time: datetime, data: "DataFrame", folder: Path) -> None:
    from feed_assets.engines.data.frames import write_output
    from feed_assets.instances.attempts.work_data import output_target

    write_output(data, output_target(record.feed, record, nominal_time, f"file://{folder}"))


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    """Return why a run has failed; an empty text for one that has succeeded."""
    errors = (event.step_failure_data.error for event in result.all_events if event.is_step_failure)
    return "\n".join(error.to_string() for error in errors if error is not None)


def _parse(text: str) -> datetime:
    return parse_datetime(text, seconds=True)
