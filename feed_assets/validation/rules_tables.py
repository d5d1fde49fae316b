"""Rules about feeds in tables of a catalog, and about unsupported engines."""

from collections.abc import Iterator

from feed_assets.entities.feed import ClusterRole, Feed
from feed_assets.entities.process import Process, iter_workflows
from feed_assets.issues import FieldPath, Severity
from feed_assets.timing.errors import TableAddressError, TemplateError
from feed_assets.timing.tables import parse_table_address
from feed_assets.validation.scope import Complaint, Scope, complain, with_cluster


def check_addresses(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """A table's address must have database, table and partition, with variables that are known on every cluster."""
    refused: set[tuple[FieldPath, str]] = set()
    for name, path, text in _tables(feed):
        cluster = scope.bundle.find_cluster(name)
        try:
            address = parse_table_address(text)
            if cluster is not None:
                with_cluster(address.template, cluster)
        except (TableAddressError, TemplateError) as exc:
            complaint = complain(path, exc)
            if (path, complaint.message) not in refused:
                refused.add((path, complaint.message))
                yield complaint


def check_catalog(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """F11: a cluster on which the feed is a table must have a catalog."""
    for name, path, _ in _tables(feed):
        cluster = scope.bundle.find_cluster(name)
        if cluster is not None and cluster.catalog is None:
            yield Complaint(
                path=path,
                message=f"the feed is a table on {name}, but the cluster has no catalog",
                remedy="Write catalog: thrift://host:9083 (or the interface registry) at the cluster.",
            )


def check_table_sources(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F15: a feed in tables must have at most one source."""
    sources = [name for name, entry in feed.clusters.items() if entry.type is ClusterRole.SOURCE]
    if len(sources) > 1 and any(feed.table_on(name) for name in feed.clusters):
        yield Complaint(
            path=("clusters", sources[1], "type"),
            message=f"multiple sources are not supported for feeds in tables: {', '.join(sources)}",
            remedy="Keep one source.",
        )


def check_uniform_storage(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F16: a feed must be in tables on all its clusters, or at locations on all."""
    tables = [name for name in feed.clusters if feed.table_on(name) is not None]
    others = [name for name in feed.clusters if feed.table_on(name) is None and feed.data_on(name) is not None]
    if tables and others:
        own = feed.clusters[others[0]].locations is not None
        yield Complaint(
            path=("clusters", others[0], "locations") if own else ("clusters", tables[0], "table"),
            message=f"its storage is not uniform: a table on {', '.join(tables)}, locations on {', '.join(others)}",
            remedy="Use tables everywhere, or locations everywhere.",
        )


def check_table_partitions(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F17: a feed in tables must not declare partitions; those of the table are in its address."""
    if feed.partitions and any(feed.table_on(name) for name in feed.clusters):
        yield Complaint(
            path=("partitions",),
            message="partitions are not supported for feeds in tables",
            remedy="Remove partitions.",
        )


def check_optional_tables(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P10: an optional input must not be a table."""
    for name, item in process.inputs.items():
        if item.optional and _is_table(scope, item.feed, process):
            yield Complaint(
                path=("inputs", name, "optional"),
                message=f"the optional input {name!r} is feed {item.feed!r}, which is a table",
                remedy="Remove optional.",
            )


def check_engines(_: Scope, process: Process) -> Iterator[Complaint]:
    """A process with an unsupported engine cannot be scheduled."""
    for path, workflow in iter_workflows(process):
        if not workflow.engine.is_supported:
            yield Complaint(
                path=(*path, "engine"),
                message=f"{'.'.join(map(str, path))}: {workflow.engine.value} does not run here: "
                "the process can be declared and checked, but not scheduled",
                remedy="Replace the workflow with one for python, sql or spark-submit.",
                severity=Severity.WARNING,
            )


def _is_table(scope: Scope, name: str, process: Process) -> bool:
    feed = scope.bundle.find_feed(name)
    clusters = [] if feed is None else [cluster for cluster in process.clusters if cluster in feed.clusters]
    return feed is not None and any(feed.table_on(cluster) is not None for cluster in clusters)


def _tables(feed: Feed) -> Iterator[tuple[str, FieldPath, str]]:
    """Yield each cluster on which the feed is a table, with the path and the address."""
    for name, entry in feed.clusters.items():
        text = feed.table_on(name)
        if text is not None:
            yield name, (("clusters", name, "table") if entry.table is not None else ("table",)), text
