"""`replication repair`: copies again what `verify` finds, in this process with threads, like any run. Each instance is
leased, gated, verified, published and recorded as by a run. The command has a run name of its own (see
`log/run_names.py`): its events are reported to Dagster, and it does not count as a dead run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeAlias

from feed_assets.command_lines import command_line, instance_command
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import AttemptContext, ChangeContext, OperationContext, note_target
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.process import Order
from feed_assets.errors import render_some
from feed_assets.instances.arrival.stored_data import require_stored
from feed_assets.instances.attempts.attempts import Published
from feed_assets.instances.gates.reconciliation import release_dead
from feed_assets.json_form import Hidden, shown
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.log.run_names import name_repair
from feed_assets.plan.rendering import counted
from feed_assets.releases.left_out import find_refused_writes
from feed_assets.replication.auditing import CopyVerdict, Verified, VerifiedCopy, verify
from feed_assets.replication.flows import FlowRunner
from feed_assets.replication.queries import AuditQuery
from feed_assets.replication.status import CopyScope, OnProgress, describe_direction, find_scope, source_of
from feed_assets.timing.dates import render_datetime
from feed_assets.transfer.requests import Progress

_Slice: TypeAlias = tuple[str | None, str, datetime]
"""Source, target and nominal time."""


class RepairOutcome(StrEnum):
    """The outcome of a repair. LEFT: nothing was tried, for the given reason. PLANNED: a dry run would repair it."""

    REPAIRED = "repaired"
    FAILED = "failed"
    LEFT = "left"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedCopy:
    """A finding and its outcome. `bytes` and `files` were copied, `removed` files deleted; `seconds` is None if nothing
    was done.
    """

    copy: VerifiedCopy
    outcome: RepairOutcome
    bytes: int = 0
    files: int = 0
    removed: int = 0
    seconds: float | None = None
    reason: str = ""

    @property
    def remark(self) -> str:
        """What was found, and why it was not repaired."""
        return "; ".join(filter(None, [self.copy.reason, self.reason]))

    @property
    def is_complete(self) -> bool:
        """Whether the finding is fully repaired."""
        return self.outcome in (RepairOutcome.REPAIRED, RepairOutcome.PLANNED) and not (
            self.copy.audit and self.copy.audit.hopeless
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The outcomes of all findings."""

    verified: Hidden[Verified]
    copies: tuple[RepairedCopy, ...]
    dry_run: bool = False

    @shown
    def scope(self) -> CopyScope:
        """The flows and the range."""
        return self.verified.scope

    @shown
    def is_deep(self) -> bool:
        """Whether every byte was read."""
        return self.verified.is_deep

    @shown
    def is_complete(self) -> bool:
        """Whether all findings are repaired."""
        return all(each.is_complete for each in self.copies)

    @property
    def has_failed(self) -> bool:
        """Whether something is left."""
        return not self.is_complete

    @property
    def summary(self) -> str:
        """The findings and the outcomes."""
        done = [each for each in self.copies if each.outcome in (RepairOutcome.REPAIRED, RepairOutcome.PLANNED)]
        size, files = sum(each.bytes for each in done), sum(each.files for each in done)
        what = "would repair" if self.dry_run else "repaired"
        return (
            f"{self.verified.summary}; {what} {len(done)} of {len(self.copies)} findings: "
            f"{counted(size, 'byte')} in {counted(files, 'file')}"
        )


def repair(context: ChangeContext, query: AuditQuery, *, progress: OnProgress | None = None) -> Repaired:
    """Verify the replicas of a range, and copy the findings again. Instances that are leased by others, suspended, or
    absent at every source are reported and left alone. A repeat repairs the rest.

    Raises:
        EntityNotFoundError: there is no such feed.
        InstanceQueryError: the feed has no such copies or is suspended, or the range is invalid.
        StorageError: the newest instance of a source is gone: its storage has lost what it had, or is another one.
    """
    scope = find_scope(context, query)
    _require_unsuspended(context, scope)
    for source in sorted({flow.inputs[0].feed_key for flow in scope.flows}):
        record = context.plan.feeds[source]
        require_stored(context, record, dry_run=context.dry_run)
    verified = verify(context, query, progress=progress)
    planned = [_plan(copy) for copy in verified.findings]
    if not context.dry_run and any(each.outcome is RepairOutcome.PLANNED for each in planned):
        _note(context, verified, planned)
        release_dead(context.database, list(_leases(planned)), context.real_now)
        planned = _Repair(context, name_repair(context.author), progress).run(planned)
    return Repaired(verified=verified, copies=tuple(planned), dry_run=context.dry_run)


