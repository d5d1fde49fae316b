"""Messages for other programs: the topics, and the content that a message of each topic has.

Only this module writes content as JSON and reads it back. Keys that a row has and this release does not know survive.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, TypeAlias, assert_never, get_origin, get_type_hints

from pydantic import PlainSerializer

from feed_assets.entities.common import Kind
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.metadata import Origin
from feed_assets.issues import EntityKey
from feed_assets.json_form import shown
from feed_assets.state.errors import StateError
from feed_assets.state.sla_records import SlaLevel
from feed_assets.topics import MessageLevel, Topic

NONE = "NONE"
"""What Falcon's keys have where there is no output."""

_OTHERS = "others"


class EvictionOperation(StrEnum):
    """What retention has done to a path; DELETE is Falcon's word."""

    DELETE = "DELETE"
    RESTORE = "RESTORE"


class InstanceOperation(StrEnum):
    """What an instance has done, in Falcon's words."""

    GENERATE = "GENERATE"
    REPLICATE = "REPLICATE"
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
    SCHEDULE = "schedule"
    SUSPEND = "suspend"
    RESUME = "resume"


def render_falcon_time(moment: datetime) -> str:
    """Return a time as Falcon writes it in messages.

    >>> render_falcon_time(datetime(2013, 11, 3, 5, tzinfo=UTC))
    '2013-11-03-05-00'
    """
    at = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return (
        f"{at.year:04}-{at.month:02}-{at.day:02}-{at.hour:02}-{at.minute:02}"  # measured: strftime takes thrice as long
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePayload:
    """The end of an attempt of an instance, for one path, in Falcon's keys.

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
class RetryPayload:
    """An instance that has failed in its last attempt: no other follows without a command."""

    topic: ClassVar[Topic] = Topic.RETRY
    level: ClassVar[MessageLevel] = MessageLevel.ERROR

    kind: Kind
    entity: str
    cluster: str
    nominal_time: datetime
    attempts: int
    run_id: str | None = None
    error: str | None = None
    others: Mapping[str, object] = EMPTY

    @property
    def subject(self) -> EntityKey:
        """The kind and name of the entity that the message is about."""
        return (self.kind.value, self.entity)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaPayload:
    """Instances of an entity that miss a deadline, or that do not miss it any more: one message for all of a tick.

    `sla` is the level of the deadline; of a recovery, the highest that was missed. Those at risk will probably miss it.
    `instances` has the `count` nominal times, oldest first. `reason` is the root cause of the oldest one, how they
    recovered, or why a miss is probable.
    """

    topic: ClassVar[Topic] = Topic.SLA

    event: SlaEvent
    sla: SlaLevel
    kind: Kind
    entity: str
    cluster: str
    count: int
    oldest: datetime
    newest: datetime
    instances: tuple[str, ...]
    reason: str | None = None
    others: Mapping[str, object] = EMPTY

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

    @property
    def subject(self) -> EntityKey:
        """The kind and name of the entity that the message is about."""
        return (self.kind.value, self.entity)


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


MessagePayload: TypeAlias = (
    EvictionPayload | MetadataPayload | InstancePayload | SlaPayload | RetryPayload | SweepPayload | EntityPayload
)
_CLASSES: tuple[type[MessagePayload], ...] = (
    EvictionPayload,
    MetadataPayload,
    InstancePayload,
    SlaPayload,
    RetryPayload,
    SweepPayload,
    EntityPayload,
)
_CLASS_OF_TOPIC = {cls.topic: cls for cls in _CLASSES}


def render_payload(payload: MessagePayload) -> dict[str, object]:
    """Return the content of a message as JSON values, in the keys of its topic; keys without a value are left out."""
    render_time = render_falcon_time if isinstance(payload, InstancePayload) else datetime.isoformat
    rendered: dict[str, object] = {}
    for name, key, _ in _KEYS[type(payload)]:
        value = getattr(payload, name)
        if type(value) is str:
            rendered[key] = value
        elif isinstance(value, datetime):
            rendered[key] = render_time(value)
        elif isinstance(value, StrEnum):
            rendered[key] = value.value
        elif value is not None:
            rendered[key] = list(value) if isinstance(value, tuple) else value
    return rendered | dict(payload.others) if payload.others else rendered


def parse_payload(topic: Topic, values: Mapping[str, object]) -> MessagePayload:
    """Return the content of a message that `render_payload` has written, by this release or an earlier one.

    Raises:
        StateError: a key is missing, or its value cannot be read.
    """
    cls = _CLASS_OF_TOPIC[topic]
    keys = _KEYS[cls]
    fields: dict[str, Any] = {}
    try:
        for name, key, read in keys:
            if key in values:
                fields[name] = values[key] if read is _same else read(values[key])
        if len(fields) < len(values):
            known = {key for _, key, _ in keys}
            fields[_OTHERS] = {key: value for key, value in values.items() if key not in known}
        return cls(**fields)
    except (TypeError, ValueError) as exc:
        raise StateError(
            reason=f"a message of the topic {topic.value!r} cannot be read: {exc}",
            next_step="Restore the table fa_outbox from a backup, or delete the row.",
        ) from exc


def _keys(cls: type) -> tuple[tuple[str, str, Callable[[Any], Any]], ...]:
    """Return the fields of a payload, each with its key and with what reads its value."""
    is_falcon = cls is InstancePayload
    return tuple(
        (name, _camel(name) if is_falcon else name, _reader(hint, is_falcon))
        for name, hint in get_type_hints(cls).items()
        if name != _OTHERS and get_origin(hint) is not ClassVar
    )


def _reader(hint: Any, is_falcon: bool) -> Callable[[Any], Any]:
    if hint is datetime:
        return _parse_falcon_time if is_falcon else datetime.fromisoformat
    if get_origin(hint) is tuple:
        return tuple
    return hint if isinstance(hint, type) and issubclass(hint, StrEnum) else _same


def _parse_falcon_time(text: str) -> datetime:
    year, month, day, hour, minute = text.split("-")  # measured: strptime takes ten times as long
    return datetime(int(year), int(month), int(day), int(hour), int(minute), tzinfo=UTC)


def _same(value: Any) -> Any:
    return value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


_KEYS = {cls: _keys(cls) for cls in _CLASSES}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """A message for other programs. A repeat with the same key is not added.

    `user_topic` is Falcon's topic of the entity, `FALCON.<entity>`, for messages that have one.
    """

    recorded_at: datetime
    payload: Annotated[MessagePayload, PlainSerializer(render_payload, return_type=dict[str, object])]
    idempotency_key: str
    seq: int = 0
    user_topic: str | None = None

    @shown
    def topic(self) -> Topic:
        """The subject."""
        return self.payload.topic

    @shown
    def level(self) -> MessageLevel:
        """How urgent it is."""
        return self.payload.level

    @property
    def subject(self) -> EntityKey:
        """The kind and name of the entity that it is about."""
        return self.payload.subject
