"""Types of the fields of entities, and the error message for each value that does not fit.

A refusal is a pydantic custom error whose context contains `message` and `remedy`; loading adds the file position.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, LiteralString, TypeVar
from unicodedata import combining, normalize

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from feed_assets.issues import split_error
from feed_assets.timing.dates import parse_datetime, parse_timezone, render_datetime
from feed_assets.timing.errors import TimingError
from feed_assets.timing.sequence import Frequency, Unit, parse_frequency

_SYNTAX = re.compile(r"([1-9][0-9]*) ?([KMGTP]i?)?B?", re.ASCII)  # 10GiB, 500 MB, 4096
_PREFIXES = "KMGTP"
_UNITS = (
    ("B", 1),
    *((f"{prefix}iB", 1024**power) for power, prefix in enumerate(_PREFIXES, 1)),
    *((f"{prefix}B", 1000**power) for power, prefix in enumerate(_PREFIXES, 1)),
)
_LONGEST_COUNT = 18


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """A number of bytes, at least 1."""

    bytes: int

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """Return the shortest exact text.

        >>> Size(10 * 1024**3).render(), Size(1500).render(), Size(2_000_000).render()
        ('10GiB', '1500B', '2MB')
        """
        exact = [(self.bytes // unit, name) for name, unit in _UNITS if self.bytes % unit == 0]
        count, name = min(exact, key=lambda each: each[0])
        return f"{count}{name}"


def parse_size(text: str) -> Size | None:
    """Parse a whole number of `B`, `KB` (1000), `KiB` (1024) and so on to `PB`; None if the text is not a size.

    >>> parse_size("10GiB"), parse_size("4096"), parse_size("1.5GB")
    (Size(bytes=10737418240), Size(bytes=4096), None)
    """
    found = _SYNTAX.fullmatch(text.strip())
    if found is None or len(found[1]) > _LONGEST_COUNT:
        return None
    return Size(int(found[1]) * dict(_UNITS)[f"{found[2] or ''}B"])


T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")  # daily-clicks2
_PROPERTY = re.compile(r"\S(?:.*\S)?", re.DOTALL)  # queueName, spark.sql.shuffle.partitions
PERMISSION = re.compile(r"(?:0[xo]?)?[0-7]{0,2}([0-7])|(?:[r-][w-][x-]){2}([r-])[w-][x-]")  # 0x750, 755, rwxr-x---
_COLO = re.compile(r"[\w-][\w.-]*")  # us_east.1
_TAG_KEY = re.compile(r"\w+")  # owner
_GROUP = re.compile(r"[^\W_]+")  # observations
_PIPELINE = re.compile(r"[\w+]+")  # click_stream
_SECOND = 60
LONGEST_NAME = 200
DECLARED = "declared"


def refuse(code: LiteralString, message: str, remedy: str = "") -> PydanticCustomError:
    """Return the error for a value that does not fit."""
    context = {"message": message, "remedy": remedy}
    return PydanticCustomError(code, "{message}. {remedy}", context)


def describe(value: object) -> str:
    """Return a value as messages quote it.

    >>> describe({"a": 1}), describe("x"), describe(None)
    ('a map', "'x'", 'nothing')
    """
    if isinstance(value, Mapping):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    return "nothing" if value is None else repr(value) if isinstance(value, str) else str(to_plain_text(value))


def to_plain_text(value: object) -> object:
    """Return numbers and truth values as the text that YAML writes for them; everything else unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _to_text(value: object) -> object:
    text = to_plain_text(value)
    if not isinstance(text, str):
        raise refuse("text-expected", f"text is expected, not {describe(value)}", "Write it as one text.")
    return text


def _translated(code: LiteralString, parse: Callable[[str], T], what: str) -> Callable[[object], T]:
    def parsed(value: object) -> T:
        text = to_plain_text(value)
        if not isinstance(text, str):
            raise refuse(code, f"{what} is expected, not {describe(value)}", "Write it as one text.")
        try:
            return parse(text)
        except TimingError as exc:
            finding = split_error(exc)
            raise refuse(code, finding.message, finding.remedy) from exc

    return parsed


_parse_frequency = _translated("frequency", parse_frequency, "a frequency such as hours(1)")
_parse_fine_frequency = _translated(
    "frequency", partial(parse_frequency, finest=Unit.SECONDS), "a frequency such as seconds(1)"
)
_parse_moment = _translated("date-time", parse_datetime, "a date and time such as 2015-02-28T06:30Z")
_parse_zone = _translated("time-zone", parse_timezone, "a time zone such as UTC")


_SIZE_REMEDY = "Write for example 500MB or 10GiB."


def _to_size(value: object) -> Size:
    if isinstance(value, Size):
        return value
    text = value if isinstance(value, bool) else to_plain_text(value)
    found = parse_size(text) if isinstance(text, str) else None
    if found is None:
        raise refuse("size", f"a size is expected, not {describe(value)}", _SIZE_REMEDY)
    return found


