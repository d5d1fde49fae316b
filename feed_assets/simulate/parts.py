"""The simulated surroundings: temporary storage, jobs that write digests of their inputs, arrivals, the lines of the
log, and the machine's clock: correct until it is set; and files of events: what comes for feeds and is told, and who
suspends and resumes processes when.
"""

import csv
import hashlib
import os
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from feed_assets.context.errors import ArrivalsFileError, EventsFileError
from feed_assets.engines.port import Engine, Judged, OutputReport, OutputTarget, Work, WorkReport
from feed_assets.entities.workflow import Workflow
from feed_assets.errors import FeedAssetsError
from feed_assets.instances.arrival.arrival_notices import Notice, require_message
from feed_assets.json_form import NominalTime, parse_json
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.registry import open_store
from feed_assets.timing.dates import parse_datetime, render_datetime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SimulatedEvent(StrEnum):
    """The kinds of events in a simulation."""

    ARRIVED = "arrived"
    JUDGED = "judged"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    CUT = "batch cut"
    PASSED = "passed over"
    ASKED_FOR = "asked for"
    RUN = "run"
    LATE_RUN = "run again"
    FAILED = "failed"
    DIED = "worker died"
    TIMED_OUT = "timed out"
    SKIPPED = "skipped"
    RESTARTED = "daemon restarted"
    CLOCK_SET = "clock set"
    MISSED = "never ran"
    LEFT = "left pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueShare:
    """What became of the events of one input: which the batch has taken, which were passed over, and which are pending
    after that, by their numbers in the log. Of many pending ones the oldest are listed.
    """

    input: str
    feed: str
    taken: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()
    pending: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LogLine:
    """An event of a simulation, with its instance if it has one; `note` has details for people. `at` is the true
    time. `event` is the number in the log of what somebody gave notice of, and `queue` what a batch does to it.
    """

    at: datetime
    what: SimulatedEvent
    entity: str = ""
    cluster: str = ""
    nominal_time: NominalTime | None = None
    note: str = ""
    event: int | None = None
    queue: tuple[QueueShare, ...] = ()

    def render(self) -> str:
        """Return the line for people."""
        who = f" {self.entity}" if self.entity else ""
        when = f" {render_datetime(self.nominal_time)}" if self.nominal_time else ""
        where = f" on {self.cluster}" if self.cluster else ""
        note = f": {self.note}" if self.note else ""
        return f"{render_datetime(self.at)} {self.what.value}{who}{when}{where}{note}"


_ENDS = frozenset({SimulatedEvent.TIMED_OUT, SimulatedEvent.SKIPPED, SimulatedEvent.MISSED, SimulatedEvent.FAILED})


def group_lines(lines: Iterable[LogLine]) -> Iterator[list[LogLine]]:
    """Yield the lines, those together that say the same of several instances of one feed or process: why they ended or
    never ran, at one time; and all failures behind the first with one cause, at the end.
    """
    again, at_once = dict[object, list[LogLine]](), dict[object, list[LogLine]]()
    failed = set[object]()
    for line in lines:
        cause = (line.what, line.entity, line.cluster, line.note)
        if at_once and (line.what not in _ENDS or next(iter(at_once.values()))[0].at != line.at):
            yield from at_once.values()
            at_once = {}
        if line.what is SimulatedEvent.FAILED and cause in failed:
            again.setdefault(cause, []).append(line)
        elif line.what in _ENDS:
            failed |= {cause} if line.what is SimulatedEvent.FAILED else set()
            at_once.setdefault(cause, []).append(line)
        else:
            yield [line]
    yield from at_once.values()
    yield from again.values()


def render_group(group: Sequence[LogLine]) -> str:
    """Return lines that say the same as one, with the first and the last instance and how many there are."""
    first, *others = group
    if not others:
        return first.render()
    times = sorted(line.nominal_time for line in group if line.nominal_time is not None)
    note = f"{first.note} ({len(group):,} instances)" if first.note else f"{len(group):,} instances"
    text = replace(first, nominal_time=None, cluster="", note="").render()
    return f"{text} {render_datetime(times[0])} to {render_datetime(times[-1])} on {first.cluster}: {note}"


