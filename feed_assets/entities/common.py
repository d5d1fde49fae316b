"""Fields that every entity has, and models that several kinds share."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, NamedTuple, Self

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
    Permission,
    PropertyName,
    Share,
    Since,
    SizeField,
    Text,
    Version,
    refuse,
)
from feed_assets.entities.maps import EMPTY, Map
from feed_assets.entities.metadata import MetadataKey, MetadataKind, Scope
from feed_assets.issues import EntityKey, FieldPath
from feed_assets.receivers import Channel
from feed_assets.timing.dates import NEVER, parse_timezone, render_datetime
from feed_assets.timing.sequence import Frequency, InstanceSequence, Unit


class Kind(StrEnum):
    """The kinds of entities; dependencies come first."""

    CLUSTER = "cluster"
    DATASOURCE = "datasource"
    FEED = "feed"
    PROCESS = "process"


class EntityModel(BaseModel):
    """Base of entities and their parts: frozen; unknown keys are refused.

    Validators are built on first use: a run with a cached plan validates no entity.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        validate_default=False,
        defer_build=True,
    )


Properties = Map[PropertyName, Text]
"""Names and texts that are passed to workflows and can be used as `${name}`."""

Tags = Annotated[
    Map[Text, Text],
    CHECK_TAGS,
    TAGS_FROM_TEXT,
    WithJsonSchema({"anyOf": [{"type": "object", "additionalProperties": {"type": "string"}}, {"type": "string"}]}),
]
"""Names and values for people and for search: a map, or Falcon's text `k=v,k=v`."""


class Acl(EntityModel):
    """The owner of an entity."""

    owner: FilledText | None = None
    group: FilledText | None = None
    permission: Permission = "*"


class ColumnMetadata(EntityModel):
    """What a file says of a column: properties and tags, for people and for search."""

    properties: Map[Text, Text] = EMPTY
    tags: tuple[Text, ...] = ()


class EntityMetadata(ColumnMetadata):
    """What a file says of an entity, and of the columns of a feed, by their names."""

    columns: Map[Text, ColumnMetadata] = EMPTY


class Entity(EntityModel):
    """The fields that every kind of entity has. Names are unique within a kind."""

    kind: ClassVar[Kind]
    derived_keys: ClassVar[Mapping[str, FieldPath]] = EMPTY
    """Keys whose value comes from another key, if they are not written."""

    name: Name
    description: Text | None = None
    tags: Tags = EMPTY
    metadata: EntityMetadata = EntityMetadata()
    properties: Properties = EMPTY
    acl: Acl | None = None
    version: Version = 0

    @property
    def key(self) -> EntityKey:
        """The kind and name, which identify the entity."""
        return (self.kind.value, self.name)

    @property
    def label(self) -> str:
        """The entity's name in messages: `feed 'clicks'`."""
        return label_of(self.key)


def label_of(key: EntityKey) -> str:
    """Return the name of an entity in messages.

    >>> label_of(("feed", "clicks"))
    "feed 'clicks'"
    """
    kind, name = key
    return f"{kind} {name!r}"


class Validity(EntityModel):
    """The interval `[start, end)`, in UTC, in which instances exist; unlimited without an end.

    >>> Validity(start="2015-01-01T00:00Z").is_endless
    True
    """

    start: Moment
    end: Moment = NEVER

    @property
    def is_endless(self) -> bool:
        """Whether there is no end."""
        return self.end == NEVER

    def sequence(self, frequency: Frequency, timezone: str) -> InstanceSequence:
        """Return the instances in it."""
        end, zone = None if self.is_endless else self.end, parse_timezone(timezone)
        return InstanceSequence(start=self.start, frequency=frequency, timezone=zone, end=end)

    def render(self) -> str:
        """Return the interval as text for messages."""
        until = "with no end" if self.is_endless else f"to {render_datetime(self.end)}"
        return f"{render_datetime(self.start)} {until}"


class RetentionAction(StrEnum):
    """The action taken on an instance that exceeds a limit."""

    DELETE = "delete"
    ARCHIVE = "archive"


class RetentionType(StrEnum):
    """The unit that retention keeps or evicts."""

    INSTANCE = "instance"


class SweepLimits(EntityModel):
    """The most that one sweep may evict without confirmation: a share of the instances, a number, and bytes."""

    share: Share = 0.5
    instances: Annotated[Count, Field(ge=1)] = 10_000
    bytes: SizeField | None = None


