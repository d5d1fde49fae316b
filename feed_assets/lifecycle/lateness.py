"""Late data: what has changed in inputs since they were read, and which instances are run again for it.

Content counts: a file added, removed or replaced, be it by one of equal size; not one that was only written again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from feed_assets.entities.process import Workflow
from feed_assets.lifecycle.late_checks import decide_put_off, next_check, process_cut_off
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.state.late_checks import LateCheck
from feed_assets.state.records import ProcessInstanceStatus
from feed_assets.timing.dates import render_datetime

LATE_DATA = "late data: "
"""How the reason of a late re-run begins, and that of one that was refused."""

UNSETTLED = "unsettled"
"""The digest of an instance that was being written when it was read: any content is another."""

_BUSY = frozenset(
    {
        ProcessInstanceStatus.WAITING,
        ProcessInstanceStatus.READY,
        ProcessInstanceStatus.RUNNING,
        ProcessInstanceStatus.SUSPENDED,
    }
)
_NAMED = 3


class ChangeKind(StrEnum):
    """How an instance of an input differs from what was read."""

    ARRIVED = "arrived"
    CHANGED = "changed"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One instance of a late input that is another now than when it was read."""

    input: str
    feed: str
    nominal_time: datetime
    kind: ChangeKind

    def render(self) -> str:
        """The change for messages: `weather 2013-11-03T05:00Z changed`."""
        return f"{self.feed} {render_datetime(self.nominal_time)} {self.kind.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputContents:
    """What one input was when it was read, and is now: digests by nominal time, None where there is none.

    `evicted` are those of the read instances that retention has removed since, `gone` those that cannot be read now:
    not there, or being written.
    """

    name: str
    feed: str
    is_late: bool
    is_optional: bool
    used: Mapping[datetime, str | None]
    present: Mapping[datetime, str | None]
    evicted: frozenset[datetime] = frozenset()
    gone: frozenset[datetime] = frozenset()


class Verdict(StrEnum):
    """What comes out of a check."""

    PUT_OFF = "put off"
    UNCHANGED = "unchanged"
    RERUN = "rerun"
    REFUSED = "refused"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDecision:
    """What a check means: the check that follows, if any, and the reason to write at the instance, if any."""

    verdict: Verdict
    check: LateCheck | None
    reason: str | None = None


def find_changes(contents: Sequence[InputContents]) -> tuple[Change, ...]:
    """Which instances of late inputs are others now than when they were read, oldest first within an input.

    An instance that retention has evicted is no change, and neither is one that a mandatory input lacks right now:
    somebody may be writing it.
    """
    changes = []
    for each in contents:
        if not each.is_late:
            continue
        for time in sorted(each.used.keys() | each.present.keys()):
            if (kind := _change_of(each, time)) is not None:
                changes.append(Change(input=each.name, feed=each.feed, nominal_time=time, kind=kind))
    return tuple(changes)


def _change_of(contents: InputContents, time: datetime) -> ChangeKind | None:
    if time not in contents.used:
        return ChangeKind.ARRIVED
    if time not in contents.present:
        return ChangeKind.VANISHED if contents.is_optional and time in contents.gone else None
    used, present = contents.used[time], contents.present[time]
    return ChangeKind.CHANGED if _are_others(used, present) else None


def _are_others(used: str | None, present: str | None) -> bool:
    """Whether two digests say that the content is another; those of looks, and None, say nothing about content."""
    if used == UNSETTLED:
        return True
    is_known = all(digest is not None and digest.startswith("sha256:") for digest in (used, present))
    return is_known and used != present


def find_unreadable(contents: Sequence[InputContents]) -> tuple[str, ...]:
    """Instances that were read and cannot be read again, each with the reason: without them a re-run would be another
    work, not the same on newer data.
    """
    found = []
    for each in contents:
        found += [f"{each.feed} {render_datetime(time)} was evicted since" for time in sorted(each.evicted)]
        if not each.is_optional:
            found += [f"{each.feed} {render_datetime(time)} is not there any more" for time in sorted(each.gone)]
    return tuple(found)


