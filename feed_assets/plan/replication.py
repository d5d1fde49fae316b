"""The compiler of replication to flows, one for each pair of a source and a target of a feed; and of mirrors.

A flow is treated as a process of the target cluster: its instances wait for those of the source, are run and retried,
and run again for late data and updates.
"""

import hashlib
import re
from collections.abc import Iterator

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import JobPriority, Kind, find_priority, find_queue
from feed_assets.entities.copies.mirror import Mirror
from feed_assets.entities.copies.options import RemovedFiles, Verification
from feed_assets.entities.feed import ClusterRole, Feed, find_sources, flow_delay, flow_sequence
from feed_assets.entities.flow_names import flow_name
from feed_assets.entities.process import Order, effective_timeout
from feed_assets.entities.replication import (
    LATE_DELAY,
    LATE_POLICY,
    RETRY,
    Replication,
    complete_replication,
)
from feed_assets.entities.triggers import OnUpdate
from feed_assets.plan.copy_records import CopyOptions, Directory, MirrorRecord, OnError
from feed_assets.plan.edges import InputEdge, OutputEdge
from feed_assets.plan.places import locate
from feed_assets.plan.records import CopyRecord, EntityFacts, LateRecord, ProcessRecord
from feed_assets.plan.release_fingerprint import flow_fingerprint
from feed_assets.timing.windows import parse_window

INPUT, OUTPUT = "source", "target"
"""The names of the input and the output of each flow."""

_VARIABLE = re.compile(r"\$\{cluster\.([^}]+)\}")


def iter_flows(bundle: Bundle, feed: Feed, target: str) -> Iterator[str]:
    """Yield the sources of the flows to a target; both clusters are declared.

    Tables, and feeds without a location, are not copied. Neither is a feed whose validities do not overlap.
    """
    if feed.clusters[target].type is not ClusterRole.TARGET or feed.data_on(target) is None:
        return
    for source in find_sources(feed):
        if feed.data_on(source) is not None and bundle.find_cluster(source) and flow_sequence(feed, source, target):
            yield source


def slice_path(feed: Feed, source: Cluster, target: Cluster) -> str:
    """Return the copied part of each instance; "" for all of it.

    The part is the partition at the source, then that at the target, each with the variables of its own cluster.
    """
    parts = (_with_variables(feed.clusters[cluster.name].partition, cluster) for cluster in (source, target))
    return normalize_slice(*parts)


def normalize_slice(*parts: str | None) -> str:
    """Join partitions, each below the previous, into one path, as Falcon does.

    >>> normalize_slice(" /a// ", None, "  /b// ")
    'a/b'
    """
    return "/".join(level for part in parts for level in (part or "").strip().split("/") if level)


def _with_variables(text: str | None, cluster: Cluster) -> str | None:
    values = {**cluster.properties, "name": cluster.name, "colo": cluster.colo}
    return None if text is None else _VARIABLE.sub(lambda found: values.get(found[1], found[0]), text)