def _check_share(value: float) -> float:
    if not 0 < value <= 1:
        raise refuse("share", f"a share is above 0 and at most 1, not {value:g}", "Write for example 0.5.")
    return value


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for position, name in enumerate(names):
        if name in names[:position]:
            raise refuse("name", f"{name!r} is written twice", "Write it once.")
    return names


def _to_moment(value: object) -> datetime:
    if not isinstance(value, datetime):
        value = _parse_moment(value)
    if value.tzinfo is None:
        raise refuse("date-time", f"{value.isoformat()} has no time zone", "Pass an aware datetime.")
    if value.second or value.microsecond:
        raise refuse("date-time", f"{value.isoformat()} is not a whole minute", "Cut off its seconds.")
    return value.astimezone(UTC)


def _check_zone(value: str) -> str:
    _parse_zone(value)
    return value


def without_marks(text: str) -> str:
    """Return a text with letters of the alphabet only, for a suggestion; empty if another one would be lost.

    >>> without_marks("über"), without_marks("größe")
    ('uber', '')
    """
    plain = "".join(each for each in normalize("NFKD", text) if not combining(each))
    return plain if all(each.isascii() or not each.isalpha() for each in plain) else ""


def _check_name(value: str) -> str:
    if len(value) > LONGEST_NAME:
        raise refuse("name", f"the name has {len(value):,} characters, more than {LONGEST_NAME}", "Shorten it.")
    if _NAME.fullmatch(value) is None:
        suggestion = re.sub(r"[^A-Za-z0-9-]+", "-", without_marks(value)).strip("-").lstrip("0123456789-")
        remedy = f"For example {suggestion!r}." if suggestion else "For example 'clicks'."
        reason = "a name is a letter, then letters, digits and '-'"
        raise refuse("name", f"{value!r} is not a name: {reason}", remedy)
    return value


def _check_colo(text: str) -> str:
    if _COLO.fullmatch(text) is None:
        raise refuse("name", f"{text!r} is not the name of a data centre", "Use letters, digits, '-', '_' and '.'.")
    return text


def _check_property_name(value: str) -> str:
    if _PROPERTY.fullmatch(value) is None:
        reason = "has blanks around it" if value.strip() else "is empty"
        raise refuse("property-name", f"the name {value!r} {reason}", "Write a name without blanks around it.")
    return value


def _check_permission(value: str) -> str:
    if value.strip() != "*" and PERMISSION.fullmatch(value.strip()) is None:
        remedy = "Write 0x755, 0x750 to hide it from others, or '*'."
        raise refuse("permission", f"{value!r} is neither '*' nor octal digits, nor like rwxr-x---", remedy)
    return value


def _check_filled(value: str) -> str:
    if not value.strip():
        raise refuse("text-empty", "the text is empty", "Write a value, or remove the key.")
    if "\0" in value:
        raise refuse("text-nul", f"{value!r} contains the character NUL", "Remove it.")
    return value


def _check_count(value: object) -> object:
    if isinstance(value, bool):
        raise refuse("number", f"a whole number is expected, not {describe(value)}", "Write digits, for example 1.")
    return value


def _tags_from_text(value: object) -> object:
    """Return Falcon's text form `k=v,k=v` as a map."""
    if not isinstance(value, str):
        return value
    tags: dict[str, str] = {}
    for part in value.split(","):
        key, found, text = part.strip().partition("=")
        if not found:
            message = f"{part.strip()!r} is not a tag: it has no value"
            raise refuse("tags", message, "Write tags as name=value,name=value.")
        if key in tags:
            raise refuse("tags", f"the tag {key!r} is written twice", "Give each tag one value.")
        tags[key] = text
    return tags


def _check_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in tags.items():
        if _TAG_KEY.fullmatch(key) is None:
            raise refuse("tags", f"{key!r} is not a tag name", "Use letters, digits and '_'.")
        if not value or "," in value:
            reason = "contains a comma" if value else "is empty"
            raise refuse("tags", f"the value of tag {key!r} {reason}", "Write a value without commas.")
    return tags


