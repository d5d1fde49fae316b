"""Decide which instances have missed a deadline that has passed, by what is recorded of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from feed_assets.alerts.deadlines.due_times import Deadlines
from feed_assets.alerts.deadlines.records import Recovery, SlaMiss, Starts
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import (
    FeedInstance,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstance,
    ProcessInstanceStatus,
    ProcessKey,
)

THERE = frozenset({FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.EMPTY})
"""A feed's instance has come. One without its flag (PARTIAL) has not."""


def decide_feed_misses(
    deadlines: Deadlines, times: Sequence[datetime], rows: Mapping[FeedKey, FeedInstance], as_of: datetime
) -> list[SlaMiss]:
    """Return the misses among instances of a feed whose deadline has passed.

    One that has come late meanwhile is only recorded. One that retention has evicted is forgotten.
    """
    misses = []
    for time in times:
        row = rows.get(FeedKey(deadlines.name, deadlines.cluster, time))
        if row is None or row.status not in {*THERE, FeedInstanceStatus.EVICTED}:
            misses.append(_told(deadlines, time, as_of))
        elif row.status in THERE and (at := row.available_at or row.updated_at) > deadlines.due_at(time):
            misses.append(_recorded(deadlines, time, as_of, at, Recovery.ARRIVED))
    return misses


def decide_process_misses(
    deadlines: Deadlines,
    times: Sequence[datetime],
    rows: Mapping[ProcessKey, ProcessInstance],
    starts: Mapping[ProcessKey, Starts],
    as_of: datetime,
) -> list[SlaMiss]:
    """Return the misses among instances of a process whose deadline has passed.

    What counts is the first attempt that began (low), or that succeeded (high): a rerun is no miss. One that was
    skipped is none either. One that came late meanwhile is only recorded.

    Differs from Falcon: it does not watch `shouldStartIn`, and a rerun counts as unfinished.
    """
    misses = []
    for time in times:
        key = ProcessKey(deadlines.name, deadlines.cluster, time)
        row, begun = rows.get(key), starts.get(key)
        if row is not None and row.status is ProcessInstanceStatus.SKIPPED:
            continue
        at, by = _came(deadlines.level, row, begun)
        if at is None:
            misses.append(_told(deadlines, time, as_of))
        elif at > deadlines.due_at(time):
            misses.append(_recorded(deadlines, time, as_of, at, by))
    return misses


def _came(level: SlaLevel, row: ProcessInstance | None, begun: Starts | None) -> tuple[datetime | None, Recovery]:
    if level is SlaLevel.LOW:
        return (begun.started_at if begun is not None else None), Recovery.STARTED
    if begun is not None and begun.succeeded_at is not None:
        return begun.succeeded_at, Recovery.SUCCEEDED
    has_succeeded = row is not None and row.status is ProcessInstanceStatus.SUCCEEDED
    return (row.ended_at or row.updated_at if row is not None and has_succeeded else None), Recovery.SUCCEEDED


def _told(deadlines: Deadlines, time: datetime, as_of: datetime) -> SlaMiss:
    return replace(_miss(deadlines, time, as_of), told_at=as_of)


def _recorded(deadlines: Deadlines, time: datetime, as_of: datetime, at: datetime, by: Recovery) -> SlaMiss:
    return replace(_miss(deadlines, time, as_of), recovered_at=at, recovered_by=by, shown_at=as_of)


def _miss(deadlines: Deadlines, time: datetime, as_of: datetime) -> SlaMiss:
    return SlaMiss(
        kind=deadlines.kind.value,
        name=deadlines.name,
        cluster=deadlines.cluster,
        nominal_time=time,
        level=deadlines.level,
        due_at=deadlines.due_at(time),
        missed_at=as_of,
    )
