"""Make the due checks for late data, a batch at a time: read what concerns them at once, scan, decide each.

A check scans storage outside of any transaction and applies its results in one transaction. It has no effect if the
instance was run again meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.tick import Handler, Tick, tick_step, work_off
from feed_assets.entities.triggers import OnUpdate
from feed_assets.instances.late.contents import Content, RecordedContents, record_contents, scan_contents
from feed_assets.instances.late.hanging import find_makers, find_open_reruns, find_outputs, wake_hanging
from feed_assets.instances.late.lateness import (
    FEED_DELAY,
    FEED_POLICY,
    LASTS,
    SETTLING,
    CheckDecision,
    InputContents,
    LateVerdict,
    decide_check,
    decide_early,
    decide_later,
    decide_rerun,
    decide_update,
    is_settled,
    is_too_late,
    next_check,
)
from feed_assets.instances.late.store import LATE_DATA, LateCheck, LateChecks
from feed_assets.log.agenda import AgendaKey, AgendaKind
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances, Progress
from feed_assets.log.records import (
    Cause,
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    FrozenInput,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.plan.edges import InputEdge
from feed_assets.plan.records import FeedRecord, Plan
from feed_assets.releases.timeline import ActiveRelease
from feed_assets.triggers.input_windows import InputState, read_states

_ENDED = frozenset({ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED, ProcessInstanceStatus.KILLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Input:
    """One input of an instance: its read instances, and the present instances of its window."""

    edge: InputEdge
    record: FeedRecord
    frozen: FrozenInput
    present: tuple[datetime, ...]
    is_update: bool

    @property
    def keys(self) -> tuple[FeedKey, ...]:
        times = sorted({*self.frozen.nominal_times, *self.present})
        return tuple(FeedKey(*self.record.key, time) for time in times)

    @property
    def is_late(self) -> bool:
        return self.edge.is_late or self.is_update

    @property
    def is_scanned(self) -> bool:
        return self.edge.is_late and self.record.is_external and not self.is_update


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProcessSubject:
    check: LateCheck
    row: ProcessInstance
    active: ActiveRelease
    inputs: tuple[_Input, ...]
    awaited: Mapping[ProcessKey, ProcessInstanceStatus]
    is_settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckBatch:
    """A batch of due checks: those decided without scanning, those to make, and the rows of their instances."""

    tick: Tick
    due: tuple[LateCheck, ...]
    decided: Mapping[AgendaKey, CheckDecision]
    processes: tuple[_ProcessSubject, ...]
    feeds: Sequence[tuple[LateCheck, FeedRecord]]
    rows: Mapping[FeedKey, FeedInstance]

    @classmethod
    def of(cls, connection: Connection, tick: Tick, due: Sequence[LateCheck]) -> "CheckBatch":
        decided: dict[AgendaKey, CheckDecision] = {}
        found: list[tuple[LateCheck, ProcessInstance, ActiveRelease]] = []
        feeds: list[tuple[LateCheck, FeedRecord]] = []
        keys = [_subject_of(check) for check in due if _is_of_process(check)]
        instances = ProcessInstances(connection).get_many(keys)
        feed_keys = [check.feed_key for check in due if not _is_of_process(check)]
        feed_rows = FeedInstances(connection).get_many(feed_keys)
        for check in due:
            if _is_of_process(check):
                row = instances.get(_subject_of(check))
                active = tick.timeline.find(connection, (check.name, check.cluster), check.nominal_time)
                status, process = row.status if row else None, active.record if active is not None else None
                early = decide_early(check, status, process, tick.as_of, is_safe_mode=tick.is_held)
                if early is None and row is not None and active is not None:
                    found.append((check, row, active))
            else:
                record = tick.plan.feeds.get((check.name, check.cluster))
                feed_row = feed_rows.get(check.feed_key)
                early = _decide_feed_early(check, record, feed_row, tick)
                if early is None and record is not None:
                    feeds.append((check, record))
            if early is not None:
                decided[check.key] = early
        processes = _subjects(connection, tick, found)
        input_keys = {key for subject in processes for each in subject.inputs for key in each.keys}
        rows = FeedInstances(connection).get_many(input_keys)
        return cls(tick=tick, due=tuple(due), decided=decided, processes=processes, feeds=feeds, rows=rows)

    def to_scan(self) -> dict[FeedKey, FeedRecord]:
        """Return the instances to scan: of external late inputs if recorded as available, and of feed checks."""
        to_scan = {check.feed_key: record for check, record in self.feeds}
        for subject in self.processes:
            for each in subject.inputs:
                if each.is_scanned:
                    to_scan.update({key: each.record for key in each.keys if self._is_available(key)})
        return to_scan

    def apply(
        self, connection: Connection, contents: Mapping[FeedKey, Content], recorded: RecordedContents
    ) -> Mapping[AgendaKey, CheckDecision]:
        """Record and return the decisions of the checks; none for instances whose run began or ended meanwhile."""
        checks = LateChecks(connection)
        standing = checks.lock_many([check.key for check in self.due])
        same = {check.key for check in self.due if standing.get(check.key) == check}
        now = ProcessInstances(connection).get_progress([subject.row.key for subject in self.processes])
        decisions = {key: decision for key, decision in self.decided.items() if key in same}
        for subject in self.processes:
            row = subject.row
            if now.get(row.key) != Progress(row.status, row.attempt) or subject.check.key not in same:
                continue
            decisions[subject.check.key] = self._decide(subject, contents, recorded)
            _apply_to_instance(connection, row, subject.check.kind, decisions[subject.check.key], self.tick.as_of)
        for check, record in self.feeds:
            if check.key in same:
                decisions[check.key] = _decide_feed(check, record, contents.get(check.feed_key), self.tick)
        checks.put([decision.check for decision in decisions.values() if decision.check is not None])
        ended = [key for key, decision in decisions.items() if decision.check is None]
        checks.remove(ended)
        if reruns := [ProcessKey(*key[1:]) for key in ended if key.kind is AgendaKind.RERUN]:
            changed = find_outputs(connection, self.tick.timeline, reruns)
            wake_hanging(connection, self.tick.timeline, changed, self.tick.as_of)
        return decisions

    def _decide(
        self, subject: _ProcessSubject, contents: Mapping[FeedKey, Content], recorded: RecordedContents
    ) -> CheckDecision:
        after = subject.check.asked.after if subject.check.asked is not None else None
        found = [self._contents_of(each, recorded, after) for each in subject.inputs]
        if subject.check.asked is not None:
            awaited = subject.awaited.values()
            return decide_rerun(subject.check, subject.check.asked, found, awaited, self.tick.as_of)
        if subject.check.kind is AgendaKind.UPDATE:
            return decide_update(
                subject.check,
                subject.active.record,
                subject.row.status,
                found,
                self.tick.as_of,
                is_settled=subject.is_settled,
                is_too_late=is_too_late(self.tick.plan, subject.active.record, subject.check),
            )
        scanned = [contents[key] for each in subject.inputs if each.is_scanned for key in each.keys if key in contents]
        if any(content.scan is None for content in scanned):
            return decide_later(subject.check, self.tick.as_of, _pause_of(scanned, self.tick))
        return decide_check(
            subject.check,
            subject.active.plan,
            subject.active.record,
            found,
            subject.row.status,
            self.tick.as_of,
        )

    def _contents_of(self, each: _Input, recorded: RecordedContents, after: int | None) -> InputContents:
        used = dict(zip(each.frozen.nominal_times, each.frozen.digests, strict=True))
        present: dict[datetime, str | None] = {}
        evicted: set[datetime] = set()
        gone: set[datetime] = set()
        for key in each.keys:
            row = self.rows.get(key)
            if row is not None and row.status is FeedInstanceStatus.EVICTED:
                evicted.add(key.nominal_time)
            elif row is None or not self._is_available(key) or (each.is_scanned and key not in recorded.digests):
                retention = each.record.retention
                is_expired = retention is not None and retention.has_expired(key.nominal_time, self.tick.as_of)
                (evicted if is_expired else gone).add(key.nominal_time)
            else:
                present[key.nominal_time] = recorded.digests[key] if each.is_scanned else row.manifest_digest
        versions = [row.updated_at for key in each.keys if each.record.is_current and (row := self.rows.get(key))]
        return InputContents(
            name=each.edge.name,
            version=max(versions, default=None),
            feed=each.edge.feed,
            is_late=each.is_late,
            is_optional=each.edge.optional,
            used=used,
            present=present,
            evicted=frozenset(evicted & used.keys()),
            gone=frozenset(gone & used.keys()),
            renewed=frozenset(
                key.nominal_time
                for key in each.keys
                if after is not None and key in self.rows and (self.rows[key].event_seq or 0) > after
            ),
        )

    def _is_available(self, key: FeedKey) -> bool:
        row = self.rows.get(key)
        return row is not None and row.status is FeedInstanceStatus.AVAILABLE


def _subjects(
    connection: Connection, tick: Tick, found: Sequence[tuple[LateCheck, ProcessInstance, ActiveRelease]]
) -> tuple[_ProcessSubject, ...]:
    """Return the subjects with their current windows, resolved in one query for each plan."""
    own_states = read_states(connection, tick.timeline, (row.key for _, row, _ in found), tick.as_of)
    asked = [row for check, row, _ in found if check.asked is not None]
    writers = {row.key: find_makers(connection, tick.plan, own_states[row.key], row.inputs) for row in asked}
    awaited = find_open_reruns(connection, writers) if writers else {}
    subjects = []
    for check, row, active in found:
        own = own_states[row.key]
        is_held = check.kind is AgendaKind.UPDATE and active.record.on_update is OnUpdate.HOLD
        is_update = check.kind in (AgendaKind.UPDATE, AgendaKind.RERUN)
        subjects.append(
            _ProcessSubject(
                check=check,
                row=row,
                active=active,
                inputs=_inputs(row, active.plan, own, is_update=is_update),
                awaited=awaited.get(row.key, {}),
                is_settled=not is_held or is_settled(connection, find_makers(connection, tick.plan, own), own),
            )
        )
    return tuple(subjects)


def _inputs(row: ProcessInstance, plan: Plan, states: Sequence[InputState], *, is_update: bool) -> tuple[_Input, ...]:
    """Return the inputs that the run has read. Of a data-driven window, only the instances read count."""
    frozen = {each.name: each for each in row.inputs}
    return tuple(
        _Input(
            edge=state.edge,
            record=plan.feeds[state.edge.feed_key],
            frozen=frozen[state.edge.name],
            present=() if state.edge.is_data_driven else state.present,
            is_update=is_update,
        )
        for state in states
        if state.edge.name in frozen
    )


def _is_held(connection: Connection, row: ProcessInstance) -> bool:
    """Return whether what an instance has read is held back now, until the rows of its new content are judged."""
    keys = [FeedKey(each.feed, row.cluster, time) for each in row.inputs for time in each.nominal_times]
    found = FeedInstances(connection).get_many(keys).values()
    return any(each.status is FeedInstanceStatus.PARTIAL for each in found)


def _apply_to_instance(
    connection: Connection, row: ProcessInstance, kind: AgendaKind, decision: CheckDecision, as_of: datetime
) -> None:
    instances = ProcessInstances(connection)
    found, refused = _CAUSES[kind]
    if decision.verdict is LateVerdict.RERUN:
        is_held = kind is AgendaKind.LATE_INPUTS and _is_held(connection, row)
        instances.transition(
            row.key,
            _ENDED,
            status=ProcessInstanceStatus.WAITING if is_held else ProcessInstanceStatus.READY,
            request_key=None,
            requested_at=None,
            ready_at=None if is_held else as_of,
            deadline_at=None if is_held else row.deadline_at,
            ended_at=None,
            retries=0,
            retry_at=None,
            cause=found,
            cause_detail=decision.reason,
            updated_at=as_of,
        )
        return
    is_told = decision.verdict is LateVerdict.REFUSED or row.status is ProcessInstanceStatus.SUCCEEDED
    if decision.reason is not None and is_told and (row.cause, row.cause_detail) != (refused, decision.reason):
        instances.transition(row.key, {row.status}, cause=refused, cause_detail=decision.reason, updated_at=as_of)


_CAUSES = {
    AgendaKind.UPDATE: (Cause.UPDATED, Cause.UPDATE_REFUSED),
    AgendaKind.RERUN: (Cause.COMMAND, Cause.UPDATE_REFUSED),
    AgendaKind.LATE_INPUTS: (Cause.LATE_DATA, Cause.LATE_DATA_REFUSED),
}
"""The causes of what runs again by a check, and of what does not."""


def _decide_feed_early(
    check: LateCheck, record: FeedRecord | None, row: FeedInstance | None, tick: Tick
) -> CheckDecision | None:
    """Decide on a feed instance that cannot be scanned now, or needs no scan any more; None otherwise."""
    is_declared = record is not None and record.is_external
    if record is not None and record.is_current and check.nominal_time != record.sequence.start:
        return CheckDecision(verdict=LateVerdict.DROPPED, check=None)  # of a time when its instances had times
    if row is None or row.status is FeedInstanceStatus.EVICTED or (not is_declared and tick.as_of >= check.cut_off_at):
        return CheckDecision(verdict=LateVerdict.DROPPED, check=None)
    if not is_declared or tick.is_held:
        return decide_later(check, tick.as_of)
    return None


def _pause_of(contents: Iterable[Content], tick: Tick) -> timedelta | None:
    """Return the time until the next try of the feeds that cannot be read; None if all can."""
    pauses = [tick.bulkheads.pause(TickStep.LATE_DATA, content.record.feed) for content in contents if content.error]
    return max(pauses, default=None)


def _decide_feed(check: LateCheck, record: FeedRecord, content: Content | None, tick: Tick) -> CheckDecision:
    if record.is_current and record.watch is not None:
        pause = _pause_of([content], tick) if content is not None else None
        is_settled = content is None or content.scan is not None or content.error is not None
        after = tick.as_of + (pause or min(record.watch.as_duration(), timedelta.max if is_settled else SETTLING))
        count = check.checks + is_settled
        again = replace(check, planned_at=tick.as_of, due_at=after, cut_off_at=after + LASTS, checks=count)
        return CheckDecision(verdict=LateVerdict.UNCHANGED, check=again)
    is_last = tick.as_of >= check.cut_off_at
    if (content is None or not content.is_available) and not is_last:
        return decide_later(check, tick.as_of, None if content is None else _pause_of([content], tick))
    due_at = None
    if not is_last:
        due_at = next_check(FEED_POLICY, FEED_DELAY, check.nominal_time, check.cut_off_at, tick.as_of)
    following = replace(check, planned_at=tick.as_of, due_at=due_at, checks=check.checks + 1)
    return CheckDecision(verdict=LateVerdict.UNCHANGED, check=following if due_at is not None else None)


def _is_of_process(check: LateCheck) -> bool:
    return check.kind is not AgendaKind.LATE_FEED


def _subject_of(check: LateCheck) -> ProcessKey:
    return ProcessKey(check.name, check.cluster, check.nominal_time)


CHECKS_A_STEP = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCheckResult:
    """The decisions of some checks, or of one tick's.

    `changed` has the external feed instances with new content, `gone` the current ones that are not there.
    """

    decisions: Sequence[tuple[AgendaKey, CheckDecision]] = ()
    changed: frozenset[FeedKey] = frozenset()
    gone: frozenset[FeedKey] = frozenset()
    is_complete: bool = True

    @property
    def verdicts(self) -> tuple[LateVerdict, ...]:
        """What was found."""
        return tuple(decision.verdict for _, decision in self.decisions)

    @property
    def refused(self) -> Mapping[ProcessKey, str]:
        """The process instances that cannot be rerun, with the reasons."""
        refused = ((key, each) for key, each in self.decisions if each.verdict is LateVerdict.REFUSED)
        return {ProcessKey(*key[1:]): each.reason for key, each in refused if each.reason is not None}


class _Checks(Handler[LateCheck, LateCheckResult]):
    """The checks of one step; a unit is an entity."""

    at_once = CHECKS_A_STEP
    kinds: ClassVar[Sequence[AgendaKind]]

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[LateCheck]:
        return LateChecks(connection).due(self.kinds, tick.cluster, tick.as_of, limit)

    def put_off(self, tick: Tick, entries: Sequence[LateCheck], pause: timedelta) -> list[LateCheckResult]:
        later = [(check.key, decide_later(check, tick.as_of, pause)) for check in entries]
        with tick.database.begin() as connection:
            LateChecks(connection).put([each.check for _, each in later if each.check is not None])
        return [LateCheckResult(decisions=later)]


class LateDataChecks(_Checks):
    """Looks for late data in storage."""

    step = TickStep.LATE_DATA
    kinds = LATE_DATA

    def unit_of(self, entry: LateCheck) -> str:
        return f"{entry.kind.entity_kind} {entry.name}"

    def handle(self, tick: Tick, entries: Sequence[LateCheck]) -> list[LateCheckResult]:
        with tick.database.read() as connection:
            tick.timeline.refresh(connection, tick.as_of)
            batch = CheckBatch.of(connection, tick, entries)
        contents = scan_contents(tick, batch.to_scan(), tick.bulkheads, follows_declared=True)
        is_current = {key: content for key, content in contents.items() if content.record.is_current}
        gone = frozenset(key for key, each in is_current.items() if each.scan is not None and not each.is_available)
        _note_failures(contents.values(), tick)
        with tick.database.begin() as connection:
            recorded = record_contents(connection, contents.values(), tick.as_of)
            decisions = batch.apply(connection, contents, recorded)
        return [LateCheckResult(decisions=[*decisions.items()], changed=recorded.changed, gone=gone)]


class UpdateChecks(_Checks):
    """Compares what the log has told (`gates/readiness.py`), and looks at no storage."""

    step = TickStep.UPDATES
    kinds = (AgendaKind.UPDATE, AgendaKind.RERUN)

    def unit_of(self, entry: LateCheck) -> str:
        return entry.name

    def handle(self, tick: Tick, entries: Sequence[LateCheck]) -> list[LateCheckResult]:
        with tick.database.begin() as connection:
            batch = CheckBatch.of(connection, tick, entries)
            decisions = batch.apply(connection, {}, RecordedContents(digests={}, changed=frozenset()))
        return [LateCheckResult(decisions=[*decisions.items()])]


@tick_step(TickStep.LATE_DATA, otherwise=LateCheckResult(is_complete=False))
def apply_late_checks(tick: Tick) -> LateCheckResult:
    """Make the due checks of a cluster; make instances with changed inputs READY for a rerun, with the reason.

    Costs one query if no check is due. While the tick is held, all checks are put off. A feed whose contents cannot be
    read is a unit that fails, and so is an entity whose checks cannot be decided; the checks are put off until the next
    try.
    """
    made, is_complete = work_off(tick, LateDataChecks())
    return LateCheckResult(
        decisions=[decision for each in made for decision in each.decisions],
        changed=frozenset().union(*(each.changed for each in made)),
        gone=frozenset().union(*(each.gone for each in made)),
        is_complete=is_complete,
    )


@tick_step(TickStep.UPDATES, otherwise=0)
def apply_updates(tick: Tick) -> int:
    """Make ended instances READY that have read other content than the record has now, if they follow updates or a
    rerun of them is asked for; return how many.

    While the tick is held, all are put off.
    """
    made, _ = work_off(tick, UpdateChecks())
    return sum(each.verdicts.count(LateVerdict.RERUN) for each in made)


def _note_failures(contents: Iterable[Content], tick: Tick) -> None:
    errors: dict[str, Exception | None] = {}
    for content in contents:
        feed = content.record.feed
        errors[feed] = errors.get(feed) or content.error
    for feed, error in errors.items():
        if error is not None:
            tick.bulkheads.fail(TickStep.LATE_DATA, feed, error)
        elif not tick.bulkheads.is_put_off(TickStep.LATE_DATA, feed):  # what has failed of it is not due yet
            tick.bulkheads.succeed(TickStep.LATE_DATA, feed)
