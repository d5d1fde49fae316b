"""A bundle: all entities that are declared together, by kind and name, with the digests of their content."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NoReturn, TypeAlias

from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Entity, Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.errors import DuplicateEntityError, EntityNotFoundError
from feed_assets.entities.feed import Feed
from feed_assets.entities.maps import FrozenMap
from feed_assets.entities.process import Process
from feed_assets.errors import find_similar
from feed_assets.issues import EntityKey

AnyEntity: TypeAlias = Cluster | Datasource | Feed | Process

ENTITY_TYPES: Mapping[Kind, type[AnyEntity]] = {
    Kind.CLUSTER: Cluster,
    Kind.DATASOURCE: Datasource,
    Kind.FEED: Feed,
    Kind.PROCESS: Process,
}

_DIGEST_VERSION = 1
_ORDERED = ("inputs", "outputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A collection of entities; the order in which they are given does not matter.

    Raises:
        DuplicateEntityError: two entities of one kind have the same name.

    >>> Bundle(entities=(Cluster(name="primary", storage="file:///data"),)).get_cluster("primary").storage
    'file:///data'
    """

    entities: tuple[AnyEntity, ...]
    _by_key: dict[EntityKey, AnyEntity] = field(init=False, repr=False, compare=False)
    _digests: dict[EntityKey, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_key: dict[EntityKey, AnyEntity] = {}
        for entity in sorted(self.entities, key=attrgetter("key")):
            if entity.key in by_key:
                raise DuplicateEntityError(kind=entity.kind.value, name=entity.name)
            by_key[entity.key] = entity
        object.__setattr__(self, "entities", tuple(by_key.values()))
        object.__setattr__(self, "_by_key", by_key)

    @property
    def clusters(self) -> tuple[Cluster, ...]:
        """The clusters, ordered by name."""
        return tuple(entity for entity in self.entities if isinstance(entity, Cluster))

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The feeds, ordered by name."""
        return tuple(entity for entity in self.entities if isinstance(entity, Feed))

    @property
    def processes(self) -> tuple[Process, ...]:
        """The processes, ordered by name."""
        return tuple(entity for entity in self.entities if isinstance(entity, Process))

    @property
    def datasources(self) -> tuple[Datasource, ...]:
        """The datasources, ordered by name."""
        return tuple(entity for entity in self.entities if isinstance(entity, Datasource))

    def find(self, key: EntityKey) -> AnyEntity | None:
        """Return the entity of this kind and name; None if there is none."""
        return self._by_key.get(key)

    def find_cluster(self, name: str) -> Cluster | None:
        """Return the cluster of this name; None if there is none."""
        found = self._by_key.get((Kind.CLUSTER, name))
        return found if isinstance(found, Cluster) else None

    def find_datasource(self, name: str) -> Datasource | None:
        """Return the datasource of this name; None if there is none."""
        found = self._by_key.get((Kind.DATASOURCE, name))
        return found if isinstance(found, Datasource) else None

    def find_feed(self, name: str) -> Feed | None:
        """Return the feed of this name; None if there is none."""
        found = self._by_key.get((Kind.FEED, name))
        return found if isinstance(found, Feed) else None

    def find_process(self, name: str) -> Process | None:
        """Return the process of this name; None if there is none."""
        found = self._by_key.get((Kind.PROCESS, name))
        return found if isinstance(found, Process) else None

    def get_cluster(self, name: str) -> Cluster:
        """Return the cluster of this name; raise EntityNotFoundError if there is none."""
        return self.find_cluster(name) or _missing(self, Kind.CLUSTER, name)

    def get_datasource(self, name: str) -> Datasource:
        """Return the datasource of this name; raise EntityNotFoundError if there is none."""
        return self.find_datasource(name) or _missing(self, Kind.DATASOURCE, name)

    def get_feed(self, name: str) -> Feed:
        """Return the feed of this name; raise EntityNotFoundError if there is none."""
        return self.find_feed(name) or _missing(self, Kind.FEED, name)

    def find_quarantine(self, name: str) -> str | None:
        """Return the feed that takes the bad rows of a feed; None if none does."""
        feed = self.find_feed(name)
        return feed.quality.quarantine if feed is not None and feed.quality is not None else None

    def written_feeds(self, process: Process) -> tuple[str, ...]:
        """Return the feeds that a process writes: its outputs, then their quarantines."""
        outputs = [output.feed for output in process.outputs.values()]
        return (*outputs, *(name for feed in outputs if (name := self.find_quarantine(feed)) is not None))

    def clusters_in(self, entity: AnyEntity, colo: str | None) -> tuple[str, ...]:
        """Return the clusters of a feed or process in a colo, or in any; none of another entity."""
        if isinstance(entity, Cluster | Datasource):
            return ()
        if colo is None:
            return tuple(entity.clusters)
        there = {each.name for each in self.clusters if each.colo == colo}
        return tuple(name for name in entity.clusters if name in there)

    def seen_from(self, colo: str | None) -> "Bundle":
        """Return what is used in a colo: its clusters, what is on them, and databases there; all if it is None."""
        if colo is None:
            return self
        local = [
            each.model_copy(update={"clusters": FrozenMap({name: each.clusters[name] for name in names})})
            for each in self.entities
            if isinstance(each, Feed | Process) and (names := self.clusters_in(each, colo))
        ]
        on = [entry for each in local if isinstance(each, Feed) for entry in each.clusters.values()]
        used = {table.name for each in on for _, table in each.tables()}
        databases = (each for each in self.datasources if each.colo == colo or each.name in used)
        return Bundle(entities=(*(each for each in self.clusters if each.colo == colo), *databases, *local))

    def names(self, kind: Kind) -> tuple[str, ...]:
        """Return the names of the entities of a kind."""
        return tuple(entity.name for entity in self.entities if entity.kind is kind)

    def suggest(self, kind: Kind, name: str) -> tuple[str, ...]:
        """Return names of a kind that are similar to `name`."""
        return tuple(find_similar(name, self.names(kind), n=2))

    def without(self, keys: Collection[EntityKey]) -> "Bundle":
        """Return the bundle without some entities."""
        return Bundle(entities=tuple(entity for entity in self.entities if entity.key not in keys))

    @property
    def digest(self) -> str:
        """The sha256 of the content of all entities, in hexadecimal; the same on every machine."""
        return _sha256([[*entity.key, self.entity_digest(entity)] for entity in self.entities])

    def entity_digest(self, entity: AnyEntity) -> str:
        """Return the sha256 of an entity's content; see `entity_digest`."""
        if self._by_key.get(entity.key) is not entity:
            return entity_digest(entity)
        if entity.key not in self._digests:
            self._digests[entity.key] = entity_digest(entity)
        return self._digests[entity.key]


def entity_digest(entity: Entity) -> str:
    """Return the sha256 of an entity's content, in hexadecimal.

    Notation makes no difference: the order of keys (except inputs and outputs, which workflows see in their order),
    comments, and values that equal the default.
    """
    content = entity.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for name in _ORDERED:
        if name in content:
            content[name] = list(content[name].items())
    return _sha256([_DIGEST_VERSION, entity.kind, content])


def _sha256(content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _missing(bundle: Bundle, kind: Kind, name: str) -> NoReturn:
    raise EntityNotFoundError(kind=kind, name=name, suggestions=bundle.suggest(kind, name))
