"""Files of events for a simulation: what comes for feeds and is told, and who suspends and resumes processes when."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

from feed_assets.context.errors import EventsFileError
from feed_assets.errors import FeedAssetsError
from feed_assets.instances.arrival.arrival_notices import Notice, require_message
from feed_assets.json_form import parse_json
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.timing.dates import parse_datetime, render_datetime

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
        author=AUTHOR,
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
