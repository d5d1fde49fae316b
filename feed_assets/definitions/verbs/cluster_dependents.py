"""Updates the feeds and processes of a changed cluster to its current version."""

from feed_assets.context.safe_mode import Operation, require_mode
from feed_assets.definitions.edits import Edit, Put
from feed_assets.definitions.verbs.cluster_versions import find_outdated, with_cluster_version
from feed_assets.definitions.verbs.context import EntityContext, get_declared, make_change
from feed_assets.definitions.verbs.settling import settle_releases
from feed_assets.definitions.verbs.verb_results import EntityOutcome, VerbOutcome, VerbResult
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.issues import EntityKey
from feed_assets.loading.bundles import LoadedBundle
from feed_assets.releases.decide_releases import ReleaseDecision


def update_cluster_dependents(context: EntityContext, name: str) -> VerbResult:
    """Write the version of a cluster into every feed and process that names another version, all or none. Processes get
    a new release if the cluster differs for them. Repeating it changes nothing.

    Raises:
        EntityNotFoundError: there is no such cluster.
        DefinitionsError: a feed or process would have errors; carries the issues.
        SafeModeError: safe mode forbids it.
    """
    require_mode(context.database, Operation.UPDATE_CLUSTER_DEPENDENTS)
    loaded = context.load()
    cluster = get_declared(loaded, Kind.CLUSTER, name)
    assert isinstance(cluster, Cluster)
    entities = {entity.key: entity for entity in loaded.bundle.bundle.entities}
    changed: dict[EntityKey, tuple[Put, AnyEntity]] = {}
    for key in find_outdated(cluster, entities):
        document = loaded.documents[key]
        put = Put(text=document.text, format=document.format, source=document.file)
        changed[key] = with_cluster_version(put, entities[key], name, cluster.version, context.store.values)
    outcomes = tuple(
        EntityOutcome(
            kind=kind, name=each, outcome=VerbOutcome.UPDATED, notes=(f"version {cluster.version} of {name}",)
        )
        for kind, each in changed
    )
    if not changed:
        unchanged = EntityOutcome(kind=cluster.kind, name=name, outcome=VerbOutcome.UNCHANGED)
        return VerbResult(
            verb=Operation.UPDATE_CLUSTER_DEPENDENTS.value, outcomes=(unchanged,), dry_run=context.dry_run
        )
    edits: list[Edit] = [put for put, _ in changed.values()]
    made = make_change(context, edits, changed.keys(), origin=Operation.UPDATE_CLUSTER_DEPENDENTS.value, refuse=_allow)
    releases: tuple[ReleaseDecision, ...] = ()
    if made.change is not None:
        releases = settle_releases(context, made.after)
        context.audit(
            Operation.UPDATE_CLUSTER_DEPENDENTS.value, cluster.label, version=cluster.version, entities=len(changed)
        )
    return VerbResult(
        verb=Operation.UPDATE_CLUSTER_DEPENDENTS.value,
        outcomes=outcomes,
        warnings=made.warnings,
        releases=releases,
        reload_needed=made.change is not None,
        dry_run=context.dry_run,
    )


def _allow(_before: LoadedBundle, _after: LoadedBundle) -> None:
    """Accept every change: this verb has no check of its own."""
