"""What a change of definitions does to instances at once: which come into being, are given up, expire or are copied.

Counted by ranges: an instance is never enumerated, so ten years cost what a day does.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import ClusterRole, Feed
from feed_assets.entities.process import CatchUp, Order, Process
from feed_assets.plan.difference_records import (
    Effect,
    EntityDifference,
    InstancesDifference,
    PlanDifference,
    ProcessDifference,
)
from feed_assets.plan.differences import find_running
from feed_assets.plan.records import Key
from feed_assets.plan.signs import Step
from feed_assets.plan.spans import FOREVER, Run, Span, count_runs, validity_of
from feed_assets.timing.grids import is_same_grid
from feed_assets.timing.sequence import InstanceSequence


def decide_consequences(
    before: Bundle,
    after: Bundle,
    entities: tuple[EntityDifference, ...],
    processes: tuple[ProcessDifference, ...],
    as_of: datetime,
    on_time: timedelta,
) -> PlanDifference:
    """The whole difference: what `diff_bundles` and `decide_processes` have found, and what it does to instances.

    An instance counts as due from its nominal time on, whether or not its data are there, and as skipped where it is
    later than `on_time` then and its process does not catch up with it; as expired when it is older than the retention
    limit that is new; as copied when a replication that is new takes it, older ones included.
    """
    instances: list[InstancesDifference] = []
    for process in processes:
        instances.extend(_of_process(before, after, process, as_of, on_time))
    changed = [entity.key[1] for entity in entities if entity.key[0] == Kind.FEED]
    written = _written(after, changed) if changed else frozenset()
    for name in changed:
        instances.extend(_of_feed(before.find_feed(name), after.find_feed(name), written, as_of))
    return PlanDifference(as_of=as_of, entities=entities, processes=processes, instances=tuple(instances))


def _of_process(
    before: Bundle, after: Bundle, process: ProcessDifference, as_of: datetime, on_time: timedelta
) -> Iterator[InstancesDifference]:
    name, cluster = process.process, process.cluster
    new = find_running(after, name, cluster)
    if new is None or not process.standing.is_active or process.step is Step.OVER:
        return
    old = find_running(before, name, cluster)
    declared, was = new.sequence_on(cluster), old.sequence_on(cluster) if old else None
    if process.step is Step.SUCCEEDED and process.effective_from is not None:
        governed = Span(start=process.effective_from, stop=FOREVER)
        due = governed.upto(as_of).without(validity_of(was) if was else None)
        yield from _coming(new, process.key, due, declared, as_of, on_time)
        return
    if was is not None and process.standing.has_begun and not is_same_grid(was, declared):
        return
    yield from _coming(new, process.key, _newly(declared, was, as_of), declared, as_of, on_time)
    if was is not None:
        dropped = count_runs(was, _newly(was, declared, as_of))
        yield from _found(Effect.DROPPED, Kind.PROCESS, process.key, dropped)


def _coming(
    process: Process,
    key: Key,
    spans: tuple[Span, ...],
    declared: InstanceSequence,
    as_of: datetime,
    on_time: timedelta,
) -> Iterator[InstancesDifference]:
    """What becomes of the instances of a process in some spans, which come into being now."""
    kept = _kept(process, declared, as_of, on_time)
    skipped = tuple(part for span in spans for part in span.without(kept))
    due = tuple(span.within(kept) for span in spans)
    yield from _found(Effect.DUE, Kind.PROCESS, key, count_runs(declared, due))
    yield from _found(Effect.SKIPPED, Kind.PROCESS, key, count_runs(declared, skipped))


def _kept(process: Process, declared: InstanceSequence, as_of: datetime, on_time: timedelta) -> Span:
    """The times whose instances run if they come into being now; the others' are left out."""
    newest = next(iter(count_runs(declared, (validity_of(declared).upto(as_of),))), None)
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
    old: Feed | None, new: Feed | None, written: frozenset[Key], as_of: datetime
) -> Iterator[InstancesDifference]:
    if new is None:
        return
    for cluster in new.clusters:
        key = (new.name, cluster)
        declared = new.sequence_on(cluster)
        was = old.sequence_on(cluster) if old is not None and cluster in old.clusters else None
        if key not in written and (was is None or is_same_grid(was, declared)):
            expected = count_runs(declared, _newly(declared, was, as_of))
            yield from _found(Effect.DUE, Kind.FEED, key, expected)
        yield from _found(Effect.EXPIRED, Kind.FEED, key, _expiring(old, new, cluster, as_of))
        if new.clusters[cluster].type is ClusterRole.TARGET:
            yield from _copied(old, new, cluster, as_of)


def _newly(declared: InstanceSequence, was: InstanceSequence | None, as_of: datetime) -> tuple[Span, ...]:
    """The times until now at which `declared` has instances, and `was` has not."""
    same = was is not None and is_same_grid(was, declared)
    known = validity_of(was) if was is not None and same else None
    return validity_of(declared).upto(as_of).without(known)


def _expiring(old: Feed | None, new: Feed, cluster: str, as_of: datetime) -> tuple[Run, ...]:
    declared = new.sequence_on(cluster)
    expired = _expired(new, cluster, as_of)
    if expired is None:
        return ()
    known = _expired(old, cluster, as_of) if old is not None and cluster in old.clusters else None
    return count_runs(declared, expired.without(known))


def _expired(feed: Feed, cluster: str, as_of: datetime) -> Span | None:
    """The part of the validity that is older than the limit; None without a limit."""
    limit, sequence = feed.retention_limit_on(cluster), feed.sequence_on(cluster)
    if limit is None:
        return None
    judged = as_of if sequence.end is None or not feed.retention_ends_on(cluster) else min(as_of, sequence.end)
    return validity_of(sequence).before(judged - limit.as_duration())


def _copied(old: Feed | None, new: Feed, target: str, as_of: datetime) -> Iterator[InstancesDifference]:
    for source, entry in new.clusters.items():
        if entry.type is not ClusterRole.SOURCE:
            continue
        shared = _shared(new, source, target, as_of)
        known = _shared(old, source, target, as_of) if old is not None and _replicates(old, source, target) else None
        runs = count_runs(new.sequence_on(source), shared.without(known))
        yield from _found(Effect.COPIED, Kind.FEED, (new.name, target), runs, of=source)


def _replicates(feed: Feed, source: str, target: str) -> bool:
    entries = feed.clusters.get(source), feed.clusters.get(target)
    roles = tuple(entry.type if entry else None for entry in entries)
    return roles == (ClusterRole.SOURCE, ClusterRole.TARGET)


def _shared(feed: Feed, source: str, target: str, as_of: datetime) -> Span:
    one, other = validity_of(feed.sequence_on(source)), validity_of(feed.sequence_on(target))
    return one.within(other).upto(as_of)


def _written(bundle: Bundle, names: Iterable[str]) -> frozenset[Key]:
    """The feeds that a process writes, on their clusters; of these no arrival is waited for."""
    wanted = set(names)
    return frozenset(
        (output.feed, cluster)
        for process in bundle.processes
        for output in process.outputs.values()
        if output.feed in wanted
        for cluster in process.clusters
    )


def _found(
    effect: Effect, kind: Kind, key: Key, runs: tuple[Run, ...], of: str | None = None
) -> Iterator[InstancesDifference]:
    if runs:
        yield InstancesDifference(effect=effect, kind=kind, name=key[0], cluster=key[1], runs=runs, of=of)
