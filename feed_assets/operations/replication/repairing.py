"""`replication repair`: what `verify` finds, planned and copied again: here, with threads, as any run would do it.

Each instance is claimed, gated, verified, published and recorded as by a run, under a name that is not one of Dagster's
(see `lifecycle/run_names.py`), so that its events are told to Dagster and nobody takes the command for a dead run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from feed_assets.clock import Clock
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.process import Order
from feed_assets.errors import render_some
from feed_assets.lifecycle.attempt_steps import Published
from feed_assets.lifecycle.reconciliation import release_dead
from feed_assets.lifecycle.replication.flows import FlowRunner
from feed_assets.lifecycle.replication.requests import Progress
from feed_assets.lifecycle.replication.workers import useful_workers
from feed_assets.lifecycle.run_names import name_repair
from feed_assets.lifecycle.schedules import load_schedules
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.replication.auditing import OnProgress, Verdict, Verified, VerifiedCopy, verify
from feed_assets.operations.replication.scope import VERSION, CopyQuery, CopyScope, describe_way, find_scope, source_of
from feed_assets.operations.retention.auditing import note_target
from feed_assets.operations.safe_mode import Operation, require_mode
from feed_assets.operations.scene import Scene
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.records import ProcessInstanceStatus
from feed_assets.timing.dates import render_datetime

OnCopied = Callable[[str, int, int], None]
"""Called with what is copied, how many files of it are, and how many there are."""

_Slice: TypeAlias = tuple[str | None, str, datetime]
"""Source, target and nominal time."""


class Outcome(StrEnum):
    """What became of a finding. LEFT: nothing was tried, for the reason given. PLANNED: a dry run would repair it."""

    REPAIRED = "repaired"
    FAILED = "failed"
    LEFT = "left"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedCopy:
    """A finding and what became of it. `bytes` and `files` are copied, `removed` files go; `seconds` None: not done."""

    copy: VerifiedCopy
    outcome: Outcome
    bytes: int = 0
    files: int = 0
    removed: int = 0
    seconds: float | None = None
    reason: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the finding is left."""
        return self.outcome in (Outcome.REPAIRED, Outcome.PLANNED) and not (
            self.copy.audit and self.copy.audit.hopeless
        )

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        fields: dict[str, object] = {
            **self.copy.to_json(),
            "outcome": self.outcome.value,
            "bytes": self.bytes,
            "copiedFiles": self.files,
            "removedFiles": self.removed,
            "seconds": self.seconds,
            "problem": self.reason or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What became of all findings."""

    verified: Verified
    copies: tuple[RepairedCopy, ...]
    is_dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be repaired."""
        return all(each.is_complete for each in self.copies)

    def render_summary(self) -> str:
        """One line: what was found and done."""
        done = [each for each in self.copies if each.outcome in (Outcome.REPAIRED, Outcome.PLANNED)]
        size, files = sum(each.bytes for each in done), sum(each.files for each in done)
        what = "would repair" if self.is_dry_run else "repaired"
        return (
            f"{self.verified.render_summary()}; {what} {len(done)} of {len(self.copies)} findings: "
            f"{size:,} bytes in {files:,} files"
        )

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        scope = self.verified.scope
        return {
            "version": VERSION,
            "feed": scope.feed,
            "start": render_datetime(scope.start),
            "end": render_datetime(scope.stop),
            "deep": self.verified.is_deep,
            "dryRun": self.is_dry_run,
            "instances": [each.to_json() for each in self.copies],
        }


def repair(
    scene: Scene,
    query: CopyQuery,
    clock: Clock,
    wall: Clock,
    *,
    author: str,
    deep: bool = False,
    dry_run: bool = False,
    progress: OnProgress | None = None,
    on_copied: OnCopied | None = None,
) -> Repaired:
    """Find out what is wrong with the replicas of a range, and copy it again.

    What somebody works on, what is suspended, and what no source has (any more) is told and left alone. A repeat finds
    what is left.

    Args:
        scene: the definitions and the record.
        query: which copies.
        clock: the time of the data, which goes on while copies are made.
        wall: the time of day.
        author: who repairs.
        deep: read every byte of the targets to find what is wrong.
        dry_run: say what would be copied.
        progress: told how far the search has come.
        on_copied: told how far the copies have come.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: it is not copied, or not so, or the range makes no sense, or the feed is suspended.
        SafeModeError: safe mode is on.
    """
    require_mode(scene.database, Operation.REPLICATION_REPAIR)
    _require_unsuspended(scene, find_scope(scene, query))
    verified = verify(scene, query, wall, deep=deep, progress=progress)
    planned = [_plan(copy) for copy in verified.findings]
    if not dry_run and any(each.outcome is Outcome.PLANNED for each in planned):
        _note(scene, verified, planned, author)
        release_dead(scene.database, list(_leases(planned)), scene.wall)
        planned = _Repair(scene, clock, wall, name_repair(author), on_copied).run(planned)
    return Repaired(verified=verified, copies=tuple(planned), is_dry_run=dry_run)


def _require_unsuspended(scene: Scene, scope: CopyScope) -> None:
    with scene.database.read() as connection:
        view = load_schedules(connection, scene.without_row)
    suspended = [
        target for target in scope.targets if view.state(Kind.FEED.value, scope.feed, target) is ScheduleState.SUSPENDED
    ]
    if suspended:
        raise InstanceQueryError(
            subject=f"feed {scope.feed!r}",
            reason=f"it is suspended on {', '.join(suspended)}, so nothing is copied to it",
            next_step=f"Let it go on with `feed-assets entity resume feed {scope.feed}`, or name other targets.",
        )


def _plan(copy: VerifiedCopy) -> RepairedCopy:
    """What is to be done about a finding, if anything can be."""
    case, audit = copy.case, copy.audit
    if case is None:
        return RepairedCopy(
            copy=copy, outcome=Outcome.LEFT, reason="nobody copies it: look at it, and remove it by hand"
        )
    if audit is None:
        return RepairedCopy(copy=copy, outcome=Outcome.LEFT, reason="it could not be looked at")
    if audit.plan is None:
        reason = f"the source has it no more{f': {audit.reason}' if audit.reason else ''}"
        return RepairedCopy(copy=copy, outcome=Outcome.LEFT, reason=reason)
    if case.run is not None and case.run.status is ProcessInstanceStatus.SUSPENDED:
        reason = "its copy is suspended; `feed-assets instance resume` lets it go on"
        return RepairedCopy(copy=copy, outcome=Outcome.LEFT, reason=reason)
    plan, hopeless = audit.plan, ""
    if audit.hopeless:
        hopeless = f"the source does not have {render_some(audit.hopeless, 3)} (any more)"
    is_idle = not (plan.transfers or plan.removed or audit.lost) and copy.verdict is not Verdict.UNRECORDED
    if is_idle:
        kept = "by what the feed declares of removed files, they stay at the target"
        return RepairedCopy(copy=copy, outcome=Outcome.LEFT, reason=hopeless or kept)
    return RepairedCopy(
        copy=copy,
        outcome=Outcome.PLANNED,
        bytes=plan.bytes,
        files=len(plan.transfers),
        removed=len(plan.removed),
        reason=hopeless,
    )


def _note(scene: Scene, verified: Verified, planned: Sequence[RepairedCopy], author: str) -> None:
    scope = verified.scope
    note_target(
        scene,
        author,
        "replication repair",
        label_of((Kind.FEED, scope.feed)),
        start=render_datetime(scope.start),
        end=render_datetime(scope.stop),
        instances=sum(each.outcome is Outcome.PLANNED for each in planned),
        bytes=sum(each.bytes for each in planned if each.outcome is Outcome.PLANNED),
    )


def _leases(planned: Sequence[RepairedCopy]) -> Iterator[tuple[str, str, datetime]]:
    """What has to be held for what is planned."""
    for each in planned:
        case = each.copy.case
        if each.outcome is Outcome.PLANNED and case is not None:
            for entity in (f"process/{case.flow.process}", f"feed/{case.flow.outputs[0].feed}"):
                yield entity, case.flow.cluster, case.nominal_time


@dataclass(frozen=True, slots=True)
class _Repair:
    """One repair at work."""

    scene: Scene
    clock: Clock
    wall: Clock
    name: str
    on_copied: OnCopied | None

    def run(self, planned: Sequence[RepairedCopy]) -> list[RepairedCopy]:
        """Copy what is planned, flow by flow; what was left alone stays as it is."""
        ended: dict[int, RepairedCopy] = {}
        absent = {_slice(each) for each in planned if each.copy.verdict is Verdict.MISSING}
        for group in _group(planned):
            self._run_group(planned, group, absent, ended)
            absent -= {_slice(planned[index]) for index in group if ended[index].outcome is Outcome.REPAIRED}
        return [ended.get(index, each) for index, each in enumerate(planned)]

    def _run_group(
        self,
        planned: Sequence[RepairedCopy],
        group: Sequence[int],
        absent: set[_Slice],
        ended: dict[int, RepairedCopy],
    ) -> None:
        """Copy instances of one flow that the same definitions govern. With slices that are `absent`, of other flows,
        an instance is not whole.
        """
        index_of = {planned[index].copy.nominal_time: index for index in group}
        case = planned[group[0]].copy.case
        assert case is not None

        def end(nominal_time: datetime, outcome: Published | Exception) -> None:
            index = index_of[nominal_time]
            ended[index] = _ended(planned[index], outcome)

        times = sorted(index_of, reverse=case.flow.order is Order.LIFO)
        runner = FlowRunner(
            database=self.scene.database,
            stores=self.scene.stores,
            plan=case.governed.plan,
            clock=self.clock,
            wall=self.wall,
            run_id=self.name,
            release=case.governed.release,
            places=case.places,
            distrusted={time: _distrusted(planned[index]) for time, index in index_of.items()},
            unfinished=frozenset(
                time
                for source, target, time in absent
                if target == case.flow.cluster and source != source_of(case.flow)
            ),
            processes=useful_workers(case.flow.copy.options.max_tasks) if case.flow.copy is not None else 1,
            on_progress=self._meter(f"{describe_way(case.flow)}", sum(planned[index].files for index in group)),
            patience=timedelta(0),
        )
        runner.run(case.flow, times, lambda _: None, end)

    def _meter(self, name: str, files: int) -> Callable[[Progress], None] | None:
        """Add up the progress of one batch of copies after another."""
        on_copied = self.on_copied
        if on_copied is None:
            return None
        before, last = 0, 0

        def tell(progress: Progress) -> None:
            nonlocal before, last
            if progress.files < last:
                before += last
            last = progress.files
            on_copied(name, min(before + last, files), files)

        return tell


def _group(planned: Sequence[RepairedCopy]) -> Iterator[list[int]]:
    """The numbers of those that are to be done, by flow and the definitions that govern them."""
    groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for index, each in enumerate(planned):
        case = each.copy.case
        if each.outcome is Outcome.PLANNED and case is not None:
            groups[(*case.flow.key, id(case.governed))].append(index)
    yield from groups.values()


def _slice(repaired: RepairedCopy) -> _Slice:
    return repaired.copy.source, repaired.copy.target, repaired.copy.nominal_time


def _distrusted(repaired: RepairedCopy) -> frozenset[str]:
    return repaired.copy.audit.distrusted if repaired.copy.audit is not None else frozenset()


def _ended(planned: RepairedCopy, outcome: Published | Exception) -> RepairedCopy:
    if isinstance(outcome, Exception):
        return replace(planned, outcome=Outcome.FAILED, reason=str(outcome))
    figures: Mapping[str, str | int | float] = outcome.details
    return replace(
        planned,
        outcome=Outcome.REPAIRED,
        bytes=int(figures["copied_bytes"]),
        files=int(figures["copied_files"]),
        removed=int(figures.get("removed_files", 0)),
        seconds=float(figures["copy_seconds"]),
    )