_COLUMNS = ("feed", "cluster", "instance", "at")
_FILE = "part-0"
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """An external write of an instance at a given time; it replaces existing content. `content` distinguishes
    writes.
    """

    at: datetime
    feed: str
    cluster: str
    nominal_time: datetime
    content: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalPattern:
    """The arrival pattern of external feeds: most instances within a tenth of the feed's frequency, some late, some
    never, some twice with other content. Shares are between 0 and 1; a late instance comes up to `latest` frequencies
    later.
    """

    late: float = 0.05
    missing: float = 0.01
    again: float = 0.02
    latest: float = 3.0


def iter_arrivals(
    plan: Plan, start: datetime, end: datetime, pattern: ArrivalPattern, source: random.Random
) -> Iterator[Arrival]:
    """Yield the arrivals of all external feeds, for the instances with `start <= nominal time < end`."""
    for _, record in sorted(plan.feeds.items()):
        if not record.is_external or not record.is_expected:
            continue
        if record.is_current:
            yield from _iter_versions(record, start, end, source)
            continue
        step = record.sequence.frequency.as_duration()
        for nominal_time in record.sequence.between(start, end):
            if source.random() < pattern.missing:
                continue
            is_late = source.random() < pattern.late
            delay = step * (source.uniform(0.5, pattern.latest) if is_late else source.uniform(0, 0.1))
            at = _whole_minute(nominal_time + delay)
            yield Arrival(at, *record.key, nominal_time, "1")
            if source.random() < pattern.again:
                later = _whole_minute(at + step * source.uniform(0.1, pattern.latest))
                yield Arrival(later, *record.key, nominal_time, "2")


def _iter_versions(record: FeedRecord, start: datetime, end: datetime, source: random.Random) -> Iterator[Arrival]:
    """Yield the versions of a current instance: about one a day."""
    at, number, time = max(start, record.sequence.start), 1, record.sequence.start
    while at < end:
        yield Arrival(_whole_minute(at), *record.key, time, str(number))
        at, number = at + timedelta(days=source.uniform(0.5, 1.5)), number + 1


def with_polls(plan: Plan) -> Plan:
    """Return a plan whose feeds are all polled: in a simulation no asset says that it has made an instance."""
    return replace(
        plan, feeds={key: replace(record, produced_by=None, registration=None) for key, record in plan.feeds.items()}
    )


def with_work_here(plan: Plan) -> Plan:
    """Return a plan without work elsewhere: in a simulation, whoever does it takes each batch as soon as it may."""
    here = Workflow(path="elsewhere:work")
    moved = {key: replace(each, work=here) for key, each in plan.processes.items() if each.is_elsewhere}
    return replace(plan, processes={**plan.processes, **moved})


def load_arrivals(file: Path, plan: Plan) -> list[Arrival]:
    """Load arrivals from a CSV file with the columns `feed`, `cluster`, `instance`, `at` and optionally `content`.

    Raises:
        ArrivalsFileError: the file cannot be read, or a line does not name an instance of an external feed.
    """
    try:
        with file.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise ArrivalsFileError(file=str(file), line=1, reason=f"it cannot be read: {exc}") from exc
    return sorted(_arrival(file, line, row, plan) for line, row in enumerate(rows, start=2))


def _arrival(file: Path, line: int, row: Mapping[str, str | None], plan: Plan) -> Arrival:
    lacking = [name for name in _COLUMNS if not row.get(name)]
    if lacking:
        raise ArrivalsFileError(file=str(file), line=line, reason=f"it has no {', '.join(lacking)}")
    feed, cluster, instance, at = (str(row[name]).strip() for name in _COLUMNS)
    record = plan.feeds.get((feed, cluster))
    if record is None or not record.is_external:
        raise ArrivalsFileError(file=str(file), line=line, reason=f"feed {feed!r} on {cluster} is not an external feed")
    try:
        nominal_time, moment = parse_datetime(instance, seconds=True), parse_datetime(at, seconds=True)
    except FeedAssetsError as exc:
        raise ArrivalsFileError(file=str(file), line=line, reason=str(exc)) from exc
    if not record.sequence.contains(nominal_time):
        raise ArrivalsFileError(file=str(file), line=line, reason=f"{instance} is not an instance of feed {feed!r}")
    return Arrival(moment, feed, cluster, nominal_time, row.get("content") or "1")


