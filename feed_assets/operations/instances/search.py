"""`search`: instances across all feeds and processes, by name, tags, state and time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.operations.entities.listing import is_subsequence
from feed_assets.operations.instances.queries import VERSION, find_rows
from feed_assets.operations.instances.ranges import PAGE, InstanceFilter, InstanceQuery, clip_range
from feed_assets.operations.instances.rows import InstanceRow
from feed_assets.operations.scene import Scene
from feed_assets.plan.records import FeedRecord, ProcessRecord
from feed_assets.state.records import FeedInstanceStatus, ProcessInstanceStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """What is looked for. All conditions must hold; of several values of one condition one is enough.

    `name_sequence` and `tag_keys` are as in the list of entities. `start` None is ten instances of each entity before
    the `end`, and `end` None is now. `by_status` orders by state instead of by time.
    """

    kinds: frozenset[Kind] = frozenset({Kind.FEED, Kind.PROCESS})
    name_sequence: str = ""
    tag_keys: tuple[str, ...] = ()
    statuses: frozenset[str] | None = None
    start: datetime | None = None
    end: datetime | None = None
    by_status: bool = False
    offset: int = 0
    results: int = PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInstance:
    """An instance that was found, with the tags of its entity."""

    row: InstanceRow
    tags: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        return {**self.row.to_json(), "tags": list(self.tags)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """One page of what was found, newest first. `has_more` says that another page follows."""

    instances: tuple[FoundInstance, ...]
    has_more: bool

    def to_json(self) -> dict[str, object]:
        """The JSON form, `version` 1."""
        return {
            "version": VERSION,
            "instances": [found.to_json() for found in self.instances],
            "hasMore": self.has_more,
        }


def search_instances(scene: Scene, query: SearchQuery) -> SearchPage:
    """The instances that meet all conditions, the newest first. Of each entity so many are read as a page needs."""
    found: list[FoundInstance] = []
    with scene.read() as connection:
        for kind, record in _candidates(scene, query):
            tags = tuple(f"{name}={value}" for name, value in record.facts.tags)
            found.extend(FoundInstance(row=row, tags=tags) for row in _rows(scene, connection, kind, record, query))
    found.sort(key=lambda each: (each.row.nominal_time, each.row.name, each.row.cluster), reverse=True)
    if query.by_status:
        found.sort(key=lambda each: each.row.status, reverse=True)
    end = query.offset + query.results
    return SearchPage(instances=tuple(found[query.offset : end]), has_more=len(found) > end)


def _candidates(scene: Scene, query: SearchQuery) -> Iterator[tuple[Kind, FeedRecord | ProcessRecord]]:
    for kind in sorted(query.kinds):
        for (name, _), record in sorted(scene.records(kind).items()):
            if is_subsequence(query.name_sequence, name) and _has_words(record, query.tag_keys):
                yield kind, record


def _has_words(record: FeedRecord | ProcessRecord, words: tuple[str, ...]) -> bool:
    tags = ",".join(f"{name}={value}" for name, value in record.facts.tags).lower()
    return all(word.lower() in tags for word in words)


def _rows(
    scene: Scene, connection: Connection, kind: Kind, record: FeedRecord | ProcessRecord, query: SearchQuery
) -> list[InstanceRow]:
    statuses = query.statuses
    if statuses is not None:
        statuses &= frozenset(map(str, FeedInstanceStatus if kind is Kind.FEED else ProcessInstanceStatus))
        if not statuses:
            return []
    name, cluster = record.key
    start, stop = clip_range([record.sequence], start=query.start, end=query.end, results=PAGE, now=scene.as_of)
    one = InstanceQuery(
        kind=kind, name=name, filter=InstanceFilter(statuses=statuses), results=query.offset + query.results
    )
    return find_rows(scene, connection, one, cluster, start, stop)
