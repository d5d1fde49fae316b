"""Lists of entities by kind, name, tags, state, pipelines and clusters, sorted and paged."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from sqlalchemy import Connection

from feed_assets.catalog.store import MetadataStore
from feed_assets.context.errors import VerbRefusedError
from feed_assets.definitions.lists.query_fields import FilterField, ListField, ListQuery
from feed_assets.definitions.verbs.states import EntityState, EntityStatus
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind, iter_metadata
from feed_assets.entities.feed import Feed
from feed_assets.entities.metadata import MetadataKey, MetadataKind
from feed_assets.entities.process import Input, Output, Process
from feed_assets.errors import Fault, WrongUsageError
from feed_assets.pages import PAGES, Page
from feed_assets.plan.records import FeedRecord, ProcessRecord

TagsOf: TypeAlias = Callable[[AnyEntity], tuple[str, ...]]


class SaidTags:
    """The tags of all declared entities, as one transaction sees them; costs one read.

    A property is `name=value`, a tag its name. What a file says needs no state, and counts before it is applied.
    """

    def __init__(self, connection: Connection) -> None:
        self._said = MetadataStore(connection).said_beside_files(tuple(Kind))

    def of_entity(self, entity: AnyEntity) -> tuple[str, ...]:
        """Return the tags of an entity: first those of its file."""
        return self._render(*entity.key, {each.key: each.value for each in iter_metadata(entity) if not each.column})

    def of_record(self, kind: Kind, record: FeedRecord | ProcessRecord) -> tuple[str, ...]:
        """Return the tags of a feed or process of the plan."""
        said = {each.key: each.value for each in record.facts.metadata if not each.column}
        return self._render(kind.value, record.key[0], said)

    def _render(self, kind: str, name: str, in_file: Mapping[MetadataKey, str]) -> tuple[str, ...]:
        said = {**in_file, **self._said.get(f"{kind}/{name}", {}), **in_file}
        return tuple(key.name if key.kind is MetadataKind.TAG else f"{key.name}={value}" for key, value in said.items())


def has_words(tags: Iterable[str], words: Iterable[str]) -> bool:
    """Return whether each of the words occurs somewhere in the tags, in any case."""
    text = ",".join(tags).lower()
    return all(word.lower() in text for word in words)


_SHOWN_BY_FILTER = {FilterField.STATUS: ListField.STATUS, FilterField.PIPELINES: ListField.PIPELINES}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEntity:
    """An entity in a list; None for fields that are not shown."""

    kind: str
    name: str
    status: str | None = None
    tags: tuple[str, ...] | None = None
    pipelines: tuple[str, ...] | None = None
    clusters: tuple[str, ...] | None = None
    inputs: tuple[str, ...] | None = None
    """The feeds that a process reads."""
    outputs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPage(Page[ListedEntity]):
    """One page of a list, with the fields that it shows."""

    fields: frozenset[ListField]

    @property
    def shown_columns(self) -> str:
        """The columns of the table."""
        columns = [
            f"{field.lower()}:{'' if field is ListField.STATUS else 'commas'}"
            for field in ListField
            if field in self.fields
        ]
        return ", ".join(["kind", "name", *columns])


StatusOf = Callable[[AnyEntity], EntityStatus]


def list_entities(
    entities: Iterable[AnyEntity],
    query: ListQuery,
    status_of: StatusOf,
    tags_of: TagsOf,
    *,
    kinds: Collection[Kind] = (),
    fields: Collection[ListField] = (),
) -> EntityPage:
    """Return one page of the entities of some kinds, by default of all, that match a query, by name. Also shown are the
    fields that are filtered by. `status_of` is called only if states are needed.

    Raises:
        VerbRefusedError: a filter by pipelines is used for entities without pipelines.
    """
    found = select_entities(entities, query, status_of, tags_of, kinds=kinds)
    shown = frozenset([*fields, *(_SHOWN_BY_FILTER[each] for each in query.filters if each in _SHOWN_BY_FILTER)])
    page = tuple(_listed(entity, shown, status_of, tags_of) for entity in found[query.page])
    return EntityPage(items=page, total=len(found), offset=query.page.start, what="entities", more=PAGES, fields=shown)


def require_values(query: ListQuery, entities: Iterable[AnyEntity]) -> None:
    """Require that each type, state and cluster of a query's filters exists. Raises WrongUsageError if one does not."""
    clusters = tuple(entity.name for entity in entities if entity.kind is Kind.CLUSTER)
    allowed: Mapping[FilterField, tuple[str, ...]] = {
        FilterField.TYPE: tuple(Kind),
        FilterField.STATUS: tuple(EntityState),
        FilterField.CLUSTER: clusters,
    }
    for field, known in allowed.items():
        for value in query.filters.get(field, ()):
            if value.lower() not in {each.lower() for each in known}:
                raise WrongUsageError(f"--filter-by: there is no {field} {value!r}; it is one of {', '.join(known)}.")


