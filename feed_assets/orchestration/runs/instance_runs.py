"""Run instances of one process in a Dagster run, one after the other in one session, each by its active release.

The log of the run has a few lines for each instance, and one for each when there are many. With a materialization come
the first rows, where the settings or the feed say so: read from the published files, without Spark.
"""

import io
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain
from typing import IO, TYPE_CHECKING, TypeAlias

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from feed_assets.catalog.column_sets import ColumnSet, FeedColumn
from feed_assets.clock import Stopwatch
from feed_assets.context.operation import AttemptContext
from feed_assets.engines.data.file_heads import HeadOptions, Row, read_head
from feed_assets.engines.port import WorkReport
from feed_assets.engines.spark.addresses import check_spark_remote
from feed_assets.engines.spark.executor_watch import ExecutorWatch
from feed_assets.engines.spark.sessions import YARN_QUEUE, session_conf
from feed_assets.entities.common import Kind
from feed_assets.entities.content.column_lineage import SourceKind
from feed_assets.entities.content.columns import parse_columns
from feed_assets.entities.flow_names import describe_process
from feed_assets.entities.process import Order
from feed_assets.errors import FeedAssetsError, describe_error, shorten
from feed_assets.instances.attempts.attempts import Published, offer_approval
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.instances.attempts.verdicts import Verdict
from feed_assets.instances.errors import NotNeededError
from feed_assets.instances.steps.frames import AttemptStep, StepKind, StepPart
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import Cause, ProcessKey
from feed_assets.masking import format_error, get_logger, mask
from feed_assets.orchestration import names
from feed_assets.orchestration.errors import NoProcessInstanceError
from feed_assets.orchestration.graph.layout import FindAsset, column_lineage
from feed_assets.orchestration.location.runtime import Runtime
from feed_assets.orchestration.runs.feed_checks import ColumnChanges, build_quality_evaluation
from feed_assets.orchestration.runs.published_metadata import late_metadata, page_metadata, published_metadata
from feed_assets.orchestration.runs.remaining import Remaining, RunContext
from feed_assets.orchestration.user_assets.materializations import follow_now
from feed_assets.plan.records import ClusterRecord, FeedRecord, ProcessRecord
from feed_assets.plan.rendering import counted
from feed_assets.releases.errors import NeighbourLeftOutError
from feed_assets.releases.left_out import find_refused_writes
from feed_assets.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.replication.flows import FlowRunner, note_flow
from feed_assets.sql.errors import StateUnreachableError
from feed_assets.storage.port import InstanceStore
from feed_assets.timing.dates import render_datetime
from feed_assets.transfer.executors import run_where_worth
from feed_assets.transfer.requests import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DETAILED = 10
"""The number of instances of a run whose steps have lines of their own; each later instance has one line."""

PROGRESS_EVERY = 10.0
"""Seconds between two log lines about the progress of copies."""

_VERBS = {
    StepKind.INPUTS: "reads",
    StepKind.STEP: "made",
    StepKind.WORK: "staged",
    StepKind.VERIFICATION: "verified",
    StepKind.PUBLICATION: "published",
    StepKind.LEFT_OUT: "left out",
}


