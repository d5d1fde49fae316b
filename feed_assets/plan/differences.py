"""The differences under other definitions: entities field by field, and the releases of processes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import TypeAlias

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.differences import diff_entities
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey, Source
from feed_assets.plan.compile import runs_here
from feed_assets.plan.edges import Key
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
    Cause,
    EntityChange,
    EntityDifference,
    FieldDifference,
    ProcessDifference,
    ProcessState,
)
from feed_assets.timing.sequence import is_same_grid

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
