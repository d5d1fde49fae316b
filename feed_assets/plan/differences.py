"""The differences under other definitions: entities field by field, the releases of processes, and the immediate impact
on instances: new, given up, expired and copied ones.

Instances are counted by ranges and never enumerated, so ten years cost no more than a day.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import TypeAlias

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.differences import diff_entities
from feed_assets.entities.feed import ClusterRole, Feed
from feed_assets.entities.locations.overlaps import NO_OVERLAPS
from feed_assets.entities.process import CatchUp, Order, Process
from feed_assets.issues import EntityKey, Source
from feed_assets.plan.compile import runs_here
from feed_assets.plan.edges import Key
from feed_assets.plan.records import RetentionRecord
from feed_assets.plan.release_fingerprint import (
    Step,
    Succession,
    Weight,
    decide_succession,
    parse_fingerprint,
    release_fingerprint,
    weigh,
)
from feed_assets.plan.rendering import (
    FOREVER,
    Cause,
    Effect,
    EntityChange,
    EntityDifference,
    FieldDifference,
    InstanceRange,
    InstancesDifference,
    PlanDifference,
    ProcessDifference,
    ProcessState,
    RetentionDifference,
    Span,
    count_ranges,
    validity_of,
)
from feed_assets.plan.retention import compile_retention, find_stricter
from feed_assets.timing.errors import TimingError
from feed_assets.timing.sequence import InstanceSequence, is_same_grid

_FILE = "file"

Sources: TypeAlias = Mapping[EntityKey, Source]


def diff_bundles(
    before: Bundle, after: Bundle, sources: Sources | None = None, *, only: Iterable[EntityKey] | None = None
) -> tuple[EntityDifference, ...]:
    """Return the entities that differ, in the order of kinds and names; with `only`, compare these alone."""
    if only is None:
        keys = {entity.key for entity in chain(before.entities, after.entities)}
    else:
        keys = set(only)
    found = (_diff_entity(key, before.find(key), after.find(key), sources or {}) for key in sorted(keys))
    return tuple(entity for entity in found if entity is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedProcess:
    """A process on a cluster that is affected by differences.

    `old` and `new` are None if it does not run before or after.

    `reasons` are the differences of its members: the process, its feeds and its cluster. `is_alike` means that no new
    release is needed. `is_earlier` means that only the start differs, and is an earlier instance of the same grid.
    `files` are the files of its workflows that have changed since its newest release.
    """

    key: Key
    old: Process | None
    new: Process | None
    reasons: tuple[EntityDifference, ...]
    is_alike: bool = False
    is_earlier: bool = False
    files: tuple[str, ...] = ()

    @property
    def own(self) -> EntityDifference | None:
        """The difference of the process itself; None if it does not differ."""
        return next((entity for entity in self.reasons if entity.key == (Kind.PROCESS, self.key[0])), None)


def find_affected_processes(
    before: Bundle, after: Bundle, entities: Iterable[EntityDifference]
) -> tuple[AffectedProcess, ...]:
    """Return the processes, by cluster, that differ or see a difference of an entity that they use."""
    reasons = _reasons(before, after, {entity.key: entity for entity in entities})
    found = (_find_affected_process(before, after, key, reasons[key]) for key in sorted(reasons))
    return tuple(affected for affected in found if affected is not None)


def decide_processes(
    affected: Iterable[AffectedProcess], states: Mapping[Key, ProcessState], as_of: datetime
) -> tuple[ProcessDifference, ...]:
    """Decide the next release of every affected process.

    Args:
        affected: the processes.
        states: their recorded states; a process that is left out is new and active.
        as_of: the present.
    """
    return tuple(_decide_process(each, states.get(each.key, ProcessState()), as_of) for each in affected)


def _diff_entity(
    key: EntityKey, before: AnyEntity | None, after: AnyEntity | None, sources: Sources
) -> EntityDifference | None:
    if before is after:
        return None
    changes = diff_entities(before, after)
    if not changes:
        return None
    kind = Kind(key[0])
    change = EntityChange.ADDED if before is None else EntityChange.REMOVED if after is None else EntityChange.CHANGED
    old, new = _clusters(before), _clusters(after)
    return EntityDifference(
        key=key,
        change=change,
        fields=tuple(
            FieldDifference(change=change, weight=weigh(kind, change.path, change.before, change.after))
            for change in changes
        ),
        joined=tuple(sorted(new - old)),
        left=tuple(sorted(old - new)),
        source=sources.get(key),
    )


def _clusters(entity: AnyEntity | None) -> frozenset[str]:
    return frozenset(entity.clusters if isinstance(entity, Feed | Process) else ())


def _reasons(
    before: Bundle, after: Bundle, entities: Mapping[EntityKey, EntityDifference]
) -> dict[Key, tuple[EntityDifference, ...]]:
    """Return, for each process on each of its clusters, the differences of its members."""
    found: dict[Key, dict[EntityKey, EntityDifference]] = defaultdict(dict)
    if not entities:
        return {}
    for bundle, process in [(each, process) for each in (before, after) for process in each.processes]:
        used = [process.key, *((Kind.FEED.value, name) for name in sorted(_feeds_of(bundle, process)))]
        for cluster in process.clusters:
            for key in (*used, (Kind.CLUSTER.value, cluster)):
                if key in entities:
                    found[process.name, cluster][key] = entities[key]
    return {key: tuple(reasons.values()) for key, reasons in found.items()}


def _find_affected_process(
    before: Bundle, after: Bundle, key: Key, reasons: tuple[EntityDifference, ...]
) -> AffectedProcess | None:
    name, cluster = key
    old, new = find_running(before, name, cluster), find_running(after, name, cluster)
    affected = AffectedProcess(key=key, old=old, new=new, reasons=reasons)
    if old is None or new is None:
        return None if old is new else affected
    declared_fingerprint, current_fingerprint = (
        parse_fingerprint(release_fingerprint(after, new, cluster)),
        parse_fingerprint(release_fingerprint(before, old, cluster)),
    )
    if declared_fingerprint.is_alike(current_fingerprint):
        return None if affected.own is None else replace(affected, is_alike=True)
    declared, previous = new.sequence_on(cluster), old.sequence_on(cluster)
    is_earlier = declared.start < previous.start and is_same_grid(declared, previous)
    return replace(
        affected, is_earlier=is_earlier and declared_fingerprint.is_alike(current_fingerprint, but_for_start=True)
    )


def _feeds_of(bundle: Bundle, process: Process) -> set[str]:
    return {*(item.feed for item in process.inputs.values()), *bundle.written_feeds(process)}


def _decide_process(affected: AffectedProcess, state: ProcessState, as_of: datetime) -> ProcessDifference:
    name, cluster = affected.key
    succession = _decide_succession(affected, state, as_of)
    step = succession.step
    ends = affected.new.sequence_on(cluster).end if affected.new else None
    is_past = affected.old is not None and ends is not None and ends < as_of
    own = affected.own
    return ProcessDifference(
        process=name,
        cluster=cluster,
        step=step,
        effective_from=succession.effective_from,
        ends_at=ends,
        release=state.release + (step is Step.SUCCEEDED or state.release == 0),
        state=state,
        causes=_causes(affected, cluster),
        is_refused=is_past and state.is_active and own is not None and _has_hard_changes(own, cluster),
        is_enumerated=affected.new is None or not affected.new.makes_batches,
    )


def _decide_succession(affected: AffectedProcess, state: ProcessState, as_of: datetime) -> Succession:
    if affected.new is None:
        return Succession(step=Step.ENDS, effective_from=None)
    cluster = affected.key[1]
    declared = affected.new.sequence_on(cluster)
    if affected.old is None:
        return decide_succession(declared, as_of, governed_from=None, is_alike=False, is_free=True)
    previous = affected.old.sequence_on(cluster)
    if state.governs_all and state.has_begun and not affected.is_alike:
        unstarted = filter(None, (state.first_unstarted, declared.ceil(as_of)))
        begins = min(unstarted, default=None)
        return Succession(step=Step.OVER if begins is None else Step.CORRECTED, effective_from=begins)
    return decide_succession(
        declared,
        as_of,
        governed_from=(state.newest_from if affected.is_alike else state.governed_from) or previous.start,
        is_alike=affected.is_alike,
        is_free=not state.has_begun,
        previous=previous,
        is_earlier=affected.is_earlier,
    )


def _causes(affected: AffectedProcess, cluster: str) -> tuple[Cause, ...]:
    """Return the entities whose change affects a process: the process itself, and others that it sees."""
    found, own = [], affected.own
    for entity in affected.reasons:
        fields = (
            entity.hard_fields(cluster) if entity.change is EntityChange.CHANGED and not entity.is_versioned else ()
        )
        if entity is own or fields or (own is None and entity.change is not EntityChange.CHANGED):
            found.append(Cause(key=entity.key, fields=fields))
    return (*found, *(Cause(key=(_FILE, path), fields=()) for path in affected.files))


def _has_hard_changes(process: EntityDifference, cluster: str) -> bool:
    """Return whether more than soft fields have changed on a cluster."""
    return any(
        field.weight is not Weight.SOFT
        for field in process.fields
        if field.change.path[0] != "clusters" or field.change.path[1] == cluster
    )


def find_running(bundle: Bundle, name: str, cluster: str) -> Process | None:
    """Return the process if it is on the cluster, has all that it needs and can run here; else None."""
    process = bundle.find_process(name)
    if process is None or cluster not in process.clusters or bundle.find_cluster(cluster) is None:
        return None
    feeds = [bundle.find_feed(feed) for feed in _feeds_of(bundle, process)]
    if any(feed is None or cluster not in feed.clusters for feed in feeds):
        return None
    return process if runs_here(bundle, process, cluster) else None


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
    written = find_written(after) if changed else frozenset()
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


def find_written(bundle: Bundle) -> frozenset[Key]:
    """Return the feeds that processes and imports write, by cluster; nothing of them is expected from outside."""
    imported = [(feed, name) for feed in bundle.feeds for name in feed.clusters if feed.import_on(name) is not None]
    bad = ((name, on) for feed, on in imported if (name := bundle.find_quarantine(feed.name)) is not None)
    made = (
        (feed, cluster)
        for process in bundle.processes
        for feed in bundle.written_feeds(process)
        for cluster in process.clusters
    )
    return frozenset((*made, *((feed.name, on) for feed, on in imported), *bad))


def _difference(
    effect: Effect, kind: Kind, key: Key, ranges: tuple[InstanceRange, ...], of: str | None = None
) -> Iterator[InstancesDifference]:
    if ranges:
        yield InstancesDifference(effect=effect, kind=kind, name=key[0], cluster=key[1], ranges=ranges, of=of)
