"""Rules about the properties for the priority of work."""

from collections.abc import Iterator

from feed_assets.entities.feed import Feed
from feed_assets.entities.priorities import PRIORITY_PROPERTY, JobPriority, find_priority
from feed_assets.entities.process import Process
from feed_assets.issues import Severity
from feed_assets.validation.scope import Complaint, Scope


def check_priority(_: Scope, entity: Feed | Process) -> Iterator[Complaint]:
    """The property jobPriority must be one of Falcon's priorities; another value counts as NORMAL."""
    if find_priority(entity.properties) is None:
        written = entity.properties[PRIORITY_PROPERTY]
        yield Complaint(
            path=("properties", PRIORITY_PROPERTY),
            message=f"{PRIORITY_PROPERTY} {written!r} is not a priority; NORMAL is used",
            remedy=f"Write one of {', '.join(JobPriority)}.",
            severity=Severity.WARNING,
        )
