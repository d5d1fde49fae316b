"""The immediate impact of changed definitions on instances: new, given up, expired and copied ones.

Instances are counted by ranges and never enumerated, so ten years cost no more than a day.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TypeAlias

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import ClusterRole, Feed
from feed_assets.entities.locations.overlaps import NO_OVERLAPS
from feed_assets.entities.process import CatchUp, Order, Process
from feed_assets.plan.differences import find_running
from feed_assets.plan.edges import Key
from feed_assets.plan.records import RetentionRecord
from feed_assets.plan.release_fingerprint import Step
from feed_assets.plan.rendering import (
    FOREVER,
    Effect,
    EntityDifference,
    InstanceRange,
    InstancesDifference,
    PlanDifference,
    ProcessDifference,
    RetentionDifference,
    Span,
    count_ranges,
    validity_of,
)
from feed_assets.plan.retention import compile_retention, find_stricter
from feed_assets.timing.errors import TimingError
from feed_assets.timing.sequence import InstanceSequence, is_same_grid

_Retained: TypeAlias = tuple[RetentionRecord | None, RetentionRecord | None]
"""The retention of a feed on a cluster before and after."""


def decide_impact(
    before: Bundle,
    after: Bundle,
    entities: tuple[EntityDifference, ...],
    processes: tuple[ProcessDifference, ...],
    as_of: datetime,
    on_time: timedelta,
    grace: timedelta,
) -> PlanDifference:
    """Return the whole difference: results of `diff_bundles` and `decide_processes`, and their impact on instances.

    An instance counts as due from its nominal time on, whether or not its data exist. It counts as skipped if it is
    then more than `on_time` late and its process does not catch up with it. It counts as expired if it is beyond a new
    limit of age or number, and as copied if a new replication copies it, older instances included. The schedule acts on
    a stricter retention after `grace`.
    """
    instances: list[InstancesDifference] = []
    stricter: list[RetentionDifference] = []
    for process in processes:
        instances.extend(_of_process(before, after, process, as_of, on_time))
    changed = [entity.key[1] for entity in entities if entity.key[0] == Kind.FEED]
    written = _written(after, changed) if changed else frozenset()
    for name in changed:
        old, new = before.find_feed(name), after.find_feed(name)
        if new is None:
            continue
        for cluster in new.clusters:
            retained = _find_retained(before, name, cluster), _find_retained(after, name, cluster)
            instances.extend(_of_feed(old, new, cluster, retained, written, as_of))
            if old is not None and cluster in old.clusters and (fields := find_stricter(*retained)):
                acts_from = as_of + grace
                stricter.append(RetentionDifference(feed=name, cluster=cluster, fields=fields, acts_from=acts_from))
    return PlanDifference(
        as_of=as_of, entities=entities, processes=processes, instances=tuple(instances), retention=tuple(stricter)
    )


def _of_process(
    before: Bundle, after: Bundle, process: ProcessDifference, as_of: datetime, on_time: timedelta
) -> Iterator[InstancesDifference]:
    name, cluster = process.process, process.cluster
    new = find_running(after, name, cluster)
    if new is None or new.makes_batches or not process.state.is_active or process.step is Step.OVER:
        return
    old = find_running(before, name, cluster)
    declared, previous = new.sequence_on(cluster), old.sequence_on(cluster) if old else None
    if process.step is Step.SUCCEEDED and process.effective_from is not None:
        governed = Span(start=process.effective_from, stop=FOREVER)
        due = governed.upto(as_of).without(validity_of(previous) if previous else None)
        yield from _iter_new_instances(new, process.key, due, declared, as_of, on_time)
        return
    if previous is not None and process.state.has_begun and not is_same_grid(previous, declared):
        return
    yield from _iter_new_instances(new, process.key, _new_spans(declared, previous, as_of), declared, as_of, on_time)
    if previous is not None:
        dropped = count_ranges(previous, _new_spans(previous, declared, as_of))
        yield from _difference(Effect.DROPPED, Kind.PROCESS, process.key, dropped)


def _iter_new_instances(
    process: Process,
    key: Key,
    spans: tuple[Span, ...],
    declared: InstanceSequence,
    as_of: datetime,
    on_time: timedelta,
) -> Iterator[InstancesDifference]:
    """Yield the impact on the new instances of a process in some spans: due or skipped."""
    running = _running_span(process, declared, as_of, on_time)
    skipped = tuple(part for span in spans for part in span.without(running))
    due = tuple(span.within(running) for span in spans)
    yield from _difference(Effect.DUE, Kind.PROCESS, key, count_ranges(declared, due))
    yield from _difference(Effect.SKIPPED, Kind.PROCESS, key, count_ranges(declared, skipped))


def _running_span(process: Process, declared: InstanceSequence, as_of: datetime, on_time: timedelta) -> Span:
    """Return the span whose instances run if they are created now; the others are skipped."""
    newest = next(iter(count_ranges(declared, (validity_of(declared).upto(as_of),))), None)
    last = newest.last if newest else as_of
    since = [declared.start]
    if process.order is Order.LAST_ONLY:
        since.append(last)
    if process.catch_up is CatchUp.LATEST:
        since.append(min(last, as_of - on_time))
    if process.catch_up is CatchUp.NONE:
        since.append(as_of - on_time)
    return Span(start=max(since), stop=FOREVER)


def _of_feed(
    old: Feed | None, new: Feed, cluster: str, retained: _Retained, written: frozenset[Key], as_of: datetime
) -> Iterator[InstancesDifference]:
    if not new.is_expected:
        return  # nobody knows which instances there are
    key = (new.name, cluster)
    declared = new.sequence_on(cluster)
    previous = old.sequence_on(cluster) if old is not None and cluster in old.clusters else None
    if key not in written and (previous is None or is_same_grid(previous, declared)):
        expected = count_ranges(declared, _new_spans(declared, previous, as_of))
        yield from _difference(Effect.DUE, Kind.FEED, key, expected)
    expired = _find_expired(retained[1], declared, as_of)
    known = _find_expired(retained[0], previous, as_of) if previous is not None else None
    if expired is not None:
        yield from _difference(Effect.EXPIRED, Kind.FEED, key, count_ranges(declared, expired.without(known)))
    if new.clusters[cluster].type is ClusterRole.TARGET:
        yield from _iter_copied(old, new, cluster, as_of)


def _new_spans(declared: InstanceSequence, previous: InstanceSequence | None, as_of: datetime) -> tuple[Span, ...]:
    """Return the spans until now in which `declared` has instances and `previous` has none."""
    same = previous is not None and is_same_grid(previous, declared)
    known = validity_of(previous) if previous is not None and same else None
    return validity_of(declared).upto(as_of).without(known)


def _find_retained(bundle: Bundle, name: str, on: str) -> RetentionRecord | None:
    """Return the retention of a feed on a cluster; None if it keeps everything, is not there, or is wrong."""
    feed, cluster = bundle.find_feed(name), bundle.find_cluster(on)
    if feed is None or cluster is None or on not in feed.clusters:
        return None
    try:
        return compile_retention(feed, cluster, NO_OVERLAPS)
    except TimingError:
        return None


def _find_expired(policy: RetentionRecord | None, sequence: InstanceSequence, as_of: datetime) -> Span | None:
    """Return the part of the validity that is beyond the limits of age and number, if all instances exist."""
    if policy is None:
        return None
    judged = policy.judged_at(as_of)
    due = validity_of(sequence).upto(judged)
    indices = sequence.indices_between(due.start, due.stop)
    cuts = [judged - policy.limit.as_duration()] if policy.limit is not None else []
    if policy.max_instances is not None and len(indices) >= policy.max_instances:
        cuts.append(sequence.at(indices[-policy.max_instances]))
    if not cuts or len(indices) < policy.keep_newest:
        return None
    kept_from = sequence.at(indices[-policy.keep_newest]) if policy.keep_newest else FOREVER
    return validity_of(sequence).before(min(max(cuts), kept_from))


def _iter_copied(old: Feed | None, new: Feed, target: str, as_of: datetime) -> Iterator[InstancesDifference]:
    for source, entry in new.clusters.items():
        if entry.type is not ClusterRole.SOURCE:
            continue
        shared = _shared(new, source, target, as_of)
        known = _shared(old, source, target, as_of) if old is not None and _replicates(old, source, target) else None
        ranges = count_ranges(new.sequence_on(source), shared.without(known))
        yield from _difference(Effect.COPIED, Kind.FEED, (new.name, target), ranges, of=source)


def _replicates(feed: Feed, source: str, target: str) -> bool:
    entries = feed.clusters.get(source), feed.clusters.get(target)
    roles = tuple(entry.type if entry else None for entry in entries)
    return roles == (ClusterRole.SOURCE, ClusterRole.TARGET)


def _shared(feed: Feed, source: str, target: str, as_of: datetime) -> Span:
    one, other = validity_of(feed.sequence_on(source)), validity_of(feed.sequence_on(target))
    return one.within(other).upto(as_of)


def _written(bundle: Bundle, names: Iterable[str]) -> frozenset[Key]:
    """Return the feeds that processes write, by cluster; their instances are not expected from outside."""
    feeds = set(names)
    return frozenset(
        (feed, cluster)
        for process in bundle.processes
        for feed in bundle.written_feeds(process)
        if feed in feeds
        for cluster in process.clusters
    )


def _difference(
    effect: Effect, kind: Kind, key: Key, ranges: tuple[InstanceRange, ...], of: str | None = None
) -> Iterator[InstancesDifference]:
    if ranges:
        yield InstancesDifference(effect=effect, kind=kind, name=key[0], cluster=key[1], ranges=ranges, of=of)