def _whole_minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0) + timedelta(minutes=1)


class SimulatedStores:
    """The stores of a plan, each in its own folder, in memory if the system has a filesystem there."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="feed-assets-", dir=_MEMORY if _MEMORY.is_dir() else None)
        self._numbers: dict[str, int] = {}
        self.pool = StorePool(self._open, threads=1)

    def _open(self, url: str, _: dict[str, object]) -> InstanceStore:
        root = Path(self._folder.name) / str(self._numbers.setdefault(url, len(self._numbers)))
        root.mkdir(exist_ok=True)
        return open_store(f"file://{root}", {})

    def write(self, record: FeedRecord, nominal_time: datetime, content: str) -> None:
        """Write an instance like an external program: its data, then its flag."""
        folder = self._path(record, nominal_time)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _FILE).write_text(content)
        if record.flag is not None:
            (folder / record.flag).touch()
        for each in (folder / _FILE, folder) if record.is_current else ():
            os.utime(each, times=(0, 0))  # the clock of a simulation is not that of its files

    def read(self, record: FeedRecord, nominal_time: datetime) -> str | None:
        """Return the content of an instance; None if it does not exist."""
        file = self._path(record, nominal_time) / _FILE
        return file.read_text() if file.exists() else None

    def remove(self) -> None:
        """Remove all stores."""
        self._folder.cleanup()

    def _path(self, record: FeedRecord, nominal_time: datetime) -> Path:
        path = self.pool.get(record.store).local_path(record.path(nominal_time))
        assert path is not None
        return path


class DigestEngine(Engine):
    """An engine whose jobs write a digest of process, instance and inputs: other inputs give another output."""

    def run(self, work: Work, session: "Any") -> WorkReport:  # noqa: ARG002 - needs no session
        digest = hashlib.sha256(f"{work.process}|{render_datetime(work.nominal_time)}|{work.path}".encode())
        for data in work.inputs:
            digest.update(f"|{data.name}".encode())
            for instance, path in sorted(zip(data.instances, data.paths, strict=True), key=_time_of):
                digest.update(f"|{render_datetime(instance.nominal_time)}|".encode())
                digest.update(_content(path))
        return WorkReport(outputs=tuple(_write(target, digest.hexdigest()[:16]) for target in work.outputs))


def _write(target: OutputTarget, digest: str) -> OutputReport:
    """Write one row, which is good; a quarantine gets an instance like any other."""
    folder = Path(urlsplit(target.url).path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FILE).write_text(f"{digest} {target.name}")
    if target.quality is None:
        return OutputReport(name=target.name, rows=1)
    quarantine = _write(target.quarantine, digest) if target.quarantine is not None else None
    rows = target.quality.min_rows or 1
    return OutputReport(name=target.name, rows=1, judged=Judged(rows=rows, bad=0, broken={}, quarantine=quarantine))


def _time_of(pair: tuple[Any, str]) -> datetime:
    nominal_time: datetime = pair[0].nominal_time
    return nominal_time


def _content(path: str) -> bytes:
    files = sorted(file for file in Path(urlsplit(path).path).rglob("part-*") if file.is_file())
    return b"".join(file.read_bytes() for file in files)


def no_session() -> "SparkSession":
    """Stand in for Spark, which no simulated job needs."""
    raise AssertionError("a simulation runs nothing on Spark")


_RIGHT = timedelta(0)
_SHORTEST = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSteps:
    """How often and how far the clock is set: the share of ticks after which it is set, and its largest error ahead or
    behind. Every other step corrects a wrong clock. Small errors are more frequent than large ones.
    """

    share: float = 0.0
    ahead: timedelta = timedelta(days=4)
    behind: timedelta = timedelta(hours=12)


@dataclass(slots=True)
class WrongClock:
    """The error of the machine's clock relative to the true time; `error` is positive if it is ahead."""

    steps: ClockSteps
    source: random.Random
    error: timedelta = field(default=_RIGHT, init=False)

    def read(self, true_time: datetime) -> datetime:
        """Return the clock's time at a true time."""
        return true_time + self.error

    def step(self) -> timedelta | None:
        """Set the clock at random; return the change, None if the clock is left alone."""
        if self.source.random() >= self.steps.share:
            return None
        before, self.error = self.error, self._next_error()
        return self.error - before

    def _next_error(self) -> timedelta:
        if self.error and self.source.random() < 0.5:
            return _RIGHT
        is_ahead = self.source.random() < 0.5
        most = self.steps.ahead if is_ahead else self.steps.behind
        seconds = max(most * self.source.random() ** 2, _SHORTEST) // timedelta(seconds=1)
        return timedelta(seconds=seconds if is_ahead else -seconds)


