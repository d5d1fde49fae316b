"""Triggers: what has to come, and when, before a process runs for what has come."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, time
from enum import StrEnum
from typing import Annotated, Any, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)

from feed_assets.entities.common import EntityModel
from feed_assets.entities.fields import Count, FilledText, FineFrequencyField, Moment, Name, describe, refuse
from feed_assets.timing.dates import render_datetime

GROUP_PREFIX = "group:"

_GROUP = re.compile(rf"{GROUP_PREFIX}[^\W_]+")  # group:observations
_CLOCK = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]")  # 06:00
_CONDITION_REMEDY = "Write a name, a list of names, {all: […]} or {any: […]}."


class Backlog(StrEnum):
    """What a batch takes at each feed: all that is pending, or the newest instance only."""

    ALL = "all"
    LATEST = "latest"


class StartFrom(StrEnum):
    """The first event that counts for a new trigger: the next one, or the oldest in the log."""

    NOW = "now"
    EARLIEST = "earliest"


class OnPause(StrEnum):
    """What becomes of events that come while the process is suspended: they wait, all of them or the newest of each
    feed, or they are passed over.
    """

    QUEUE = "queue"
    DROP = "drop"
    LATEST = "latest"


class Unchanged(StrEnum):
    """Whether an event counts that finds the content that its instance had before."""

    IGNORE = "ignore"
    COUNT = "count"


class OnUpdate(StrEnum):
    """What becomes of an ended instance when an instance that it has read gets other content.

    It runs again at once, or when its windows are complete again, or it stays.
    """

    RERUN = "rerun"
    HOLD = "hold"
    IGNORE = "ignore"


class AllOf(EntityModel):
    """Holds when every one of its conditions holds."""

    all: "tuple[Condition, ...]"


class AnyOf(EntityModel):
    """Holds when one of its conditions holds."""

    any: "tuple[Condition, ...]"


def _to_condition(value: object) -> "str | AllOf | AnyOf":
    match value:
        case AllOf() | AnyOf():
            return value
        case str() if value.startswith(GROUP_PREFIX):
            if _GROUP.fullmatch(value) is None:
                raise refuse("trigger", f"{value!r} names no group", "Write for example group:observations.")
            return value
        case str():
            return _NAME.validate_python(value)
        case list() | tuple():
            return AllOf.model_construct(all=_to_conditions(value, "the list"))
        case Mapping() if list(value) == ["all"]:
            return AllOf.model_construct(all=_to_conditions(value["all"], "'all'"))
        case Mapping() if list(value) == ["any"]:
            return AnyOf.model_construct(any=_to_conditions(value["any"], "'any'"))
        case Mapping():
            raise refuse("trigger", "a condition has one key, 'all' or 'any'", _CONDITION_REMEDY)
        case _:
            raise refuse("trigger", f"{describe(value)} is not a condition", _CONDITION_REMEDY)


def _to_conditions(values: object, where: str) -> "tuple[str | AllOf | AnyOf, ...]":
    if not isinstance(values, list | tuple) or not values:
        reason = "is empty" if isinstance(values, list | tuple) else "is not a list"
        raise refuse("trigger", f"{where} of a condition {reason}", _CONDITION_REMEDY)
    return tuple(map(_to_condition, values))


def _to_document(condition: "str | AllOf | AnyOf") -> object:
    match condition:
        case AllOf():
            return {"all": [_to_document(part) for part in condition.all]}
        case AnyOf():
            return {"any": [_to_document(part) for part in condition.any]}
        case _:
            return condition


_CONDITIONS: dict[str, Any] = {"type": "array", "minItems": 1}

Condition: TypeAlias = Annotated[
    str | AllOf | AnyOf,
    PlainValidator(_to_condition),
    PlainSerializer(_to_document),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                _CONDITIONS,
                *(
                    {"type": "object", "properties": {key: _CONDITIONS}, "required": [key]}
                    | {"additionalProperties": False}
                    for key in ("all", "any")
                ),
            ]
        }
    ),
]
"""The name of an input, of a feed, or `group:NAME`; or all or any of several conditions. A list means all."""

_NAME: TypeAdapter[str] = TypeAdapter(Name)


def iter_names(condition: "str | AllOf | AnyOf") -> Iterator[str]:
    """Yield the names in a condition, in the order in which they are written.

    >>> list(iter_names(AllOf(all=["orders", {"any": ["rates", "approval"]}])))
    ['orders', 'rates', 'approval']
    """
    match condition:
        case AllOf():
            for part in condition.all:
                yield from iter_names(part)
        case AnyOf():
            for part in condition.any:
                yield from iter_names(part)
        case _:
            yield condition


def _to_start(value: object) -> StartFrom | datetime:
    if isinstance(value, str) and value in list(StartFrom):
        return StartFrom(value)
    return _MOMENT.validate_python(value)


_MOMENT: TypeAdapter[datetime] = TypeAdapter(Moment)

StartField = Annotated[
    StartFrom | datetime,
    PlainValidator(_to_start),
    PlainSerializer(lambda start: start.value if isinstance(start, StartFrom) else render_datetime(start)),
    WithJsonSchema({"type": "string"}),
]
"""`now`, `earliest`, or a time."""


def _check_clock(value: object) -> object:
    if not isinstance(value, str) or _CLOCK.fullmatch(value) is None:
        raise refuse("trigger", f"{describe(value)} is not a time of day", 'Write it in quotes, for example "06:00".')
    return value


ClockTime = Annotated[str, BeforeValidator(_check_clock), WithJsonSchema({"type": "string", "pattern": _CLOCK.pattern})]
"""A time of day, `06:00`."""


class BatchRules(EntityModel):
    """The size of a batch.

    An input needs `min` events before it counts as come. A batch takes at most the `max` oldest of each. It waits until
    nothing has come for the time `quiet`. With `until`, an input waits for an event whose marking fits this glob, such
    as `*_DAILY_END`, and a batch takes the events up to the first such event, which it includes: all of them, so `max`
    is refused beside it.
    """

    min: Annotated[Count, Field(ge=1)] = 1
    max: Annotated[Count | None, Field(ge=1)] = None
    quiet: FineFrequencyField | None = None
    until: FilledText | None = None

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if self.max is not None and self.max < self.min:
            message = f"a batch of at most {self.max} can never have {self.min} events"
            raise refuse("trigger", message, "Raise max, or lower min.")
        if self.max is not None and self.until is not None:
            message = "batch.max would cut through what the marking of batch.until ends"
            raise refuse("trigger", message, "Remove batch.max, or batch.until.")
        return self


class Trigger(EntityModel):
    """The condition under which a process runs for what has come since its last batch.

    `when` is a condition on names of inputs, feeds, and groups of feeds (`group:NAME`); by default, all mandatory
    inputs that take what is new. A batch also runs `or_every` so often, whether anything has come or not; with
    `and_every`, only then, and if the condition holds. At the time of day `by`, what is pending runs even if the
    condition does not hold. An event counts for the condition for the time `max_age`; after that, it goes with the next
    batch. `on_update` is for processes with a `frequency`.

    >>> Trigger.model_validate({"when": ["orders", "rates"], "from": "earliest"}).when.all
    ('orders', 'rates')
    """

    when: Condition | None = None
    or_every: FineFrequencyField | None = None
    and_every: FineFrequencyField | None = None
    by: ClockTime | None = None
    max_age: FineFrequencyField | None = None
    batch: BatchRules = BatchRules.model_construct()
    backlog: Backlog = Backlog.ALL
    from_: Annotated[StartField, Field(alias="from")] = StartFrom.NOW
    on_pause: OnPause = OnPause.QUEUE
    unchanged: Unchanged = Unchanged.IGNORE
    on_update: OnUpdate = OnUpdate.IGNORE

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if self.or_every is not None and self.and_every is not None:
            raise refuse("trigger", "both or_every and and_every are written", "Remove one of them.")
        if self.backlog is Backlog.LATEST and self.batch.max is not None:
            raise refuse("trigger", "with backlog latest, a batch has one event of each feed", "Remove batch.max.")
        quiet = self.batch.quiet
        if self.max_age is not None and quiet is not None and quiet.as_duration() >= self.max_age.as_duration():
            message = f"after {quiet} of silence, no event is younger than max_age {self.max_age}: it never holds"
            raise refuse("trigger", message, "Raise max_age, or lower batch.quiet.")
        if self.on_update is not OnUpdate.IGNORE and self.makes_batches:
            message = "on_update is for a process with a frequency: the events of a batch are frozen"
            raise refuse("trigger", message, "Remove on_update, or write it alone, and a frequency.")
        return self

    @property
    def makes_batches(self) -> bool:
        """Whether it says anything about batches, and not only about updates."""
        fields = (name for name in type(self).model_fields if name != "on_update")
        return any(getattr(self, name) != type(self).model_fields[name].default for name in fields)

    def by_time(self) -> time | None:
        """Return the time of day at which what is pending runs."""
        return time.fromisoformat(self.by) if self.by is not None else None
