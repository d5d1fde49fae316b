"""What follows from a change of the definitions: releases begin, schedules are kept, work that has no place any more
ends.
"""

from collections.abc import Collection

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.redefinition import apply_plan
from feed_assets.lifecycle.releases import ReleaseDecision
from feed_assets.lifecycle.schedules import ScheduleView, apply_end_of_work, decide_schedules
from feed_assets.loading.entity_files import LoadedBundle
from feed_assets.operations.entities.registry import Registry
from feed_assets.operations.location import compile_location
from feed_assets.state.definition_records import Schedule, ScheduleState
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstance
from feed_assets.state.schedules import Schedules


def settle_releases(registry: Registry, declared: LoadedBundle | None = None) -> tuple[ReleaseDecision, ...]:
    """Let what is declared now govern from the effective times on, without waiting for the next tick.

    `declared` saves reading it again.
    """
    governance = load_governance(registry, declared)
    return apply_plan(registry.database, governance, registry.now, registry.settings.definition_changes)


def load_governance(registry: Registry, declared: LoadedBundle | None = None) -> Governance:
    """The releases as seen with what is declared now."""
    loaded = declared or registry.load().bundle
    plan = compile_location(loaded, registry.now, registry.settings.root).plan
    return Governance(plan, registry.store.values)


def keep_submitted(registry: Registry, entities: Collection[AnyEntity], before: Bundle) -> None:
    """Write down that clusters which entities have not been on wait for a command to schedule them.

    Done before the entities are declared, so that no tick finds them without.
    """
    view = registry.schedules()
    rows: list[Schedule] = []
    for entity in entities:
        if not isinstance(entity, Feed | Process):
            continue
        known = before.find(entity.key)
        old = known.clusters if isinstance(known, Feed | Process) else {}
        new = [name for name in entity.clusters if name not in old]
        author, now = registry.author, registry.now
        fresh = ScheduleView(without_row=view.without_row)  # rows of a namesake that is gone say nothing
        rows += decide_schedules(fresh, entity.kind, entity.name, new, ScheduleState.SUBMITTED, author=author, now=now)
    if rows:
        with registry.database.begin() as connection:
            Schedules(connection).put(rows)


def left_clusters(before: AnyEntity | None, after: AnyEntity | None) -> tuple[str, ...]:
    """The clusters that an entity is not on any more."""
    old = before.clusters if isinstance(before, Feed | Process) else {}
    new = after.clusters if isinstance(after, Feed | Process) else {}
    return tuple(name for name in old if name not in new)


def end_work(
    registry: Registry, kind: Kind, name: str, clusters: Collection[str], reason: str
) -> tuple[ProcessInstance, ...]:
    """End an entity's work on clusters; returns the instances that were killed, as they were."""
    if not clusters:
        return ()
    if registry.dry_run:
        return _unended(registry, kind, name, clusters)
    with registry.database.begin() as connection:
        return apply_end_of_work(connection, kind, name, clusters, reason=reason, now=registry.now)


def find_remains(registry: Registry, kind: Kind, name: str) -> tuple[str, ...]:
    """The clusters on which an entity that is not declared still has schedules or instances that have not ended."""
    with registry.database.read() as connection:
        clusters = set(Schedules(connection).of(kind, name))
        if kind is Kind.PROCESS:
            counts = ProcessInstances(connection).unended_counts()
            clusters |= {cluster for process, cluster in counts if process == name}
    return tuple(sorted(clusters))


def _unended(registry: Registry, kind: Kind, name: str, clusters: Collection[str]) -> tuple[ProcessInstance, ...]:
    if kind is not Kind.PROCESS:
        return ()
    with registry.database.read() as connection:
        instances = ProcessInstances(connection)
        return tuple(row for cluster in clusters for row in instances.unended(name, cluster))