@dataclass(slots=True)
class RunLog:
    """The log of a run that works on instances of a process, one after the other; `say` writes a line of it."""

    say: Callable[[str], None]
    _now: datetime | None = None
    _begun: int = 0
    _held: list[str] = field(default_factory=list)
    _release: str | None = None
    _has_session: bool = False
    _session_seconds: float = 0.0
    _watch: Stopwatch = field(default_factory=Stopwatch)
    _progress_at: float = 0.0

    def begin(self, nominal_time: datetime, release: str | None) -> None:
        """Begin an instance; `release` tells the release that it follows, and is written when it is another one."""
        self.end()
        self._now, self._begun = nominal_time, self._begun + 1
        if release is not None and release != self._release:
            self._release = release
            self._hold(release)

    def step(self, step: AttemptStep) -> None:
        """Tell a step of the present instance; the seconds of work are those after the start of the session."""
        is_work = step.kind in (StepKind.STEP, StepKind.WORK)
        seconds = max(step.seconds - self._session_seconds, 0.0) if is_work else step.seconds
        self._hold(describe_parts(step) + ("" if step.kind is StepKind.LEFT_OUT else f" in {seconds:.1f} s"))
        if is_work:
            self._session_seconds = 0.0

    def session(self, seconds: float) -> None:
        """Tell once that the Spark session has started."""
        if not self._has_session:
            self._has_session, self._session_seconds = True, seconds
            self._hold(f"Spark session started in {seconds:.1f} s")

    def end(self) -> None:
        """Write what has been held back of the present instance."""
        if self._held and self._now is not None:
            self.say(f"{render_datetime(self._now)} {'; '.join(self._held)}")
        self._held.clear()

    def progress(self, progress: Progress) -> None:
        """Tell the progress of copies, at intervals."""
        if self._watch.seconds - self._progress_at >= PROGRESS_EVERY:
            self._progress_at = self._watch.seconds
            self.say(
                f"copied {progress.bytes:,} of {progress.all_bytes:,} bytes, {progress.files:,} of "
                f"{progress.all_files:,} files"
            )

    def _hold(self, text: str) -> None:
        self._held.append(text)
        if self._begun <= DETAILED:
            self.end()


def describe_parts(step: AttemptStep) -> str:
    """Return what a step was about, without its duration.

    >>> from datetime import UTC
    >>> numbers = StepPart(name="numbers", instances=1, files=2, bytes=2048)
    >>> step = AttemptStep(kind=StepKind.INPUTS, nominal_time=datetime(2026, 1, 1, tzinfo=UTC), seconds=0.1,
    ...                    parts=(numbers,))
    >>> describe_parts(step)
    'reads numbers (1 instance, 2 files, 2,048 bytes)'
    """
    subject = f"step {step.name} " if step.name else ""
    return f"{subject}{_VERBS[step.kind]} {', '.join(map(_describe_part, step.parts)) or 'nothing'}"


def _describe_part(part: StepPart) -> str:
    figures = (("row", part.rows), ("instance", part.instances), ("file", part.files), ("byte", part.bytes))
    texts = [counted(count, noun) for noun, count in figures if count is not None]
    return f"{part.name} ({', '.join(texts)})" if texts else part.name


ROWS = 10
COLUMNS = 20
CELL = 60
"""The most characters of a cell."""

_FILES = 5
_READ_WHOLE = 8 << 20  # a file on an object store is fetched to this size


def wants_preview(record: FeedRecord, by_default: bool) -> bool:
    """Return whether rows of a feed may be shown; its own word counts before that of the settings."""
    return by_default if record.preview is None else record.preview


def build_preview(store: InstanceStore, done: Published) -> dg.TableMetadataValue | None:
    """Return the first rows of a published instance; None if they cannot be read here, or if there are none.

    Raises:
        StorageError: the instance cannot be read.
        ValueError: a file is not in the feed's format.
        OSError: a local file cannot be read.
    """
    record = done.record
    if record.table is not None:
        return None
    known = [name for name, _ in done.columns or ()]
    rows: list[Row] = []
    files = [file for file in store.survey(record.path(done.nominal_time), None, 0).files if file.size]
    data = [file for file in files if not file.path.rpartition("/")[2].startswith(("_", "."))]
    for file in data[:_FILES]:
        head = HeadOptions(rows=ROWS - len(rows), width=COLUMNS, options=dict(record.options), columns=known)
        with _opened(store, record.path(done.nominal_time), file.path, file.size) as stream:
            rows += (read_head(file.path, record.format.value, stream, head) if stream is not None else None) or []
        if len(rows) >= ROWS:
            break
    return _render(rows, dict(done.columns or ())) if rows else None


@contextmanager
def _opened(store: InstanceStore, path: str, file: str, size: int) -> Iterator[IO[bytes] | None]:
    """Open a file of an instance: in place on this machine, else fetched if it is small; None if it is not."""
    local = store.local_path(path)
    if local is not None:
        with (local / file).open("rb") as stream:
            yield stream
    elif size > _READ_WHOLE:
        yield None
    else:
        with store.reading(path) as reading:
            yield io.BytesIO(b"".join(reading.chunks(file)))