def describe(items: Sequence[str]) -> str:
    """The first few of many, and how many more there are.

    >>> describe(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = len(items) - _NAMED
    return ", ".join(items[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def decide_before_reading(
    check: LateCheck, status: ProcessInstanceStatus | None, as_of: datetime, *, is_declared: bool, is_safe_mode: bool
) -> CheckDecision | None:
    """Whether a check cannot be made now, or not at all; None if it can.

    An instance that is at work, or about to be, is looked at later; so is everything in safe mode, and what is not
    declared right now, until its cut-off.
    """
    if status in (ProcessInstanceStatus.TIMEDOUT, ProcessInstanceStatus.SKIPPED, None):
        return CheckDecision(verdict=Verdict.DROPPED, check=None)
    if not is_declared and as_of >= check.cut_off_at:
        return CheckDecision(verdict=Verdict.DROPPED, check=None)
    if not is_declared or is_safe_mode or status in _BUSY:
        return decide_later(check, as_of)
    return None


def decide_later(check: LateCheck, as_of: datetime) -> CheckDecision:
    """Make a check later that cannot be made now."""
    again = replace(check, planned_at=as_of, due_at=decide_put_off(check, as_of))
    return CheckDecision(verdict=Verdict.PUT_OFF, check=again)


def decide_check(
    check: LateCheck,
    plan: Plan,
    process: ProcessRecord,
    contents: Sequence[InputContents],
    status: ProcessInstanceStatus,
    as_of: datetime,
) -> CheckDecision:
    """What follows from what a check has found.

    The check made at the cut-off, or as soon after it as could be, is the last one. What an earlier check has found and
    no run has processed yet stays with what this one finds.
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
        return CheckDecision(verdict=Verdict.UNCHANGED, check=_if_anything_is_to_come(following))
    found = LATE_DATA + (describe([change.render() for change in changes]) or "inputs are incomplete")
    if unreadable:
        reason = f"{found}; not run again: {describe(unreadable)}"
        return CheckDecision(verdict=Verdict.REFUSED, check=_if_anything_is_to_come(following), reason=reason)
    pending = () if status is ProcessInstanceStatus.SUCCEEDED else check.changed
    names = tuple(dict.fromkeys((*pending, *(change.input for change in changes))))
    return CheckDecision(verdict=Verdict.RERUN, check=replace(following, changed=names), reason=found)


def _if_anything_is_to_come(check: LateCheck) -> LateCheck | None:
    return check if check.due_at is not None or check.changed else None


def choose_workflow(process: ProcessRecord, changed: Sequence[str]) -> Workflow:
    """What is run for late data of some inputs: the workflow that all of them declare, if it is one and the same; else
    that of the process, as for a run without late data.

    Differs from Falcon: it stores the workflows of late inputs and never runs them.
    """
    own = dict(process.late.workflows) if process.late else {}
    wanted = [own.get(name) for name in changed]
    first = wanted[0] if wanted else None
    assert process.workflow is not None
    return first if first is not None and all(each == first for each in wanted) else process.workflow


def count(verdicts: Sequence[Verdict]) -> str:
    """What a tick's checks came to, in a few words.

    >>> count([Verdict.RERUN, Verdict.UNCHANGED, Verdict.UNCHANGED])
    '3 late checks: 2 unchanged, 1 to be run again'
    """
    parts = [f"{number} {_words(verdict)}" for verdict in _SHOWN if (number := verdicts.count(verdict))]
    checks = "1 late check" if len(verdicts) == 1 else f"{len(verdicts)} late checks"
    return f"{checks}: {', '.join(parts)}" if parts else checks


_SHOWN = (Verdict.UNCHANGED, Verdict.RERUN, Verdict.REFUSED, Verdict.PUT_OFF, Verdict.DROPPED)


def _words(verdict: Verdict) -> str:
    match verdict:
        case Verdict.RERUN:
            return "to be run again"
        case Verdict.PUT_OFF | Verdict.UNCHANGED | Verdict.REFUSED | Verdict.DROPPED:
            return verdict.value
        case _:
            assert_never(verdict)