def _list_from_text(value: object) -> object:
    """Return Falcon's text form `a,b` as a list."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _check_asset_key(parts: tuple[str, ...]) -> tuple[str, ...]:
    if not parts or any("/" in part for part in parts):
        reason = "contains '/'" if parts else "has no parts"
        raise refuse("asset-key", f"the key of the asset {reason}", "Write its parts as a list: [team, orders].")
    return parts


def _checked_labels(pattern: re.Pattern[str], what: str, remedy: str) -> Callable[[tuple[str, ...]], tuple[str, ...]]:
    def checked(labels: tuple[str, ...]) -> tuple[str, ...]:
        seen: set[str] = set()
        for label in labels:
            if pattern.fullmatch(label) is None:
                raise refuse("label", f"{label!r} is not a name of a {what}", remedy)
            if label in seen:
                raise refuse("label", f"{label!r} is written twice", "Write it once.")
            seen.add(label)
        return labels

    return checked


_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean"]}

Text = Annotated[str, BeforeValidator(_to_text), WithJsonSchema(_SCALAR)]
"""Text; numbers and truth values are accepted as they are written."""

FilledText = Annotated[Text, AfterValidator(_check_filled)]
"""Text that is not blank."""

Permission = Annotated[FilledText, AfterValidator(_check_permission)]
"""`*`, or who may read, in octal digits."""

Name = Annotated[
    str,
    BeforeValidator(_to_text),
    AfterValidator(_check_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAME.pattern}$"}),
]
"""A letter, then letters, digits and `-`."""

Colo = Annotated[str, BeforeValidator(_to_text), AfterValidator(_check_colo)]
"""The name of a data centre: letters, digits, `-`, `_` and `.`."""

PropertyName = Annotated[str, BeforeValidator(_to_text), AfterValidator(_check_property_name)]
"""A name that is not blank."""

FrequencyField = Annotated[
    Frequency,
    PlainValidator(lambda value: value if isinstance(value, Frequency) else _parse_frequency(value)),
    PlainSerializer(Frequency.render, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^(minutes|hours|days|months)\([1-9][0-9]*\)$"}),
]
"""`minutes(n)`, `hours(n)`, `days(n)` or `months(n)`."""

FineFrequencyField = Annotated[
    Frequency,
    PlainValidator(lambda value: value if isinstance(value, Frequency) else _parse_fine_frequency(value)),
    PlainSerializer(Frequency.render, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^(seconds|minutes|hours|days|months)\([1-9][0-9]*\)$"}),
]
"""As `FrequencyField`, or `seconds(n)`."""

Moment = Annotated[
    datetime,
    PlainValidator(_to_moment),
    PlainSerializer(render_datetime, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}Z$"}),
]
"""An aware UTC datetime of whole minutes, written `2015-02-28T06:30Z`."""

Since = Annotated[
    datetime | None,
    PlainValidator(lambda value: None if value in (None, DECLARED) else _to_moment(value)),
    PlainSerializer(lambda since: DECLARED if since is None else render_datetime(since), return_type=str),
    WithJsonSchema(
        {"type": "string", "pattern": rf"^({DECLARED}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}:[0-9]{{2}}Z)$"}
    ),
]
"""A moment, or None, written `declared`: the time at which something is declared."""

ZoneName = Annotated[str, BeforeValidator(_to_text), AfterValidator(_check_zone)]
"""A time zone of the time zone database, or an offset such as `GMT+08:00`."""

Count = Annotated[int, BeforeValidator(_check_count)]
"""A whole number."""

Version = Annotated[Count, Field(ge=0, le=2**31 - 1)]

Share = Annotated[float, BeforeValidator(_check_count), AfterValidator(_check_share)]
"""A fraction, above 0 and at most 1."""

SizeField = Annotated[
    Size,
    PlainValidator(_to_size),
    PlainSerializer(Size.render, return_type=str),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": "^[1-9][0-9]*([KMGTP]i?)?B?$"}, {"type": "integer"}]}),
]
"""A number of bytes, `500MB` or `10GiB`."""

Names = Annotated[tuple[Name, ...], AfterValidator(_check_names)]
"""Distinct names."""

_LABELS = WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]})

SourceColumns = Annotated[
    list[FilledText],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    _LABELS,
]
"""Columns of inputs, each as `input.column`: a list, or one of them."""

TAGS_FROM_TEXT = BeforeValidator(_tags_from_text)
CHECK_TAGS = AfterValidator(_check_tags)

Groups = Annotated[
    tuple[Text, ...],
    BeforeValidator(_list_from_text),
    AfterValidator(_checked_labels(_GROUP, "group", "Use letters and digits.")),
    _LABELS,
]
"""Groups of feeds, of letters and digits: a list, or Falcon's text `a,b`."""

AssetKeyParts = Annotated[
    tuple[FilledText, ...],
    BeforeValidator(lambda value: value.split("/") if isinstance(value, str) else value),
    AfterValidator(_check_asset_key),
    _LABELS,
]
"""The key of an asset in Dagster: a list of its parts, or the text that Dagster shows, `team/orders`."""

Pipelines = Annotated[
    tuple[Text, ...],
    BeforeValidator(_list_from_text),
    AfterValidator(_checked_labels(_PIPELINE, "pipeline", "Use letters, digits, '_' and '+'.")),
    _LABELS,
]
"""Pipelines of processes: a list, or Falcon's text `a,b`."""
