"""What every entity has, and the parts that several kinds share."""

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from feed_assets.entities.fields import (
    CHECK_TAGS,
    TAGS_FROM_TEXT,
    Count,
    FilledText,
    FrequencyField,
    Moment,
    Name,
    Names,
    PropertyName,
    Share,
    SizeField,
    Text,
    Version,
    refuse,
)
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.issues import EntityKey
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.timing.frequency import Frequency, Unit


class Kind(StrEnum):
    """The kinds of entities, what is depended on first."""

    CLUSTER = "cluster"
    DATASOURCE = "datasource"
    FEED = "feed"
    PROCESS = "process"


class EntityModel(BaseModel):
    """Base of entities and their parts: frozen, and without keys that it does not know."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, validate_default=False, use_attribute_docstrings=True
    )


Properties = Map[PropertyName, Text]
"""Names and texts that are handed to workflows and can be used as `${name}`."""

Tags = Annotated[
    Map[Text, Text],
    CHECK_TAGS,
    TAGS_FROM_TEXT,
    WithJsonSchema({"anyOf": [{"type": "object", "additionalProperties": {"type": "string"}}, {"type": "string"}]}),
]
"""Names and values for people and searches: a map, or Falcon's text `k=v,k=v`."""


class Acl(EntityModel):
    """Whose an entity is."""

    owner: FilledText | None = None
    group: FilledText | None = None
    permission: FilledText = "*"


class Entity(EntityModel):
    """What every kind of entity has. Names are unique within a kind."""

    kind: ClassVar[Kind]

    name: Name
    description: Text | None = None
    tags: Tags = EMPTY
    properties: Properties = EMPTY
    acl: Acl | None = None
    version: Version = 0

    @property
    def key(self) -> EntityKey:
        """What identifies the entity: its kind and name."""
        return (self.kind.value, self.name)

    @property
    def label(self) -> str:
        """How messages call the entity: `feed 'clicks'`."""
        return label_of(self.key)


def label_of(key: EntityKey) -> str:
    """How messages call an entity.

    >>> label_of(("feed", "clicks"))
    "feed 'clicks'"
    """
    kind, name = key
    return f"{kind} {name!r}"


class Validity(EntityModel):
    """When instances exist: `[start, end)`, in UTC; without an end for ever.

    >>> Validity(start="2015-01-01T00:00Z").is_endless
    True
    """

    start: Moment
    end: Moment = NEVER

    @property
    def is_endless(self) -> bool:
        """Whether there is no end."""
        return self.end == NEVER

    def render(self) -> str:
        """The interval for messages."""
        until = "without end" if self.is_endless else f"to {render_datetime(self.end)}"
        return f"{render_datetime(self.start)} {until}"


class RetentionAction(StrEnum):
    """What happens to an instance that is older than the limit."""

    DELETE = "delete"
    ARCHIVE = "archive"


class RetentionType(StrEnum):
    """What is kept or evicted as one."""

    INSTANCE = "instance"


class SweepLimits(EntityModel):
    """How much one sweep may take without asking: a share of the instances, a number of them, and bytes."""

    share: Share = 0.5
    instances: Annotated[Count, Field(ge=1)] = 10_000
    bytes: SizeField | None = None


class Retention(EntityModel):
    """How long instances are kept, and what happens to them then.

    An instance goes when it is older than `limit`, or when there are more than `max_instances`, or more than
    `max_bytes`, of newer ones and itself; whatever the reason, the `keep_newest` newest stay, and one stays until the
    processes `until_read_by` have read it and the clusters `until_replicated_to` have it. `frequency` is how often is
    looked. What is removed lies in the trash for the time `trash`, then it is gone. `archive_to` is a path template
    below the cluster's storage, or a URL; only for the action `archive`. `type` is Falcon's, and has one value.

    Differs from Falcon: retention goes on after the validity has ended, unless `after_validity` is false.

    >>> Retention(limit="days(90)", keep_newest=3, sweep_limits={"bytes": "10GiB"}).sweep_limits.bytes.bytes
    10737418240
    """

    type: RetentionType = RetentionType.INSTANCE
    limit: FrequencyField | None = None
    action: RetentionAction = RetentionAction.DELETE
    archive_to: FilledText | None = None
    keep_newest: Annotated[Count, Field(ge=0)] = 0
    max_instances: Annotated[Count, Field(ge=1)] | None = None
    max_bytes: SizeField | None = None
    until_read_by: Names = ()
    until_replicated_to: Names = ()
    after_validity: bool = True
    frequency: FrequencyField | None = None
    trash: FrequencyField = Frequency(unit=Unit.DAYS, count=7)
    sweep_limits: SweepLimits = SweepLimits()

    @model_validator(mode="after")
    def _archives_where_it_says(self) -> Self:
        if self.archive_to is not None and self.action is not RetentionAction.ARCHIVE:
            raise refuse(
                "retention",
                f"archive_to is written, but the action is {self.action.value!r}",
                "Write action: archive, or remove archive_to.",
            )
        return self


class Sla(EntityModel):
    """How late an instance may become: after `low` a warning, after `high` an error, counted from its nominal time."""

    low: FrequencyField
    high: FrequencyField


class LocationKind(StrEnum):
    """What lies at a location: the data of an instance, or what belongs to it."""

    DATA = "data"
    STATS = "stats"
    META = "meta"
    TMP = "tmp"


class Locations(EntityModel):
    """Path templates of the data of an instance and of what belongs to it, below the cluster's storage or URLs."""

    data: FilledText | None = None
    stats: FilledText | None = None
    meta: FilledText | None = None
    tmp: FilledText | None = None

    def find(self, kind: LocationKind) -> str | None:
        """The template of one kind."""
        found: str | None = getattr(self, kind.value)
        return found


class Level(StrEnum):
    """Which ends are told: of every attempt, or of the instance only."""

    ATTEMPT = "attempt"
    INSTANCE = "instance"


class Channel(StrEnum):
    """How people are told."""

    EMAIL = "email"


class Notification(EntityModel):
    """Whom to tell about the end of instances."""

    type: Channel = Channel.EMAIL
    level: Level | None = None
    to: Annotated[tuple[FilledText, ...], Field(min_length=1)]
