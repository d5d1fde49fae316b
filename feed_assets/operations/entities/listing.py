"""Finding entities: by kind, name, tags, state, pipelines and clusters, sorted and in pages."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.operations.entities.states import EntityStatus
from feed_assets.operations.errors import VerbRefusedError

PAGE = 10


class ListField(StrEnum):
    """What is shown of an entity beside its kind and name."""

    STATUS = "STATUS"
    TAGS = "TAGS"
    PIPELINES = "PIPELINES"
    CLUSTERS = "CLUSTERS"


class FilterField(StrEnum):
    """What entities can be filtered by."""

    TYPE = "TYPE"
    NAME = "NAME"
    STATUS = "STATUS"
    PIPELINES = "PIPELINES"
    CLUSTER = "CLUSTER"


_SHOWN_BY_FILTER = {FilterField.STATUS: ListField.STATUS, FilterField.PIPELINES: ListField.PIPELINES}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """What is asked for. All conditions must hold; of several `filters` of one field one is enough.

    `name_sequence` matches names that have its letters in this order, whatever their case. Each of `tag_keys` must
    occur somewhere in the tags, whatever its case. `tags` are (name, value) pairs.

    Raises:
        VerbRefusedError: a page without results, or pipelines of entities that have none.
    """

    kinds: frozenset[Kind] = frozenset(Kind)
    fields: frozenset[ListField] = frozenset()
    name_sequence: str = ""
    tag_keys: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    filters: Mapping[FilterField, tuple[str, ...]] = field(default_factory=dict)
    descending: bool = False
    offset: int = 0
    results: int = PAGE

    def __post_init__(self) -> None:
        if self.results < 1:
            raise VerbRefusedError(
                subject="the list", reason=f"{self.results} results make no page", next_step="Ask for at least 1."
            )
        if FilterField.PIPELINES in self.filters and self.kinds != {Kind.PROCESS}:
            raise VerbRefusedError(
                subject="the list",
                reason="only processes have pipelines",
                next_step="Ask for processes alone when you filter by PIPELINES.",
            )

    @property
    def shown(self) -> frozenset[ListField]:
        """The fields that are shown: those asked for, and those filtered by."""
        return self.fields | {_SHOWN_BY_FILTER[each] for each in self.filters if each in _SHOWN_BY_FILTER}

    @property
    def needs_status(self) -> bool:
        """Whether states have to be found out."""
        return ListField.STATUS in self.shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEntity:
    """An entity in a list; None where a field is not shown."""

    kind: str
    name: str
    status: str | None = None
    tags: tuple[str, ...] | None = None
    pipelines: tuple[str, ...] | None = None
    clusters: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, object]:
        """The JSON form; fields that are not shown are left out."""
        shown: dict[str, object] = {"kind": self.kind, "name": self.name}
        if self.status is not None:
            shown["status"] = self.status
        lists = {"tags": self.tags, "pipelines": self.pipelines, "clusters": self.clusters}
        return shown | {name: list(values) for name, values in lists.items() if values is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPage:
    """One page of a list; `total` counts the entities on all pages."""

    entities: tuple[ListedEntity, ...]
    total: int

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        entities = [entity.to_json() for entity in self.entities]
        return {"version": 1, "totalResults": self.total, "entities": entities}


StatusOf = Callable[[AnyEntity], EntityStatus]


def list_entities(entities: Iterable[AnyEntity], query: ListQuery, status_of: StatusOf) -> EntityPage:
    """The entities that a query asks for, by name. `status_of` is asked only where states are needed."""
    found = select_entities(entities, query, status_of)
    offset = max(0, query.offset)
    page = found[offset : offset + query.results]
    return EntityPage(entities=tuple(_listed(entity, query, status_of) for entity in page), total=len(found))


def select_entities(entities: Iterable[AnyEntity], query: ListQuery, status_of: StatusOf) -> list[AnyEntity]:
    """All entities that meet the conditions of a query, in its order."""
    found = [entity for entity in entities if _is_wanted(entity, query, status_of)]
    return sorted(found, key=lambda entity: (entity.name, entity.kind), reverse=query.descending)


def is_subsequence(letters: str, name: str) -> bool:
    """Whether the letters occur in this order, whatever their case.

    >>> is_subsequence("mhs", "New-My-Hourly-Summary"), is_subsequence("smh", "New-My-Hourly-Summary")
    (True, False)
    """
    rest = iter(name.lower())
    return all(letter in rest for letter in letters.lower())


def _is_wanted(entity: AnyEntity, query: ListQuery, status_of: StatusOf) -> bool:
    if entity.kind not in query.kinds or not is_subsequence(query.name_sequence, entity.name):
        return False
    if query.tag_keys and not _has_words(entity, query.tag_keys):
        return False
    if any(entity.tags.get(name) != value for name, value in query.tags):
        return False
    return all(_meets(entity, field, values, status_of) for field, values in query.filters.items())


def _has_words(entity: AnyEntity, words: Iterable[str]) -> bool:
    text = ",".join(f"{name}={value}" for name, value in entity.tags.items()).lower()
    return all(word.lower() in text for word in words)


def _meets(entity: AnyEntity, by: FilterField, values: tuple[str, ...], status_of: StatusOf) -> bool:
    folded = {value.lower() for value in values}
    match by:
        case FilterField.TYPE:
            return entity.kind.value in folded
        case FilterField.NAME:
            return entity.name.lower() in folded
        case FilterField.STATUS:
            return status_of(entity).state.value.lower() in folded
        case FilterField.PIPELINES:
            return isinstance(entity, Process) and not folded.isdisjoint(name.lower() for name in entity.pipelines)
        case FilterField.CLUSTER:
            return isinstance(entity, Feed | Process) and not entity.clusters.keys().isdisjoint(values)
        case _:
            assert_never(by)


def _listed(entity: AnyEntity, query: ListQuery, status_of: StatusOf) -> ListedEntity:
    shown = query.shown
    clusters = tuple(entity.clusters) if isinstance(entity, Feed | Process) else ()
    pipelines = entity.pipelines if isinstance(entity, Process) else ()
    return ListedEntity(
        kind=entity.kind,
        name=entity.name,
        status=status_of(entity).state.value if ListField.STATUS in shown else None,
        tags=tuple(f"{name}={value}" for name, value in entity.tags.items()) if ListField.TAGS in shown else None,
        pipelines=tuple(pipelines) if ListField.PIPELINES in shown else None,
        clusters=clusters if ListField.CLUSTERS in shown else None,
    )
