"""What the rows of a feed must be like, and what happens to those that are not."""

import re
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from feed_assets.entities.common import EntityModel
from feed_assets.entities.fields import Count, FilledText, Name, refuse
from feed_assets.entities.maps import EMPTY, Map

BROKEN_RULES = "broken_rules"
"""The column of a quarantine that names the rules that a row broke, separated by commas."""
UNIQUE = "unique"
"""The name under which `unique` is counted beside the rules."""


class OnFail(StrEnum):
    """What happens to bad rows. BLOCK: they are left out, and too many of them keep the instance from being published.
    WARN: they are published like the others, and told.
    """

    BLOCK = "block"
    WARN = "warn"


_LATEST = re.compile(r"latest\((?P<count>[1-9]\d{0,3})\)")  # latest(1)
_COLUMN = re.compile(r"(?P<feed>[^.\s]+)\.(?P<column>\S+)")  # customers.id


class Comparison(EntityModel):
    """How an aggregate stands to that of an earlier instance: from `at_least` to `at_most` times its value.

    `latest(1)` is the available instance before the judged one, `latest(7)` the seventh before. Without an earlier
    instance there is nothing to compare, and the comparison holds.
    """

    value: FilledText = "count(*)"
    to: FilledText = "latest(1)"
    at_least: Annotated[float, Field(ge=0)] | None = None
    at_most: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if _LATEST.fullmatch(self.to) is None:
            raise refuse("quality", f"to is {self.to!r}", "Write latest(1) for the instance before, or latest(7).")
        if self.at_least is None and self.at_most is None:
            raise refuse("quality", "it demands nothing", "Write at_least or at_most, for example at_least: 0.5.")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            reason = f"at_least {self.at_least:g} is more than at_most {self.at_most:g}, so it never holds"
            raise refuse("quality", reason, "Exchange them.")
        return self

    @property
    def back(self) -> int:
        """How many available instances before the judged one that is with which it is compared."""
        found = _LATEST.fullmatch(self.to)
        assert found is not None
        return int(found["count"])


class KeyColumn(NamedTuple):
    """A column of another feed."""

    feed: str
    column: str


class Quality(EntityModel):
    """The quality to which a process that writes the feed is held, and what comes from outside.

    `rules` are conditions of Spark SQL on a row, by name; a row breaks a rule whose result is false or null. It breaks
    `unique` if another row of the instance has the same values in these columns, none of them null, and `in_feed` if
    the value of a column is not null and is not in a column of the newest instance of another feed. At least
    `threshold` percent of the rows must be good, and at least `min_rows` rows. Bad rows go to the instance of the
    `quarantine`, another feed, with the rules that each broke. The conditions `aggregates` are about all rows of the
    instance, and `compare` about these and those of an earlier one.

    >>> Quality(rules={"warm": "temp > -40"}, threshold=95).has_passed(rows=1000, good=950)
    True
    """

    rules: Map[Name, FilledText] = EMPTY
    unique: tuple[FilledText, ...] = ()
    in_feed: Map[FilledText, FilledText] = EMPTY
    aggregates: Map[Name, FilledText] = EMPTY
    compare: Map[Name, Comparison] = EMPTY
    min_rows: Annotated[Count, Field(ge=1)] | None = None
    threshold: Annotated[float, Field(ge=0, le=100)] = 100
    on_fail: OnFail = OnFail.BLOCK
    quarantine: Name | None = None

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if not (self.rules or self.unique or self.min_rows or self.in_feed or self.aggregates or self.compare):
            raise refuse(
                "quality", "it demands nothing", "Write rules, unique, min_rows, in_feed, aggregates or compare."
            )
        if UNIQUE in self.rules:
            raise refuse("quality", f"a rule is called {UNIQUE!r}, as the demand of unique is", "Rename the rule.")
        names = [*self.rules, *self.in_feed, *self.aggregates, *self.compare]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise refuse("quality", f"{twice[0]!r} names two demands", "Give each rule a name of its own.")
        for column, text in self.in_feed.items():
            if _COLUMN.fullmatch(text) is None:
                raise refuse("quality", f"in_feed.{column} is {text!r}", "Write a feed and its column: customers.id.")
        return self

    @property
    def keys(self) -> dict[str, KeyColumn]:
        """The columns of other feeds that must have the values of columns, by these."""
        found = ((column, _COLUMN.fullmatch(text)) for column, text in self.in_feed.items())
        return {column: KeyColumn(each["feed"], each["column"]) for column, each in found if each is not None}

    @property
    def needed(self) -> Decimal:
        """The threshold, exactly as it was written."""
        return Decimal(str(self.threshold)).normalize()

    def has_passed(self, *, rows: int, good: int) -> bool:
        """Return whether an instance with so many rows is good enough. One without rows has no bad ones."""
        return good >= (self.min_rows or 0) and good * 100 >= self.needed * rows