def _render(rows: list[Row], types: dict[str, str]) -> dg.TableMetadataValue:
    names = list(dict.fromkeys(chain.from_iterable(rows)))[:COLUMNS]
    schema = dg.TableSchema(columns=[dg.TableColumn(name=name, type=types.get(name, "string")) for name in names])
    return dg.MetadataValue.table(
        [dg.TableRecord({name: _cell(row.get(name)) for name in names}) for row in rows], schema
    )


def _cell(value: object) -> str:
    return shorten("null" if value is None else f"{len(value)} bytes" if isinstance(value, bytes) else str(value), CELL)


OnEnded: TypeAlias = Callable[[str, tuple[Published, ...] | Exception], None]

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRun:
    """One Dagster run that works on instances of one process. `find_asset` maps a feed to its asset.

    `reports` are those of successful attempts, by nominal time. `refused` has the
    instances that must not write now. `columns` compares those that are written with those before.
    """

    context: RunContext
    runtime: Runtime
    process: ProcessRecord
    find_asset: FindAsset
    reports: dict[datetime, WorkReport] = field(default_factory=dict)
    refused: dict[datetime, NeighbourLeftOutError] = field(default_factory=dict)
    log: RunLog = field(init=False)
    columns: ColumnChanges = field(init=False)
    executors: ExecutorWatch = field(init=False)
    remaining: Remaining = field(init=False)

    def __post_init__(self) -> None:
        remaining = Remaining(context=self.context, runtime=self.runtime, process=self.process, say=self._say)
        object.__setattr__(self, "remaining", remaining)
        object.__setattr__(self, "log", RunLog(partial(self._say, logging.INFO)))
        object.__setattr__(self, "columns", ColumnChanges(self.context.instance))
        object.__setattr__(self, "executors", ExecutorWatch(partial(self._say, logging.WARNING)))

    def run(
        self, times: Mapping[str, datetime], on_done: Callable[[str, tuple[Published, ...]], None] = lambda *_: None
    ) -> None:
        """Run instances in the order of the process, publishing and reporting each one separately.

        Args:
            times: nominal times, by their names in messages.
            on_done: called for each success with the published outputs.

        Raises:
            Failure: some instances have failed; names them. The others are published.
        """
        context, database = self.context, self.runtime.database(self.context.instance)
        timeline = self.runtime.timeline()
        follow_now(self.runtime, self.find_asset, self.runtime.plan.read_by(self.process.cluster), context.instance)
        with database.read() as connection:
            timeline.refresh_one(connection, self.process.key)
            self.refused.update(find_refused_writes(connection, timeline, self.process, list(times.values())))
        ordered = self._lost_last({label: times[label] for label in in_order(self.process.order, list(times))})
        failures: dict[str, str] = {}
        errors: dict[datetime, Exception] = {}

        def end(label: str, outcome: tuple[Published, ...] | Exception) -> None:
            if isinstance(outcome, NotNeededError):
                return  # its line has been written
            self.remaining.ended.append(label)
            if not isinstance(outcome, Exception):
                on_done(label, outcome)
                return
            errors[times[label]] = outcome
            offer = offer_approval(self.process, times[label], outcome)
            failures[label] = mask(f"{type(outcome).__name__}: {outcome}{offer}")
            trace = "" if isinstance(outcome, FeedAssetsError) else f"\n{format_error(outcome)}"
            self._say(logging.ERROR, f"{label} failed: {failures[label]}{trace}")

        run = self._run_copies if self.process.is_flow else self._run_each
        with repeated_interrupts(context.instance, context.run.run_id), self.executors:
            run(timeline, ordered, end)
        if self.process.is_flow:
            note_flow(database, self.process, errors, self.runtime.real_clock)
        if failures:
            raise dg.Failure(
                description=_describe(self.process, failures, len(self.remaining.ended)),
                metadata={label: dg.MetadataValue.text(reason) for label, reason in failures.items()},
                allow_retries=False,
            )

    def _lost_last(self, times: Mapping[str, datetime]) -> Mapping[str, datetime]:
        """Move instances whose worker died to the end: what ends the process, such as `os._exit`, may end it again."""
        if len(times) == 1:
            return times
        with self.runtime.database(self.context.instance).read() as connection:
            keys = [ProcessKey(*self.process.key, time) for time in times.values()]
            rows = ProcessInstances(connection).get_many(keys).values()
        lost = {row.nominal_time for row in rows if row.cause is Cause.RUN_LOST and row.attempt}
        return dict(sorted(times.items(), key=lambda item: item[1] in lost))

    def _run_each(self, timeline: ReleaseTimeline, times: Mapping[str, datetime], end: OnEnded) -> None:
        coming = list(times.values())
        for position, (label, nominal_time) in enumerate(times.items()):
            outcome: tuple[Published, ...] | Exception
            try:
                if self.remaining.gives_way(coming[position:]):
                    return
                if not self.remaining.is_needed(timeline, nominal_time):
                    continue
                outcome = self._run_one(timeline, nominal_time)
            except Exception as exc:  # noqa: BLE001 - `end` logs it
                outcome = exc
            self.log.end()
            end(label, outcome)

    def _run_copies(self, timeline: ReleaseTimeline, times: Mapping[str, datetime], end: OnEnded) -> None:
        """Copy many instances at once, grouped by active release."""
        requested = {label: time for label, time in times.items() if self.remaining.is_needed(timeline, time)}
        labels = {nominal_time: label for label, nominal_time in requested.items()}
        groups: dict[int, tuple[ActiveRelease, list[datetime]]] = {}
        for label, nominal_time in requested.items():
            try:
                active = self._find_release(timeline, nominal_time)
            except FeedAssetsError as exc:
                self._say(logging.DEBUG, f"{label}\n{format_error(exc)}")
                end(label, exc)
            else:
                groups.setdefault(id(active.record), (active, []))[1].append(nominal_time)

        def report(nominal_time: datetime, outcome: Published | Exception) -> None:
            end(labels[nominal_time], outcome if isinstance(outcome, Exception) else (outcome,))

        is_remote = self.runtime.plan.clusters[self.process.cluster].uses_connect
        for active, found in groups.values():
            runner = FlowRunner(
                context=self._context_of(timeline, active),
                run_tasks=run_where_worth(self._session, is_remote=is_remote),
                on_progress=self.log.progress,
                gives_way=self.remaining.gives_way,
            )
            if not runner.run(active.record, found, self._report, report):
                return

    def _run_one(self, timeline: ReleaseTimeline, nominal_time: datetime) -> tuple[Published, ...]:
        active = self._find_release(timeline, nominal_time)
        runner = InstanceRunner(
            context=self._context_of(timeline, active),
            root=self.runtime.root,
            session=self._session,
            on_report=self._keep,
            on_progress=self.log.progress,
            on_step=self.log.step,
            on_verdict=self._report_verdict,
        )
        return runner.run(active.record, nominal_time, self._report)

    def _find_release(self, timeline: ReleaseTimeline, nominal_time: datetime) -> ActiveRelease:
        """Return the active release of an instance.

        Raises:
            NeighbourLeftOutError: it would write over data of an entity that is left out of the plan.
            NoProcessInstanceError: it is not an instance of any release.
        """
        if nominal_time in self.refused:
            raise self.refused[nominal_time]
        with self.runtime.database(self.context.instance).read() as connection:
            active = timeline.find_or_declared(connection, self.process.key, nominal_time)
        if active is None:
            raise NoProcessInstanceError(process=self.process, nominal_time=nominal_time)
        newest = timeline.newest(self.process.key)
        self.log.begin(nominal_time, None if newest is None else describe_active_release(active, newest.release))
        return active

    def _context_of(self, timeline: ReleaseTimeline, active: ActiveRelease) -> AttemptContext:
        runtime = self.runtime
        return AttemptContext(
            database=runtime.database(self.context.instance),
            stores=runtime.run_stores,
            clock=runtime.clock,
            real_clock=runtime.real_clock,
            plan=active.plan,
            run_id=self.context.run.run_id,
            release=active.release,
            current=runtime.plan,
            is_cancelled=partial(is_cancelled, self.context.instance, self.context.run.run_id),
            is_needed=partial(self.remaining.is_needed, timeline),
        )

    def _session(self) -> "SparkSession":
        cluster, watch = self.runtime.plan.clusters[self.process.cluster], Stopwatch()
        spark: LazyPySparkResource = getattr(self.context.resources, names.OfCluster.SPARK.of(cluster.name))
        queued = spark if cluster.keeps_server else in_queue(spark, self.process.queue)
        session = open_session(queued, cluster, self.context.run.run_id)
        self.log.session(watch.seconds)
        self.executors.begin(session)
        return session

    def _keep(self, nominal_time: datetime, report: WorkReport) -> None:
        self.reports[nominal_time] = report
        for line in describe_beyond(self.process.process, report):
            self._say(logging.WARNING, line)

    def _report(self, done: Published) -> None:
        found = self.find_asset(done.record.key)
        if found is None or not found[1].sequence.contains(done.nominal_time):
            self._say(logging.INFO, f"{mask(done.url)} is published; it is not a partition of the current definitions")
            return
        asset_key, grid = found
        event = dg.AssetMaterialization(
            asset_key=asset_key,
            partition=grid.partition(done.nominal_time),
            metadata={
                **page_metadata(self.runtime.settings.server.url, Kind.FEED, done.record.feed, done.nominal_time),
                **published_metadata(done, self._preview(done)),
                **self._column_lineage(done),
                **late_metadata(
                    self.runtime.database(self.context.instance),
                    done.record,
                    done.nominal_time,
                    self.runtime.clock.now(),
                ),
            },
            tags={names.DATA_VERSION: done.content.digest},
        )
        with _telling_dagster():
            if done.columns is not None:
                self.columns.note(asset_key, grid.key(done.nominal_time), done.columns)
            self.context.log_event(event)

    def _column_lineage(self, done: Published) -> dict[str, dg.TableColumnLineage]:
        """Return what the columns were made of; those of a copy that are known are those of its source."""
        process, record, found = self.process, done.record, done.column_set or ColumnSet()
        if process.is_flow and record.columns is not None:
            own = (FeedColumn(record.feed, name, SourceKind.DIRECT) for name, _ in parse_columns(record.columns))
            found = ColumnSet(columns={each.column: (each,) for each in own})
        cluster = process.copied.source if process.is_flow else process.cluster
        return column_lineage(found, cluster, self.find_asset)

    def _report_verdict(self, verdict: Verdict) -> None:
        """Tell the quality of an instance. Dagster shows it where the feed's asset has the check."""
        found = self.find_asset(verdict.feed_key)
        if found is not None and found[1].sequence.contains(verdict.nominal_time):
            asset_key, grid = found
            partition = grid.partition(verdict.nominal_time)
            evaluation = build_quality_evaluation(asset_key, partition, verdict.quality, verdict)
            with _telling_dagster():
                self.context.log_event(evaluation)  # type: ignore[arg-type]  # Dagster itself accepts it

    def _say(self, level: int, line: str) -> None:
        """Write a line to the run's log. It fails nothing: what Dagster cannot keep is in the worker's own log."""
        try:
            self.context.log.log(level, line)
        except Exception:
            _logger.warning("Dagster could not keep a line of the run: %s", line, exc_info=True)

    def _preview(self, done: Published) -> dg.TableMetadataValue | None:
        if self.process.is_flow or not wants_preview(done.record, self.runtime.settings.previews):
            return None
        try:
            return build_preview(self.runtime.run_stores.get(done.record.store), done)
        except (FeedAssetsError, OSError, ValueError) as exc:
            self._say(logging.INFO, mask(f"no preview of {done.url}: {exc}"))
            return None


