"""Sweeps for people: lists, one sweep with its items, and its evictions in Falcon's form; `retention run`, `approve`
and `cancel`; `undo` restores paths, and `purge` empties the trash.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

from feed_assets.access.rights import reads, require_acts
from feed_assets.command_lines import command_line
from feed_assets.context.operation import ChangeContext, OperationContext, note, resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.errors import Fault, FeedAssetsError
from feed_assets.instances.attempts.displacement import UNDECLARED_TRASH_LIFETIME
from feed_assets.json_form import Hidden, ShownError, shown, shows
from feed_assets.log.removals.chunks import SweepChunks
from feed_assets.log.removals.records import (
    ItemOutcome,
    ItemResult,
    Sweep,
    SweepChanges,
    SweepChunk,
    SweepItem,
    SweepState,
)
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.run_names import name_holder
from feed_assets.pages import tell_shown
from feed_assets.plan.rendering import counted
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.retention.holding import HoldChange, hold_restored
from feed_assets.retention.rules.clock_witness import note_clock
from feed_assets.retention.sweeps.purging import PurgedSweep, find_purgeable, purge_sweeps
from feed_assets.retention.sweeps.sweep_context import SweepContext, require_sweep
from feed_assets.retention.sweeps.sweeping import require_runnable, run_sweep
from feed_assets.retention.sweeps.undoing import (
    REMOVED_OUTCOMES,
    UNDOABLE,
    RestoreSelection,
    UndoResult,
    require_undoable,
    undo_sweep,
)
from feed_assets.sql.errors import StateError
from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime

OnProgress = Callable[[str, int, int], None]
"""Called with the id of a sweep, and the numbers of settled and of all its paths."""

_RUNNABLE = frozenset({SweepState.PLANNED, SweepState.RUNNING})


def sweep_context_of(context: ChangeContext) -> SweepContext:
    """Return the context of a command that works on sweeps."""
    return SweepContext(
        database=context.database,
        stores=context.stores,
        timeline=context.timeline,
        clock=context.clock,
        real_clock=context.real_clock,
        holder=name_holder(),
        origin=f"retention:{context.author}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRuns:
    """The sweeps of a run in their current state.

    `refused` has the reasons of those that cannot run now, and of those that a storage kept from their end; `waiting`
    what was planned with them and waits.
    """

    sweeps: tuple[Sweep, ...]
    refused: tuple[ShownError[FeedAssetsError], ...] = ()
    dry_run: bool = False
    waiting: Hidden[tuple[str, ...]] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Which sweeps wait or are refused, and what is to be said of the others."""
        shared = [sweep.sweep_id for sweep in self.sweeps if sweep.state is SweepState.RUNNING and not self.dry_run]
        return (
            *self.waiting,
            *(note for sweep in self.sweeps for note in sweep.notes),
            "" if self.sweeps or self.refused else "no sweep waits to run",
            *(f"feed-assets: {refused}" for refused in self.refused),
            *(f"other workers hold a part of {each}; repeat the command when they have finished" for each in shared),
        )

    has_failed = property(lambda self: not self.is_complete)

    @shown
    def is_complete(self) -> bool:
        """Whether every sweep is complete, and storage refused nothing; in a dry run, whether no sweep is refused."""
        if self.refused:
            return False
        return self.dry_run or all(
            sweep.state is SweepState.DONE and not any(count.failed for count in sweep.counts) for sweep in self.sweeps
        )


def find_runnable(
    context: OperationContext, clusters: Collection[str] = (), feeds: Collection[str] = ()
) -> list[Sweep]:
    """Find the waiting and the interrupted sweeps, oldest plan first; only of some clusters and feeds if given.

    Raises:
        InstanceQueryError: there is no such cluster.
    """
    context.require_clusters(clusters)
    with context.database.read() as connection:
        found = [
            sweep
            for cluster in sorted(clusters or context.plan.clusters)
            for sweep in Sweeps(connection).with_state(cluster, _RUNNABLE)
        ]
    return [sweep for sweep in found if not feeds or {count.feed for count in sweep.counts} & set(feeds)]


