"""What people ask for that cannot be answered or done as things stand."""

from collections.abc import Sequence
from datetime import datetime

from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import FeedAssetsError


class VersionNotFoundError(DefinitionsError):
    """An entity has no such version, or none at that time."""

    def __init__(self, *, kind: str, name: str, wanted: str, known: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(
            location=f"{kind} {name!r}",
            reason=f"there is no version {wanted}; {known}",
            next_step="Choose one that its history lists.",
        )


class InstanceQueryError(FeedAssetsError):
    """A range, filter, order or page of instances that makes no question."""

    def __init__(self, *, subject: str, reason: str, next_step: str) -> None:
        self.subject = subject
        self.reason = reason
        super().__init__(f"{subject}: {reason}. {next_step}")


class ArrivalRefusedError(FeedAssetsError):
    """Somebody says that an instance has arrived, and it has not, or it is not theirs to say; nothing was recorded."""

    def __init__(self, *, feed: str, cluster: str | None, nominal_time: datetime, reason: str, next_step: str) -> None:
        self.feed = feed
        self.cluster = cluster
        self.nominal_time = nominal_time
        self.reason = reason
        place = f" on {cluster}" if cluster else ""
        super().__init__(f"feed {feed!r}{place} at {nominal_time:%Y-%m-%dT%H:%MZ}: {reason}. {next_step}")


class VerbRefusedError(FeedAssetsError):
    """What was asked about an entity cannot be done as things stand; nothing was changed."""

    def __init__(self, *, subject: str, reason: str, next_step: str) -> None:
        self.subject = subject
        self.reason = reason
        self.next_step = next_step
        super().__init__(f"{subject}: {reason}. {next_step}")


class EntityExistsError(VerbRefusedError):
    """Another definition of that name is declared."""

    def __init__(self, *, kind: str, name: str, place: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(
            subject=f"{kind} {name!r}",
            reason=f"it is declared already, and differently, in {place}",
            next_step="Use update to change it, or delete it first.",
        )


class EntityReferencedError(VerbRefusedError):
    """Others name what should be removed; `referrers` are their labels."""

    def __init__(self, *, kind: str, name: str, referrers: Sequence[str]) -> None:
        self.kind = kind
        self.name = name
        self.referrers = tuple(referrers)
        super().__init__(
            subject=f"{kind} {name!r}",
            reason=f"it cannot be removed, {', '.join(referrers)} {'refers' if len(referrers) == 1 else 'refer'} to it",
            next_step="Delete or change those first.",
        )


class NotSchedulableError(VerbRefusedError):
    """A kind of entity that has no schedule, or work that nothing here can do."""


class NotScheduledError(VerbRefusedError):
    """An entity that is not scheduled anywhere."""

    def __init__(self, *, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(subject=f"{kind} {name!r}", reason="it is not scheduled", next_step="Schedule it first.")


class SafeModeError(VerbRefusedError):
    """Safe mode is on and forbids an operation, or is off and the operation needs it."""


class PlanOutdatedError(VerbRefusedError):
    """A plan that is applied to another world than it was made for."""

    def __init__(self, *, digest: str) -> None:
        self.digest = digest
        super().__init__(
            subject=f"plan {digest[:12]}",
            reason="it is outdated: files, definitions, schedules or releases have changed since",
            next_step="Nothing was changed. Plan again, look at what it says, and apply that.",
        )


class ArrivalsFileError(FeedAssetsError):
    """A line of a file of arrivals that says nothing a simulation can do."""

    def __init__(self, *, file: str, line: int, reason: str) -> None:
        self.file = file
        self.line = line
        self.reason = reason
        super().__init__(f"{file}:{line}: {reason}. Columns are feed, cluster, instance, at and, if need be, content.")


class MirrorTemplateError(FeedAssetsError):
    """What is given makes no mirror."""

    def __init__(self, *, reason: str, next_step: str) -> None:
        self.reason = reason
        super().__init__(f"mirror: {reason}. {next_step}")
