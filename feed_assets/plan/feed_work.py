"""What the work of a feed has in common: its copies, imports and exports are processes of a cluster of the feed."""

import hashlib
from collections.abc import Sequence
from datetime import timedelta

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import JobPriority, Kind, find_priority, find_queue
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Order, effective_timeout
from feed_assets.entities.replication import LATE_DELAY, LATE_POLICY, RETRY, complete_replication
from feed_assets.entities.triggers import OnUpdate
from feed_assets.plan.copy_records import CopyRecord
from feed_assets.plan.edges import InputEdge, OutputEdge
from feed_assets.plan.facts import EntityFacts
from feed_assets.plan.records import LateRecord, ProcessRecord
from feed_assets.plan.release_fingerprint import feed_work_fingerprint
from feed_assets.plan.transfers import ExportRecord, ImportRecord
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.windows import parse_window

_NOW = "now(0,0)"


def feed_process(
    bundle: Bundle,
    feed: Feed,
    name: str,
    work: CopyRecord | ImportRecord | ExportRecord,
    facts: EntityFacts,
    *,
    clusters: Sequence[str],
    content: Sequence[object],
    sequence: InstanceSequence | None = None,
) -> ProcessRecord:
    """Return a process of a feed on the last of `clusters`, without edges. `replication` of the feed says how it runs
    and is retried. It follows late data and updates of what it reads. Other `content` makes another release, as other
    facts of the feed or of the clusters do.
    """
    sequence = sequence or feed.sequence_on(clusters[-1])
    policy, reads = complete_replication(feed.replication, feed.properties), not isinstance(work, ImportRecord)
    is_late = reads and feed.late_arrival is not None
    place = clusters[0] if isinstance(work, CopyRecord) else name
    return ProcessRecord(
        process=name,
        entity=feed.key,
        cluster=clusters[-1],
        sequence=sequence,
        delay=timedelta(0),
        inputs=(),
        outputs=(),
        work=work,
        properties=tuple(feed.properties.items()),
        parallel=policy.parallel or 1,
        order=policy.order or Order.FIFO,
        catch_up=policy.catch_up,
        priority=(find_priority(feed.properties) or JobPriority.NORMAL).level,
        queue=find_queue(feed.properties),
        timeout=None if feed.is_current else effective_timeout(policy.timeout, feed.frequency),
        retry=policy.retry or RETRY,
        late=LateRecord(policy=LATE_POLICY, delay=LATE_DELAY, workflows=()) if is_late else None,
        digest=hashlib.sha256(f"{bundle.entity_digest(feed)}\n{place}".encode()).hexdigest(),
        fingerprint=feed_work_fingerprint(bundle, feed, clusters, sequence.start, content, has_late=is_late),
        members=(feed.key, *((Kind.CLUSTER.value, each) for each in sorted(set(clusters)))),
        facts=facts,
        is_enumerated=feed.is_expected,
        on_update=OnUpdate.RERUN if reads else OnUpdate.IGNORE,
    )


def read_edge(made: ProcessRecord, name: str, source: str, part: str | None = None) -> InputEdge:
    """Return the input of each instance: that of the feed on the cluster `source`, or a part of it."""
    return InputEdge(
        name=name,
        feed=made.entity[1],
        feed_cluster=source,
        process=made.process,
        cluster=made.cluster,
        takes=parse_window(_NOW, _NOW, made.sequence.timezone),
        shifts=(0, 0),
        optional=False,
        partition=part,
        is_late=made.late is not None,
    )


def written_edge(made: ProcessRecord, name: str) -> OutputEdge:
    """Return the output of each instance: that of the feed."""
    window = parse_window(_NOW, _NOW, made.sequence.timezone)
    return OutputEdge(
        name=name, feed=made.entity[1], process=made.process, cluster=made.cluster, window=window, shift=0
    )