def run_sweeps(
    context: ChangeContext,
    sweeps: Sequence[Sweep],
    *,
    waiting: tuple[str, ...] = (),
    progress: OnProgress | None = None,
) -> SweepRuns:
    """Run sweeps, one after another, or continue interrupted ones. A sweep that is refused, or fails because of a
    storage, does not stop the others; a repeat continues it. With `dry_run`, only the refusals are determined.

    Raises:
        SweepDamagedError: a sweep differs from its plan.
    """
    sweep_context = sweep_context_of(context)
    done: list[Sweep] = []
    refused: list[FeedAssetsError] = []
    for sweep in sweeps:
        try:
            require_runnable(sweep_context, sweep)
            if context.dry_run:
                done.append(sweep)
                continue
            note(context, "retention run", sweep)
            done.append(
                run_sweep(sweep_context, sweep.sweep_id, progress=progress and partial(progress, sweep.sweep_id))
            )
        except StateError:
            raise
        except FeedAssetsError as exc:
            refused.append(exc)
    return SweepRuns(sweeps=tuple(done), refused=tuple(refused), dry_run=context.dry_run, waiting=waiting)


def approve_sweep(context: ChangeContext, sweep: Sweep) -> Sweep:
    """Approve a sweep that exceeds a limit, or that asks because of the clock; the approval confirms the clock.

    Raises:
        SweepRefusedError: the sweep does not ask for approval.
    """
    changes: SweepChanges
    changes = {"state": SweepState.PLANNED, "approved_by": context.author, "approved_at": context.as_of}
    return _change(context, sweep, "retention approve", {SweepState.ASKING}, changes, "so it needs no approval")


def cancel_sweep(context: ChangeContext, sweep: Sweep) -> Sweep:
    """Cancel a sweep that has not begun.

    Raises:
        SweepRefusedError: the sweep has begun, or has ended.
    """
    unstarted = {SweepState.PLANNED, SweepState.ASKING}
    changes: SweepChanges = {"state": SweepState.CANCELLED}
    if not context.dry_run:
        changes |= {"ended_at": context.as_of, "note": f"cancelled by {context.author}"}
    next_step = "Undo it." if sweep.state is SweepState.RUNNING else ""
    return _change(context, sweep, "retention cancel", unstarted, changes, "so it cannot be cancelled", next_step)


def _change(
    context: ChangeContext,
    sweep: Sweep,
    action: str,
    expected: set[SweepState],
    changes: SweepChanges,
    otherwise: str,
    next_step: str = "",
) -> Sweep:
    """Change a sweep in one of some states; `otherwise` and `next_step` tell why one in another is refused."""
    with context.database.read() as connection:
        counts = SweepChunks(connection, sweep.sweep_id).count_outcomes()
    require_acts((Kind.FEED.value, feed) for feed, _ in counts)
    if sweep.state not in expected:
        raise _refused(sweep, otherwise, next_step)
    if context.dry_run:
        return replace(sweep, **changes)
    with context.database.begin() as connection:
        is_changed = Sweeps(connection).transition(sweep.sweep_id, expected, **changes)
        if is_changed and changes["state"] is SweepState.PLANNED:
            note_clock(connection, sweep.cluster, context.as_of)
        found = require_sweep(Sweeps(connection), sweep.sweep_id)
    if not is_changed:
        raise _refused(found, "because another command was faster")
    note(context, action, sweep)
    return found


def _refused(sweep: Sweep, reason: str, next_step: str = "") -> SweepRefusedError:
    return SweepRefusedError(
        sweep=sweep.sweep_id,
        reason=f"it is {sweep.state.value}, {reason}",
        next_step=next_step or f"Show it: {command_line('retention', 'show', sweep.sweep_id)}",
    )