def describe_step(step: timedelta) -> str:
    """Return a change of the clock for people.

    >>> describe_step(timedelta(days=1, minutes=2)), describe_step(timedelta(minutes=-90))
    ('forward by 1 day, 0:02:00', 'back by 1:30:00')
    """
    return f"forward by {step}" if step > _RIGHT else f"back by {-step}"


AUTHOR = "simulation"
"""Who gives notices and commands in a simulation."""


class Command(StrEnum):
    """The commands to processes that a file may have."""

    SUSPEND = "suspend"
    RESUME = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldArrival:
    """A notice that somebody gives at a time. If the feed has data, `content` is written to the instance before."""

    at: datetime
    record: FeedRecord
    notice: Notice
    content: str = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCommand:
    """A command to a process on some clusters, given at a time."""

    at: datetime
    process: str
    clusters: tuple[str, ...]
    command: Command

    @property
    def state(self) -> ScheduleState:
        """The state of the process after it."""
        return ScheduleState.SUSPENDED if self.command is Command.SUSPEND else ScheduleState.SCHEDULED


FileEvent: TypeAlias = ToldArrival | GivenCommand
_Line: TypeAlias = Mapping[str, Any]

_OF_FEED = frozenset({"at", "feed", "cluster", "instance", "content", "payload", "marking", "again"})
_OF_PROCESS = frozenset({"at", "process", "cluster", "do"})


