"""Queries about declared entities: state, text, newest instances."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.access.rights import find_hidden
from feed_assets.command_lines import command_line
from feed_assets.context.errors import VerbRefusedError
from feed_assets.definitions.folder import find_entity, find_version_entity
from feed_assets.definitions.lists.listing import EntityList, EntityPage, SaidTags
from feed_assets.definitions.lists.query_fields import Form, ListField, ListQuery
from feed_assets.definitions.store import Loaded
from feed_assets.definitions.verbs.context import EntityContext, find_kind, get_declared
from feed_assets.definitions.verbs.states import EntityState, EntityStatus, entity_status
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.graph import iter_edges
from feed_assets.entities.process import Process
from feed_assets.errors import Fault, WrongUsageError
from feed_assets.issues import EntityKey
from feed_assets.json_form import NominalTime
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.log.definitions.records import DocumentFormat
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.pages import PAGES, Page

SUMMARY_SPAN = timedelta(days=2)
_TAGS = {"inputs": "Input", "outputs": "Output"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownInstance:
    """One instance in a summary; a time is None if the work has not begun or ended."""

    nominal_time: NominalTime
    status: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    run_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizedEntity:
    """An entity with its newest instances on a cluster, newest first."""

    kind: str
    name: str
    status: str
    instances: tuple[ShownInstance, ...]


class _Row(NamedTuple):
    entity: SummarizedEntity
    instance: ShownInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class EntitySummary(Page[SummarizedEntity]):
    """One page of entities with their newest instances on a cluster."""

    cluster: str

    def document(self, name: str) -> Mapping[str, object]:
        """Return the members of the JSON form."""
        return {"cluster": self.cluster, **Page.document(self, name)}

    @property
    def rows(self) -> tuple[_Row, ...]:
        """All instances, each with its entity."""
        return tuple(_Row(entity, each) for entity in self.items for each in entity.instances)


def find_status(context: EntityContext, kind: Kind | None, name: str) -> EntityStatus:
    """Return the status of an entity.

    Raises:
        EntityNotFoundError: there is none.
    """
    loaded = context.load()
    entity = get_declared(loaded, kind, name)
    return entity_status(loaded.bundle.bundle, context.progress(), entity, context.now, context.settings.works_in)


def find_page(
    context: EntityContext, query: ListQuery, kinds: Collection[Kind] = (), fields: Collection[ListField] = ()
) -> EntityPage:
    """Return one page of the entities that match a query. Raises as `EntityList.find`."""
    return _list(context, context.load(), query, kinds).page(fields)


def summarize(
    context: EntityContext,
    kind: Kind,
    cluster: str | None,
    query: ListQuery,
    *,
    start: datetime | None = None,
    end: datetime | None = None,
    instances: int,
) -> EntitySummary:
    """Return entities on a cluster with their newest instances from `start` (by default two days before the end) to
    before `end`, by default up to now.

    Raises:
        EntityNotFoundError: there is no such cluster.
        VerbRefusedError: the kind is neither feed nor process, or the end is before the start.
    """
    if kind not in (Kind.FEED, Kind.PROCESS):
        raise VerbRefusedError(
            subject="the summary",
            reason=f"a {kind.value} has no instances",
            next_step="Use feed or process.",
            fault=Fault.ASKED,
        )
    last = context.now if end is None else end - timedelta.resolution
    start = start or (end or last) - SUMMARY_SPAN
    if start > (end or last):
        raise VerbRefusedError(
            subject="the summary",
            reason="it would start after its end",
            next_step="Move --start before --end.",
            fault=Fault.ASKED,
        )
    loaded = context.load()
    cluster = find_cluster(loaded, cluster)
    get_declared(loaded, Kind.CLUSTER, cluster)
    listed = _list(context, loaded, query, (kind,))
    found = [each for each in listed.find() if isinstance(each, Feed | Process) and cluster in each.clusters]
    with context.database.read() as connection:
        items = tuple(
            SummarizedEntity(
                kind=entity.kind,
                name=entity.name,
                status=listed.status_of(entity).clusters.get(cluster, EntityState.SUBMITTED).value,
                instances=tuple(_newest(connection, entity, cluster, start, last, instances)),
            )
            for entity in found[query.page]
        )
    return EntitySummary(
        items=items, total=len(found), offset=query.page.start, what="entities", more=PAGES, cluster=cluster
    )


def find_cluster(loaded: Loaded, cluster: str | None, process: str = "") -> str:
    """Return the given cluster, else the only one that is declared, or on which a process is.

    Raises:
        WrongUsageError: there are several.
    """
    if cluster is not None:
        return cluster
    bundle = loaded.bundle.bundle
    declared = bundle.find_process(process)
    names = tuple(declared.clusters) if declared is not None else bundle.names(Kind.CLUSTER)
    if len(names) != 1:
        raise WrongUsageError(f"Name one of the clusters {', '.join(names)} with --cluster.")
    return names[0]


def show_definition(
    context: EntityContext, kind: Kind | None, name: str, *, version: int | None = None, form: Form = Form.WRITTEN
) -> str:
    """Return the current definition of an entity, or that of a version; a deleted entity needs a version. References to
    outside values stay references, so that no secret is shown.

    Raises:
        EntityNotFoundError: there is none.
        VerbRefusedError: there is no such version, or the version is a deletion.
    """
    context.record()
    loaded = context.load()
    kind = find_kind(loaded, kind, name)
    if version is None:
        get_declared(loaded, kind, name)
        document = loaded.documents[kind, name]
        return _shown(document.text, document.format, form, document.entity)
    with context.database.read() as connection:
        found = Definitions(connection).find_version(kind, name, version)
        newest = Definitions(connection).find_newest(kind, name)
    if newest is None:
        get_declared(loaded, kind, name)
    if found is None or found.text is None:
        known = f"Versions go up to {newest.version}" if newest else "None is recorded yet"
        raise VerbRefusedError(
            subject=f"{kind.value} {name!r}, version {version}",
            reason="it deleted the entity" if found else "it does not exist",
            next_step=f"{known}: {command_line('entity', 'history', kind.value, name)}",
            fault=Fault.MISSING,
        )
    return _shown(found.text, found.format, form, find_version_entity(found))


def _shown(text: str, written_as: DocumentFormat, form: Form, entity: AnyEntity | None) -> str:
    if form is Form.WRITTEN or form.value == written_as.value:
        return text
    found = find_entity(text, written_as)
    has_references, found = found is not None, found or entity
    if found is None:
        raise VerbRefusedError(
            subject="the definition",
            reason="this release of feed-assets cannot read it any more",
            next_step="Show it as it was written, with --format written.",
        )
    match form:
        case Form.YAML:
            return render_yaml(found, has_references=has_references)
        case Form.XML:
            from feed_assets.loading.falcon.writing import render_falcon  # measured: 10 ms, and lists need none

            return render_falcon(found, has_references=has_references)
        case _:
            content = found.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            return json.dumps({"kind": found.kind.value, **content}, indent=2, ensure_ascii=False) + "\n"


def _list(context: EntityContext, loaded: Loaded, query: ListQuery, kinds: Collection[Kind]) -> EntityList:
    """Return the list of what who asks may read. States are read at once, tags with the first question."""
    progress, hidden = context.progress(), find_hidden()
    bundle, colo = loaded.bundle.bundle, context.settings.works_in

    @cache
    def said() -> SaidTags:
        with context.database.read() as connection:
            return SaidTags(connection)

    return EntityList(
        entities=[each for each in bundle.entities if each.key not in hidden],
        query=query,
        kinds=kinds,
        status_of=lambda entity: entity_status(bundle, progress, entity, context.now, colo),
        tags_of=lambda entity: said().of_entity(entity),
    )


def _newest(
    connection: Connection, entity: AnyEntity, cluster: str, start: datetime, end: datetime, limit: int
) -> Iterable[ShownInstance]:
    if isinstance(entity, Process):
        for row in ProcessInstances(connection).newest(entity.name, cluster, start, end, limit):
            yield ShownInstance(
                nominal_time=row.nominal_time,
                status=row.status.value,
                started_at=row.started_at,
                ended_at=row.ended_at,
                run_id=row.run_id,
            )
        return
    assert isinstance(entity, Feed)
    sequence, instances = entity.sequence_on(cluster), FeedInstances(connection)
    start = sequence.start if entity.is_current else start
    if entity.is_expected:
        indices = sequence.clip(range(sequence.index_at_or_after(start), sequence.index_at_or_before(end) + 1))
        times = [sequence.at(index) for index in reversed(indices[-limit:])]
        rows = instances.find_between(entity.name, cluster, times[-1], times[0]) if times else []
    else:
        rows = instances.find_between(entity.name, cluster, start, end, limit=limit, newest_first=True)
        times = [row.nominal_time for row in rows]
    by_time = {row.nominal_time: row for row in rows}
    for time in times:
        known = by_time.get(time)
        status = known.status if known else FeedInstanceStatus.MISSING
        yield ShownInstance(nominal_time=time, status=status.value, ended_at=known.available_at if known else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """An entity one step away. Between feed and process, `tags` give the feed's roles in the process."""

    kind: str
    name: str
    tags: tuple[str, ...] = ()


def find_neighbours(bundle: Bundle, entity: EntityKey) -> tuple[Neighbour, ...]:
    """Return the neighbours of an entity in the graph of entities, by kind and name."""
    found: dict[EntityKey, set[str]] = defaultdict(set)
    for one, field, other in iter_edges(bundle):
        if entity in (one, other):
            found[other if one == entity else one] |= {_TAGS[field]} if field in _TAGS else set()
    return tuple(Neighbour(kind=kind, name=name, tags=tuple(sorted(found[kind, name]))) for kind, name in sorted(found))
