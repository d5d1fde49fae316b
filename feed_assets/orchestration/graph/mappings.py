"""Choose Dagster's partition mapping for an input: a built-in one that equals the window, or else covers it.

The mapping serves the graph and backfills from the UI. Gating, runs and explanations use the window itself.
"""

from collections.abc import Sequence
from datetime import timedelta

from dagster import (
    AllPartitionMapping,
    IdentityPartitionMapping,
    PartitionMapping,
    TimeWindowPartitionMapping,
)

from feed_assets.orchestration.graph.partitions import grid
from feed_assets.plan.edges import InputEdge, OutputEdge
from feed_assets.timing.calendar_offsets import Truncation
from feed_assets.timing.expressions import TimeExpression
from feed_assets.timing.frequency import Unit
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.windows import Window
from feed_assets.timing.zones import offset_spread

_DAY = timedelta(days=1)
_SHORTEST_MONTH = timedelta(days=28)
_SHORTEST_DAY = timedelta(hours=23)


def window_mapping(edges: Sequence[InputEdge], feed: InstanceSequence, process: InstanceSequence) -> PartitionMapping:
    """Return the mapping from a process's partitions (downstream) to those of a feed (upstream), over all edges."""
    upstream, downstream = grid(feed), grid(process)
    if any(edge.is_data_driven for edge in edges):
        return AllPartitionMapping()
    if upstream.is_dynamic or downstream.is_dynamic:
        same = upstream.definition() is downstream.definition() and all(edge.shifts == (0, 0) for edge in edges)
        return IdentityPartitionMapping() if same else AllPartitionMapping()
    if upstream.key_zone.key != downstream.key_zone.key:
        return AllPartitionMapping()
    spans = [edge.shifts or _covering(edge.window, feed, process) for edge in edges if edge.window is not None]
    return TimeWindowPartitionMapping(
        start_offset=min(first for first, _ in spans),
        end_offset=max(last for _, last in spans),
        allow_nonexistent_upstream_partitions=True,
    )


def output_mapping(edge: OutputEdge, feed: InstanceSequence, process: InstanceSequence) -> PartitionMapping:
    """Return the mapping from a feed's partitions (downstream) to those of its process (upstream)."""
    upstream, downstream = grid(process), grid(feed)
    is_dynamic = upstream.is_dynamic or downstream.is_dynamic
    if edge.shift is None or is_dynamic or upstream.key_zone.key != downstream.key_zone.key:
        return AllPartitionMapping()
    return TimeWindowPartitionMapping(
        start_offset=-edge.shift, end_offset=-edge.shift, allow_nonexistent_upstream_partitions=True
    )


def _covering(window: Window, feed: InstanceSequence, process: InstanceSequence) -> tuple[int, int]:
    """Return offsets in process periods whose span, from the first to the last, covers the window at every instance.

    Dagster's rule: the partitions that overlap [start of period T + start, end of period T + end).
    """
    earliest, latest = _bounds(window.start, process)[0], _bounds(window.end, process)[1]
    period, slack = _shortest_period(process), _slack(earliest, feed, process)
    first = (earliest - slack) // period
    last = latest // period
    return first, max(first, last)


def _bounds(expression: TimeExpression, process: InstanceSequence) -> tuple[timedelta, timedelta]:
    """Return bounds of (result − nominal time) over the instances of a process; exact if truncation has no effect on
    them.
    """
    offset, wall = expression.offset, process.wall_start
    starts_days = process.frequency.is_calendar and (wall.hour, wall.minute) == (0, 0)
    starts_months = starts_days and wall.day == 1 and process.frequency.unit is Unit.MONTHS
    is_day = offset.truncation is Truncation.DAY and starts_days
    is_month = offset.truncation is Truncation.MONTH and starts_months and offset.months == 0
    if not is_day and not is_month:
        return expression.bounds(process.timezone)
    fixed, spread = offset.days * _DAY + offset.elapsed, offset_spread(process.timezone)
    return fixed - spread, fixed + spread


def _slack(earliest: timedelta, feed: InstanceSequence, process: InstanceSequence) -> timedelta:
    """Return how far back the floor to a feed instance can reach; zero if the bound always is an instance."""
    if feed.is_elapsed and process.is_elapsed:
        step, stride = feed.frequency.as_duration(), process.frequency.as_duration()
        if not (process.start + earliest - feed.start) % step and not stride % step:
            return timedelta(0)
    return feed.frequency.as_duration()


def _shortest_period(process: InstanceSequence) -> timedelta:
    match process.frequency.unit:
        case Unit.MONTHS:
            return _SHORTEST_MONTH * process.frequency.count
        case Unit.DAYS if not process.is_elapsed:
            return _SHORTEST_DAY * process.frequency.count
        case _:
            return process.frequency.as_duration()
