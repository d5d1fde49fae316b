"""Which instances a name means: those of a process, the copies of a feed, what retention did to it, or its data.

Falcon's lifecycles. Copies are kept like instances of processes, under the names of flows (`feed@source`); people name
the feed, and may name a flow wherever a process or feed is asked for.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.flow_names import flow_name, parse_flow
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.instances.ranges import InstanceQuery, Lifecycle, statuses_of
from feed_assets.operations.scene import Scene
from feed_assets.timing.sequence import InstanceSequence

_OF_KIND = {
    Kind.PROCESS: (Lifecycle.EXECUTION,),
    Kind.FEED: (Lifecycle.REPLICATION, Lifecycle.EVICTION),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Instances of one kind: of a process or flow (`kind` PROCESS), or of a feed: its data, or its evictions."""

    kind: Kind
    name: str
    lifecycle: Lifecycle | None

    @property
    def source(self) -> str | None:
        """Where a flow copies from."""
        flow = parse_flow(self.name)
        return flow[1] if flow is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """What a name and lifecycles mean: `all`, and by cluster those that are asked there. On a cluster that has none of
    them one is asked all the same, and refused then.
    """

    all: tuple[Subject, ...]
    by_cluster: tuple[tuple[str, tuple[Subject, ...]], ...]

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters that are asked."""
        return tuple(cluster for cluster, _ in self.by_cluster)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, each once."""
        return tuple(dict.fromkeys(subject.name for subject in self.all))

    def on(self, cluster: str) -> tuple[Subject, ...]:
        """What is meant on a cluster."""
        return dict(self.by_cluster)[cluster]

    def queries_on(self, query: InstanceQuery, cluster: str) -> Iterator[InstanceQuery]:
        """A query as it is put to each subject of a cluster."""
        for subject in self.on(cluster):
            chosen = frozenset([subject.lifecycle] if subject.lifecycle else [])
            yield replace(query, kind=subject.kind, name=subject.name, lifecycles=chosen)

    def filtered(self, is_wanted: Callable[[Subject, str], bool]) -> "Subjects":
        """Those that are wanted; a cluster on which none is, is not asked."""
        left = (
            (cluster, tuple(each for each in subjects if is_wanted(each, cluster)))
            for cluster, subjects in self.by_cluster
        )
        by_cluster = tuple((cluster, subjects) for cluster, subjects in left if subjects)
        return Subjects(by_cluster=by_cluster, all=self.all)

    def sequences(self, scene: Scene) -> list[InstanceSequence]:
        """The instances of all of them, as they are declared now."""
        return [
            scene.sequence(subject.kind, subject.name, cluster)
            for subject in self.all
            for cluster in scene.clusters_of(subject.kind, subject.name)
        ]


def find_subjects(
    scene: Scene,
    kind: Kind,
    name: str,
    lifecycles: Collection[Lifecycle] = (),
    clusters: Collection[str] | None = None,
) -> Subjects:
    """What a name means.

    Without a lifecycle a process has its execution, and a feed its replication where it is copied to one of the
    clusters, else its data.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: a lifecycle that what is named does not have.
    """
    flow = parse_flow(name)
    if flow is not None:
        _require(name, lifecycles, (Lifecycle.REPLICATION, Lifecycle.EXECUTION))
        return _everywhere(scene, [Subject(kind=Kind.PROCESS, name=name, lifecycle=Lifecycle.REPLICATION)], clusters)
    scene.clusters_of(kind, name)
    _require(label_of((kind, name)), lifecycles, _OF_KIND[kind])
    if kind is Kind.PROCESS:
        return _everywhere(scene, [Subject(kind=kind, name=name, lifecycle=None)], clusters)
    flows = flows_to(scene, name, clusters)
    if Lifecycle.REPLICATION in lifecycles and not flows:
        to = f" to {', '.join(sorted(clusters))}" if clusters else ""
        raise InstanceQueryError(
            subject=f"Incorrect lifecycle {Lifecycle.REPLICATION}",
            reason=f"feed {name!r} is not copied{to}",
            next_step="Ask for eviction or, without a lifecycle, for its data.",
        )
    wanted = lifecycles or ({Lifecycle.REPLICATION} if flows else ())
    found: list[Subject] = []
    if Lifecycle.REPLICATION in wanted:
        found += [Subject(kind=Kind.PROCESS, name=each, lifecycle=Lifecycle.REPLICATION) for each in flows]
    if Lifecycle.EVICTION in wanted:
        found.append(Subject(kind=Kind.FEED, name=name, lifecycle=Lifecycle.EVICTION))
    if not wanted:
        found.append(Subject(kind=Kind.FEED, name=name, lifecycle=None))
    return _everywhere(scene, found, clusters)


