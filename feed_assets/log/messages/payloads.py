"""What messages for other programs say: the content that a message of each topic has."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias, TypedDict, assert_never

from feed_assets.entities.common import Kind
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.metadata import Origin
from feed_assets.issues import EntityKey
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.receivers import MessageLevel, Topic

NONE = "NONE"
"""What Falcon's keys have where there is no output."""


class EvictionOperation(StrEnum):
    """What retention has done to a path; DELETE is Falcon's word."""

    DELETE = "DELETE"
    RESTORE = "RESTORE"


class InstanceOperation(StrEnum):
    """What an instance has done, in Falcon's words."""

    GENERATE = "GENERATE"
    REPLICATE = "REPLICATE"
    IMPORT = "IMPORT"
    EXPORT = "EXPORT"
    DELETE = "DELETE"


class InstanceEnd(StrEnum):
    """How an instance has ended, in Falcon's words."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class SlaEvent(StrEnum):
    """What has happened to a deadline."""

    MISSED = "missed"
    RECOVERED = "recovered"
    AT_RISK = "at risk"


class EntityAction(StrEnum):
    """What was done to an entity."""

    SUBMIT = "submit"
    UPDATE = "update"
    DELETE = "delete"
    RENAME = "rename"
    SCHEDULE = "schedule"
    SUSPEND = "suspend"
    RESUME = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPayload:
    """A path of a feed that a sweep has removed, or that was restored. `path` is below `store`."""

    topic: ClassVar[Topic] = Topic.EVICTION
    level: ClassVar[MessageLevel] = MessageLevel.INFO

    operation: EvictionOperation
    feed: str
    cluster: str
    nominal_time: datetime
    kind: str
    store: str
    path: str
    sweep: str
    rule: str
    others: Mapping[str, object] = EMPTY

    @property
    def subject(self) -> EntityKey:
        """The kind and name of the entity that the message is about."""
        return (Kind.FEED.value, self.feed)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPayload:
    """A change of the metadata of an entity. `entity` is its path, such as `feed/clicks/column/user`."""

    topic: ClassVar[Topic] = Topic.METADATA
    level: ClassVar[MessageLevel] = MessageLevel.INFO

    entity: str
    author: str
    origin: Origin
    previous: Mapping[str, Any]
    additions: Mapping[str, Any]
    deletions: Mapping[str, Any]
    others: Mapping[str, object] = EMPTY

    @property
    def subject(self) -> EntityKey:
        """The kind and name of the entity that the message is about: the one at the beginning of the path."""
        kind, _, below = self.entity.partition("/")
        return (kind, below.partition("/")[0])


class InstanceRange(TypedDict, total=False):
    """How many instances a message is about, if it is more than one."""

    count: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePayload:
    """The end of an attempt of an instance, for one path, in Falcon's keys; or of `count` that did not succeed, of
    which `nominal_time` is the `oldest`.

    `cluster` of a copy is `target,source`. `feed_names` and `feed_instance_paths` are `NONE` where there is no output.
    `workflow_id` is the run of Dagster, `run_id` the number of the attempt. If another attempt follows without
    anybody's help, the message is not `final`.
    """

    topic: ClassVar[Topic] = Topic.INSTANCE

    cluster: str
    entity_name: str
    entity_type: Kind
    nominal_time: datetime
    operation: InstanceOperation
    feed_names: str = NONE
    feed_instance_paths: str = NONE
    workflow_id: str = NONE
    workflow_user: str = NONE
    run_id: str = NONE
    status: InstanceEnd
    time_stamp: datetime
    log_dir: str = NONE
    final: bool = True
    error: str | None = None
    count: int | None = None
    oldest: datetime | None = None
    newest: datetime | None = None
    others: Mapping[str, object] = EMPTY

    @property
    def level(self) -> MessageLevel:
        """How urgent it is: a failure that is retried is a warning, any other an error."""
        if self.status is InstanceEnd.SUCCEEDED:
            return MessageLevel.INFO
        return MessageLevel.ERROR if self.final else MessageLevel.WARNING

    @property
    def subject(self) -> EntityKey:
        """The kind and name of the entity that the message is about."""
        return (self.entity_type.value, self.entity_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesPayload:
    """What messages about instances of an entity have in common."""

    kind: Kind
    entity: str
    cluster: str
    others: Mapping[str, object] = EMPTY

    @property
    def subject(self) -> EntityKey:
        """The kind and name of the entity that the message is about."""
        return (self.kind.value, self.entity)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPayload(InstancesPayload):
    """An instance that has failed in its last attempt, or `count` of them: no other follows without a command."""

    topic: ClassVar[Topic] = Topic.RETRY
    level: ClassVar[MessageLevel] = MessageLevel.ERROR

    nominal_time: datetime
    attempts: int
    run_id: str | None = None
    error: str | None = None
    count: int | None = None
    oldest: datetime | None = None
    newest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaPayload(InstancesPayload):
    """Instances of an entity that miss a deadline, or that do not miss it any more: one message for all of a tick.

    `sla` is the level of the deadline; of a recovery, the highest that was missed. Those at risk will probably miss it.
    `instances` has the `count` nominal times, oldest first. `reason` is the root cause of the oldest one, how they
    recovered, or why a miss is probable.
    """

    topic: ClassVar[Topic] = Topic.SLA

    event: SlaEvent
    sla: SlaLevel
    count: int
    oldest: datetime
    newest: datetime
    instances: tuple[str, ...]
    reason: str | None = None

    @property
    def level(self) -> MessageLevel:
        """How urgent it is: a missed `low` is a warning, a missed `high` an error."""
        match self.event:
            case SlaEvent.RECOVERED:
                return MessageLevel.INFO
            case SlaEvent.AT_RISK:
                return MessageLevel.WARNING
            case SlaEvent.MISSED:
                return MessageLevel.WARNING if self.sla is SlaLevel.LOW else MessageLevel.ERROR
            case _:
                assert_never(self.event)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPayload:
    """A sweep that exceeds its limits and asks somebody to approve or cancel it; one message for each of its feeds."""

    topic: ClassVar[Topic] = Topic.SWEEP
    level: ClassVar[MessageLevel] = MessageLevel.WARNING

    sweep: str
    feed: str
    cluster: str
    instances: int
    bytes: int | None = None
    reason: str
    others: Mapping[str, object] = EMPTY

    @property
    def subject(self) -> EntityKey:
        """The kind and name of the entity that the message is about."""
        return (Kind.FEED.value, self.feed)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPayload:
    """A change of an entity, or of whether it is scheduled. Without clusters, it concerns all of them."""

    topic: ClassVar[Topic] = Topic.ENTITY
    level: ClassVar[MessageLevel] = MessageLevel.INFO

    action: EntityAction
    kind: Kind
    entity: str
    author: str
    clusters: tuple[str, ...] = ()
    others: Mapping[str, object] = EMPTY

    @property
    def subject(self) -> EntityKey:
        """The kind and name of the entity that the message is about."""
        return (self.kind.value, self.entity)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalPayload(InstancesPayload):
    """Instances of a feed that have come, or batches of a process that were cut: one message for all of a tick."""

    topic: ClassVar[Topic] = Topic.ARRIVAL
    level: ClassVar[MessageLevel] = MessageLevel.INFO

    count: int
    oldest: datetime
    newest: datetime


class Happening(StrEnum):
    """What lineage tells of, in OpenLineage's words: begin and end of a run, or data without one."""

    START = "START"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"
    DATA = "DATA"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineagePayload(InstancesPayload):
    """Begin or end of a run: of an `attempt` of a process or flow at an instance, or of a sweep's part for a feed; or
    an `event` of an instance of a feed that no run has caused.

    `begun_at` is when the run has begun, `run_id` the run in Dagster, `reason` why it has failed.
    """

    topic: ClassVar[Topic] = Topic.LINEAGE

    happening: Happening
    nominal_time: datetime | None = None
    begun_at: datetime | None = None
    process: str | None = None
    attempt: int | None = None
    run_id: str | None = None
    reason: str | None = None
    sweep: str | None = None
    event: int | None = None

    @property
    def level(self) -> MessageLevel:
        """How urgent it is: a failure is an error, an end before the end a warning."""
        levels = {Happening.FAIL: MessageLevel.ERROR, Happening.ABORT: MessageLevel.WARNING}
        return levels.get(self.happening, MessageLevel.INFO)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPayload:
    """What fails in the ticks, each as a sentence; nothing once everything works again. `count` may be larger than the
    number of sentences. `recovered` is what works again since the last message, with how long it has failed.
    """

    topic: ClassVar[Topic] = Topic.HEALTH
    subject: ClassVar[EntityKey] = ("location", "definitions")

    count: int
    failing: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()
    others: Mapping[str, object] = EMPTY

    @property
    def level(self) -> MessageLevel:
        """How urgent it is: an error as long as something fails."""
        return MessageLevel.ERROR if self.count else MessageLevel.INFO


MessagePayload: TypeAlias = (
    EvictionPayload
    | MetadataPayload
    | InstancePayload
    | SlaPayload
    | RetryPayload
    | SweepPayload
    | EntityPayload
    | ArrivalPayload
    | LineagePayload
    | HealthPayload
)
