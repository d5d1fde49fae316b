"""What hangs on a word or a place: a graph of the entities in a pipeline, a group, on a cluster, of an owner, …"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from feed_assets.definitions.lists.listing import SaidTags
from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.feed import Feed
from feed_assets.entities.graph import iter_edges
from feed_assets.entities.process import Process
from feed_assets.errors import find_similar
from feed_assets.issues import EntityKey
from feed_assets.lineage.records import WORDS, Edge, EdgeKind, LineageGraph, Node, NodeKind

_Edge = tuple[EntityKey, str, EntityKey]


_KINDS = {"inputs": EdgeKind.READ, "outputs": EdgeKind.MADE, "in_feed": EdgeKind.READ}
_TOUCHED = (*_KINDS, "quality")


def find_members(context: EntityContext, kind: NodeKind) -> dict[str, list[EntityKey]]:
    """Return the entities of each pipeline, group, …: of each that there is of a kind."""
    with context.database.read() as connection:
        said = SaidTags(connection)
    members: dict[str, list[EntityKey]] = defaultdict(list)
    for entity in context.load().bundle.bundle.entities:
        for word in dict.fromkeys(_words(kind, entity, said)):
            members[word].append(entity.key)
    return members


def show_group(context: EntityContext, kind: NodeKind, name: str) -> "GroupGraph":
    """Return the entities that have something in common, as a graph from that on: what each touches, and who
    touches it; of a cluster or colo only what is there. In a pipeline, processes lead to processes by the feeds
    that one writes and the other reads.

    Raises:
        EntityNotFoundError: no entity has it.
    """
    members, bundle = find_members(context, kind), context.load().bundle.bundle
    found = members.get(name, [])
    if not found:
        similar = tuple(find_similar(name, members, n=2)) or tuple(sorted(members)[:3])
        raise EntityNotFoundError(kind=kind.value, name=name, suggestions=similar)
    root, edges = (kind.value, name), list(iter_edges(bundle))
    if kind is NodeKind.COLO:
        found += [one for one, _, other in edges if other in found]
    drawn = [Edge(source="/".join(root), target="/".join(each), kind=EdgeKind.HAS) for each in found if each != root]
    handed = list(_hand_on(found, edges)) if kind is NodeKind.PIPELINE else []
    drawn += handed
    is_place, told = kind in (NodeKind.CLUSTER, NodeKind.COLO), {each.name for each in handed}
    for one, field, other in edges:
        is_touched = field in _TOUCHED and not is_place and {one, other} & {*found} and other[1] not in told
        if is_touched or {one, other} <= {*found, root}:
            drawn.append(_draw(one, field, other))
    ids = dict.fromkeys(["/".join(root), *("/".join(each) for each in found)])
    ids |= dict.fromkeys(end for each in drawn for end in (each.source, each.target))
    nodes = (each.split("/", 1) for each in ids)
    return GroupGraph(
        starts=("/".join(root),),
        nodes=tuple(Node(id=f"{of}/{name}", kind=NodeKind(of), name=name) for of, name in nodes),
        edges=tuple(dict.fromkeys(drawn)),
        up=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGraph(LineageGraph):
    """What has something in common, and what each touches; the first node has all of it."""

    @property
    def text(self) -> str:
        """A line for each entity, and below it one for each that it touches or that touches it."""
        names = {each.id: each.label for each in self.nodes}
        above: dict[str, list[str]] = defaultdict(list)
        below: dict[str, list[str]] = defaultdict(list)
        for each in self.edges:
            below[each.source].append(f"{WORDS[each.kind][1].format(name=each.name)} {names[each.target]}")
            if each.kind is not EdgeKind.HAS:
                above[each.target].append(f"{WORDS[each.kind][0].format(name=each.name)} {names[each.source]}")
        (root,) = self.starts
        members = [each.target for each in self.edges if each.source == root]
        told = ("\n    ".join([f"  has {names[each]}", *above[each], *below[each]]) for each in members)
        return "\n".join([names[root], *told])


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
