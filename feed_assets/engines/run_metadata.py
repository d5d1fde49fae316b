"""What the work of a process instance reports: metadata of entities, and facts about itself.

It is checked when it is reported, and counts if the instance succeeds. `RunMetadata` is what user code gets as
`context.metadata`.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from feed_assets.entities.errors import MetadataRefusedError
from feed_assets.entities.fields import to_plain_text
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.metadata import LONGEST_VALUE, MetadataKey, MetadataKind, Scope, find_fault
from feed_assets.errors import shorten
from feed_assets.json_form import parse_json

FactValue: TypeAlias = str | int | float | bool

Values: TypeAlias = Mapping[MetadataKey, str]

CheckReported: TypeAlias = Callable[[str, Values], None]
"""Raises FeedAssetsError if a run cannot say this of an entity, given by its path."""

MOST_FACTS = 1000
_FACT = re.compile(r"[A-Za-z0-9._-]{1,100}")  # rows-read, good.records.count
_KEYS = {"facts": Mapping, "metadata": Mapping}
_KEYS_OF_ENTITY = {"properties": Mapping, "tags": list}


def check_nothing(_path: str, _values: Values) -> None:
    """Check nothing, where there is no state, such as in a trial or a test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedMetadata:
    """Metadata of entities, by their paths, and facts by their names."""

    metadata: Mapping[str, Values] = field(default_factory=lambda: EMPTY)
    facts: Mapping[str, FactValue] = field(default_factory=lambda: EMPTY)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """Return what `render` has written."""
        metadata = content.get("metadata", {}).items()
        return cls(
            facts=content.get("facts", {}),
            metadata={path: _values_of(path, each["properties"], each["tags"]) for path, each in metadata},
        )

    def __bool__(self) -> bool:
        return bool(self.metadata or self.facts)

    def then(self, later: Self) -> "ReportedMetadata":
        """Return both; what is said later counts."""
        paths = dict.fromkeys([*self.metadata, *later.metadata])
        return ReportedMetadata(
            metadata={path: {**self.metadata.get(path, {}), **later.metadata.get(path, {})} for path in paths},
            facts={**self.facts, **later.facts},
        )

    def render(self) -> dict[str, Any]:
        """Return it as JSON, in the form of the file that programs write."""
        return {
            "facts": dict(self.facts),
            "metadata": {
                path: {
                    "properties": {key.name: text for key, text in values.items() if key.kind is MetadataKind.PROPERTY},
                    "tags": [key.name for key in values if key.kind is MetadataKind.TAG],
                }
                for path, values in self.metadata.items()
            },
        }


class RunMetadata:
    """Says metadata of entities. They are written, for people, when the process instance succeeds."""

    def __init__(self, check: CheckReported = check_nothing) -> None:
        self._check = check
        self.reported: dict[str, dict[MetadataKey, str]] = {}

    def put(self, entity: str, properties: Mapping[str, object] = EMPTY, *, tags: Iterable[str] = ()) -> None:
        """Say properties and tags of an entity, such as `feed/flights` or `dashboard/otd`; the last call counts.

        Raises:
            MetadataRefusedError: a name or value cannot be kept, or a file says it.
            EntityNotFoundError: there is no such feed, process, cluster, data source or column.
        """
        values = _values_of(entity, properties, tags)
        known = self.reported.get(entity, {})
        self._check(entity, {**known, **values})
        self.reported[entity] = {**known, **values}


def check_fact(facts: Mapping[str, FactValue], name: str, value: object) -> FactValue:
    """Return the value of a fact that can be kept beside `facts`.

    Raises:
        MetadataRefusedError: its name or value cannot be kept, or there are too many.
    """
    if _FACT.fullmatch(name) is None:
        raise _refusal(name, "a name has 1 to 100 letters of the alphabet, digits, '.', '-' and '_'", "Write it so.")
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise _refusal(name, f"{value!r} is no text, number or truth value", "Say one of these.")
    if len(str(value)) > LONGEST_VALUE or not str(value).isprintable():
        raise _refusal(name, f"the text is not one line of at most {LONGEST_VALUE:,} characters", "Shorten it.")
    if name not in facts and len(facts) >= MOST_FACTS:
        raise _refusal(name, f"there are {MOST_FACTS:,} facts already", "Say what somebody will look for.")
    return value


def parse_reported(text: str | bytes, check: CheckReported) -> ReportedMetadata:
    """Parse what a program has said: `{"facts": {…}, "metadata": {"feed/flights": {"properties": {…}, "tags": […]}}}`;
    nothing, if that is empty.

    Raises:
        MetadataRefusedError: it is not JSON of this form, or cannot be kept.
        EntityNotFoundError: there is no such entity.
    """
    if not text.strip():
        return ReportedMetadata()
    try:
        content = parse_json(text)
    except ValueError as exc:
        raise MetadataRefusedError(entity="the facts", reason=f"they are no JSON: {exc}", next_step=_FORM) from exc
    _require_form("the facts", content, _KEYS)
    facts: dict[str, FactValue] = {}
    for name, value in content.get("facts", {}).items():
        facts[name] = check_fact(facts, name, value)
    metadata = RunMetadata(check)
    for entity, said in content.get("metadata", {}).items():
        _require_form(entity, said, _KEYS_OF_ENTITY)
        metadata.put(entity, said.get("properties", {}), tags=said.get("tags", ()))
    return ReportedMetadata(metadata=metadata.reported, facts=facts)


_FORM = 'Write {"facts": {"rows": 12}, "metadata": {"feed/flights": {"properties": {"checked": "yes"}, "tags": []}}}.'


def render_text(entity: str, name: str, value: object) -> str:
    """Return the value of a property as text; numbers and truth values as YAML writes them.

    Raises:
        MetadataRefusedError: it is something else.
    """
    text = to_plain_text(value)
    if not isinstance(text, str):
        raise MetadataRefusedError(entity=entity, reason=f"property {name!r} is no text", next_step="Say a text.")
    return text


def _values_of(entity: str, properties: Mapping[str, object], tags: Iterable[str]) -> dict[MetadataKey, str]:
    values: dict[MetadataKey, str] = {}
    for name, value in properties.items():
        values[MetadataKey(Scope.USER, MetadataKind.PROPERTY, str(name))] = render_text(entity, name, value)
    if isinstance(tags, str):
        raise MetadataRefusedError(entity=entity, reason=f"tags {tags!r} are no list", next_step=f"Say [{tags!r}].")
    values |= {MetadataKey(Scope.USER, MetadataKind.TAG, str(tag)): "" for tag in tags}
    for key, text in values.items():
        fault = find_fault(key, text)
        if fault is not None:
            raise MetadataRefusedError(entity=entity, reason=fault[0], next_step=fault[1])
    return values


def _require_form(subject: str, content: object, kinds: Mapping[str, type]) -> None:
    is_good = isinstance(content, Mapping) and all(
        name in kinds and isinstance(value, kinds[name]) for name, value in content.items()
    )
    if not is_good:
        raise MetadataRefusedError(entity=subject, reason="this is not the form of facts", next_step=_FORM)


def _refusal(name: str, reason: str, next_step: str) -> MetadataRefusedError:
    return MetadataRefusedError(entity=f"fact {shorten(name, 60)!r}", reason=reason, next_step=next_step)
