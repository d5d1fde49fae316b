"""Messages for other programs: the topics, and the content that a message of each topic has.

Only this module writes content as JSON and reads it back. Keys that a row has and this release does not know survive.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

from pydantic import PlainSerializer

from feed_assets.entities.common import Kind
from feed_assets.issues import EntityKey
from feed_assets.json_form import render_words, shown
from feed_assets.log.messages.payloads import InstancePayload, MessagePayload
from feed_assets.receivers import MessageLevel, Topic
from feed_assets.sql.errors import StateError
from feed_assets.sql.names import Renaming

_OTHERS = "others"


def render_falcon_time(moment: datetime) -> str:
    """Return a time as Falcon writes it in messages. Differs from Falcon: seconds follow where there are some.

    >>> render_falcon_time(datetime(2013, 11, 3, 5, tzinfo=UTC))
    '2013-11-03-05-00'
    >>> render_falcon_time(datetime(2013, 11, 3, 5, 0, 7, tzinfo=UTC))
    '2013-11-03-05-00-07'
    """
    at = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    second = f"-{at.second:02}" if at.second else ""  # measured: strftime takes thrice as long
    return f"{at.year:04}-{at.month:02}-{at.day:02}-{at.hour:02}-{at.minute:02}{second}"


_CLASSES: tuple[type[MessagePayload], ...] = get_args(MessagePayload)
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
            rendered[key] = render_time(value if name != "time_stamp" else value.replace(second=0))
        elif isinstance(value, StrEnum):
            rendered[key] = value.value
        elif value is not None:
            rendered[key] = list(value) if isinstance(value, tuple) else value
    return rendered | dict(payload.others) if payload.others else rendered


def rename_members(members: Mapping[str, Any], renaming: Renaming) -> dict[str, Any]:
    """Return a message, as `render_payload` has it, with the new name where the record is asked by it."""
    kinds = {"feed": Kind.FEED, "process": Kind.PROCESS, "entity": members.get("kind", "")}
    return {name: renaming.replace(kinds[name], each) if name in kinds else each for name, each in members.items()}


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
    if hint in (datetime, datetime | None):
        return _parse_falcon_time if is_falcon else datetime.fromisoformat
    if get_origin(hint) is tuple:
        return tuple
    return hint if isinstance(hint, type) and issubclass(hint, StrEnum) else _same


def _parse_falcon_time(text: str) -> datetime:
    year, month, day, hour, minute, second = map(int, f"{text}-0".split("-")[:6])  # measured: strptime takes ten times
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


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
    def members(self) -> dict[str, object]:
        """The content, as JSON values."""
        return render_payload(self.payload)

    @property
    def sentence(self) -> str:
        """Its number, time, topic and content in one line."""
        return f"{self.seq} {self.recorded_at:%Y-%m-%dT%H:%M:%SZ} {self.topic.value} {render_words(self.members)}"

    @property
    def subject(self) -> EntityKey:
        """The kind and name of the entity that it is about."""
        return self.payload.subject
