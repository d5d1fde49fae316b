"""Spans of time: set differences of spans, and counts of the instances in them without enumeration."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from feed_assets.json_form import NominalTime
from feed_assets.timing.sequence import InstanceSequence

FOREVER = datetime.max.replace(tzinfo=UTC)
_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The times `start <= t < stop`; empty if `stop` is not after `start`."""

    start: datetime
    stop: datetime

    @property
    def is_empty(self) -> bool:
        """Whether it contains no time."""
        return self.stop <= self.start

    def upto(self, moment: datetime) -> "Span":
        """Return the part at or before a moment."""
        return Span(start=self.start, stop=min(self.stop, moment + _MOMENT))

    def before(self, moment: datetime) -> "Span":
        """Return the part before a moment."""
        return Span(start=self.start, stop=min(self.stop, moment))

    def within(self, other: "Span") -> "Span":
        """Return the part that is also in `other`."""
        return Span(start=max(self.start, other.start), stop=min(self.stop, other.stop))

    def without(self, other: "Span | None") -> tuple["Span", ...]:
        """Return the part outside `other`: at most two spans.

        >>> from datetime import datetime
        >>> day = lambda n: datetime(2015, 1, n, tzinfo=UTC)
        >>> [part.start.day for part in Span(start=day(1), stop=day(9)).without(Span(start=day(3), stop=day(5)))]
        [1, 5]
        """
        if other is None or self.within(other).is_empty:
            parts = [self]
        else:
            parts = [Span(start=self.start, stop=other.start), Span(start=other.stop, stop=self.stop)]
        return tuple(part for part in parts if not part.is_empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRange:
    """A range of consecutive instances of one sequence: the first, the last, and their number."""

    first: NominalTime
    last: NominalTime
    count: int


def validity_of(sequence: InstanceSequence) -> Span:
    """Return the span in which a sequence has instances."""
    return Span(start=sequence.start, stop=sequence.end or FOREVER)


def count_ranges(sequence: InstanceSequence, spans: tuple[Span, ...]) -> tuple[InstanceRange, ...]:
    """Return the instances in each of some spans; spans without any are left out."""
    ranges = []
    for span in spans:
        indices = sequence.indices_between(span.start, span.stop)
        if indices:
            ranges.append(
                InstanceRange(first=sequence.at(indices[0]), last=sequence.at(indices[-1]), count=len(indices))
            )
    return tuple(ranges)
