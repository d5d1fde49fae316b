"""What a subject stands for: instances of a process, the copies of a feed, its imports, exports and evictions, or its
data. These are Falcon's lifecycles. Copies are recorded as instances of flows, which are named `feed@source`, transfers
as those of `feed.import` and `feed.export`. Users name the feed, and may name any of these where a process is accepted.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from feed_assets.command_lines import command_line
from feed_assets.context.consolidation import Consolidated, Item, Lifecycle, consolidate
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import LIFECYCLES, OperationContext, Subject
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.flow_names import Transfer, flow_name, source_of, transfer_name
from feed_assets.instances.lists.ranges import InstanceQuery, statuses_of
from feed_assets.instances.lists.rows import lifecycle_of, source_cluster
from feed_assets.timing.sequence import InstanceSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """The subjects that one stands for, each in one lifecycle at most: `all`, and by cluster those to query there. A
    cluster without any keeps one subject, whose query is then refused.
    """

    all: tuple[Subject, ...]
    by_cluster: Mapping[str, tuple[Subject, ...]]

    @property
    def sequences(self) -> list[InstanceSequence]:
        """The instances of all subjects, by the current definitions."""
        return [record.sequence for subject in self.all for record in subject.records]

    def consolidate(self, read: Callable[[Subject, str], Iterable[Item]]) -> Consolidated[Item]:
        """Ask about the subjects of one cluster after the other; see `consolidate`."""
        return consolidate(
            self.by_cluster, lambda cluster: [item for each in self.by_cluster[cluster] for item in read(each, cluster)]
        )


def find_subjects(context: OperationContext, subject: Subject) -> Subjects:
    """Find what a subject stands for. Without a lifecycle, a process stands for its execution, and a feed for its
    replication if it is copied to one of the clusters, else for its data.

    Raises:
        InstanceQueryError: it does not have one of the lifecycles.
    """
    lifecycles = subject.lifecycles
    if (own := lifecycle_of(subject.name)) is not None:
        _require(subject.name, lifecycles, (own, Lifecycle.EXECUTION))
        return _everywhere([replace(subject, lifecycles=frozenset({own}))])
    label = label_of((subject.kind, subject.name))
    _require(label, lifecycles, LIFECYCLES[subject.kind])
    if subject.kind is Kind.PROCESS:
        return find_data(subject)
    work = list(_iter_work(context, subject, lifecycles or {Lifecycle.REPLICATION}))
    for lacking in sorted(lifecycles - {Lifecycle.EVICTION} - {lifecycle_of(each.name) for each in work}):
        verb, preposition = _WORDS[lacking]
        on = f" {preposition} {', '.join(sorted(subject.clusters))}" if subject.clusters else ""
        raise InstanceQueryError(
            subject=f"Incorrect lifecycle {lacking}",
            reason=f"{label} is not {verb}{on}",
            next_step="Ask for eviction or, without a lifecycle, for its data.",
        )
    if not work and not lifecycles:
        return find_data(subject)
    evicted = [replace(subject, lifecycles=frozenset({Lifecycle.EVICTION}))] if Lifecycle.EVICTION in lifecycles else []
    return _everywhere([*work, *evicted])


def subjects_of(context: OperationContext, query: InstanceQuery) -> Subjects:
    """Return the filtered subjects of a query on its clusters, by default all clusters of the entity.

    Raises:
        InstanceQueryError: the entity does not have the lifecycle.
    """
    found = find_subjects(context, query.subject)
    clusters, sources = query.filter.clusters, query.filter.source_clusters
    left = {
        cluster: tuple(each for each in subjects if sources is None or _source_of(context, each, cluster) in sources)
        for cluster, subjects in found.by_cluster.items()
        if clusters is None or cluster in clusters
    }
    return replace(found, by_cluster={cluster: subjects for cluster, subjects in left.items() if subjects})


def _source_of(context: OperationContext, subject: Subject, cluster: str) -> str | None:
    if subject.kind is Kind.PROCESS:
        return source_of(subject.name)
    record = context.plan.feeds.get((subject.name, cluster))
    return source_cluster(context.plan, record) if record is not None else None


def find_data(subject: Subject) -> Subjects:
    """Return the subject in no lifecycle: a process, or the data of a feed."""
    return _everywhere([replace(subject, lifecycles=frozenset())])


def _everywhere(subjects: Sequence[Subject]) -> Subjects:
    """Return the subjects by asked cluster. A cluster without any keeps the first, whose query reports the error."""
    clusters = sorted({cluster for subject in subjects for cluster in subject.asked})
    return Subjects(
        all=tuple(subjects),
        by_cluster={
            cluster: tuple(each for each in subjects if cluster in each.on) or tuple(subjects[:1])
            for cluster in clusters
        },
    )


def find_work(context: OperationContext, subject: Subject) -> Subjects:
    """Find the processes and flows that a subject stands for.

    Raises:
        InstanceQueryError: it has no such work.
    """
    if subject.kind is Kind.FEED and Lifecycle.EVICTION in subject.lifecycles:
        raise InstanceQueryError(
            subject=f"Incorrect lifecycle {Lifecycle.EVICTION}",
            reason="retention works in sweeps, not in instances",
            next_step=f"List its sweeps: {command_line('retention', 'list')}",
        )
    found = find_subjects(context, subject)
    if any(each.kind is not Kind.PROCESS for each in found.all):
        others = _iter_work(context, subject, {Lifecycle.IMPORT, Lifecycle.EXPORT})
        options = " or ".join(sorted(f"--lifecycle {lifecycle_of(each.name)}" for each in others))
        raise InstanceQueryError(
            subject=label_of((subject.kind, subject.name)),
            reason="it has no copies: it is not replicated",
            next_step=f"Add {options}."
            if options
            else "Name a process, or a feed that is replicated to these clusters.",
        )
    return found


def find_single(context: OperationContext, subject: Subject) -> Subjects:
    """Find the subjects for queries about one instance and its neighbours. A feed stands for its data, unless the
    lifecycle is replication; its copies are among the neighbours.

    Raises:
        InstanceQueryError: the entity does not have one of the lifecycles.
    """
    return find_work(context, subject) if subject.kind is Kind.PROCESS or subject.lifecycles else find_data(subject)


_WORDS = {
    Lifecycle.REPLICATION: ("copied", "to"),
    Lifecycle.IMPORT: ("imported", "on"),
    Lifecycle.EXPORT: ("exported", "on"),
}


def _iter_work(context: OperationContext, feed: Subject, lifecycles: Collection[Lifecycle]) -> Iterator[Subject]:
    """Yield the flows of a feed to its asked clusters, and the transfers on them."""
    for name in (
        *(flow_name(feed.name, each) for each in feed.on),
        *(transfer_name(feed.name, each) for each in Transfer),
    ):
        own = lifecycle_of(name)
        records = tuple(record for each in feed.on if (record := context.plan.processes.get((name, each))) is not None)
        if own is not None and own in lifecycles and any(record.cluster in feed.asked for record in records):
            yield replace(feed, kind=Kind.PROCESS, name=name, records=records, lifecycles=frozenset({own}))


def require_statuses(query: InstanceQuery, subjects: Iterable[Subject]) -> None:
    """Refuse a filter by statuses that none of the queried instances can have.

    Raises:
        InstanceQueryError: the statuses belong to another lifecycle.
    """
    statuses = query.filter.statuses
    known = {status for subject in subjects for status in statuses_of(subject.kind, subject.lifecycles)}
    if statuses is not None and not statuses <= known:
        raise InstanceQueryError(
            subject=f"status {', '.join(sorted(statuses - known))}",
            reason=f"an instance of {label_of((query.subject.kind, query.subject.name))} never has it",
            next_step=f"Statuses are {', '.join(sorted(known))}.",
        )


def _require(label: str, lifecycles: Collection[Lifecycle], known: Sequence[Lifecycle]) -> None:
    wrong = [each for each in lifecycles if each not in known]
    if wrong:
        raise InstanceQueryError(
            subject=f"Incorrect lifecycle {', '.join(sorted(wrong))}",
            reason=f"{label} has {', '.join(known[:-1])}{' and ' if known[1:] else ''}{known[-1]}",
            next_step=f"Ask for {' or '.join(known)}, or name none.",
        )
