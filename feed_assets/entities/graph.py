"""Dependencies: process → feed, process → cluster (also of its mirror), feed → cluster, feed → datasource, feed → feed.

Also finds the rings of any graph.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, FieldPath

_Node = TypeVar("_Node", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference of an entity to another, at `path`; the other need not exist."""

    target: EntityKey
    path: FieldPath


def iter_references(entity: AnyEntity) -> Iterator[Reference]:
    """Yield the references of an entity, in the order in which they are written."""
    match entity:
        case Cluster() | Datasource():
            return
        case Feed():
            yield from _clusters(entity.clusters)
            for name, entry in entity.clusters.items():
                for below, table in entry.tables():
                    yield Reference(target=(Kind.DATASOURCE, table.name), path=("clusters", name, *below, "name"))
            if entity.quality is not None and entity.quality.quarantine is not None:
                yield Reference(target=(Kind.FEED, entity.quality.quarantine), path=("quality", "quarantine"))
            for column, key in entity.quality.keys.items() if entity.quality is not None else ():
                yield Reference(target=(Kind.FEED, key.feed), path=("quality", "in_feed", column))
        case Process():
            yield from _clusters(entity.clusters)
            for name, item in entity.inputs.items():
                yield Reference(target=(Kind.FEED, item.feed), path=("inputs", name, "feed"))
            for name, output in entity.outputs.items():
                yield Reference(target=(Kind.FEED, output.feed), path=("outputs", name, "feed"))
            if (mirror := entity.workflow.mirror) is not None:
                for side, cluster in (("source", mirror.source.cluster), ("target", mirror.target.cluster)):
                    if cluster is not None:
                        path = ("workflow", "mirror", side, "cluster")
                        yield Reference(target=(Kind.CLUSTER, cluster), path=path)


def _clusters(names: Iterable[str]) -> Iterator[Reference]:
    for name in names:
        yield Reference(target=(Kind.CLUSTER, name), path=("clusters", name))


def kind_named_at(kind: str, path: FieldPath) -> Kind | None:
    """Return the kind of feeds or processes that a field of an entity names, at its path in a document; None if it
    names none. A name in the condition of a trigger is first that of an input; behind one in `in_feed` is a column.
    """
    match kind, path:
        case (Kind.PROCESS, ("inputs" | "outputs", _, "feed") | ("trigger", "when", *_)):
            return Kind.FEED
        case (Kind.FEED, ("quality", "quarantine") | ("quality", "in_feed", _)):
            return Kind.FEED
        case (Kind.FEED, (*_, "until_read_by") | (*_, "until_read_by", int())):
            return Kind.PROCESS
        case _:
            return None


def iter_edges(bundle: Bundle) -> Iterator[tuple[EntityKey, str, EntityKey]]:
    """Yield each reference of an entity to another, once, with the field that has it: `inputs`, `outputs`, `clusters`,
    `quality` (a quarantine), `in_feed` (a feed whose keys rows have) or `workflow` (a mirror).
    """
    for entity in bundle.entities:
        yield from dict.fromkeys((entity.key, _field(each.path), each.target) for each in iter_references(entity))


def _field(path: FieldPath) -> str:
    return str(path[1] if path[:2] == ("quality", "in_feed") else path[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyGraph:
    """The direct dependencies of each entity, and the reverse; includes names that no entity has."""

    dependencies: Mapping[EntityKey, frozenset[EntityKey]]
    dependents: Mapping[EntityKey, frozenset[EntityKey]]

    @classmethod
    def of(cls, bundle: Bundle) -> "DependencyGraph":
        """Build the graph of a bundle."""
        dependents: dict[EntityKey, set[EntityKey]] = defaultdict(set)
        dependencies: dict[EntityKey, frozenset[EntityKey]] = {}
        for entity in bundle.entities:
            targets = frozenset(reference.target for reference in iter_references(entity))
            dependencies[entity.key] = targets
            for target in targets:
                dependents[target].add(entity.key)
        return cls(dependencies=dependencies, dependents={key: frozenset(found) for key, found in dependents.items()})

    def dependents_of(self, keys: Iterable[EntityKey]) -> frozenset[EntityKey]:
        """Return everything that depends on any of `keys`, directly or not.

        A key itself is included only if it does, too.
        """
        return find_reached(self.dependents, keys)

    def dependencies_of(self, keys: Iterable[EntityKey]) -> frozenset[EntityKey]:
        """Return everything that `keys` depend on, directly or not."""
        return find_reached(self.dependencies, keys)


def iter_rings(after: Mapping[_Node, Iterable[_Node]]) -> Iterator[tuple[_Node, ...]]:
    """Yield rings of a graph, of which no two share a node; every ring shares a node with one of them.

    `after` has the next nodes of each node; a node without an entry has none. The cost grows with nodes and edges.

    >>> list(iter_rings({"a": "b", "b": "ca", "c": "c", "d": "a"}))
    [('c',), ('a', 'b')]
    """
    seen: set[_Node] = set()
    for start in after:
        path = {} if start in seen else {start: iter(after[start])}
        while path:
            node = next(reversed(path))
            seen.add(node)
            following = next(path[node], None)
            if following is None:
                del path[node]
            elif following in path:
                ring = []
                while following in path:
                    ring.append(path.popitem()[0])
                yield tuple(reversed(ring))
            elif following not in seen and following in after:
                path[following] = iter(after[following])


def find_reached(edges: Mapping[_Node, Collection[_Node]], keys: Iterable[_Node]) -> frozenset[_Node]:
    """Return what edges lead to from any of `keys`, over one or more. A key itself is included only if they do."""
    found: set[_Node] = set()
    waiting = list(keys)
    while waiting:
        new = {*edges.get(waiting.pop(), ())} - found
        found |= new
        waiting.extend(new)
    return frozenset(found)


def iter_datasources(feed: Feed) -> Iterator[tuple[str, str]]:
    """Yield the clusters on which a feed is imported or exported, each with the name of the datasource."""
    yield from ((name, table.name) for name, entry in feed.clusters.items() for _, table in entry.tables())
