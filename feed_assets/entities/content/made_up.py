"""Made-up columns: what values each has, for feeds that are filled before there are real data."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Annotated, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from feed_assets.entities.common import EntityModel
from feed_assets.entities.content.patterns import parse_pattern
from feed_assets.entities.errors import PatternError
from feed_assets.entities.fields import Count, FilledText, Text, describe, refuse
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.issues import split_error
from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.errors import TimingError
from feed_assets.timing.expressions import TimeExpression, parse_time_expression

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")  # 2013-11-03
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T.*")  # 2013-11-03T05:00Z
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_MOST_DIGITS = 18
_SECOND = timedelta(seconds=1)


class Making(StrEnum):
    """The ways to make a value."""

    RANGE = "range"
    DATES = "dates"
    REGEX = "regex"
    CHOICE = "choice"
    DECIMAL = "decimal"


def _check_pair(value: object) -> object:
    if not isinstance(value, list | tuple) or len(value) != 2:
        message = f"the lowest and the highest value are expected, not {describe(value)}"
        raise refuse("made-up", message, "Write for example [1, 9].")
    return value


def _check_range(bounds: tuple[int, int]) -> tuple[int, int]:
    low, high = bounds
    if low > high:
        raise refuse("made-up", f"{low} is above {high}", "Write the lower one first.")
    if low < _LOWEST or high > _HIGHEST or high - low >= _HIGHEST:
        raise refuse("made-up", f"from {low} to {high} is more than a bigint counts", "Write a smaller range.")
    return bounds


def _check_decimals(bounds: tuple[str, str]) -> tuple[str, str]:
    low, high = map(_parse_decimal, bounds)
    if low > high:
        raise refuse("made-up", f"{low} is above {high}", "Write the lower one first.")
    return bounds


def _parse_decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise refuse("made-up", f"{text!r} is not a decimal number", "Write digits, for example -0.5.")
    return number


def _check_dates(bounds: tuple[str, str]) -> tuple[str, str]:
    for text in bounds:
        try:
            _parse_bound(text)
        except (TimingError, ValueError) as exc:
            remedy = 'Write a date, a time such as 2013-11-03T05:00Z, or an expression such as "today(0,0)".'
            reason = split_error(exc).message if isinstance(exc, TimingError) else f"{text!r} is no date: {exc}"
            raise refuse("made-up", reason, remedy) from exc
    return bounds


def _check_regex(text: str) -> str:
    try:
        parse_pattern(text)
    except PatternError as exc:
        finding = split_error(exc)
        raise refuse("made-up", finding.message, finding.remedy) from exc
    return text


def _weigh_alike(value: object) -> object:
    """Return a list of values as a map in which each has the weight 1."""
    if isinstance(value, Mapping) or not isinstance(value, list | tuple):
        return value
    weights = {each: 1 for each in value if not isinstance(each, list | tuple | Mapping)}
    if len(weights) < len(value):
        remedy = "List each value once, or write weights: {a: 3, b: 1}."
        raise refuse("made-up", "a value is listed twice, or is not one text or number", remedy)
    return weights


class MadeUpDecimal(EntityModel):
    """Decimal numbers from the lowest to the highest of `range`, both inclusive, with so many digits behind the point.

    >>> MadeUpDecimal(range=[-0.5, 2], scale=1).steps
    (-5, 20)
    """

    range: Annotated[tuple[Text, Text], BeforeValidator(_check_pair), AfterValidator(_check_decimals)]
    scale: Annotated[Count, Field(ge=0, le=_MOST_DIGITS)] = 2

    @model_validator(mode="after")
    def _check_digits(self) -> Self:
        for text in self.range:
            scaled = Decimal(text).scaleb(self.scale)
            if scaled != scaled.to_integral_value():
                message = f"{text} has more digits behind the point than scale: {self.scale}"
                raise refuse("made-up", message, "Raise scale.")
            if abs(scaled) >= 10**_MOST_DIGITS:
                raise refuse("made-up", f"{text} has more than {_MOST_DIGITS} digits", "Write a smaller range.")
        return self

    @property
    def steps(self) -> tuple[int, int]:
        """The lowest and the highest value, counted in the last digit."""
        low, high = (int(Decimal(text).scaleb(self.scale)) for text in self.range)
        return low, high


class MadeUpColumn(EntityModel):
    """How the values of one column are made: in exactly one way. `nulls` is how many in a hundred are missing.

    `range` is whole numbers, and `dates` are dates or times, from the first to the last, both inclusive. Each of the
    dates is a day, a time, or an expression at the instance's time. `regex` is a pattern of texts (see `patterns.py`).
    A `choice` is one of a list of values, or of a map of values to their weights.

    >>> MadeUpColumn(choice=["EWR", "JFK"]).choice
    {'EWR': 1, 'JFK': 1}
    """

    range: Annotated[tuple[Count, Count] | None, BeforeValidator(_check_pair), AfterValidator(_check_range)] = None
    dates: Annotated[
        tuple[FilledText, FilledText] | None, BeforeValidator(_check_pair), AfterValidator(_check_dates)
    ] = None
    regex: Annotated[FilledText, AfterValidator(_check_regex)] | None = None
    choice: Annotated[
        Map[Text, Annotated[Count, Field(ge=1, le=1_000_000)]],
        BeforeValidator(_weigh_alike, json_schema_input_type=list[Text] | dict[Text, int]),
        Field(max_length=1_000),
    ] = EMPTY
    decimal: MadeUpDecimal | None = None
    nulls: Annotated[float, Field(ge=0, le=100)] = 0

    @model_validator(mode="after")
    def _check_making(self) -> Self:
        written = [each.value for each in Making if getattr(self, each)]
        if len(written) != 1:
            reason = f"{' and '.join(written)} are written" if written else "it does not say how values are made"
            raise refuse("made-up", reason, f"Write one of {', '.join(Making)}.")
        return self

    @property
    def making(self) -> Making:
        """The way in which values are made."""
        return next(each for each in Making if getattr(self, each))


def span_of(dates: tuple[str, str], instance: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return the first and the last second that dates name for an instance; a day ends with its last second.

    >>> span_of(("2013-11-03", "2013-11-03"), datetime(2013, 11, 3, tzinfo=UTC), ZoneInfo("America/New_York"))[1]
    datetime.datetime(2013, 11, 4, 4, 59, 59, tzinfo=datetime.timezone.utc)
    """
    first, last = (_parse_bound(text) for text in dates)
    return _resolve(first, 0, instance, zone), _resolve(last, 1, instance, zone)


def _parse_bound(text: str) -> date | TimeExpression:
    """Parse a day, a time or an expression. Raises TimingError or ValueError."""
    if _DATE.fullmatch(text):
        return date.fromisoformat(text)
    if _MOMENT.fullmatch(text):
        return parse_datetime(text)
    expression = parse_time_expression(text)
    if expression.is_data_driven:
        raise ValueError("it depends on what there is")
    return expression


def _resolve(bound: date | TimeExpression, days: int, instance: datetime, zone: ZoneInfo) -> datetime:
    """Return a bound as a time; of a day, its start or, with one day more, its last second."""
    match bound:
        case TimeExpression():
            return bound.evaluate(instance, zone)
        case datetime():
            return bound
        case _:
            midnight = datetime.combine(bound + timedelta(days=days), time(), zone).astimezone(UTC)
            return midnight - days * _SECOND
