"""What the rows of a feed must be like, and what happens to those that are not."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Self

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


class Quality(EntityModel):
    """The quality to which a process that writes the feed is held.

    `rules` are conditions of Spark SQL on a row, by name; a row breaks a rule whose result is false or null. It breaks
    `unique` if another row of the instance has the same values in these columns, none of them null. At least
    `threshold` percent of the rows must be good, and at least `min_rows` rows. Bad rows go to the instance of the
    `quarantine`, another feed, with the rules that each broke.

    >>> Quality(rules={"warm": "temp > -40"}, threshold=95).has_passed(rows=1000, good=950)
    True
    """

    rules: Map[Name, FilledText] = EMPTY
    unique: tuple[FilledText, ...] = ()
    min_rows: Annotated[Count, Field(ge=1)] | None = None
    threshold: Annotated[float, Field(ge=0, le=100)] = 100
    on_fail: OnFail = OnFail.BLOCK
    quarantine: Name | None = None

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if not (self.rules or self.unique or self.min_rows):
            raise refuse("quality", "it demands nothing", "Write rules, unique or min_rows.")
        if UNIQUE in self.rules:
            raise refuse("quality", f"a rule is called {UNIQUE!r}, as the demand of unique is", "Rename the rule.")
        return self

    @property
    def needed(self) -> Decimal:
        """The threshold, exactly as it was written."""
        return Decimal(str(self.threshold)).normalize()

    def has_passed(self, *, rows: int, good: int) -> bool:
        """Return whether an instance with so many rows is good enough. One without rows has no bad ones."""
        return good >= (self.min_rows or 0) and good * 100 >= self.needed * rows