def describe_beyond(process: str, report: WorkReport) -> list[str]:
    """Return a line for each table or path that a process has read and that is none of its inputs."""
    lineages = [output.lineage for output in report.outputs if output.lineage is not None]
    addresses = sorted({each.removeprefix("external/") for lineage in lineages for each in lineage.beyond})
    why = "no run waits for it, and none follows when it changes. Declare a feed for it, and an input"
    return [f"process {process!r} has read {each}, which is none of its inputs: {why}." for each in addresses]


@contextmanager
def _telling_dagster() -> Iterator[None]:
    """Raise StateUnreachableError for what Dagster's storage raises: the attempt ends as if its worker had died."""
    try:
        yield
    except Exception as exc:
        raise StateUnreachableError(
            database="of Dagster",
            reason=f"a publication could not be reported: {describe_error(exc)}",
            next_step="Check that it can be reached and written; the instance is then run again by itself.",
        ) from exc


def in_order(order: Order, labels: Sequence[str]) -> Sequence[str]:
    """Return instances, given oldest first, in the order of the process: newest first for LIFO, else oldest first."""
    return labels[::-1] if order is Order.LIFO else labels


def describe_active_release(active: ActiveRelease, newest: int) -> str:
    """Return a sentence about the release that an instance follows."""
    if active.release is None:
        return "follows the current definitions"
    which = "the newest" if active.release == newest else f"of {newest}; it was in effect at this nominal time"
    return f"follows release {active.release} ({which}), version {active.version} of the process"


