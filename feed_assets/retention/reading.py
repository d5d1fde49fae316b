"""Queries about sweeps: lists, one sweep with its items, and its evictions in Falcon's form."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from feed_assets.command_lines import command_line
from feed_assets.context.operation import OperationContext
from feed_assets.json_form import Hidden, shows
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import ItemOutcome, ItemResult, Sweep, SweepChunk, SweepItem
from feed_assets.log.removals.store import Sweeps
from feed_assets.pages import tell_shown
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.timing.dates import parse_timezone

_PATHS = "instancePaths="
_TIMES = "instances="
_NOTHING = "NULL"
_SEPARATOR = ","
_STANDS_FOR_SEPARATOR = ";"


@shows("result", "outcome, outcome_reason=reason")
@shows("item", "path, nominal_time, bytes, files, rule, reason")
@shows("chunk", "feed, kind")
@dataclass(frozen=True, slots=True)
class ShownItem:
    """A path of a sweep and its outcome; None before the sweep has run."""

    chunk: Hidden[SweepChunk]
    item: Hidden[SweepItem]
    result: Hidden[ItemResult | None]

    @property
    def remark(self) -> str:
        """Why it came to this, or why it is eligible."""
        return (self.result and self.result.reason) or self.item.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSweep:
    """A sweep with its first items, out of `matching` ones."""

    sweep: Sweep
    items: tuple[ShownItem, ...]
    matching: int

    @property
    def summary(self) -> str:
        """How many paths match, if not all are there."""
        return tell_shown(len(self.items), self.matching, "paths", "--limit shows more")


def find_sweep(context: OperationContext, text: str) -> Sweep:
    """Find a sweep by its id, or by a prefix of it.

    Raises:
        SweepRefusedError: no sweep has this id, or several have the prefix.
    """
    with context.database.read() as connection:
        sweeps = Sweeps(connection)
        found = sweeps.find(text)
        candidates = [found] if found is not None else sweeps.find_prefix(text) if text else []
    if len(candidates) == 1:
        return candidates[0]
    reason = "several sweeps have this prefix" if candidates else "it does not exist"
    next_step = "Write more of its id." if candidates else f"List the sweeps: {command_line('retention', 'list')}"
    raise SweepRefusedError(sweep=repr(text), reason=reason, next_step=next_step)


def iter_items(context: OperationContext, sweep: Sweep, feed: str | None = None) -> Generator[ShownItem, None, None]:
    """Yield all items of a sweep; of one feed if given."""
    with context.database.read() as connection:
        for chunk in SweepChunks(connection, sweep.sweep_id).iter_all(feed=feed):
            for item in chunk.items:
                yield ShownItem(chunk, item, chunk.results.get(item))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionReport:
    """The evictions of one feed by a sweep in Falcon's form: the content of its file, and its printed line."""

    feed: str
    cluster: str
    paths: str
    times: str

    @property
    def lines(self) -> tuple[str, str]:
        """Both."""
        return self.paths, self.times


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionReports:
    """The evictions of a sweep, feed by feed."""

    sweep_id: str
    feeds: tuple[EvictionReport, ...]


def report_evictions(context: OperationContext, sweep: Sweep) -> EvictionReports:
    """Report the evictions of each feed of a sweep; paths are those of URLs, as in Falcon's file."""
    paths: dict[str, list[str]] = {count.feed: [] for count in sweep.counts}
    times: dict[str, list[datetime]] = {count.feed: [] for count in sweep.counts}
    for shown in iter_items(context, sweep):
        if shown.result is not None and shown.result.outcome is ItemOutcome.EVICTED:
            paths.setdefault(shown.chunk.feed, []).append("/" + shown.item.path)
            times.setdefault(shown.chunk.feed, []).append(shown.item.nominal_time)
    reports = []
    for feed in sorted(paths):
        record = context.plan.feeds.get((feed, sweep.cluster))
        zone = record.sequence.timezone if record else parse_timezone("UTC")
        reports.append(
            EvictionReport(
                feed=feed,
                cluster=sweep.cluster,
                paths=render_evicted_paths(paths[feed]),
                times=render_evicted_times(times[feed], zone),
            )
        )
    return EvictionReports(sweep_id=sweep.sweep_id, feeds=tuple(reports))


def render_evicted_paths(paths: Iterable[str]) -> str:
    """Return the content of Falcon's `evicted-instancePaths.csv`; a comma in a path becomes a semicolon.

    >>> render_evicted_paths(["/clicks/2013/11/01", "clicks/ds=1,region=eu"])
    'instancePaths=/clicks/2013/11/01,clicks/ds=1;region=eu'
    """
    return _PATHS + _SEPARATOR.join(path.replace(_SEPARATOR, _STANDS_FOR_SEPARATOR) for path in paths)


def render_evicted_times(times: Iterable[datetime], zone: ZoneInfo) -> str:
    """Return the line that Falcon prints: nominal times as `yyyyMMddHHmm` in the time zone of the feed; with seconds if
    there are any.

    >>> render_evicted_times([], ZoneInfo("UTC"))
    'instances=NULL'
    """
    local = (time.astimezone(zone) for time in times)
    written = [each.strftime("%4Y%m%d%H%M%S").removesuffix("00") for each in local]
    return _TIMES + (_SEPARATOR.join(written) or _NOTHING)
