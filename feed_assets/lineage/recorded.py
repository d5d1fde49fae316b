"""Lineage from the record: the event log, attempts with what they have frozen, batches, sweeps and releases."""

from datetime import datetime
from itertools import pairwise

from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.common import Kind
from feed_assets.lineage.records import Edge, EdgeKind, LineageGraph, Node, NodeKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import Attempt, FeedEvent, FeedKey, ProcessKey


def show_lineage(
    context: OperationContext, subject: Subject, *, up: bool, down: bool, as_of: datetime | None
) -> LineageGraph:
    """Return what an instance came of, and what came of it; both if neither is asked for.

    Raises:
        InstanceError: the time is no instance.
    """
    until = as_of or context.as_of
    nodes: list[Node] = []
    edges: list[Edge] = []
    with context.read() as connection:
        for cluster in subject.asked:
            if subject.kind is Kind.FEED:
                context.feed_on(subject.name, cluster).sequence.index(subject.instance)
                key = FeedKey(subject.name, cluster, subject.instance)
                events = EventLog(connection).for_instances([key]).get(key, [])
                found = [_event_node(each) for each in events if each.recorded_at <= until]
            else:
                context.active_release(connection, subject.name, cluster, subject.instance)
                attempts = Attempts(connection).of(ProcessKey(subject.name, cluster, subject.instance))
                found = [_attempt_node(each) for each in attempts if each.started_at <= until]
            nodes += found
            edges += [Edge(source=one.id, target=other.id, kind=EdgeKind.THEN) for one, other in pairwise(found)]
    both = up is down
    starts = tuple(each.id for each in nodes)
    return LineageGraph(starts=starts, nodes=tuple(nodes), edges=tuple(edges), up=up or both, down=down or both)


def _event_node(event: FeedEvent) -> Node:
    return Node(
        id=f"event/{event.seq}",
        kind=NodeKind.EVENT,
        name=event.feed,
        cluster=event.cluster,
        nominal_time=event.nominal_time,
        state=event.kind.value,
        at=event.recorded_at,
        number=event.seq,
        digest=event.manifest_digest,
    )


def _attempt_node(attempt: Attempt) -> Node:
    return Node(
        id="/".join(["attempt", *attempt.key[:2], attempt.nominal_time.isoformat(), str(attempt.attempt)]),
        kind=NodeKind.ATTEMPT,
        name=attempt.process,
        cluster=attempt.cluster,
        nominal_time=attempt.nominal_time,
        state=attempt.status.value,
        at=attempt.started_at,
        number=attempt.attempt,
        run_id=attempt.run_id,
        release=attempt.release,
    )
