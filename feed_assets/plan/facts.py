"""What an entity says beside its work: descriptions, words for searches, who is told, and deadlines."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from feed_assets.access.records import NOBODYS, AclRecord
from feed_assets.entities.common import Notification, Sla
from feed_assets.entities.metadata import MetadataKey
from feed_assets.entities.process import ProcessSla
from feed_assets.timing.sequence import Frequency


class MetadataRecord(NamedTuple):
    """A property or tag that a file says of an entity, or of one of its columns, and the line; a tag has no value.

    No dataclass: the cached plan of 1,500 entities would take 60 ms longer to load (measured).
    """

    column: str | None
    key: MetadataKey
    value: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityFacts:
    """What an entity says beside its work: it may change without a new release.

    Descriptive fields are shown in the UI and searched; `metadata` is that of it and its columns. Its messages have a
    user topic unless `has_user_topic` is false.
    """

    description: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    groups: tuple[str, ...] = ()
    owner: str | None = None
    acl: AclRecord = NOBODYS
    file: str | None = None
    line: int | None = None
    metadata: tuple[MetadataRecord, ...] = ()
    notification: Notification | None = None
    has_user_topic: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaRecord:
    """The deadlines of the instances, from their nominal times: after `low` a warning, after `high` an error.

    Of a feed, both are until the instance is there. Of a process, `low` is until it starts, if that is declared, and
    `high` until it succeeds. `since` is the first nominal time with deadlines; None means those that fall due from the
    declaration on. `warn_at` is the probability of a miss that is told before it happens.
    """

    low: Frequency | None
    high: Frequency
    since: datetime | None = None
    warn_at: float | None = None

    def render(self) -> str:
        """Return the text form, `low hours(1), high hours(3)`."""
        low = f"low {self.low.render()}, " if self.low is not None else ""
        return f"{low}high {self.high.render()}"


def compile_sla(sla: Sla | ProcessSla | None) -> SlaRecord | None:
    """Compile a validated SLA; None if there is none, or it has no end."""
    match sla:
        case Sla(low=low, high=high):
            return SlaRecord(low=low, high=high, since=sla.since, warn_at=sla.warn_at)
        case ProcessSla(should_start_in=low, should_end_in=high) if high is not None:
            return SlaRecord(low=low, high=high, since=sla.since, warn_at=sla.warn_at)
        case _:
            return None