def select_entities(
    entities: Iterable[AnyEntity],
    query: ListQuery,
    status_of: StatusOf,
    tags_of: TagsOf,
    *,
    kinds: Collection[Kind] = (),
) -> list[AnyEntity]:
    """Return all entities that match the conditions of a query, in its order; see `list_entities`."""
    if FilterField.PIPELINES in query.filters and set(kinds) != {Kind.PROCESS}:
        raise VerbRefusedError(
            subject="the list",
            reason="only processes have pipelines",
            next_step="List only processes to filter by PIPELINES.",
            fault=Fault.ASKED,
        )
    of_kinds = (entity for entity in entities if not kinds or entity.kind in kinds)
    found = [entity for entity in of_kinds if _is_wanted(entity, query, status_of, tags_of)]
    return sorted(found, key=lambda entity: (entity.name, entity.kind), reverse=query.sort_order == "desc")


def is_subsequence(letters: str, name: str) -> bool:
    """Return whether the letters occur in this order, in any case.

    >>> is_subsequence("mhs", "New-My-Hourly-Summary"), is_subsequence("smh", "New-My-Hourly-Summary")
    (True, False)
    """
    rest = iter(name.lower())
    return all(letter in rest for letter in letters.lower())


def _is_wanted(entity: AnyEntity, query: ListQuery, status_of: StatusOf, tags_of: TagsOf) -> bool:
    if not is_subsequence(query.name_sequence, entity.name):
        return False
    tags = tags_of(entity) if query.tags or query.tag_keys else ()
    if not has_words(tags, query.tag_keys) or not set(query.tags) <= set(tags):
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
            return isinstance(entity, Feed | Process) and not folded.isdisjoint(
                name.lower() for name in entity.clusters
            )
        case _:
            assert_never(by)


def _listed(entity: AnyEntity, shown: Collection[ListField], status_of: StatusOf, tags_of: TagsOf) -> ListedEntity:
    clusters = tuple(entity.clusters) if isinstance(entity, Feed | Process) else ()
    pipelines, inputs, outputs = (
        (entity.pipelines, entity.inputs, entity.outputs) if isinstance(entity, Process) else ((), {}, {})
    )
    return ListedEntity(
        kind=entity.kind,
        name=entity.name,
        status=status_of(entity).state.value if ListField.STATUS in shown else None,
        tags=tags_of(entity) if ListField.TAGS in shown else None,
        pipelines=tuple(pipelines) if ListField.PIPELINES in shown else None,
        clusters=clusters if ListField.CLUSTERS in shown else None,
        inputs=_feeds_of(inputs) if ListField.INPUTS in shown else None,
        outputs=_feeds_of(outputs) if ListField.OUTPUTS in shown else None,
    )


def _feeds_of(edges: Mapping[str, Input] | Mapping[str, Output]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.feed for each in edges.values()))
