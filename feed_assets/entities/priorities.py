"""Falcon's properties for priority and queue, and the meaning of their values."""

from collections.abc import Mapping
from enum import StrEnum

PRIORITY_PROPERTY = "jobPriority"
QUEUE_PROPERTY = "queueName"


class JobPriority(StrEnum):
    """The priorities, from the highest to the lowest."""

    VERY_HIGH = "VERY_HIGH"
    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"
    VERY_LOW = "VERY_LOW"

    @property
    def level(self) -> int:
        """A number from 2 to -2; NORMAL is 0.

        >>> JobPriority.VERY_HIGH.level, JobPriority.VERY_LOW.level
        (2, -2)
        """
        return 2 - list(JobPriority).index(self)


def find_priority(properties: Mapping[str, str]) -> JobPriority | None:
    """Return the priority of an entity: NORMAL without the property, None if its value is not a priority.

    >>> find_priority({"jobPriority": "high"}), find_priority({"jobPriority": "urgent"})
    (<JobPriority.HIGH: 'HIGH'>, None)
    """
    written = properties.get(PRIORITY_PROPERTY, JobPriority.NORMAL).strip().upper()
    return JobPriority(written) if written in list(JobPriority) else None


def find_queue(properties: Mapping[str, str]) -> str | None:
    """Return the queue of an entity; None without the property.

    >>> find_queue({"queueName": "reports"}), find_queue({"queueName": " "})
    ('reports', None)
    """
    return properties.get(QUEUE_PROPERTY, "").strip() or None
