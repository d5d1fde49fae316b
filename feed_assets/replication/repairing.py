"""`replication repair`: copies again what `verify` finds, in this process with threads, like any run. Each instance is
leased, gated, verified, published and recorded as by a run. The command has a run name of its own (see
`log/run_names.py`): its events are reported to Dagster, and it does not count as a dead run.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
from feed_assets.replication.auditing import Case, CopyVerdict, Verified, VerifiedCopy, verify
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
    def key(self) -> _Slice:
        """What tells it from others."""
        return self.copy.source, self.copy.target, self.copy.nominal_time

    @property
    def case(self) -> Case:
        """What is copied."""
        assert self.copy.case is not None
        return self.copy.case

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
    copies = {each.key: each for each in map(_plan, verified.findings)}
    planned = [each for each in copies.values() if each.outcome is RepairOutcome.PLANNED]
    if planned and not context.dry_run:
        _note(context, verified.scope, planned)
        release_dead(context.database, list(_leases(planned)), context.real_now)
        absent = {each.key for each in copies.values() if each.copy.verdict is CopyVerdict.MISSING}
        groups: dict[tuple[str, str, int], list[RepairedCopy]] = defaultdict(list)
        for each in planned:  # those of one flow that the same definitions govern
            groups[(*each.case.flow.key, id(each.case.row.active))].append(each)
        name = name_repair(context.author)
        for group in groups.values():
            done = _copy_again(context, name, group, absent, progress)
            absent -= {each.key for each in done if each.outcome is RepairOutcome.REPAIRED}
            copies |= {each.key: each for each in done}
    return Repaired(verified=verified, copies=tuple(copies.values()), dry_run=context.dry_run)


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
    left = RepairedCopy(copy=copy, outcome=RepairOutcome.LEFT)
    if case is None:
        return replace(left, reason="no flow copies it: inspect it, and remove it by hand")
    if audit is None:
        return replace(left, reason="it could not be checked")
    if (plan := audit.plan) is None:
        return replace(left, reason=f"the source no longer has it{f': {audit.reason}' if audit.reason else ''}")
    run, hopeless = case.row.run, ""
    if run is not None and run.status is ProcessInstanceStatus.SUSPENDED:
        resume = instance_command("resume", run.process, run.nominal_time, run.cluster)
        return replace(left, reason=f"its copy is suspended; resume it: {resume}")
    if audit.hopeless:
        hopeless = f"the source does not have {render_some(audit.hopeless, 3)} (any more)"
    if not (plan.transfers or plan.removed or audit.lost) and copy.verdict is not CopyVerdict.UNRECORDED:
        return replace(left, reason=hopeless or "they stay at the target because of the feed's removed_files")
    return RepairedCopy(
        copy=copy,
        outcome=RepairOutcome.PLANNED,
        bytes=plan.bytes,
        files=len(plan.transfers),
        removed=len(plan.removed),
        reason=hopeless,
    )


def _note(context: ChangeContext, scope: CopyScope, planned: Sequence[RepairedCopy]) -> None:
    note_target(
        context,
        "replication repair",
        label_of((Kind.FEED, scope.feed)),
        start=render_datetime(scope.start),
        end=render_datetime(scope.end),
        instances=len(planned),
        bytes=sum(each.bytes for each in planned),
    )


def _leases(planned: Sequence[RepairedCopy]) -> Iterator[tuple[str, str, datetime]]:
    """Yield the keys of the leases that the planned repairs need."""
    for each in planned:
        flow = each.case.flow
        for entity in (f"process/{flow.process}", f"feed/{flow.outputs[0].feed}"):
            yield entity, flow.cluster, each.copy.nominal_time


def _copy_again(
    context: OperationContext,
    name: str,
    planned: Sequence[RepairedCopy],
    absent: Collection[_Slice],
    progress: OnProgress | None,
) -> list[RepairedCopy]:
    """Copy instances of one flow that the same definitions govern. An instance with `absent` slices, of other flows, is
    incomplete.
    """
    flow, active = planned[0].case.flow, planned[0].case.row.active
    copies = {each.copy.nominal_time: each for each in planned}

    def end(nominal_time: datetime, outcome: Published | Exception) -> None:
        copies[nominal_time] = _ended(copies[nominal_time], outcome)

    with context.database.read() as connection:
        refused = find_refused_writes(connection, context.timeline, flow, list(copies))
    for nominal_time, error in refused.items():
        end(nominal_time, error)
    runner = FlowRunner(
        context=AttemptContext(
            database=context.database,
            stores=context.stores,
            plan=active.plan,
            clock=context.clock,
            real_clock=context.real_clock,
            run_id=name,
            release=active.release,
        ),
        distrusted={time: _distrusted(each) for time, each in copies.items()},
        unfinished=frozenset(
            time for source, target, time in absent if target == flow.cluster and source != source_of(flow)
        ),
        on_progress=_meter(progress, describe_direction(flow), sum(each.files for each in planned)),
        patience=timedelta(0),
    )
    times = sorted(copies.keys() - refused.keys(), reverse=flow.order is Order.LIFO)
    runner.run(flow, times, lambda _: None, end)
    return list(copies.values())


def _meter(show: OnProgress | None, name: str, files: int) -> Callable[[Progress], None] | None:
    """Return a callback that adds up the progress of successive batches."""
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