def load_events(file: Path, plan: Plan) -> list[FileEvent]:
    """Load the events of a file, in the order of their times. A file named `.csv` is CSV, any other one has an object
    of JSON in each line.

    Raises:
        EventsFileError: the file cannot be read, or a line says nothing that could happen.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise EventsFileError(file=str(file), line=1, reason=f"it cannot be read: {exc}") from exc
    found = []
    for number, line in _iter_csv(text) if file.suffix == ".csv" else _iter_json(text):
        try:
            found.append(_event(line, plan))
        except (ValueError, FeedAssetsError) as exc:
            raise EventsFileError(file=str(file), line=number, reason=str(exc).rstrip(".")) from exc
    return sorted(found, key=lambda each: each.at)


def _iter_csv(text: str) -> Iterator[tuple[int, _Line | str]]:
    """Yield the number and the filled cells of each row; `payload` and `again` are JSON."""
    rows = csv.DictReader(text.splitlines(keepends=True), restkey="more values")
    for row in rows:
        yield rows.line_num, {key: value for key, value in row.items() if value}


def _iter_json(text: str) -> Iterator[tuple[int, _Line | str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line


def _load_json(text: str) -> object:
    try:
        return parse_json(text)
    except ValueError as exc:
        raise ValueError(f"{text!r} is not JSON: {exc}") from exc


def _parse(line: _Line | str) -> _Line:
    if isinstance(line, str):
        found = _load_json(line)
        if not isinstance(found, dict):
            raise ValueError("it is no object of JSON")
        return found
    return {key: _load_json(value) if key in ("payload", "again") else value for key, value in line.items()}


def _event(written: _Line | str, plan: Plan) -> FileEvent:
    line = _parse(written)
    if ("feed" in line) == ("process" in line):
        raise ValueError(
            "it names neither a feed nor a process" if "feed" not in line else "it names a feed and a process"
        )
    known = _OF_FEED if "feed" in line else _OF_PROCESS
    if unknown := sorted(str(key) for key in line if key not in known):
        raise ValueError(f"it has {', '.join(unknown)}, which a {'feed' if known is _OF_FEED else 'process'} has not")
    at = parse_datetime(_text(line, "at"), seconds=True)
    return _told(line, at, plan) if known is _OF_FEED else _given(line, at, plan)


def _told(line: _Line, at: datetime, plan: Plan) -> ToldArrival:
    name, payload, again = _text(line, "feed"), line.get("payload", {}), line.get("again", False)
    arriving = {key: record for key, record in plan.feeds.items() if record.is_external}
    record = plan.feeds[name, _only(line, name, "an external feed", arriving)]
    if not isinstance(payload, dict):
        raise ValueError("its payload is no object of JSON")
    if not isinstance(again, bool):
        raise ValueError("again is true or false")
    if "content" in line and not record.has_data:
        raise ValueError(f"feed {name!r} has no data, and no content")
    notice = Notice(
        feed=name,
        cluster=record.cluster,
        nominal_time=_find_time(line, at, record),
        payload=payload,
        marking=_text(line, "marking") if "marking" in line else None,
        is_again=again,
    )
    require_message(notice)
    return ToldArrival(
        at=at, record=record, notice=notice, content=_text(line, "content") if "content" in line else "1"
    )


def _find_time(line: _Line, at: datetime, record: FeedRecord) -> datetime | None:
    """Return the time of the instance; None for a signal at the present second."""
    if "instance" in line:
        time = parse_datetime(_text(line, "instance"), seconds=True)
    elif record.is_current:
        time = record.sequence.start
    elif record.is_expected:
        raise ValueError(f"it has no instance, and feed {record.feed!r} has instances at fixed times")
    else:
        time = record.sequence.at(record.sequence.index_at_or_before(at))
    if not record.sequence.contains(time):
        raise ValueError(f"{render_datetime(time)} is not an instance of feed {record.feed!r}")
    if time > at:
        raise ValueError(f"instance {render_datetime(time)} of feed {record.feed!r} is in the future then")
    return time if record.has_data or "instance" in line else None


def _given(line: _Line, at: datetime, plan: Plan) -> GivenCommand:
    name, word = _text(line, "process"), _text(line, "do")
    if word not in list(Command):
        raise ValueError(f"{word!r} cannot be done to a process; it can be {', '.join(Command)}")
    on = tuple(cluster for process, cluster in sorted(plan.processes) if process == name)
    if "cluster" in line or not on:
        on = (_only(line, name, "a process", plan.processes),)
    return GivenCommand(at=at, process=name, clusters=on, command=Command(word))


def _only(line: _Line, name: str, kind: str, known: Mapping[tuple[str, str], object]) -> str:
    """Return the cluster that a line names, or the only one of an entity."""
    on = sorted(cluster for entity, cluster in known if entity == name)
    cluster = _text(line, "cluster") if "cluster" in line else None
    if not on or (cluster is not None and cluster not in on):
        raise ValueError(f"{name!r} is not {kind}{f' on {cluster}' if cluster and on else ''}")
    if cluster is None and len(on) > 1:
        raise ValueError(f"{name!r} is on {', '.join(on)}: name a cluster")
    return cluster or on[0]


def _text(line: _Line, key: str) -> str:
    value = line.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"it has no {key}" if key not in line else f"{key} is not a text")
    return value
