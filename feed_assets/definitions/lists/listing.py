"""Lists of entities by kind, name, tags, state, pipelines and clusters, sorted and paged."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

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


def is_subsequence(letters: str, name: str) -> bool:
    """Return whether the letters occur in this order, in any case.

    >>> is_subsequence("mhs", "New-My-Hourly-Summary"), is_subsequence("smh", "New-My-Hourly-Summary")
    (True, False)
    """
    rest = iter(name.lower())
    return all(letter in rest for letter in letters.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityList:
    """The entities, of some kinds or of all, from which a query chooses. `status_of` and `tags_of` are called only if
    states or tags are needed.
    """

    entities: Sequence[AnyEntity]
    query: ListQuery
    kinds: Collection[Kind]
    status_of: Callable[[AnyEntity], EntityStatus]
    tags_of: Callable[[AnyEntity], tuple[str, ...]]

    def page(self, fields: Collection[ListField]) -> EntityPage:
        """Return one page of what the query finds. Also shown are the fields that are filtered by. Raises as `find`."""
        found, filters, page = self.find(), self.query.filters, self.query.page
        shown = frozenset([*fields, *(_SHOWN_BY_FILTER[each] for each in filters if each in _SHOWN_BY_FILTER)])
        items = tuple(self._listed(entity, shown) for entity in found[page])
        return EntityPage(items=items, total=len(found), offset=page.start, what="entities", more=PAGES, fields=shown)

    def find(self) -> list[AnyEntity]:
        """Return all that match the conditions of the query, in its order.

        Raises:
            WrongUsageError: a type, state or cluster of its filters does not exist.
            VerbRefusedError: a filter by pipelines is used for entities without pipelines.
        """
        self._require_values()
        if FilterField.PIPELINES in self.query.filters and set(self.kinds) != {Kind.PROCESS}:
            raise VerbRefusedError(
                subject="the list",
                reason="only processes have pipelines",
                next_step="List only processes to filter by PIPELINES.",
                fault=Fault.ASKED,
            )
        of_kinds = (entity for entity in self.entities if not self.kinds or entity.kind in self.kinds)
        found = filter(self._is_wanted, of_kinds)
        return sorted(found, key=lambda entity: (entity.name, entity.kind), reverse=self.query.sort_order == "desc")

    def _require_values(self) -> None:
        clusters = tuple(entity.name for entity in self.entities if entity.kind is Kind.CLUSTER)
        allowed: Mapping[FilterField, tuple[str, ...]] = {
            FilterField.TYPE: tuple(Kind),
            FilterField.STATUS: tuple(EntityState),
            FilterField.CLUSTER: clusters,
        }
        for field, known in allowed.items():
            for value in self.query.filters.get(field, ()):
                if value.lower() not in {each.lower() for each in known}:
                    all_known = ", ".join(known)
                    raise WrongUsageError(f"--filter-by: there is no {field} {value!r}; it is one of {all_known}.")

    def _is_wanted(self, entity: AnyEntity) -> bool:
        query = self.query
        if not is_subsequence(query.name_sequence, entity.name):
            return False
        tags = self.tags_of(entity) if query.tags or query.tag_keys else ()
        if not has_words(tags, query.tag_keys) or not set(query.tags) <= set(tags):
            return False
        return all(self._meets(entity, field, values) for field, values in query.filters.items())

    def _meets(self, entity: AnyEntity, by: FilterField, values: tuple[str, ...]) -> bool:
        folded = {value.lower() for value in values}
        match by:
            case FilterField.TYPE:
                return entity.kind.value in folded
            case FilterField.NAME:
                return entity.name.lower() in folded
            case FilterField.STATUS:
                return self.status_of(entity).state.value.lower() in folded
            case FilterField.PIPELINES:
                return isinstance(entity, Process) and not folded.isdisjoint(map(str.lower, entity.pipelines))
            case FilterField.CLUSTER:
                return isinstance(entity, Feed | Process) and not folded.isdisjoint(map(str.lower, entity.clusters))
            case _:
                assert_never(by)

    def _listed(self, entity: AnyEntity, shown: Collection[ListField]) -> ListedEntity:
        clusters = tuple(entity.clusters) if isinstance(entity, Feed | Process) else ()
        pipelines, inputs, outputs = (
            (entity.pipelines, entity.inputs, entity.outputs) if isinstance(entity, Process) else ((), {}, {})
        )
        return ListedEntity(
            kind=entity.kind,
            name=entity.name,
            status=self.status_of(entity).state.value if ListField.STATUS in shown else None,
            tags=self.tags_of(entity) if ListField.TAGS in shown else None,
            pipelines=tuple(pipelines) if ListField.PIPELINES in shown else None,
            clusters=clusters if ListField.CLUSTERS in shown else None,
            inputs=_feeds_of(inputs) if ListField.INPUTS in shown else None,
            outputs=_feeds_of(outputs) if ListField.OUTPUTS in shown else None,
        )


def _feeds_of(edges: Mapping[str, Input] | Mapping[str, Output]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.feed for each in edges.values()))
