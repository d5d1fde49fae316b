"""Lists of entities by kind, name, tags, state, pipelines and clusters, sorted and paged."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from feed_assets.context.errors import VerbRefusedError
from feed_assets.definitions.lists.query_fields import PAGE, FilterField, ListField
from feed_assets.definitions.lists.said_tags import TagsOf, has_words
from feed_assets.definitions.verbs.states import EntityStatus
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.json_form import Hidden, shown

_SHOWN_BY_FILTER = {FilterField.STATUS: ListField.STATUS, FilterField.PIPELINES: ListField.PIPELINES}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """The conditions, order and page of a list. All conditions must hold; of several `filters` on one field, one is
    enough.

    `name_sequence` matches names that contain its letters in this order, in any case. Each of `tag_keys` must occur
    somewhere in the tags, in any case. `tags` are (name, value) pairs.

    Raises:
        VerbRefusedError: the page is empty, or a filter by pipelines is used for entities without pipelines.
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
                next_step="List only processes to filter by PIPELINES.",
            )

    @property
    def shown(self) -> frozenset[ListField]:
        """The shown fields: the requested ones, and those filtered by."""
        return self.fields | {_SHOWN_BY_FILTER[each] for each in self.filters if each in _SHOWN_BY_FILTER}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEntity:
    """An entity in a list; None for fields that are not shown."""

    kind: str
    name: str
    status: str | None = None
    tags: tuple[str, ...] | None = None
    pipelines: tuple[str, ...] | None = None
    clusters: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPage:
    """One page of a list; `total` counts the entities on all pages after `offset`."""

    entities: tuple[ListedEntity, ...]
    total: int
    offset: Hidden[int]

    @shown
    def has_more(self) -> bool:
        """Whether another page follows."""
        return self.total > self.offset + len(self.entities)


StatusOf = Callable[[AnyEntity], EntityStatus]


def list_entities(entities: Iterable[AnyEntity], query: ListQuery, status_of: StatusOf, tags_of: TagsOf) -> EntityPage:
    """Return one page of the entities that match a query, by name. `status_of` is called only if states are needed."""
    found = select_entities(entities, query, status_of, tags_of)
    offset = max(0, query.offset)
    end = offset + query.results
    page = tuple(_listed(entity, query, status_of, tags_of) for entity in found[offset:end])
    return EntityPage(entities=page, total=len(found), offset=offset)


def select_entities(
    entities: Iterable[AnyEntity], query: ListQuery, status_of: StatusOf, tags_of: TagsOf
) -> list[AnyEntity]:
    """Return all entities that match the conditions of a query, in its order."""
    found = [entity for entity in entities if _is_wanted(entity, query, status_of, tags_of)]
    return sorted(found, key=lambda entity: (entity.name, entity.kind), reverse=query.descending)


def is_subsequence(letters: str, name: str) -> bool:
    """Return whether the letters occur in this order, in any case.

    >>> is_subsequence("mhs", "New-My-Hourly-Summary"), is_subsequence("smh", "New-My-Hourly-Summary")
    (True, False)
    """
    rest = iter(name.lower())
    return all(letter in rest for letter in letters.lower())


def _is_wanted(entity: AnyEntity, query: ListQuery, status_of: StatusOf, tags_of: TagsOf) -> bool:
    if entity.kind not in query.kinds or not is_subsequence(query.name_sequence, entity.name):
        return False
    tags = tags_of(entity) if query.tags or query.tag_keys else ()
    if not has_words(tags, query.tag_keys) or any(f"{name}={value}" not in tags for name, value in query.tags):
        return False
    return all(_meets(entity, field, values, status_of) for field, values in query.filters.items())


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


def _listed(entity: AnyEntity, query: ListQuery, status_of: StatusOf, tags_of: TagsOf) -> ListedEntity:
    shown = query.shown
    clusters = tuple(entity.clusters) if isinstance(entity, Feed | Process) else ()
    pipelines = entity.pipelines if isinstance(entity, Process) else ()
    return ListedEntity(
        kind=entity.kind,
        name=entity.name,
        status=status_of(entity).state.value if ListField.STATUS in shown else None,
        tags=tags_of(entity) if ListField.TAGS in shown else None,
        pipelines=tuple(pipelines) if ListField.PIPELINES in shown else None,
        clusters=clusters if ListField.CLUSTERS in shown else None,
    )
