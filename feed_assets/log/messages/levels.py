"""The levels of missed deadlines."""

from enum import StrEnum


class SlaLevel(StrEnum):
    """What a missed deadline is: a warning or an error."""

    LOW = "low"
    HIGH = "high"
