"""Rules about references between entities: the entities and their versions exist."""

from collections.abc import Iterator

from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.graph import iter_references
from feed_assets.entities.process import Process
from feed_assets.issues import FieldPath
from feed_assets.validation.scope import Complaint, Scope


def check_references(scope: Scope, entity: AnyEntity) -> Iterator[Complaint]:
    """F7, F13, F14, P2, P6, P11: every referenced entity must be declared."""
    for reference in iter_references(entity):
        if scope.is_declared(reference.target):
            continue
        kind, name = reference.target
        close = scope.bundle.suggest(Kind(kind), name)
        remedy = (
            f"Did you mean {' or '.join(map(repr, close))}?" if close else f"Declare it, or refer to another {kind}."
        )
        message = f"there is no {kind} {name!r}"
        yield Complaint(path=reference.path, message=message, remedy=remedy, is_absence=True)


def check_feed_on_cluster(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P6, P11: the feeds that a process reads and writes must be defined on each of its clusters."""
    used = [(("inputs", name, "feed"), item.feed) for name, item in process.inputs.items()]
    used += [(("outputs", name, "feed"), item.feed) for name, item in process.outputs.items()]
    for path, name in used:
        feed = scope.bundle.find_feed(name)
        declared = [cluster for cluster in process.clusters if scope.is_declared((Kind.CLUSTER, cluster))]
        missing = [] if feed is None else [cluster for cluster in declared if cluster not in feed.clusters]
        if feed is not None and missing:
            on = ", ".join(feed.clusters)
            is_misnamed = not all(scope.is_declared((Kind.CLUSTER, cluster)) for cluster in feed.clusters)
            yield Complaint(
                path=path,
                message=f"feed {name!r} is not defined on cluster {' and '.join(missing)}, only on {on}",
                remedy="Add the cluster to the feed, or remove it from the process.",
                is_absence=is_misnamed,
                causes=(feed.label,) if is_misnamed else (),
            )


def check_cluster_versions(scope: Scope, entity: Feed | Process) -> Iterator[Complaint]:
    """F9, P2: a referenced version of a cluster must exist already.

    Differs from Falcon: a version that is left out, or lower, is not replaced by the current one.
    """
    for name, entry in entity.clusters.items():
        yield from _check_version(("clusters", name), entry.version, scope.bundle.find_cluster(name))


def check_datasource_versions(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """A referenced version of a datasource must exist already."""
    for name, entry in feed.clusters.items():
        for path, table in entry.tables():
            datasource = scope.bundle.find_datasource(table.name)
            yield from _check_version(("clusters", name, *path), table.version, datasource)


def _check_version(path: FieldPath, version: int, referenced: Cluster | Datasource | None) -> Iterator[Complaint]:
    if referenced is not None and version > referenced.version:
        yield Complaint(
            path=(*path, "version"),
            message=f"version {version} of {referenced.label} does not exist; the current one is {referenced.version}",
            remedy="Leave the version out, or correct it.",
        )
