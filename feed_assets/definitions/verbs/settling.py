"""Follow-up of a change of the definitions: begin releases, keep schedules, and end obsolete work."""

from collections.abc import Collection

from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.definitions.verbs.decide_schedules import apply_end_of_work, decide_schedules
from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.loading.bundles import LoadedBundle
from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules, ScheduleView
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance
from feed_assets.log.removals.holds import Holds
from feed_assets.plan.location import compile_location
from feed_assets.plan.pinned_files import with_pinned_files
from feed_assets.releases.decide_releases import ReleaseDecision
from feed_assets.releases.pinning import store_pinned_files
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.locks import lock_for_lineage
from feed_assets.triggers.queue.inputs import TriggerInputs


def settle_releases(context: EntityContext, declared: LoadedBundle | None = None) -> tuple[ReleaseDecision, ...]:
    """Begin the releases of the current definitions at their effective times, without waiting for the next tick.
    `declared` avoids loading the definitions again.
    """
    timeline = load_timeline(context, declared)
    return apply_releases(context, timeline)


def apply_releases(context: EntityContext, timeline: ReleaseTimeline) -> tuple[ReleaseDecision, ...]:
    """Store the files of the workflows, then begin the releases of the definitions."""

    def store() -> bool:
        return store_pinned_files(context.database, timeline.plan, context.settings.root)

    settings = context.settings
    return apply_plan(
        context.database,
        timeline,
        context.now,
        settings.definition_changes,
        store,
        settings.metadata.system,
        context.without_row,
    )


def load_timeline(context: EntityContext, declared: LoadedBundle | None = None) -> ReleaseTimeline:
    """Load the release timeline of the current definitions."""
    loaded = declared or context.load().bundle
    root = context.settings.root
    plan = with_pinned_files(compile_location(loaded, context.now, root, context.settings.notify).plan, root)
    return ReleaseTimeline(plan, context.store.values)


def keep_submitted(context: EntityContext, entities: Collection[AnyEntity], before: Bundle) -> None:
    """Record that the new clusters of entities wait for `schedule`. It runs before the entities are declared, so that
    no tick sees them without a row.
    """
    view = context.schedules()
    rows: list[Schedule] = []
    for entity in entities:
        if not isinstance(entity, Feed | Process):
            continue
        known = before.find(entity.key)
        old = known.clusters if isinstance(known, Feed | Process) else {}
        new = [name for name in entity.clusters if name not in old]
        author, now = context.author, context.now
        fresh = ScheduleView(without_row=view.without_row)  # rows of a deleted entity of the same name do not count
        rows += decide_schedules(fresh, entity.kind, entity.name, new, ScheduleState.SUBMITTED, author=author, now=now)
    if rows:
        with context.database.begin() as connection:
            Schedules(connection).put(rows)


def left_clusters(before: AnyEntity | None, after: AnyEntity | None) -> tuple[str, ...]:
    """Return the clusters that an entity has left."""
    old = before.clusters if isinstance(before, Feed | Process) else {}
    new = after.clusters if isinstance(after, Feed | Process) else {}
    return tuple(name for name in old if name not in new)


def end_work(
    context: EntityContext, kind: Kind, name: str, clusters: Collection[str], reason: str
) -> tuple[ProcessInstance, ...]:
    """End an entity's work on clusters. Returns the killed instances, as they were before."""
    if not clusters:
        return ()
    if context.dry_run:
        return _unended(context, kind, name, clusters)
    with context.database.begin() as connection:
        lock_for_lineage(connection)
        return apply_end_of_work(connection, kind, name, clusters, reason=reason, now=context.now)


def find_remains(context: EntityContext, kind: Kind, name: str) -> tuple[str, ...]:
    """Return the clusters on which an undeclared entity still has schedules, unfinished instances, or a queue."""
    with context.database.read() as connection:
        clusters = set(Schedules(connection).of(kind, name))
        if kind is Kind.PROCESS:
            counts = ProcessInstances(connection).unended_counts()
            clusters |= {cluster for process, cluster in counts if process == name}
            clusters |= {mark.cluster for mark in TriggerInputs(connection).of_process(name)}
    return tuple(sorted(clusters))


def find_held(context: EntityContext, feed: str) -> list[str]:
    """Return a sentence on each hold of a feed: they stay when it is deleted, and its data with them."""
    with context.database.read() as connection:
        held = [hold for hold in Holds(connection).active(context.now) if hold.feed == feed]
    also = "also if the feed is declared again"
    return [f"hold {hold.name!r} of {hold.author} stays, {also}: {hold.reason}" for hold in held]


def _unended(context: EntityContext, kind: Kind, name: str, clusters: Collection[str]) -> tuple[ProcessInstance, ...]:
    if kind is not Kind.PROCESS:
        return ()
    with context.database.read() as connection:
        instances = ProcessInstances(connection)
        return tuple(row for cluster in clusters for row in instances.unended(name, cluster))