def _require_unsuspended(context: OperationContext, scope: CopyScope) -> None:
    with context.database.read() as connection:
        view = load_schedules(connection)
    suspended = [
        target for target in scope.targets if view.state(Kind.FEED.value, scope.feed, target) is ScheduleState.SUSPENDED
    ]
    if suspended:
        raise InstanceQueryError(
            subject=f"feed {scope.feed!r}",
            reason=f"it is suspended on {', '.join(suspended)}, so nothing is copied to it",
            next_step="Choose other targets, or resume it: "
            + command_line("entity", "resume", "feed", scope.feed, clusters=suspended),
        )


def _plan(copy: VerifiedCopy) -> RepairedCopy:
    """Plan the repair of a finding, if it can be repaired."""
    case, audit = copy.case, copy.audit
    if case is None:
        return RepairedCopy(
            copy=copy, outcome=RepairOutcome.LEFT, reason="no flow copies it: inspect it, and remove it by hand"
        )
    if audit is None:
        return RepairedCopy(copy=copy, outcome=RepairOutcome.LEFT, reason="it could not be checked")
    if audit.plan is None:
        reason = f"the source no longer has it{f': {audit.reason}' if audit.reason else ''}"
        return RepairedCopy(copy=copy, outcome=RepairOutcome.LEFT, reason=reason)
    run = case.row.run
    if run is not None and run.status is ProcessInstanceStatus.SUSPENDED:
        resume = instance_command("resume", run.process, run.nominal_time, run.cluster)
        reason = f"its copy is suspended; resume it: {resume}"
        return RepairedCopy(copy=copy, outcome=RepairOutcome.LEFT, reason=reason)
    plan, hopeless = audit.plan, ""
    if audit.hopeless:
        hopeless = f"the source does not have {render_some(audit.hopeless, 3)} (any more)"
    is_idle = not (plan.transfers or plan.removed or audit.lost) and copy.verdict is not CopyVerdict.UNRECORDED
    if is_idle:
        kept = "they stay at the target because of the feed's removed_files"
        return RepairedCopy(copy=copy, outcome=RepairOutcome.LEFT, reason=hopeless or kept)
    return RepairedCopy(
        copy=copy,
        outcome=RepairOutcome.PLANNED,
        bytes=plan.bytes,
        files=len(plan.transfers),
        removed=len(plan.removed),
        reason=hopeless,
    )


def _note(context: ChangeContext, verified: Verified, planned: Sequence[RepairedCopy]) -> None:
    scope = verified.scope
    note_target(
        context,
        "replication repair",
        label_of((Kind.FEED, scope.feed)),
        start=render_datetime(scope.start),
        end=render_datetime(scope.end),
        instances=sum(each.outcome is RepairOutcome.PLANNED for each in planned),
        bytes=sum(each.bytes for each in planned if each.outcome is RepairOutcome.PLANNED),
    )


def _leases(planned: Sequence[RepairedCopy]) -> Iterator[tuple[str, str, datetime]]:
    """Yield the keys of the leases that the planned repairs need."""
    for each in planned:
        case = each.copy.case
        if each.outcome is RepairOutcome.PLANNED and case is not None:
            for entity in (f"process/{case.flow.process}", f"feed/{case.flow.outputs[0].feed}"):
                yield entity, case.flow.cluster, case.row.nominal_time


