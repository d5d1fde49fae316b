"""Resolves a name to instances: those of a process, the copies of a feed, its evictions, or its data. These are
Falcon's lifecycles. Copies are recorded as instances of flows, which are named `feed@source`. Users name the feed, and
may name a flow wherever a process or feed is accepted.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from feed_assets.command_lines import command_line
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.flow_names import flow_name, parse_flow
from feed_assets.operations.context import OperationContext
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.instances.query_fields import Lifecycle
from feed_assets.operations.instances.ranges import ClusterQuery, InstanceQuery, statuses_of
from feed_assets.operations.instances.rows import source_cluster
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
        """The source cluster of a flow."""
        flow = parse_flow(self.name)
        return flow[1] if flow is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """The subjects of a query: `all`, and by cluster those to query there. A cluster without any keeps one subject,
    whose query is then refused.
    """

    all: tuple[Subject, ...]
    by_cluster: tuple[tuple[str, tuple[Subject, ...]], ...]

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters to query."""
        return tuple(cluster for cluster, _ in self.by_cluster)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the subjects, each once."""
        return tuple(dict.fromkeys(subject.name for subject in self.all))

    def on(self, cluster: str) -> tuple[Subject, ...]:
        """Return the subjects on a cluster."""
        return dict(self.by_cluster)[cluster]

    def queries_on(self, whole: ClusterQuery) -> Iterator[ClusterQuery]:
        """Yield a query on a cluster for each of its subjects."""
        for subject in self.on(whole.cluster):
            chosen = frozenset([subject.lifecycle] if subject.lifecycle else [])
            one = replace(whole.query, kind=subject.kind, name=subject.name, lifecycles=chosen)
            yield replace(whole, query=one)

    def filtered(self, is_wanted: Callable[[Subject, str], bool]) -> "Subjects":
        """Return the wanted subjects; a cluster without any is not queried."""
        left = (
            (cluster, tuple(each for each in subjects if is_wanted(each, cluster)))
            for cluster, subjects in self.by_cluster
        )
        by_cluster = tuple((cluster, subjects) for cluster, subjects in left if subjects)
        return Subjects(by_cluster=by_cluster, all=self.all)

    def sequences(self, context: OperationContext) -> list[InstanceSequence]:
        """Return the instances of all subjects, by the current definitions."""
        return [
            context.sequence(subject.kind, subject.name, cluster)
            for subject in self.all
            for cluster in context.clusters_of(subject.kind, subject.name)
        ]


def find_subjects(
    context: OperationContext,
    kind: Kind,
    name: str,
    lifecycles: Collection[Lifecycle] = (),
    clusters: Collection[str] | None = None,
) -> Subjects:
    """Find the subjects of a name. Without a lifecycle, a process stands for its execution, and a feed for its
    replication if it is copied to one of the clusters, else for its data.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the named entity does not have one of the lifecycles.
    """
    flow = parse_flow(name)
    if flow is not None:
        _require(name, lifecycles, (Lifecycle.REPLICATION, Lifecycle.EXECUTION))
        return _everywhere(context, [Subject(kind=Kind.PROCESS, name=name, lifecycle=Lifecycle.REPLICATION)], clusters)
    context.clusters_of(kind, name)
    _require(label_of((kind, name)), lifecycles, _OF_KIND[kind])
    if kind is Kind.PROCESS:
        return _everywhere(context, [Subject(kind=kind, name=name, lifecycle=None)], clusters)
    flows = flows_to(context, name, clusters)
    if Lifecycle.REPLICATION in lifecycles and not flows:
        to = f" to {', '.join(sorted(clusters))}" if clusters else ""
        raise InstanceQueryError(
            subject=f"Incorrect lifecycle {Lifecycle.REPLICATION}",
            reason=f"feed {name!r} is not copied{to}",
            next_step="Ask for eviction or, without a lifecycle, for its data.",
        )
    chosen = lifecycles or ({Lifecycle.REPLICATION} if flows else ())
    found: list[Subject] = []
    if Lifecycle.REPLICATION in chosen:
        found += [Subject(kind=Kind.PROCESS, name=each, lifecycle=Lifecycle.REPLICATION) for each in flows]
    if Lifecycle.EVICTION in chosen:
        found.append(Subject(kind=Kind.FEED, name=name, lifecycle=Lifecycle.EVICTION))
    if not chosen:
        found.append(Subject(kind=Kind.FEED, name=name, lifecycle=None))
    return _everywhere(context, found, clusters)


def subjects_of(context: OperationContext, query: InstanceQuery) -> Subjects:
    """Return the filtered subjects of a query on its clusters, by default all clusters of the entity.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the entity does not have the lifecycle.
    """
    found = find_subjects(context, query.kind, query.name, query.lifecycles, query.clusters)
    clusters, sources = query.filter.clusters, query.filter.source_clusters
    return found.filtered(
        lambda subject, cluster: (
            (clusters is None or cluster in clusters)
            and (sources is None or _source_of(context, subject, cluster) in sources)
        )
    )


def _source_of(context: OperationContext, subject: Subject, cluster: str) -> str | None:
    if subject.kind is Kind.PROCESS:
        return subject.source
    record = context.plan.feeds.get((subject.name, cluster))
    return source_cluster(context.plan, record) if record is not None else None


def find_data(context: OperationContext, feed: str, clusters: Collection[str] | None = None) -> Subjects:
    """Find the data of a feed, in any lifecycle.

    Raises:
        EntityNotFoundError: there is no such feed.
    """
    return _everywhere(context, [Subject(kind=Kind.FEED, name=feed, lifecycle=None)], clusters)


def _everywhere(context: OperationContext, subjects: Sequence[Subject], requested: Collection[str] | None) -> Subjects:
    """Return the subjects by requested cluster. A cluster without any keeps the first, whose query reports the
    error.
    """
    places = {each: set(context.clusters_of(each.kind, each.name)) for each in subjects}
    clusters = sorted(set().union(*places.values()) if requested is None else set(requested))
    return Subjects(
        all=tuple(subjects),
        by_cluster=tuple(
            (cluster, tuple(each for each in subjects if cluster in places[each]) or tuple(subjects[:1]))
            for cluster in clusters
        ),
    )


def find_work(
    context: OperationContext,
    name: str,
    lifecycles: Collection[Lifecycle] = (),
    clusters: Collection[str] | None = None,
) -> Subjects:
    """Find the processes and flows of a name: of a process, a flow, or a feed. A process takes precedence over a feed
    of the same name, unless the lifecycle is replication.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the named entity has no such work.
    """
    is_feed = parse_flow(name) is None and (Lifecycle.REPLICATION in lifecycles or context.kind_of(name) is Kind.FEED)
    kind = Kind.FEED if is_feed else Kind.PROCESS
    if kind is Kind.FEED and Lifecycle.EVICTION in lifecycles:
        raise InstanceQueryError(
            subject=f"Incorrect lifecycle {Lifecycle.EVICTION}",
            reason="retention works in sweeps, not in instances",
            next_step=f"List its sweeps: {command_line('retention', 'list')}",
        )
    found = find_subjects(context, kind, name, lifecycles, clusters)
    if any(subject.kind is not Kind.PROCESS for subject in found.all):
        raise InstanceQueryError(
            subject=label_of((kind, name)),
            reason="it has no copies: it is not replicated",
            next_step="Name a process, or a feed that is replicated to these clusters.",
        )
    return found


def find_single(
    context: OperationContext,
    kind: Kind,
    name: str,
    lifecycles: Collection[Lifecycle] = (),
    clusters: Collection[str] | None = None,
) -> Subjects:
    """Find the subjects of a name for queries about one instance and its neighbours. A feed stands for its data, unless
    the lifecycle is replication; its copies are among the neighbours.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        InstanceQueryError: the named entity does not have one of the lifecycles.
    """
    if kind is Kind.FEED and parse_flow(name) is None and not lifecycles:
        return find_data(context, name, clusters)
    found = find_subjects(context, kind, name, lifecycles, clusters)
    return found if kind is Kind.PROCESS else find_work(context, name, lifecycles, clusters)


def flows_to(context: OperationContext, feed: str, clusters: Iterable[str] | None = None) -> tuple[str, ...]:
    """Return the names of the flows of a feed to some clusters, None for all."""
    on = context.clusters_of(Kind.FEED, feed)
    targets = on if clusters is None else [cluster for cluster in on if cluster in set(clusters)]
    names = (flow_name(feed, source) for source in on)
    return tuple(name for name in names if any((name, target) in context.plan.processes for target in targets))


def require_statuses(query: InstanceQuery, subjects: Iterable[Subject]) -> None:
    """Refuse a filter by statuses that none of the queried instances can have.

    Raises:
        InstanceQueryError: the statuses belong to another lifecycle.
    """
    statuses = query.filter.statuses
    known = {status for subject in subjects for status in statuses_of(subject.kind, subject.lifecycle)}
    if statuses is not None and not statuses <= known:
        raise InstanceQueryError(
            subject=f"status {', '.join(sorted(statuses - known))}",
            reason=f"an instance of {label_of((query.kind, query.name))} never has it",
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