def in_queue(spark: LazyPySparkResource, queue: str | None) -> LazyPySparkResource:
    """Return the resource of a session in a queue of YARN, unless its configuration names another queue."""
    if queue is None or YARN_QUEUE in spark.spark_config:
        return spark
    return LazyPySparkResource(spark_config={**spark.spark_config, YARN_QUEUE: queue})


def open_session(spark: LazyPySparkResource, cluster: ClusterRecord, run_id: str) -> "SparkSession":
    """Return the run's session. On a Spark Connect server the session has the run's id, so others can stop leftover
    work.
    """
    if cluster.spark_remote is not None:
        check_spark_remote(cluster.spark_remote)
    if cluster.spark_remote is not None and spark.spark_config.get("spark.remote") == cluster.spark_remote:
        conf = session_conf(remote=cluster.spark_remote, conf=dict(cluster.spark_conf), run_id=run_id)
        spark = LazyPySparkResource(spark_config=conf)
    session: SparkSession = spark.spark_session
    return session


def _describe(process: ProcessRecord, failures: Mapping[str, str], total: int) -> str:
    others = "" if len(failures) == total else f" The other {total - len(failures)} are published."
    first = next(iter(failures.values()))
    return f"{describe_process(process.process)} failed for {', '.join(failures)}: {first}{others}"


POLL_SECONDS = 5.0
"""Seconds between two polls of a run's status."""

GRACE_SECONDS = 10.0
"""Seconds that a cancelled run has to end before it is interrupted again."""


def is_cancelled(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Return whether somebody has cancelled a run; False if that cannot be read."""
    try:
        run = instance.get_run_by_id(run_id)
    except Exception:
        _logger.exception("the status of run %s could not be read", run_id)
        return False
    return run is not None and run.status in {dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED}


@contextmanager
def repeated_interrupts(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """Interrupt this process repeatedly, inside the context, once the run that it works on is cancelled."""
    ended, asked = threading.Event(), partial(is_cancelled, instance, run_id)
    poller = threading.Thread(target=_interrupt_until, args=(ended, asked), name=f"end of {run_id}", daemon=True)
    poller.start()
    try:
        yield
    finally:
        ended.set()
        poller.join()


def _interrupt_until(ended: threading.Event, is_cancelled: Callable[[], bool]) -> None:
    since: Stopwatch | None = None
    while not ended.wait(POLL_SECONDS):
        if since is None:
            since = Stopwatch() if is_cancelled() else None
        elif since.seconds >= GRACE_SECONDS:
            os.kill(os.getpid(), signal.SIGINT)
