"""What hangs on a word or a place: a graph of the entities in a pipeline, a group, on a cluster, of an owner, …"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

from feed_assets.definitions.lists.listing import SaidTags
from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.feed import Feed
from feed_assets.entities.graph import iter_edges
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey
from feed_assets.lineage.records import Edge, EdgeKind, LineageGraph, Node, NodeKind

_Edge = tuple[EntityKey, str, EntityKey]


_KINDS = {"inputs": EdgeKind.READ, "outputs": EdgeKind.MADE}


def show_group(context: EntityContext, kind: NodeKind, name: str) -> LineageGraph:
    """Return the entities that have something in common, as a graph from that on: what each reads and writes, and what
    stands on a cluster. In a pipeline, processes lead to processes by the feeds that one writes and the other reads.

    Raises:
        EntityNotFoundError: no entity has it.
    """
    bundle = context.load().bundle.bundle
    with context.database.read() as connection:
        said = SaidTags(connection)
    members: dict[str, list[EntityKey]] = defaultdict(list)
    for entity in bundle.entities:
        for word in dict.fromkeys(_words(kind, entity, said)):
            members[word].append(entity.key)
    found = members.get(name, [])
    if not found:
        similar = tuple(get_close_matches(name, members, n=2))
        raise EntityNotFoundError(kind=kind.value, name=name, suggestions=similar)
    root, edges = (kind.value, name), list(iter_edges(bundle))
    if kind is NodeKind.COLO:
        found += [one for one, _, other in edges if other in found]
    if kind is NodeKind.PIPELINE:
        drawn = list(_hand_on(found, edges))
    else:
        drawn = [_draw(*each) for each in edges if each[0] in found and each[2] in {*found, root}]
    nodes = [Node(id="/".join(key), kind=NodeKind(key[0]), name=key[1]) for key in dict.fromkeys([root, *found])]
    drawn += _first_steps(nodes, drawn)
    return LineageGraph(starts=(nodes[0].id,), nodes=tuple(nodes), edges=tuple(drawn), up=False)


def _first_steps(nodes: Sequence[Node], edges: Sequence[Edge]) -> Iterator[Edge]:
    """Yield edges from the first node to some of the others, so that it leads to all of them."""
    after: dict[str, set[str]] = defaultdict(set)
    for each in edges:
        after[each.source].add(each.target)
    ids, targets = [each.id for each in nodes], {each.target for each in edges}
    reached: set[str] = set()
    for node in (ids[0], *sorted(ids[1:], key=targets.__contains__)):
        if node not in reached and node != ids[0]:
            yield Edge(source=ids[0], target=node, kind=EdgeKind.HAS)
        waiting = [node]
        while waiting:
            new = after[waiting.pop()] - reached
            reached |= new
            waiting += new


def _words(kind: NodeKind, entity: AnyEntity, said: SaidTags) -> Iterable[str]:
    match kind, entity:
        case (NodeKind.PIPELINE, Process()):
            return entity.pipelines
        case (NodeKind.GROUP, Feed()):
            return entity.groups
        case (NodeKind.COLO, Cluster() | Datasource()):
            return (entity.colo,)
        case (NodeKind.CLUSTER, Feed() | Process()):
            return entity.clusters
        case (NodeKind.CLUSTER, Cluster()):
            return (entity.name,)
        case (NodeKind.TAG, _):
            return said.of_entity(entity)
        case (NodeKind.OWNER, _):
            owners = (each.removeprefix("owner=") for each in said.of_entity(entity) if each.startswith("owner="))
            return (*owners, *filter(None, [entity.acl.owner] if entity.acl else []))
    return ()


def _hand_on(processes: Iterable[EntityKey], edges: Iterable[_Edge]) -> Iterator[Edge]:
    """Yield for each feed that one of some processes writes and another reads the edge between them."""
    of_field: dict[str, dict[EntityKey, list[EntityKey]]] = {"inputs": defaultdict(list), "outputs": defaultdict(list)}
    inside = set(processes)
    for process, field, feed in edges:
        if process in inside and field in of_field:
            of_field[field][feed].append(process)
    for feed, writers in of_field["outputs"].items():
        for writer in writers:
            for reader in of_field["inputs"].get(feed, ()):
                yield _edge(writer, reader, EdgeKind.HANDS, feed[1])


def _draw(one: EntityKey, field: str, other: EntityKey) -> Edge:
    source, target = (one, other) if field in ("outputs", "quality") else (other, one)
    return _edge(source, target, _KINDS.get(field, EdgeKind.HAS))


def _edge(source: EntityKey, target: EntityKey, kind: EdgeKind, name: str | None = None) -> Edge:
    return Edge(source="/".join(source), target="/".join(target), kind=kind, name=name)