def compile_flow(bundle: Bundle, feed: Feed, source: str, target: str, facts: EntityFacts) -> ProcessRecord:
    """Compile the flow from a source to a target of a feed; see `iter_flows` for the sources."""
    sequence = flow_sequence(feed, source, target)
    assert sequence is not None
    policy = complete_replication(feed.replication, feed.properties)
    name, now = flow_name(feed.name, source), parse_window("now(0,0)", "now(0,0)", sequence.timezone)
    clusters = (bundle.get_cluster(source), bundle.get_cluster(target))
    part = slice_path(feed, *clusters)
    is_late = feed.late_arrival is not None
    read = InputEdge(
        name=INPUT,
        feed=feed.name,
        feed_cluster=source,
        process=name,
        cluster=target,
        takes=now,
        shifts=(0, 0),
        optional=False,
        partition=part or None,
        is_late=is_late,
    )
    write = OutputEdge(name=OUTPUT, feed=feed.name, process=name, cluster=target, window=now, shift=0)
    return ProcessRecord(
        process=name,
        entity=feed.key,
        cluster=target,
        sequence=sequence,
        delay=flow_delay(feed, source),
        inputs=(read,),
        outputs=(write,),
        workflow=None,
        copy=CopyRecord(source=source, options=copy_options(policy, part)),
        properties=tuple(feed.properties.items()),
        parallel=policy.parallel or 1,
        order=policy.order or Order.FIFO,
        catch_up=policy.catch_up,
        priority=(find_priority(feed.properties) or JobPriority.NORMAL).level,
        queue=find_queue(feed.properties),
        timeout=effective_timeout(policy.timeout, feed.frequency),
        retry=policy.retry or RETRY,
        late=LateRecord(policy=LATE_POLICY, delay=LATE_DELAY, workflows=()) if is_late else None,
        digest=hashlib.sha256(f"{bundle.entity_digest(feed)}\n{source}".encode()).hexdigest(),
        fingerprint=flow_fingerprint(bundle, feed, source, target, part, sequence.start),
        members=(feed.key, *((Kind.CLUSTER.value, name) for name in sorted({source, target}))),
        facts=facts,
        is_enumerated=feed.is_expected,
        on_update=OnUpdate.RERUN,
    )


def copy_options(policy: Replication, part: str) -> CopyOptions:
    """Return the options of each copy."""
    return CopyOptions(
        verification=policy.verification or Verification.TRANSFERRED,
        on_error=OnError.REPORT if policy.ignore_errors else OnError.STOP,
        sub_path=part,
        include=policy.include,
        exclude=policy.exclude,
        hidden=policy.hidden,
        allow_empty=policy.allow_empty,
        overwrite=bool(policy.overwrite),
        removed_files=policy.removed_files or RemovedFiles.BY_MANIFEST,
        preserve=policy.preserve or frozenset(),
        bandwidth=policy.bandwidth.bytes if policy.bandwidth else None,
        task_bandwidth=policy.task_bandwidth.bytes if policy.task_bandwidth else None,
        max_tasks=policy.max_tasks or 5,
    )


_HIDDEN = ".*"
"""Excludes hidden files, so that they are neither copied nor removed."""


def compile_mirror(bundle: Bundle, mirror: Mirror, own: str) -> MirrorRecord:
    """Return the mirror of a process on the cluster `own`.

    Raises:
        EntityNotFoundError: the bundle lacks the cluster of a side.
    """
    source, target = (bundle.get_cluster(name) for name in mirror.clusters(own))
    return MirrorRecord(
        directories=tuple((_place(source, read), _place(target, written)) for read, written in mirror.directories()),
        options=_options(mirror),
        share=mirror.limits.share,
        files=mirror.limits.files,
        allow_emptying=mirror.allow_emptying,
        snapshots=mirror.snapshots,
    )


def _place(cluster: Cluster, directory: str) -> Directory:
    store, template = locate(cluster, directory)
    return Directory(store=store, path="/".join(part for part in template.text.split("/") if part))


def _options(mirror: Mirror) -> CopyOptions:
    """Return the options of each copy. Whether a source may be empty is decided earlier."""
    return CopyOptions(
        verification=mirror.verification,
        on_error=OnError.PUBLISH if mirror.ignore_errors else OnError.STOP,
        include=mirror.include,
        exclude=mirror.exclude if mirror.hidden else (*mirror.exclude, _HIDDEN),
        hidden=mirror.hidden,
        overwrite=mirror.overwrite,
        removed_files=RemovedFiles.REMOVE if mirror.removes else RemovedFiles.KEEP,
        allow_emptying=True,
        allow_empty=mirror.allow_emptying,
        preserve=mirror.preserve,
        bandwidth=mirror.bandwidth.bytes if mirror.bandwidth else None,
        task_bandwidth=mirror.task_bandwidth.bytes if mirror.task_bandwidth else None,
        max_tasks=mirror.max_tasks,
        by_name=True,
    )