def _find_times(
    context: OperationContext, sweep: Sweep, feeds: Collection[str], texts: Collection[str]
) -> frozenset[datetime]:
    """Parse nominal times of instances of a sweep: UTC, or days and partition keys in the zone of the feeds.

    Raises:
        EntityNotFoundError: a time is not UTC, and a feed of the sweep is not declared any more.
        DateTimeError: a text is not a time.
        SweepRefusedError: a text is another time for each of several feeds.
    """
    named = sorted(set(feeds) or {count.feed for count in sweep.counts})
    found: set[datetime] = set()
    for text in texts:
        local = [] if text.endswith("Z") else named
        times = {feed: resolve_subject(context, feed, text, kind=Kind.FEED).instance for feed in local}
        if len(set(times.values())) > 1:
            listed = ", ".join(f"{render_datetime(time)} for feed '{feed}'" for feed, time in times.items())
            raise SweepRefusedError(
                sweep=sweep.sweep_id,
                reason=f"{text!r} is {listed}",
                next_step="Write a time in UTC, or choose one of the feeds: "
                + command_line("retention", "undo", sweep.sweep_id, feed=next(iter(times)), instance=text),
            )
        found |= set(times.values()) or {parse_datetime(text, seconds=True)}
    return frozenset(found)


def undo_removals(
    context: ChangeContext,
    sweep: Sweep,
    *,
    feeds: Collection[str] = (),
    times: Collection[str] = (),
    with_hold: bool = True,
    progress: OnProgress | None = None,
) -> UndoResult:
    """Undo a sweep, or only its removals of some feeds or at some nominal times. Restored instances are still expired.
    Unless `with_hold` is False, a hold protects them for as long as the trash would have kept them.

    Raises:
        EntityNotFoundError, DateTimeError: a time is not UTC and its feed is not declared any more, or it is no time.
        SweepRefusedError: the sweep has removed nothing, nothing of one of the feeds or at one of the times, or its
            cluster is not declared any more.
        StorageError: the storage of all feeds fails; nothing is restored.
        FeedsUnrestoredError: the storage of some feeds failed; a repeat continues.
    """
    moments = _find_times(context, sweep, feeds, times)
    sweep_context = sweep_context_of(context)
    unknown = sorted(set(feeds) - {count.feed for count in sweep.counts})
    if unknown:
        raise SweepRefusedError(
            sweep=sweep.sweep_id,
            reason=f"it does not contain feed {unknown[0]!r}",
            next_step=f"It contains {', '.join(sorted(count.feed for count in sweep.counts))}.",
            fault=Fault.MISSING,
        )
    selection = RestoreSelection(feeds=frozenset(feeds) or None, times=moments or None)
    if sweep.state in UNDOABLE:
        require_undoable(sweep_context, sweep, selection)
    preview = _preview(context, sweep, selection)
    if context.dry_run:
        return preview
    held = HoldChange(holds=())
    if with_hold and sweep.state in UNDOABLE - {SweepState.UNDONE}:
        held = hold_restored(context, sweep, feeds or None, moments or None, _held_until(context, sweep))
    bound = progress and partial(progress, sweep.sweep_id)
    undone = undo_sweep(sweep_context, sweep.sweep_id, selection, progress=bound)
    note(context, "retention undo", sweep, restored=undone.restored, left=len(undone.left))
    return replace(undone, holds=held.holds, unsettled=held.unsettled, feeds=preview.feeds)


def _held_until(context: OperationContext, sweep: Sweep) -> datetime:
    records = [context.plan.feeds.get((count.feed, sweep.cluster)) for count in sweep.counts]
    kept = [record.retention.trash for record in records if record is not None and record.retention is not None]
    return context.as_of + max((each.as_duration() for each in kept), default=UNDECLARED_TRASH_LIFETIME.as_duration())


