"""Metadata of entities: properties and tags in two scopes, and how mutations change them.

The semantics are those of the metadata storage of CDAP 6.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias, assert_never

from feed_assets.entities.fields import without_marks
from feed_assets.entities.maps import EMPTY
from feed_assets.errors import shorten
from feed_assets.masking import mask

LONGEST_NAME = 50
LONGEST_VALUE = 4096
MOST_BYTES = 65_536
"""The bytes of all names and values of an entity's USER metadata."""

_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_NAME}}}")
_STRICT_VALUE = re.compile(rf"[A-Za-z0-9_\-\s]{{1,{LONGEST_NAME}}}", re.ASCII)
_RESERVED = "tags"


class Scope(StrEnum):
    """The writers of metadata: people and their programs, or this program."""

    USER = "USER"
    SYSTEM = "SYSTEM"


class MetadataKind(StrEnum):
    """The kinds of metadata."""

    PROPERTY = "property"
    TAG = "tag"


class Origin(StrEnum):
    """The channel by which metadata were written."""

    DEFINITION = "definition"
    PERSON = "person"
    PROGRAM = "program"
    SYSTEM = "system"


class MetadataKey(NamedTuple):
    """The key of one property or tag of an entity."""

    scope: Scope
    kind: MetadataKind
    name: str


class MetadataValue(NamedTuple):
    """The value of a property, "" for a tag, and who wrote it."""

    value: str
    origin: Origin
    author: str


Metadata: TypeAlias = Mapping[MetadataKey, MetadataValue]


class Directive(StrEnum):
    """What a `Create` does with an old value: KEEP it where the new metadata lack the key, or PRESERVE it always."""

    KEEP = "KEEP"
    PRESERVE = "PRESERVE"


@dataclass(frozen=True, slots=True)
class Update:
    """Adds properties and tags, and overwrites properties that are there."""

    values: Metadata


@dataclass(frozen=True, slots=True)
class Create:
    """Replaces the metadata in each scope that has new ones; those of other `origins` stay, and `directives` save old
    values.
    """

    values: Metadata
    directives: Mapping[MetadataKey, Directive] = field(default_factory=lambda: EMPTY)
    origins: Collection[Origin] = tuple(Origin)


@dataclass(frozen=True, slots=True)
class Remove:
    """Removes what has one of the scopes, kinds and origins; of that only the `keys`, if they are given."""

    keys: Collection[MetadataKey] | None = None
    scopes: Collection[Scope] = tuple(Scope)
    kinds: Collection[MetadataKind] = tuple(MetadataKind)
    origins: Collection[Origin] = tuple(Origin)

    def leaves(self, key: MetadataKey, value: MetadataValue) -> bool:
        """Return whether something stays."""
        is_meant = key.scope in self.scopes and key.kind in self.kinds and value.origin in self.origins
        return not is_meant or (self.keys is not None and key not in self.keys)


@dataclass(frozen=True, slots=True)
class Declare:
    """Replaces what declarations have said before, and overwrites what others have said under the same keys."""

    values: Metadata


@dataclass(frozen=True, slots=True)
class Drop:
    """Removes everything."""


Mutation: TypeAlias = Update | Create | Remove | Declare | Drop


def decide_mutation(before: Metadata, mutation: Mutation) -> dict[MetadataKey, MetadataValue]:
    """Return the metadata of an entity after a mutation.

    >>> key = MetadataKey(Scope.USER, MetadataKind.TAG, "checked")
    >>> tagged = decide_mutation({}, Update({key: MetadataValue("", Origin.PERSON, "ann")}))
    >>> [each.name for each in tagged], decide_mutation(tagged, Remove(kinds=[MetadataKind.TAG]))
    (['checked'], {})
    """
    match mutation:
        case Update(values):
            return {**before, **_but_same(before, values)}
        case Create():
            return _create(before, mutation)
        case Remove():
            return {key: value for key, value in before.items() if mutation.leaves(key, value)}
        case Declare(values):
            others = {key: each for key, each in before.items() if each.origin is not Origin.DEFINITION}
            return {**others, **_but_same(before, values)}
        case Drop():
            return {}
        case _:
            assert_never(mutation)


def decide_mutations(before: Metadata, mutations: Iterable[Mutation]) -> dict[MetadataKey, MetadataValue]:
    """Return the metadata of an entity after mutations, one after the other."""
    after = dict(before)
    for mutation in mutations:
        after = decide_mutation(after, mutation)
    return after


def _create(before: Metadata, new: Create) -> dict[MetadataKey, MetadataValue]:
    scopes = {key.scope for key in new.values}
    after = {key: old for key, old in before.items() if key.scope not in scopes or old.origin not in new.origins}
    after |= _but_same(before, new.values)
    for key, directive in new.directives.items():
        if key.scope in scopes and key in before and (directive is Directive.PRESERVE or key not in new.values):
            after[key] = before[key]
    return after


def _but_same(before: Metadata, values: Metadata) -> dict[MetadataKey, MetadataValue]:
    """Return new values; what is written once more as it was keeps its writer."""
    return {
        key: before[key]
        if key in before and (before[key].value, before[key].origin) == (each.value, each.origin)
        else each
        for key, each in values.items()
    }


def find_fault(key: MetadataKey, value: str, *, is_strict: bool = False) -> tuple[str, str] | None:
    """Return why people may not write a property or tag, and the remedy; None if they may.

    >>> find_fault(MetadataKey(Scope.USER, MetadataKind.PROPERTY, "Tags"), "a")
    ("property 'Tags': the name is reserved for tags", 'Choose another name, or add a tag.')
    """
    subject = f"{key.kind.value} {shorten(key.name, 60)!r}"
    if key.scope is not Scope.USER:
        return f"{subject}: metadata in the scope SYSTEM are written by this program", "Write it in the scope USER."
    if _NAME.fullmatch(key.name) is None:
        reason = f"{subject}: a name has 1 to {LONGEST_NAME} letters of the alphabet, digits, '-' and '_'"
        return reason, f"Write it like {suggest_name(mask(key.name))!r}."
    if key.kind is MetadataKind.TAG:
        return None
    if key.name.lower() == _RESERVED:
        return f"{subject}: the name is reserved for tags", "Choose another name, or add a tag."
    if is_strict:
        reason = f"{subject}: with the setting metadata.strict, a value has 1 to {LONGEST_NAME} letters of the alphabet"
        remedy = "Write it so, or change the setting."
        return None if _STRICT_VALUE.fullmatch(value) else (f"{reason}, digits, '-', '_' and blanks", remedy)
    if len(value) > LONGEST_VALUE:
        reason = f"{subject}: the value has {len(value):,} characters, more than {LONGEST_VALUE:,}"
        return reason, "Write a link to the text."
    if not value.isprintable():
        return f"{subject}: the value {shorten(value, 20)!r} is not printable", "Write it in one line."
    return None


def suggest_name(name: str) -> str:
    """Return a name of a property or tag that is similar to one that cannot be.

    >>> suggest_name("run book (new)"), suggest_name("Über"), suggest_name("Größe")
    ('run-book-new', 'Uber', 'checked')
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "-", without_marks(name)).strip("-")[:LONGEST_NAME] or "checked"


def measure(metadata: Metadata) -> int:
    """Return the bytes of all names and values in the scope USER."""
    return sum(
        len(key.name.encode()) + len(each.value.encode()) for key, each in metadata.items() if key.scope is Scope.USER
    )