class Retention(EntityModel):
    """How long instances are kept, and the action taken on them afterwards.

    An instance is evicted if it is older than `limit`, or if it and newer instances are more than `max_instances` or
    more than `max_bytes`. In all cases the `keep_newest` newest instances stay. An instance also stays until the
    processes `until_read_by` have read it and the clusters `until_replicated_to` have it. `frequency` is the interval
    between sweeps. Removed data stay in the trash for the time `trash` and are then deleted. `archive_to` is a path
    template below the cluster's storage, or a URL; it is only for the action `archive`. `type` is Falcon's, and has one
    value. Of a feed with a current instance `versions` former ones stay in the trash, and nothing else is retained.

    Differs from Falcon: retention continues after the end of the validity, unless `after_validity` is false.

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
    versions: Annotated[Count, Field(ge=0)] = 0
    sweep_limits: SweepLimits = SweepLimits()

    @model_validator(mode="after")
    def _check_archive(self) -> Self:
        if self.archive_to is not None and self.action is not RetentionAction.ARCHIVE:
            raise refuse(
                "retention",
                f"archive_to is written, but the action is {self.action.value!r}",
                "Write action: archive, or remove archive_to.",
            )
        return self


class SlaTerms(EntityModel):
    """What the SLAs of feeds and processes have in common.

    Deadlines are watched from the moment at which the SLA is declared, or those of the instances `since` a time. With
    `warn_at`, a probability, a miss that is as likely is told before it happens.
    """

    since: Since = None
    warn_at: Share | None = None


class Sla(SlaTerms):
    """The allowed delay of an instance from its nominal time: after `low` a warning, after `high` an error."""

    low: FrequencyField
    high: FrequencyField


class LocationKind(StrEnum):
    """The content of a location: the data of an instance, or files that accompany the data."""

    DATA = "data"
    STATS = "stats"
    META = "meta"
    TMP = "tmp"


class Locations(EntityModel):
    """Path templates of the data of an instance and of accompanying files, below the cluster's storage or as URLs."""

    data: FilledText | None = None
    stats: FilledText | None = None
    meta: FilledText | None = None
    tmp: FilledText | None = None

    def find(self, kind: LocationKind) -> str | None:
        """Return the template of one kind; None if there is none."""
        found: str | None = getattr(self, kind.value)
        return found


USER_TOPIC_SWITCH = "userJMSNotificationEnabled"
"""The property of Falcon that, with the value `false`, leaves an entity without a user topic."""


class Level(StrEnum):
    """The ends that are notified: those of every attempt, or of the instance only."""

    ATTEMPT = "attempt"
    INSTANCE = "instance"


class Occasion(StrEnum):
    """What is notified: a success, a failure, a missed deadline, used-up retries, a sweep that asks, a change."""

    SUCCESS = "success"
    FAILURE = "failure"
    LATE = "late"
    RETRY = "retry"
    SWEEP = "sweep"
    CHANGE = "change"


class Notification(EntityModel):
    """Who is told of an entity, and of what. `to` has addresses of electronic mail, URLs, or names of receivers of the
    settings.

    Differs from Falcon: a failure that is retried is notified only with `level: attempt`; Falcon ignores the level.
    """

    type: Channel = Channel.EMAIL
    level: Level | None = None
    to: Annotated[tuple[FilledText, ...], Field(min_length=1, repr=False)]
    on: Annotated[tuple[Occasion, ...], Field(min_length=1)] = (Occasion.SUCCESS, Occasion.FAILURE)

    @model_validator(mode="after")
    def _check_type(self) -> Self:
        if self.type in (Channel.COMMAND, Channel.OPENLINEAGE):
            what = "a command" if self.type is Channel.COMMAND else "a receiver of OpenLineage"
            raise refuse(
                "notification", f"only the settings can name {what}", "Declare it there, and write its name in to."
            )
        return self


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


class MetadataEntry(NamedTuple):
    """A property or tag that a file says of an entity, or of one of its columns; `value` is "" for a tag."""

    column: str | None
    key: MetadataKey
    value: str
    place: FieldPath


def iter_metadata(entity: Entity) -> Iterator[MetadataEntry]:
    """Yield what a file says of an entity, then of its columns. The map `tags`, which is Falcon's, has properties."""
    for name, value in entity.tags.items():
        yield MetadataEntry(None, _key(MetadataKind.PROPERTY, name), value, ("tags", name))
    yield from _iter_part(None, entity.metadata, ("metadata",))
    for column, part in entity.metadata.columns.items():
        yield from _iter_part(column, part, ("metadata", "columns", column))


def _iter_part(column: str | None, part: ColumnMetadata, place: FieldPath) -> Iterator[MetadataEntry]:
    for name, value in part.properties.items():
        yield MetadataEntry(column, _key(MetadataKind.PROPERTY, name), value, (*place, "properties", name))
    for position, tag in enumerate(part.tags):
        yield MetadataEntry(column, _key(MetadataKind.TAG, tag), "", (*place, "tags", position))


def _key(kind: MetadataKind, name: str) -> MetadataKey:
    return MetadataKey(Scope.USER, kind, name)