def _preview(context: OperationContext, sweep: Sweep, selection: RestoreSelection) -> UndoResult:
    with context.database.read() as connection:
        outcomes = SweepChunks(connection, sweep.sweep_id).count_outcomes(selection.feeds, selection.times)
    removed = {key: count for key, count in outcomes.items() if key[1] in REMOVED_OUTCOMES}
    feeds = tuple(sorted({feed for feed, _ in removed}))
    return UndoResult(sweep=sweep, restored=sum(removed.values()), dry_run=True, feeds=feeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeResult:
    """The effects of a purge on the trash of each due sweep."""

    purged: tuple[PurgedSweep, ...]
    dry_run: bool = False

    @shown
    def is_complete(self) -> bool:
        """Whether nothing prevented the purge."""
        return all(each.obstacle is None for each in self.purged)

    has_failed = property(lambda self: not self.is_complete)

    @property
    def summary(self) -> str:
        """One line: the number of sweeps and of their paths, and how many had to stay."""
        done = [each for each in self.purged if each.obstacle is None]
        would = "would purge" if self.dry_run else "purged"
        text = f"{would} {counted(len(done), 'sweep')}, {counted(sum(each.files for each in done), 'file')}"
        stay = len(self.purged) - len(done)
        return f"{text}; {stay:,} had to stay" if stay else text


def empty_trash(
    context: ChangeContext, *, clusters: Collection[str] = (), only: Collection[Sweep] = (), at_once: bool = False
) -> PurgeResult:
    """Delete the trash of sweeps once it has expired; with `at_once`, delete it regardless of its age.

    Raises:
        InstanceQueryError: there is no such cluster.
        SweepRefusedError: the clock seems wrong, so the age of trash is unknown.
        StorageError: the filesystem failed; a repeat continues.
    """
    context.require_clusters(clusters)
    sweep_context = sweep_context_of(context)
    ids = {sweep.sweep_id for sweep in only}
    named = {sweep.cluster for sweep in only}
    purged: list[PurgedSweep] = []
    with context.database.read() as connection:
        undeclared = Sweeps(connection).clusters() - context.plan.clusters.keys() if at_once else set()
    for cluster in sorted(named or clusters or {*context.plan.clusters, *undeclared}):
        found = find_purgeable(sweep_context, cluster, context.as_of, at_once=at_once, only=ids or None)
        done = purge_sweeps(sweep_context, cluster, found, dry_run=context.dry_run)
        purged += done
        for each in done if not context.dry_run else ():
            note(context, "retention purge", each.sweep, files=each.files, obstacle=each.obstacle)
    return PurgeResult(purged=tuple(purged), dry_run=context.dry_run)


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
    raise SweepRefusedError(sweep=repr(text), reason=reason, next_step=next_step, fault=Fault.MISSING)


def only_read(sweep: Sweep) -> Sweep:
    """Return a sweep without what it counts of feeds that who asks may not read."""
    return replace(sweep, counts=tuple(count for count in sweep.counts if reads(Kind.FEED, count.feed)))


def iter_items(context: OperationContext, sweep: Sweep, feed: str | None = None) -> Generator[ShownItem, None, None]:
    """Yield all items of a sweep that who asks may read; of one feed if given."""
    with context.database.read() as connection:
        for chunk in SweepChunks(connection, sweep.sweep_id).iter_all(feed=feed):
            for item in chunk.items if reads(Kind.FEED, chunk.feed) else ():
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
    evicted: dict[str, list[SweepItem]] = {count.feed: [] for count in only_read(sweep).counts}
    for each in iter_items(context, sweep):
        if each.result is not None and each.result.outcome is ItemOutcome.EVICTED:
            evicted.setdefault(each.chunk.feed, []).append(each.item)
    reports = []
    for feed, items in sorted(evicted.items()):
        record = context.plan.feeds.get((feed, sweep.cluster))
        zone = record.sequence.timezone if record else parse_timezone("UTC")
        reports.append(
            EvictionReport(
                feed=feed,
                cluster=sweep.cluster,
                paths=render_evicted_paths(f"/{item.path}" for item in items),
                times=render_evicted_times((item.nominal_time for item in items), zone),
            )
        )
    return EvictionReports(sweep_id=sweep.sweep_id, feeds=tuple(reports))


def render_evicted_paths(paths: Iterable[str]) -> str:
    """Return the content of Falcon's `evicted-instancePaths.csv`; a comma in a path becomes a semicolon.

    >>> render_evicted_paths(["/clicks/2013/11/01", "clicks/ds=1,region=eu"])
    'instancePaths=/clicks/2013/11/01,clicks/ds=1;region=eu'
    """
    return f"instancePaths={','.join(path.replace(',', ';') for path in paths)}"


def render_evicted_times(times: Iterable[datetime], zone: ZoneInfo) -> str:
    """Return the line that Falcon prints: nominal times as `yyyyMMddHHmm` in the time zone of the feed; with seconds if
    there are any.

    >>> render_evicted_times([], ZoneInfo("UTC"))
    'instances=NULL'
    """
    local = (time.astimezone(zone) for time in times)
    written = [each.strftime("%4Y%m%d%H%M%S").removesuffix("00") for each in local]
    return f"instances={','.join(written) or 'NULL'}"
