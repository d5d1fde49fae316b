"""Topics and levels of messages for other programs: by them, settings and readers choose."""

from enum import StrEnum


class Topic(StrEnum):
    """The subject of a message, by which readers choose."""

    EVICTION = "eviction"
    METADATA = "metadata"
    INSTANCE = "instance"
    SLA = "sla"
    RETRY = "retry"
    SWEEP = "sweep"
    ENTITY = "entity"
    HEALTH = "health"
    ARRIVAL = "arrival"


class MessageLevel(StrEnum):
    """How urgent a message is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
