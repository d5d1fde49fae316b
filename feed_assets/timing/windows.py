"""Windows: the instances of a feed that a process instance reads or writes, and the inverse.

Feed instances are numbered (see `InstanceSequence`), and a window is a range of numbers, so no instance is enumerated.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, assert_never
from zoneinfo import ZoneInfo

from feed_assets.timing.errors import WindowError
from feed_assets.timing.expressions import DataDriven, TimeExpression, parse_time_expression
from feed_assets.timing.sequence import InstanceSequence

_NONE = range(0)


class AvailabilityRecord(Protocol):
    """Availability of one feed's instances, queried by data-driven windows; numbers are inside the feed's validity."""

    def latest_available(self, not_after_index: int, count: int) -> list[int]:
        """Return the newest available instances up to number `not_after_index`, newest first, at most `count`."""
        ...

    def available_between(self, first: int, last: int) -> list[int]:
        """Return the available instances from number `first` to number `last`, both included, in ascending order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window from one expression to another, both ends included. Make one with `parse_window`.

    Each end is floored to the feed instance at or before it. A window between two instances therefore contains the
    earlier one. Days, weeks, months and years start in `zone`; None is the feed's zone.

    Differs from Falcon: a process passes its own zone, so a day in New York is the same over a feed in UTC; Falcon
    starts days in the feed's zone.

    >>> from datetime import UTC
    >>> from zoneinfo import ZoneInfo
    >>> from feed_assets.timing.sequence import parse_frequency
    >>> hourly = InstanceSequence(start=datetime(2013, 11, 1, tzinfo=UTC), frequency=parse_frequency("hours(1)"),
    ...                           timezone=ZoneInfo("America/New_York"))
    >>> whole_day = parse_window("today(0,0)", "tomorrow(0,-60)")
    >>> len(whole_day.indices(datetime(2013, 11, 3, 12, tzinfo=UTC), hourly))
    25
    """

    start: TimeExpression
    end: TimeExpression
    zone: ZoneInfo | None = None

    @property
    def is_data_driven(self) -> bool:
        """Whether the instances depend on availability; then `resolve_data_driven` finds them."""
        return self.start.is_data_driven

    def indices(self, nominal_time: datetime, feed: InstanceSequence) -> range:
        """Return the numbers of the feed instances that a process instance at `nominal_time` sees, in ascending order.

        The range is clipped to the feed's validity. It is empty if `nominal_time` is before the feed's start, or if the
        end resolves before the start. Falcon lists the newest first: reverse the range for that.

        Raises:
            WindowError: the window is data-driven.
        """
        if self.start.data_driven is not None:
            raise self._refusal_of_data_driven()
        if nominal_time < feed.start:
            return _NONE
        zone = self.zone or feed.timezone
        first = feed.index_at_or_before(self.start.evaluate(nominal_time, zone))
        last = feed.index_at_or_before(self.end.evaluate(nominal_time, zone))
        return feed.clip(range(first, last + 1))

    def consumers(self, feed_index: int, feed: InstanceSequence, process: InstanceSequence) -> range:
        """Return the numbers of the process instances whose window contains feed instance `feed_index`, ascending.

        This is the inverse of `indices`, without a search: n is in it exactly if `feed_index` is in
        `indices(process.at(n), feed)`.

        Raises:
            WindowError: the window is data-driven.
        """
        return self.consumers_of_range(range(feed_index, feed_index + 1), feed, process)

    def consumers_of_range(self, indices: range, feed: InstanceSequence, process: InstanceSequence) -> range:
        """Return the numbers of the process instances whose window contains any of a range of feed instances (step 1).

        For a window that never runs backwards, this is the union of `consumers`. Some windows run backwards at some
        times, such as `today(12,0)` to `now(0,0)` in the morning. They are empty then, and the range may include such
        process instances.

        Raises:
            WindowError: the window is data-driven.
        """
        if self.start.data_driven is not None:
            raise self._refusal_of_data_driven()
        indices = feed.clip(indices)
        if not indices:
            return _NONE
        zone = self.zone or feed.timezone
        earliest = max(self.end.earliest_reaching(feed.at(indices.start), zone), feed.start)
        beyond = self.start.earliest_reaching(feed.at(indices.stop), zone)
        return process.indices_between(earliest, beyond)

    def resolve_data_driven(
        self,
        nominal_time: datetime,
        feed: InstanceSequence,
        record: AvailabilityRecord,
        as_of: datetime,
        *,
        is_partial: bool = False,
    ) -> list[int] | None:
        """Return the feed instances of a `latest` or `future` window, ascending; None if it cannot be resolved yet.

        `latest(n)` counts back over the available instances from the run moment `as_of`; 0 is the newest, whatever the
        nominal time. `future(n,limit)` counts forward over the available instances from the instance at or before
        `nominal_time`, and looks at that one and `limit` more. Either all positions are found or none, unless
        `is_partial`. A nominal time before the feed's start sees nothing. Falcon lists `latest` newest first, `future`
        oldest first.

        Raises:
            WindowError: the window is not data-driven.
        """
        start, end = self.start.n, self.end.n
        match self.start.data_driven:
            case None:
                raise WindowError(
                    start=self.start.text,
                    end=self.end.text,
                    reason="it does not depend on what is available",
                    next_step="Use indices.",
                )
            case DataDriven.LATEST:
                due = feed.clip(range(feed.index_at_or_before(as_of) + 1))
                found = record.latest_available(due[-1], 1 - start) if due else []
                return sorted(found[-end : 1 - start]) if is_partial or len(found) > -start else None
            case DataDriven.FUTURE:
                if nominal_time < feed.start:
                    return []
                first = feed.index_at_or_before(nominal_time)
                span = feed.clip(range(first, first + self.end.limit + 1))
                found = record.available_between(span[0], span[-1]) if span else []
                return found[start : end + 1] if is_partial or len(found) > end else None
            case _:
                assert_never(self.start.data_driven)

    def _refusal_of_data_driven(self) -> WindowError:
        return WindowError(
            start=self.start.text,
            end=self.end.text,
            reason="its instances depend on available data",
            next_step="Use resolve_data_driven.",
        )


def parse_window(start_text: str, end_text: str, zone: ZoneInfo | None = None) -> Window:
    """Parse both ends of a window; days start in `zone`, or in the feed's zone if it is None.

    Raises:
        ExpressionError: one end is not a time expression.
        WindowError: `latest` or `future` is combined with another function, has an argument out of range (`latest` at
            most 0, `future` and its limit at least 0), or the start comes after the end.

    >>> parse_window("latest(-3)", "now(0,0)")
    Traceback (most recent call last):
    feed_assets.timing.errors.WindowError: window from latest(-3) to now(0,0): latest and future can only be \
combined with themselves. Write both ends with the same function.
    """
    start, end = parse_time_expression(start_text), parse_time_expression(end_text)
    fault = _fault_of(start, end)
    if fault is not None:
        reason, next_step = fault
        raise WindowError(start=start.text, end=end.text, reason=reason, next_step=next_step)
    return Window(start=start, end=end, zone=zone)


def _fault_of(start: TimeExpression, end: TimeExpression) -> tuple[str, str] | None:
    if start.data_driven is not end.data_driven:
        return "latest and future can only be combined with themselves", "Write both ends with the same function."
    match start.data_driven:
        case None:
            return None
        case DataDriven.LATEST:
            if max(start.n, end.n) > 0:
                return "latest counts backwards", "Use 0 for the newest, -1 for the one before it."
        case DataDriven.FUTURE:
            if min(start.n, end.n, start.limit, end.limit) < 0:
                return "future counts forwards", "Use 0 for the first, 1 for the next, and a limit of 0 or more."
        case _:
            assert_never(start.data_driven)
    if start.n > end.n:
        return f"{start.n} comes after {end.n}", "Write the older end first."
    return None
