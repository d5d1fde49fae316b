"""How far the increments of a table have come: marks, and the stretches between them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from feed_assets.engines.databases.dialects import Value
from feed_assets.engines.port import InputData


class Stretch(NamedTuple):
    """The rows of an increment: those above one mark, up to the other. Without a lower mark they are from the beginning
    on, without an upper one there are none.
    """

    low: str | None
    high: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownStretches:
    """The stretch that was frozen of an instance, and those of the published others, by nominal time."""

    own: Stretch | None = None
    others: Mapping[datetime, Stretch] = field(default_factory=dict)

    def around(self, nominal_time: datetime) -> tuple[str | None, Stretch | None]:
        """Return the mark up to which the instances before have come, and the stretch of the first one behind."""
        before = max((time for time in self.others if time < nominal_time), default=None)
        behind = min((time for time in self.others if time > nominal_time), default=None)
        low = None if before is None else self.others[before].high
        return low, None if behind is None else self.others[behind]


class Marks(ABC):
    """What is recorded of the increments of a feed on a cluster, for an attempt at one of its instances."""

    @abstractmethod
    def known(self) -> KnownStretches:
        """Return the recorded stretches.

        Raises:
            EarlierUnreadError: an instance before it has not been read.
        """

    @abstractmethod
    def freeze(self, stretch: Stretch) -> None:
        """Record the stretch of the instance, which all its attempts read."""

    @abstractmethod
    def rows_of(self, times: Collection[datetime]) -> InputData:
        """Return published instances of the feed, to be read.

        Raises:
            InputReadError: one of them is not there.
        """


def render_mark(value: Value) -> str:
    """Return the text of a number or time.

    >>> render_mark(7), render_mark(date(2024, 3, 31))
    ('number 7', 'date 2024-03-31')
    >>> render_mark(datetime(2024, 3, 31, tzinfo=UTC))
    'moment 2024-03-31T00:00:00+00:00'
    """
    match value:
        case datetime(tzinfo=None):
            return f"clock {value.isoformat()}"
        case datetime():
            return f"moment {value.astimezone(UTC).isoformat()}"
        case date():
            return f"date {value.isoformat()}"
        case bool() | str() | bytes() | None:
            raise TypeError(f"{value!r} is neither a number nor a time")
        case _:
            return f"number {value}"


def parse_mark(text: str) -> Any:
    """Return the value of a text.

    >>> parse_mark("number 7"), parse_mark("date 2024-03-31")
    (Decimal('7'), datetime.date(2024, 3, 31))
    """
    kind, _, value = text.partition(" ")
    match kind:
        case "number":
            return Decimal(value)
        case "date":
            return date.fromisoformat(value)
        case _:
            return datetime.fromisoformat(value)


def before_mark(text: str, overlap: timedelta) -> str:
    """Return the mark that is so much time before another one; a number has no time.

    >>> before_mark("clock 2024-03-31T00:05:00", timedelta(minutes=10))
    'clock 2024-03-30T23:55:00'
    """
    value = parse_mark(text)
    if isinstance(value, Decimal) or not overlap:
        return text
    return render_mark(value - max(overlap, timedelta(days=0 if isinstance(value, datetime) else 1)))
