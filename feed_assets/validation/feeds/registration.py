"""Rules about registration: instances at locations as partitions of a table of the cluster's catalog."""

from collections.abc import Iterator

from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import CATALOG_TABLE_PROPERTY, Feed, FeedFormat
from feed_assets.issues import FieldPath, Severity
from feed_assets.timing.errors import TableAddressError, TemplateError
from feed_assets.timing.templates import parse_table_address
from feed_assets.validation.scope import Complaint, Scope, complain

_FORM = "catalog:web:clicks#ds=${YEAR}-${MONTH}-${DAY}"
_OF_FEED = "{feed}"


def check_form(_: Scope, cluster: Cluster) -> Iterator[Complaint]:
    """A cluster's table is a form with the feed's name, of the table of its catalog."""
    text = cluster.catalog_table
    if text is None:
        return
    path = ("catalog_table",)
    if _OF_FEED not in text:
        remedy = f"Write for example catalog:web:{_OF_FEED}#ds={{YEAR}}-{{MONTH}}-{{DAY}}."
        yield Complaint(path=path, message=f"all feeds have the same table: {text!r} lacks {_OF_FEED}", remedy=remedy)
    if cluster.catalog is None:
        yield Complaint(path=path, message="the cluster has no catalog", remedy="Write catalog: thrift://host:9083.")


def check_tables(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """Instances at locations are registered, each in a partition of its own, in a table that no other feed fills."""
    path = _path(feed)
    if path is not None and (feed.is_current or not feed.has_data or any(map(feed.table_on, feed.clusters))):
        what = "it has one instance without a time" if feed.is_current else "it has no files at locations"
        message = f"it cannot be registered in a table: {what}"
        yield Complaint(path=path, message=message, remedy=f"Remove {path[-1]}.")
        return
    clusters = [found for name in feed.clusters if (found := scope.bundle.find_cluster(name)) is not None]
    if path is not None and len(clusters) == len(feed.clusters) and not any(each.catalog for each in clusters):
        yield Complaint(
            path=path,
            message="it has no effect: none of the feed's clusters has a catalog",
            remedy="Write catalog: thrift://host:9083 (or the interface registry) at the cluster.",
            severity=Severity.WARNING,
        )
    seen: set[str] = set()
    for cluster in clusters:
        for complaint in _check_on(scope, feed, cluster, path or ("clusters", cluster.name)):
            if complaint.message not in seen:
                seen.add(complaint.message)
                yield complaint


def _check_on(scope: Scope, feed: Feed, cluster: Cluster, path: FieldPath) -> Iterator[Complaint]:
    text = feed.catalog_table_on(cluster)
    if text is None:
        return
    try:
        address = parse_table_address(text)
        template = cluster.fill(address.template).in_zone(feed.path_zone)
    except (TableAddressError, TemplateError) as exc:
        yield complain(path, exc)
        return
    if cluster.is_lake and feed.format is not FeedFormat.PARQUET:
        message = f"an Iceberg table has Parquet files, and those of the feed are {feed.format.value}"
        yield Complaint(path=path, message=message, remedy="Write format: parquet, or remove it.")
    if address.partition:
        collision = template.find_collision(scope.sequence_on(feed, cluster.name))
        if collision is not None:
            remedy = "Add the missing variable to the partition, or write catalog_table at the feed."
            message = f"the partition of {address.name} is too coarse: {collision}"
            yield Complaint(path=path, message=message, remedy=remedy)
    elif not cluster.is_lake:
        yield Complaint(path=path, message=f"{text!r} names no partition", remedy=f"Write it as {_FORM}.")
    others = [each for each in scope.find_fillers(cluster, address.name) if each != (feed.name, cluster.name)]
    if others:
        other = f"feed {others[0][0]!r} on {others[0][1]}"
        message = f"the table {address.name} is that of {other}, too: only one feed fills a table"
        yield Complaint(path=path, message=message, remedy="Give each its own table.")


def _path(feed: Feed) -> FieldPath | None:
    """Return where a feed names its table; None if it does not."""
    if feed.catalog_table is not None:
        return ("catalog_table",)
    return ("properties", CATALOG_TABLE_PROPERTY) if CATALOG_TABLE_PROPERTY in feed.properties else None