@dataclass(frozen=True, slots=True)
class _Repair:
    """One running repair."""

    context: OperationContext
    name: str
    progress: OnProgress | None

    def run(self, planned: Sequence[RepairedCopy]) -> list[RepairedCopy]:
        """Copy the planned instances, flow by flow; the others stay as they are."""
        ended: dict[int, RepairedCopy] = {}
        absent = {_slice(each) for each in planned if each.copy.verdict is CopyVerdict.MISSING}
        for group in _group(planned):
            self._run_group(planned, group, absent, ended)
            absent -= {_slice(planned[index]) for index in group if ended[index].outcome is RepairOutcome.REPAIRED}
        return [ended.get(index, each) for index, each in enumerate(planned)]

    def _run_group(
        self,
        planned: Sequence[RepairedCopy],
        group: Sequence[int],
        absent: set[_Slice],
        ended: dict[int, RepairedCopy],
    ) -> None:
        """Copy instances of one flow that the same definitions govern. An instance with `absent` slices, of other
        flows, is incomplete.
        """
        index_of = {planned[index].copy.nominal_time: index for index in group}
        case = planned[group[0]].copy.case
        assert case is not None

        def end(nominal_time: datetime, outcome: Published | Exception) -> None:
            index = index_of[nominal_time]
            ended[index] = _ended(planned[index], outcome)

        with self.context.database.read() as connection:
            refused = find_refused_writes(connection, self.context.timeline, case.flow, list(index_of))
        for nominal_time, error in refused.items():
            end(nominal_time, error)
        times = sorted(index_of.keys() - refused.keys(), reverse=case.flow.order is Order.LIFO)
        runner = FlowRunner(
            context=AttemptContext(
                database=self.context.database,
                stores=self.context.stores,
                plan=case.row.active.plan,
                clock=self.context.clock,
                real_clock=self.context.real_clock,
                run_id=self.name,
                release=case.row.active.release,
            ),
            distrusted={time: _distrusted(planned[index]) for time, index in index_of.items()},
            unfinished=frozenset(
                time
                for source, target, time in absent
                if target == case.flow.cluster and source != source_of(case.flow)
            ),
            on_progress=self._meter(f"{describe_direction(case.flow)}", sum(planned[index].files for index in group)),
            patience=timedelta(0),
        )
        runner.run(case.flow, times, lambda _: None, end)

    def _meter(self, name: str, files: int) -> Callable[[Progress], None] | None:
        """Return a callback that adds up the progress of successive batches."""
        show = self.progress
        if show is None:
            return None
        before, last = 0, 0

        def tell(progress: Progress) -> None:
            nonlocal before, last
            if progress.files < last:
                before += last
            last = progress.files
            show(name, min(before + last, files), files)

        return tell


def _group(planned: Sequence[RepairedCopy]) -> Iterator[list[int]]:
    """Yield the indices of the planned repairs, grouped by flow and governing definitions."""
    groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for index, each in enumerate(planned):
        case = each.copy.case
        if each.outcome is RepairOutcome.PLANNED and case is not None:
            groups[(*case.flow.key, id(case.row.active))].append(index)
    yield from groups.values()


def _slice(repaired: RepairedCopy) -> _Slice:
    return repaired.copy.source, repaired.copy.target, repaired.copy.nominal_time


def _distrusted(repaired: RepairedCopy) -> frozenset[str]:
    """Return the files that the copy must compare or bring again, whatever the publication at the source says."""
    audit = repaired.copy.audit
    return frozenset() if audit is None else audit.distrusted.union(audit.behind, audit.removed)


def _ended(planned: RepairedCopy, outcome: Published | Exception) -> RepairedCopy:
    if isinstance(outcome, Exception):
        return replace(planned, outcome=RepairOutcome.FAILED, reason=str(outcome))
    figures: Mapping[str, str | int | float] = outcome.details
    return replace(
        planned,
        outcome=RepairOutcome.REPAIRED,
        bytes=int(figures["copied_bytes"]),
        files=int(figures["copied_files"]),
        removed=int(figures.get("removed_files", 0)),
        seconds=float(figures["copy_seconds"]),
    )
