"""Decide the effect of late data and of updates: which inputs have changed since they were read, and which instances
are rerun. Plan the checks of used inputs: their due times and their end, counted from nominal times.

Content counts: a file that was added, removed or replaced, even by one of equal size. A file rewritten with equal
content is not a change. Late data are looked for on storage, at times. An update is told by the log, at once, and
compares what was read with what the record has now.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import assert_never

from sqlalchemy import Connection

from feed_assets.entities.process import RetryPolicy
from feed_assets.entities.triggers import OnUpdate
from feed_assets.errors import render_some
from feed_assets.instances.late.store import Asked, LateCheck
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.instances.process_instances import UNENDED, ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from feed_assets.plan.copy_records import CopyRecord
from feed_assets.plan.records import EngineWork, FeedRecord, Plan, ProcessRecord
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.triggers.input_windows import InputState

LATE_DATA = "late data: "
"""The prefix of the reasons of late re-runs and of refused ones."""

UNSETTLED = "unsettled"
"""The digest of an instance that was being written when it was read; it differs from any content."""

_NAMED = 3
"""How many changes a reason names."""


class ChangeKind(StrEnum):
    """The kind of change to an instance of an input since it was read."""

    ARRIVED = "arrived"
    CHANGED = "changed"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChange:
    """One instance of a late input that has changed since it was read; of a current one, the time of its `version`."""

    input: str
    feed: str
    nominal_time: datetime
    kind: ChangeKind
    version: datetime | None = None

    def render(self) -> str:
        """Render the change for messages: `weather 2013-11-03T05:00Z changed`, `countries changed at …`."""
        if self.version is not None:
            return f"{self.feed} {self.kind.value} at {self.version:%Y-%m-%dT%H:%M:%SZ}"
        return f"{self.feed} {render_datetime(self.nominal_time)} {self.kind.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputContents:
    """The contents of one input when it was read, and now: digests by nominal time, None if there is none.

    `evicted` are read instances that retention has removed since: by the record, or because they have expired and
    cannot be read, as after the restore of an older record. `gone` are others that cannot be read now, because they are
    missing or being written. `renewed` are those that were recorded again since a rerun was asked for. `version` is the
    time of the present version of a current instance.
    """

    name: str
    feed: str
    is_late: bool
    is_optional: bool
    used: Mapping[datetime, str | None]
    present: Mapping[datetime, str | None]
    evicted: frozenset[datetime] = frozenset()
    gone: frozenset[datetime] = frozenset()
    renewed: frozenset[datetime] = frozenset()
    version: datetime | None = None


class LateVerdict(Enum):
    """The verdict of a check, in the words of a summary."""

    UNCHANGED = "unchanged"
    RERUN = "to be run again"
    REFUSED = "refused"
    PUT_OFF = "put off"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDecision:
    """The decision of a check: the following check, if any, and the reason to record with the instance, if any."""

    verdict: LateVerdict
    check: LateCheck | None
    reason: str | None = None


def prove_difference(used: str | None, present: str | None) -> bool:
    """Return whether two digests prove different content.

    Fingerprints of polls, and None, prove nothing about content.
    """
    if used == UNSETTLED:
        return True
    is_known = all(digest is not None and digest.startswith("sha256:") for digest in (used, present))
    return is_known and used != present


def find_changes(
    contents: Sequence[InputContents], differ: Callable[[str | None, str | None], bool] = prove_difference
) -> tuple[InputChange, ...]:
    """Return the changed instances of late inputs, oldest first within an input; those whose digests `differ`.

    An evicted instance is not a change. Neither is an instance that a mandatory input lacks at the moment, because a
    writer may be at work on it.
    """
    changes = []
    for each in contents:
        if not each.is_late:
            continue
        for time in sorted(each.used.keys() | each.present.keys()):
            if (kind := _change_of(each, time, differ)) is not None:
                changes.append(
                    InputChange(input=each.name, feed=each.feed, nominal_time=time, kind=kind, version=each.version)
                )
    return tuple(changes)


def _change_of(
    contents: InputContents, time: datetime, differ: Callable[[str | None, str | None], bool]
) -> ChangeKind | None:
    if time not in contents.used:
        return ChangeKind.ARRIVED
    if time not in contents.present:
        return ChangeKind.VANISHED if contents.is_optional and time in contents.gone else None
    used, present = contents.used[time], contents.present[time]
    return ChangeKind.CHANGED if differ(used, present) else None


def find_unreadable(contents: Sequence[InputContents]) -> tuple[str, ...]:
    """Return the instances that were read and cannot be read again, with the reasons.

    Without them a rerun would be different work, not the same work on newer data.
    """
    found = []
    for each in contents:
        found += [f"{each.feed} {render_datetime(time)} was evicted since" for time in sorted(each.evicted)]
        if not each.is_optional:
            found += [f"{each.feed} {render_datetime(time)} is not there any more" for time in sorted(each.gone)]
    return tuple(found)


def decide_early(
    check: LateCheck,
    status: ProcessInstanceStatus | None,
    process: ProcessRecord | None,
    as_of: datetime,
    *,
    is_safe_mode: bool,
) -> CheckDecision | None:
    """Decide on a check of a process instance that cannot be made now, or does not matter any more; None if it can.

    It waits for the end of a run, for the end of safe mode, and until its cut-off for a process that is not declared
    now. The update of a copy waits for the copy. A rerun that has begun ends when it has succeeded, or was killed; if
    it has failed, it is kept for those who wait for it: when it has succeeded after all, they go on.
    """
    waits = process is None or is_safe_mode or status in UNENDED
    if check.asked is not None:
        ended = {ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.KILLED}
        waits, ended = (True, ended) if check.asked.has_begun else (waits, {ProcessInstanceStatus.TIMEDOUT})
        is_moot = status in {*ended, ProcessInstanceStatus.SKIPPED, None} or as_of >= check.cut_off_at
    elif check.kind is AgendaKind.UPDATE:
        concerned = CONCERNED | UNENDED if process is not None and process.is_flow else CONCERNED
        is_moot = status not in concerned or (process is not None and not process.follows_updates)
    else:
        is_moot = status in {ProcessInstanceStatus.TIMEDOUT, ProcessInstanceStatus.SKIPPED, None}
    if is_moot or (process is None and as_of >= check.cut_off_at):
        return CheckDecision(verdict=LateVerdict.DROPPED, check=None)
    if not waits:
        return None
    if check.kind is AgendaKind.LATE_INPUTS:
        return decide_later(check, as_of)
    return decide_wait(check, as_of, is_woken=check.asked is not None and status is not ProcessInstanceStatus.RUNNING)


def decide_later(check: LateCheck, as_of: datetime, pause: timedelta | None = None) -> CheckDecision:
    """Put off a check that cannot be made now, by a pause or by its delay; at the latest until the cut-off, if that is
    still to come.
    """
    again = as_of + (max(check.delay, SHORTEST_DELAY) if pause is None else pause)
    due_at = check.cut_off_at if as_of < check.cut_off_at < again else again
    return CheckDecision(verdict=LateVerdict.PUT_OFF, check=replace(check, planned_at=as_of, due_at=due_at))


def decide_check(
    check: LateCheck,
    plan: Plan,
    process: ProcessRecord,
    contents: Sequence[InputContents],
    status: ProcessInstanceStatus,
    as_of: datetime,
) -> CheckDecision:
    """Decide on the results of a check.

    The check at the cut-off, or the first one possible after it, is the last. Changes that an earlier check found and
    no run has processed are kept with the new ones.
    """
    cut_off_at = process_cut_off(plan, process, check.nominal_time) or check.cut_off_at
    due_at = None
    if process.late is not None and as_of < cut_off_at:
        due_at = next_check(
            process.late.policy, process.late.delay.as_duration(), check.nominal_time, cut_off_at, as_of
        )
    following = replace(check, planned_at=as_of, due_at=due_at, cut_off_at=cut_off_at, checks=check.checks + 1)
    changes, unreadable = find_changes(contents), find_unreadable(contents)
    if not changes and (due_at is not None or not any(each.is_late and each.gone for each in contents)):
        return CheckDecision(verdict=LateVerdict.UNCHANGED, check=_if_pending(following))
    if changes and all(change.kind is ChangeKind.VANISHED for change in changes):
        unreadable = (*unreadable, "that is less than what it has read")
    found = LATE_DATA + (_name(changes) or "inputs are incomplete")
    if unreadable:
        reason = f"{found}; not run again: {render_some(unreadable, _NAMED)}"
        return CheckDecision(verdict=LateVerdict.REFUSED, check=_if_pending(following), reason=reason)
    pending = () if status is ProcessInstanceStatus.SUCCEEDED else check.changed
    names = tuple(dict.fromkeys((*pending, *(change.input for change in changes))))
    return CheckDecision(verdict=LateVerdict.RERUN, check=replace(following, changed=names), reason=found)


def _name(changes: Sequence[InputChange]) -> str:
    return render_some(tuple(change.render() for change in changes), _NAMED)


def _if_pending(check: LateCheck) -> LateCheck | None:
    return check if check.due_at is not None or check.changed else None


def choose_work(process: ProcessRecord, changed: Sequence[str]) -> EngineWork:
    """Return the work that processes the late data of some inputs; the process is no flow.

    This is the workflow that all of them declare, if it is the same; else the work of the process, as for any run.

    Differs from Falcon: Falcon stores the workflows of late inputs and never runs them.
    """
    own = dict(process.late.workflows) if process.late else {}
    workflows = [own.get(name) for name in changed]
    first = workflows[0] if workflows else None
    assert not isinstance(process.work, CopyRecord)
    return first if first is not None and all(each == first for each in workflows) else process.work


def count(verdicts: Sequence[LateVerdict]) -> str:
    """Summarize the verdicts of a tick's checks in a few words.

    >>> count([LateVerdict.RERUN, LateVerdict.UNCHANGED, LateVerdict.UNCHANGED])
    '3 late checks: 2 unchanged, 1 to be run again'
    """
    parts = [f"{number} {verdict.value}" for verdict in LateVerdict if (number := verdicts.count(verdict))]
    checks = "1 late check" if len(verdicts) == 1 else f"{len(verdicts)} late checks"
    return f"{checks}: {', '.join(parts)}" if parts else checks


FEED_POLICY = RetryPolicy.EXP_BACKOFF
FEED_DELAY = timedelta(hours=3)
SHORTEST_DELAY = timedelta(minutes=1)
SETTLING = timedelta(minutes=1)
"""How long nobody may have written to the place of a current instance without a flag, before it counts as whole."""


def is_young(modified_at: datetime | None, real_now: datetime) -> bool:
    """Return whether what was modified at a time may still be written. A time that is far ahead says nothing.

    >>> now = datetime(2013, 11, 1, 12)
    >>> [is_young(now + timedelta(seconds=each), now) for each in (-90, -30, 0, 30, 90)]
    [False, True, True, True, False]
    """
    return modified_at is not None and abs(real_now - modified_at) < SETTLING


def next_check(
    policy: RetryPolicy, delay: timedelta, nominal_time: datetime, cut_off_at: datetime, after: datetime
) -> datetime | None:
    """Return the first check after a time; None if there is none left.

    PERIODIC checks at nominal + d, 2d, 3d; EXP_BACKOFF at nominal + d, 3d, 7d; FINAL once, at the cut-off.

    All times are capped at the cut-off, and the check at the cut-off is the last. Before the nominal time the first
    check is at the nominal time.

    >>> from datetime import UTC
    >>> nominal = datetime(2016, 3, 17, 4, 56, tzinfo=UTC)
    >>> two = timedelta(minutes=2)
    >>> str(next_check(RetryPolicy.EXP_BACKOFF, two, nominal, nominal + 60 * two, nominal + 2 * two))
    '2016-03-17 05:02:00+00:00'
    """
    if after > cut_off_at:
        return None
    if after < nominal_time and policy is not RetryPolicy.FINAL:
        return min(nominal_time, cut_off_at)
    passed = after - nominal_time
    match policy:
        case RetryPolicy.PERIODIC:
            steps = passed // delay + 1
        case RetryPolicy.EXP_BACKOFF:
            steps = (1 << (passed // delay + 1).bit_length()) - 1
        case RetryPolicy.FINAL:
            return cut_off_at
        case _:
            assert_never(policy)
    if steps > (cut_off_at - nominal_time) // delay:
        return cut_off_at
    return min(nominal_time + steps * delay, cut_off_at)


def cut_off_at(moment: datetime, cut_off: timedelta) -> datetime:
    """Return a time plus a cut-off, at most NEVER."""
    return NEVER if cut_off > NEVER - moment else moment + cut_off


def process_cut_off(plan: Plan, process: ProcessRecord, nominal_time: datetime) -> datetime | None:
    """Return the cut-off of a process instance: the latest window end of a late input plus the cut-off of its feed;
    None if no feed of them has one.
    """
    ends = []
    for edge in process.inputs:
        cut_off = plan.feeds[edge.feed_key].late_cut_off
        if edge.is_late and cut_off is not None and edge.window is not None:
            zone = edge.window.zone or plan.feeds[edge.feed_key].sequence.timezone
            ends.append(cut_off_at(edge.window.end.evaluate(nominal_time, zone), cut_off.as_duration()))
    return max(ends, default=None)


def decide_process_check(
    plan: Plan, process: ProcessRecord, nominal_time: datetime, as_of: datetime
) -> LateCheck | None:
    """Return the first check of a process instance that just succeeded; None if late data can no longer change it."""
    cut_off = process_cut_off(plan, process, nominal_time)
    if process.late is None or cut_off is None:
        return None
    due_at = next_check(process.late.policy, process.late.delay.as_duration(), nominal_time, cut_off, as_of)
    return (
        None if due_at is None else _planned(AgendaKind.LATE_INPUTS, process.key, nominal_time, as_of, due_at, cut_off)
    )


def decide_feed_check(record: FeedRecord, nominal_time: datetime, as_of: datetime) -> LateCheck | None:
    """Return the first check of a feed instance that just arrived; it is due at once and determines the content.

    None if the feed has no cut-off, or if a process reads it as a late input and checks it by its own rule. The place
    of a current instance is looked at for ever.
    """
    if record.is_current and record.is_external:
        return _planned(AgendaKind.LATE_FEED, record.key, nominal_time, as_of, as_of, as_of + LASTS)
    if record.late_cut_off is None or not record.is_external or any(edge.is_late for edge in record.inputs_of):
        return None
    cut_off = cut_off_at(nominal_time, record.late_cut_off.as_duration())
    return None if as_of > cut_off else _planned(AgendaKind.LATE_FEED, record.key, nominal_time, as_of, as_of, cut_off)


def _planned(
    kind: AgendaKind, key: tuple[str, str], nominal_time: datetime, as_of: datetime, due_at: datetime, cut_off: datetime
) -> LateCheck:
    name, cluster = key
    return LateCheck(
        kind=kind,
        name=name,
        cluster=cluster,
        nominal_time=nominal_time,
        planned_at=as_of,
        due_at=due_at,
        cut_off_at=cut_off,
    )


UPDATED = "updated: "
"""The prefix of the reasons of runs for updates, and of refused ones."""

LASTS = timedelta(days=31)
"""How long what is looked at again is kept that is not declared any more."""

_ENDED = frozenset({ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED, ProcessInstanceStatus.KILLED})
CONCERNED = _ENDED | {ProcessInstanceStatus.RUNNING}
"""The instances that have read something. Those that wait, are ready or suspended read it when they run."""

CONCERNED_COPIES = CONCERNED | {ProcessInstanceStatus.READY, ProcessInstanceStatus.SUSPENDED}
"""The instances of flows whose replicas are behind until they succeed: the update is kept until then."""


_SHORTEST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(minutes=10)
_PARTS = 50


def plan_update(key: ProcessKey, as_of: datetime) -> LateCheck:
    """Return the check of an instance that may have read other content than the log has now; it is due at once."""
    return _planned(AgendaKind.UPDATE, key[:2], key.nominal_time, as_of, as_of, as_of + LASTS)


def is_settled(connection: Connection, writers: Collection[ProcessKey], states: Sequence[InputState]) -> bool:
    """Return whether the windows of an instance are settled: all mandatory instances are there, and none of their
    `writers` is making any of them again.
    """
    if any(state.expected is None or state.missing for state in states if not state.edge.optional):
        return False
    progress = ProcessInstances(connection).get_progress(writers)
    return all(each.status not in UNENDED for each in progress.values())


def decide_wait(check: LateCheck, as_of: datetime, *, is_woken: bool = False) -> CheckDecision:
    """Put off a check for a fiftieth of its age, between a second and ten minutes; for these if something wakes it."""
    pause = min(max((as_of - check.planned_at) / _PARTS, _SHORTEST_PAUSE), LONGEST_PAUSE)
    pause = LONGEST_PAUSE if is_woken else pause
    return CheckDecision(verdict=LateVerdict.PUT_OFF, check=replace(check, due_at=as_of + pause))


def is_too_late(plan: Plan, process: ProcessRecord, check: LateCheck) -> bool:
    """Return whether others have changed what a flow copies after the cut-off of late data, or without one.

    What is published here, or made by an asset of Dagster, or current, is copied again whenever it has other content.
    """
    feed = plan.feeds.get(process.inputs[0].feed_key) if process.is_flow else None
    if feed is None or not feed.is_external or feed.produced_by is not None or feed.is_current:
        return False
    cut_off = feed.late_cut_off
    return cut_off is None or check.planned_at > cut_off_at(check.nominal_time, cut_off.as_duration())


def decide_update(
    check: LateCheck,
    process: ProcessRecord,
    status: ProcessInstanceStatus,
    contents: Sequence[InputContents],
    as_of: datetime,
    *,
    is_settled: bool,
    is_too_late: bool = False,
) -> CheckDecision:
    """Decide on an instance that has ended. With `hold` it runs again when its windows are settled.

    The update of a copy is kept until the replica has what the source has: the row tells that it is behind.
    """
    changes = find_changes(contents, differ=is_other_content)
    if not changes:
        is_behind = process.is_flow and status is not ProcessInstanceStatus.SUCCEEDED
        is_behind = is_behind and any(each.present for each in contents)
        return decide_wait(check, as_of) if is_behind else CheckDecision(verdict=LateVerdict.UNCHANGED, check=None)
    found = UPDATED + _name(changes)
    kept = decide_wait(check, as_of).check if process.is_flow else None
    if is_too_late:
        reason = f"{found}; not copied: it came after the cut-off of late data"
        return CheckDecision(verdict=LateVerdict.REFUSED, check=kept, reason=reason)
    if unreadable := find_unreadable(contents):
        reason = f"{found}; not run again: {render_some(unreadable, _NAMED)}"
        return CheckDecision(verdict=LateVerdict.REFUSED, check=None, reason=reason)
    if process.on_update is OnUpdate.HOLD and not is_settled:
        return decide_wait(check, as_of)
    return CheckDecision(verdict=LateVerdict.RERUN, check=kept, reason=found)


def plan_rerun(key: ProcessKey, asked: Asked, as_of: datetime) -> LateCheck:
    """Return the check of an instance that is to run again, or runs again as somebody has asked for it."""
    pause = LONGEST_PAUSE if asked.is_woken else timedelta(0)
    check = replace(plan_update(key, as_of), kind=AgendaKind.RERUN, asked=asked)
    return replace(check, due_at=as_of + pause)


def decide_rerun(
    check: LateCheck,
    asked: Asked,
    contents: Sequence[InputContents],
    awaited: Collection[ProcessInstanceStatus],
    as_of: datetime,
) -> CheckDecision:
    """Decide on an instance that is to run again if what it has read has other content, when none of those that write
    it has yet to run again; `awaited` are the states of these. What is recorded again without a digest is other
    content.
    """
    if awaited:
        is_woken = asked.is_woken and ProcessInstanceStatus.RUNNING not in awaited
        return decide_wait(check, as_of, is_woken=is_woken)
    found = [change.render() for change in find_changes(contents, differ=is_other_content)]
    found += [
        f"{each.feed}{'' if each.version else f' {render_datetime(time)}'} was made again"
        for each in contents
        for time in sorted(each.renewed)
        if asked.goes_on or None in (each.used.get(time), each.present.get(time))
    ]
    if not found:
        reason = f"{asked.label}: not run again, since what it has read came out unchanged"
        return CheckDecision(verdict=LateVerdict.UNCHANGED, check=None, reason=reason)
    reason = f"{asked.label}: {render_some(tuple(found), _NAMED)}"
    if unreadable := find_unreadable(contents):
        reason = f"{reason}; not run again: {render_some(unreadable, _NAMED)}"
        return CheckDecision(verdict=LateVerdict.REFUSED, check=None, reason=reason)
    begun = replace(check, asked=asked._replace(has_begun=True), due_at=as_of + LONGEST_PAUSE)
    return CheckDecision(verdict=LateVerdict.RERUN, check=begun, reason=reason)


def is_other_content(read: str | None, recorded: str | None) -> bool:
    """Return whether the record says that there is other content now than was read.

    The fingerprint of an arrival cannot be compared with content that was read before it.

    >>> is_other_content("sha256:a", "sha256:b"), is_other_content("sha256:a", "seen:1"), is_other_content(None, None)
    (True, False, False)
    """
    if read == UNSETTLED:
        return True
    if read is None or recorded is None or (_is_content(read) and not _is_content(recorded)):
        return False
    return read != recorded


def _is_content(digest: str) -> bool:
    return digest.startswith("sha256:")