def find_data(scene: Scene, feed: str, clusters: Collection[str] | None = None) -> Subjects:
    """The data of a feed, whatever is done to them.

    Raises:
        EntityNotFoundError: there is no such feed.
    """
    return _everywhere(scene, [Subject(kind=Kind.FEED, name=feed, lifecycle=None)], clusters)


def _everywhere(scene: Scene, subjects: Sequence[Subject], asked: Collection[str] | None) -> Subjects:
    """The subjects on the clusters that are asked: those they are on or, where none is, the first, which says so."""
    places = {each: set(scene.clusters_of(each.kind, each.name)) for each in subjects}
    clusters = sorted(set().union(*places.values()) if asked is None else set(asked))
    return Subjects(
        all=tuple(subjects),
        by_cluster=tuple(
            (cluster, tuple(each for each in subjects if cluster in places[each]) or tuple(subjects[:1]))
            for cluster in clusters
        ),
    )


def find_work(
    scene: Scene, name: str, lifecycles: Collection[Lifecycle] = (), clusters: Collection[str] | None = None
) -> Subjects:
    """The processes and flows that a name means, for those who act on work: a process, a flow, or a feed.

    Of a feed and a process of the same name the process is meant, unless replication is asked for.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: it has no such work.
    """
    is_feed = parse_flow(name) is None and (Lifecycle.REPLICATION in lifecycles or scene.kind_of(name) is Kind.FEED)
    kind = Kind.FEED if is_feed else Kind.PROCESS
    if kind is Kind.FEED and Lifecycle.EVICTION in lifecycles:
        raise InstanceQueryError(
            subject=f"Incorrect lifecycle {Lifecycle.EVICTION}",
            reason="what retention does is done in sweeps, not in instances",
            next_step="See `feed-assets retention list`, `cancel` and `undo`.",
        )
    found = find_subjects(scene, kind, name, lifecycles, clusters)
    if any(subject.kind is not Kind.PROCESS for subject in found.all):
        raise InstanceQueryError(
            subject=label_of((kind, name)),
            reason="nothing works on its instances: it is not copied",
            next_step="Name a process, or a feed that is copied to the clusters in question.",
        )
    return found


def find_single(
    scene: Scene,
    kind: Kind,
    name: str,
    lifecycles: Collection[Lifecycle] = (),
    clusters: Collection[str] | None = None,
) -> Subjects:
    """What a name means where one instance and its neighbours are in question: of a feed its data, unless replication
    is asked for. The copies are among the neighbours.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: a lifecycle that what is named does not have.
    """
    if kind is Kind.FEED and parse_flow(name) is None and not lifecycles:
        return find_data(scene, name, clusters)
    found = find_subjects(scene, kind, name, lifecycles, clusters)
    return found if kind is Kind.PROCESS else find_work(scene, name, lifecycles, clusters)


def flows_to(scene: Scene, feed: str, clusters: Iterable[str] | None = None) -> tuple[str, ...]:
    """The names of the flows of a feed to some clusters, None for all."""
    on = scene.clusters_of(Kind.FEED, feed)
    targets = on if clusters is None else [cluster for cluster in on if cluster in set(clusters)]
    names = (flow_name(feed, source) for source in on)
    return tuple(name for name in names if any((name, target) in scene.plan.processes for target in targets))


def require_statuses(query: InstanceQuery, subjects: Iterable[Subject]) -> None:
    """Refuse a filter by statuses that no instance in question ever has.

    Raises:
        InstanceQueryError: they are of another lifecycle.
    """
    wanted = query.filter.statuses
    known = {status for subject in subjects for status in statuses_of(subject.kind, subject.lifecycle)}
    if wanted is not None and not wanted <= known:
        raise InstanceQueryError(
            subject=f"status {', '.join(sorted(wanted - known))}",
            reason=f"an instance of {label_of((query.kind, query.name))} that is asked for here never has it",
            next_step=f"Statuses are {', '.join(sorted(known))}.",
        )


def _require(label: str, lifecycles: Collection[Lifecycle], known: Sequence[Lifecycle]) -> None:
    wrong = [each for each in lifecycles if each not in known]
    if wrong:
        raise InstanceQueryError(
            subject=f"Incorrect lifecycle {', '.join(sorted(wrong))}",
            reason=f"{label} has {' and '.join(known)}",
            next_step=f"Ask for {' or '.join(known)}, or name none.",
        )
