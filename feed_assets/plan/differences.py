"""What would be otherwise under other definitions: entities field by field, and the releases of processes."""

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
from feed_assets.plan.difference_records import (
    Cause,
    EntityDifference,
    FieldDifference,
    ProcessDifference,
    Standing,
    Turn,
)
from feed_assets.plan.records import Key
from feed_assets.plan.signs import Step, Succession, Weight, decide_succession, parse_sign, release_sign, weigh
from feed_assets.timing.grids import is_same_grid

Sources: TypeAlias = Mapping[EntityKey, Source]


def diff_bundles(
    before: Bundle, after: Bundle, sources: Sources | None = None, *, only: Iterable[EntityKey] | None = None
) -> tuple[EntityDifference, ...]:
    """The entities that differ, in the order of kinds and names; with `only`, none but these are looked at."""
    if only is None:
        keys = {entity.key for entity in chain(before.entities, after.entities)}
    else:
        keys = set(only)
    found = (_diff_entity(key, before.find(key), after.find(key), sources or {}) for key in sorted(keys))
    return tuple(entity for entity in found if entity is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """A process on a cluster that what differs reaches: `old` and `new` are None where it does not run before or after.

    `reasons` are what differs of the things that it is made of. `is_alike` says that no new release is needed,
    `is_earlier` that only the start differs, and is an earlier instance of the same grid.
    """

    key: Key
    old: Process | None
    new: Process | None
    reasons: tuple[EntityDifference, ...]
    is_alike: bool = False
    is_earlier: bool = False

    @property
    def own(self) -> EntityDifference | None:
        """How the process itself differs."""
        return next((entity for entity in self.reasons if entity.key == (Kind.PROCESS, self.key[0])), None)


def find_touched(before: Bundle, after: Bundle, entities: Iterable[EntityDifference]) -> tuple[Touched, ...]:
    """The processes, on their clusters, that differ, or use something of which they see that it differs."""
    reasons = _reasons(before, after, {entity.key: entity for entity in entities})
    found = (_find_touched(before, after, key, reasons[key]) for key in sorted(reasons))
    return tuple(touched for touched in found if touched is not None)


def decide_processes(
    touched: Iterable[Touched], standings: Mapping[Key, Standing], as_of: datetime
) -> tuple[ProcessDifference, ...]:
    """How the releases of every process go on that is touched.

    Args:
        touched: the processes.
        standings: how they stand; one that is left out has not been seen yet, and is active.
        as_of: the present.
    """
    return tuple(_decide_process(each, standings.get(each.key, Standing()), as_of) for each in touched)


def _diff_entity(
    key: EntityKey, before: AnyEntity | None, after: AnyEntity | None, sources: Sources
) -> EntityDifference | None:
    if before is after:
        return None
    changes = diff_entities(before, after)
    if not changes:
        return None
    kind = Kind(key[0])
    turn = Turn.ADDED if before is None else Turn.REMOVED if after is None else Turn.CHANGED
    old, new = _clusters(before), _clusters(after)
    return EntityDifference(
        key=key,
        turn=turn,
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
    """Each process on each of its clusters → what differs of the things that it is made of."""
    found: dict[Key, dict[EntityKey, EntityDifference]] = defaultdict(dict)
    if not entities:
        return {}
    for process in chain(before.processes, after.processes):
        used = [process.key, *((Kind.FEED.value, name) for name in sorted(_feeds_of(process)))]
        for cluster in process.clusters:
            for key in (*used, (Kind.CLUSTER.value, cluster)):
                if key in entities:
                    found[process.name, cluster][key] = entities[key]
    return {key: tuple(reasons.values()) for key, reasons in found.items()}


def _find_touched(before: Bundle, after: Bundle, key: Key, reasons: tuple[EntityDifference, ...]) -> Touched | None:
    name, cluster = key
    old, new = find_running(before, name, cluster), find_running(after, name, cluster)
    touched = Touched(key=key, old=old, new=new, reasons=reasons)
    if old is None or new is None:
        return None if old is new else touched
    wanted, known = parse_sign(release_sign(after, new, cluster)), parse_sign(release_sign(before, old, cluster))
    if wanted.is_alike(known):
        return None if touched.own is None else replace(touched, is_alike=True)
    declared, stood = new.sequence_on(cluster), old.sequence_on(cluster)
    is_earlier = declared.start < stood.start and is_same_grid(declared, stood)
    return replace(touched, is_earlier=is_earlier and wanted.is_alike(known, but_for_start=True))


def _feeds_of(process: Process) -> set[str]:
    return {item.feed for item in process.inputs.values()} | {item.feed for item in process.outputs.values()}


def _decide_process(touched: Touched, standing: Standing, as_of: datetime) -> ProcessDifference:
    name, cluster = touched.key
    succession = _decide_succession(touched, standing, as_of)
    step = succession.step
    ends = touched.new.sequence_on(cluster).end if touched.new else None
    is_past = touched.old is not None and ends is not None and ends < as_of
    own = touched.own
    return ProcessDifference(
        process=name,
        cluster=cluster,
        step=step,
        effective_from=succession.effective_from,
        ends_at=ends,
        release=standing.release + (step is Step.SUCCEEDED or standing.release == 0),
        standing=standing,
        causes=_causes(touched, cluster),
        is_refused=is_past and standing.is_active and own is not None and _is_weighty(own, cluster),
    )


def _decide_succession(touched: Touched, standing: Standing, as_of: datetime) -> Succession:
    if touched.new is None:
        return Succession(step=Step.ENDS, effective_from=None)
    cluster = touched.key[1]
    declared = touched.new.sequence_on(cluster)
    if touched.old is None:
        return decide_succession(declared, as_of, stood_from=None, is_alike=False, is_free=True)
    stood = touched.old.sequence_on(cluster)
    if standing.governs_all and standing.has_begun and not touched.is_alike:
        unbegun = filter(None, (standing.first_unbegun, declared.ceil(as_of)))
        begins = min(unbegun, default=None)
        return Succession(step=Step.OVER if begins is None else Step.CORRECTED, effective_from=begins)
    return decide_succession(
        declared,
        as_of,
        stood_from=(standing.newest_from if touched.is_alike else standing.stood_from) or stood.start,
        is_alike=touched.is_alike,
        is_free=not standing.has_begun,
        stood=stood,
        is_earlier=touched.is_earlier,
    )


def _causes(touched: Touched, cluster: str) -> tuple[Cause, ...]:
    """What reaches a process: its own change, and others that it sees something of."""
    found, own = [], touched.own
    for entity in touched.reasons:
        fields = entity.hard_fields(cluster) if entity.turn is Turn.CHANGED and not entity.is_versioned else ()
        if entity is own or fields or (own is None and entity.turn is not Turn.CHANGED):
            found.append(Cause(key=entity.key, fields=fields))
    return tuple(found)


def _is_weighty(process: EntityDifference, cluster: str) -> bool:
    """Whether more than what is soft has changed on a cluster."""
    return any(
        field.weight is not Weight.SOFT
        for field in process.fields
        if field.change.path[0] != "clusters" or field.change.path[1] == cluster
    )


def find_running(bundle: Bundle, name: str, cluster: str) -> Process | None:
    """The process, if it is on the cluster with all that it needs and can run here."""
    process = bundle.find_process(name)
    if process is None or cluster not in process.clusters or bundle.find_cluster(cluster) is None:
        return None
    feeds = [bundle.find_feed(feed) for feed in _feeds_of(process)]
    if any(feed is None or cluster not in feed.clusters for feed in feeds):
        return None
    return process if runs_here(bundle, process, cluster) else None
