"""Decide whether an instance runs again because the record has other content of what it has read (`on_update`).

Late data are looked for on storage, at times. An update is told by the log, at once, and compares what was read with
what the record has now.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.entities.triggers import OnUpdate
from feed_assets.instances.late.lateness import (
    UNSETTLED,
    CheckDecision,
    InputContents,
    LateVerdict,
    cut_off_at,
    describe,
    find_changes,
    find_unreadable,
)
from feed_assets.instances.late.store import LateCheck
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.instances.process_instances import UNENDED, ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from feed_assets.plan.records import Plan, ProcessRecord
from feed_assets.triggers.input_windows import InputState

UPDATED = "updated: "
"""The prefix of the reasons of runs for updates, and of refused ones."""

LASTS = timedelta(days=31)
"""How long the update of an instance is kept whose process is not declared any more."""

_ENDED = frozenset({ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED, ProcessInstanceStatus.KILLED})
CONCERNED = _ENDED | {ProcessInstanceStatus.RUNNING}
"""The instances that have read something. Those that wait, are ready or suspended read it when they run."""

CONCERNED_COPIES = CONCERNED | {ProcessInstanceStatus.READY, ProcessInstanceStatus.SUSPENDED}
"""The instances of flows whose replicas are behind until they succeed: the update is kept until then."""


_SHORTEST_PAUSE = timedelta(seconds=1)
_LONGEST_PAUSE = timedelta(minutes=10)
_PARTS = 50


def plan_update(key: ProcessKey, as_of: datetime) -> LateCheck:
    """Return the check of an instance that may have read other content than the log has now; it is due at once."""
    name, cluster, nominal_time = key
    return LateCheck(
        kind=AgendaKind.UPDATE,
        name=name,
        cluster=cluster,
        nominal_time=nominal_time,
        planned_at=as_of,
        due_at=as_of,
        cut_off_at=as_of + LASTS,
    )


def decide_update_early(
    check: LateCheck,
    status: ProcessInstanceStatus | None,
    process: ProcessRecord | None,
    as_of: datetime,
    *,
    is_safe_mode: bool,
) -> CheckDecision | None:
    """Decide on an update that cannot be compared now, or does not matter; None if it can be compared.

    It waits for the end of a run, for the end of safe mode, and for a process that is not declared now. That of a copy
    waits for the copy.
    """
    is_copy = process is not None and process.copy is not None
    is_open = is_copy and status in UNENDED
    if not (is_open or status in CONCERNED) or (process is not None and not process.follows_updates):
        return CheckDecision(verdict=LateVerdict.DROPPED, check=None)
    if process is None and as_of >= check.cut_off_at:
        return CheckDecision(verdict=LateVerdict.DROPPED, check=None)
    if process is None or is_safe_mode or status not in _ENDED:
        return decide_wait(check, as_of)
    return None


def is_settled(connection: Connection, plan: Plan, states: Sequence[InputState]) -> bool:
    """Return whether the windows of an instance are settled: all mandatory instances are there, and nobody is making
    any of them again.
    """
    if any(state.expected is None or state.missing for state in states if not state.edge.optional):
        return False
    writers = [
        ProcessKey(*edge.process_key, time)
        for state in states
        for feed_time in state.expected or ()
        for edge in plan.feeds[state.edge.feed_key].outputs_of
        for time in plan.writer_times(edge, feed_time)
    ]
    progress = ProcessInstances(connection).get_progress(writers)
    return all(each.status not in UNENDED for each in progress.values())


def decide_wait(check: LateCheck, as_of: datetime) -> CheckDecision:
    """Put off a check for a fiftieth of its age, between a second and ten minutes."""
    pause = min(max((as_of - check.planned_at) / _PARTS, _SHORTEST_PAUSE), _LONGEST_PAUSE)
    return CheckDecision(verdict=LateVerdict.PUT_OFF, check=replace(check, due_at=as_of + pause))


def is_too_late(plan: Plan, process: ProcessRecord, check: LateCheck) -> bool:
    """Return whether others have changed what a flow copies after the cut-off of late data, or without one.

    What is published here, or made by an asset of Dagster, is copied again whenever it has other content.
    """
    feed = None if process.copy is None else plan.feeds.get(process.inputs[0].feed_key)
    if feed is None or not feed.is_external or feed.produced_by is not None:
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
        is_behind = process.copy is not None and status is not ProcessInstanceStatus.SUCCEEDED
        is_behind = is_behind and any(each.present for each in contents)
        return decide_wait(check, as_of) if is_behind else CheckDecision(verdict=LateVerdict.UNCHANGED, check=None)
    found = UPDATED + describe([change.render() for change in changes])
    kept = decide_wait(check, as_of).check if process.copy is not None else None
    if is_too_late:
        reason = f"{found}; not copied: it came after the cut-off of late data"
        return CheckDecision(verdict=LateVerdict.REFUSED, check=kept, reason=reason)
    if unreadable := find_unreadable(contents):
        reason = f"{found}; not run again: {describe(unreadable)}"
        return CheckDecision(verdict=LateVerdict.REFUSED, check=None, reason=reason)
    if process.on_update is OnUpdate.HOLD and not is_settled:
        return decide_wait(check, as_of)
    return CheckDecision(verdict=LateVerdict.RERUN, check=kept, reason=found)


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
