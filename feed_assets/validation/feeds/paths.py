"""Rules about the places of feeds: each instance has its own path, on every cluster; tables of a catalog, and
unsupported engines.
"""

from collections.abc import Iterator

from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import RetentionAction
from feed_assets.entities.copies.options import Columns
from feed_assets.entities.feed import Feed, FeedCluster, FeedFormat, find_sources
from feed_assets.entities.locations.overlaps import HIDDEN_FOLDER, describe_location, iter_mirror_locations, iter_texts
from feed_assets.entities.process import Process, iter_workflows
from feed_assets.errors import render_some
from feed_assets.issues import FieldPath, Severity
from feed_assets.timing.errors import TableAddressError, TemplateError
from feed_assets.timing.templates import TimeVariable, find_variables, parse_path_template, parse_table_address
from feed_assets.validation.scope import Complaint, Scope, complain, is_table_for, location_path

REFUSED_SEGMENTS = frozenset({".", "..", HIDDEN_FOLDER})
"""The segments of a path that every store refuses: see `storage/paths.py`."""
_MOST_OTHERS = 3
"""Other locations that a message names."""


def check_templates(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """Every location must be a template whose variables are known on every cluster that uses it."""
    for name in feed.clusters:
        cluster = scope.bundle.find_cluster(name)
        for path, text in _texts(feed, name):
            try:
                template = parse_path_template(text)
                if cluster is not None:
                    cluster.fill(template)
            except TemplateError as exc:
                yield complain(path, exc)


def check_segments(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """No location may lead upwards, or into the folder in which feed-assets keeps its own files, also by links."""
    for name in feed.clusters:
        for path, text in _texts(feed, name):
            refused = REFUSED_SEGMENTS.intersection(text.split("/"))
            if text != text.strip():
                yield Complaint(
                    path=path,
                    message=f"{'.'.join(map(str, path))} {text!r} has a blank at its "
                    f"{'end' if text == text.lstrip() else 'beginning'}, which would be part of the name",
                    remedy=f"Write {text.strip()}.",
                    severity=Severity.WARNING,
                )
            if not refused and scope.is_hidden(name, text):
                yield Complaint(
                    path=path,
                    message=f"{'.'.join(map(str, path))} {text!r} leads by a link into the hidden folder of a store",
                    remedy="Use a path outside it.",
                )
            if refused:
                yield Complaint(
                    path=path,
                    message=f"{'.'.join(map(str, path))} {text!r} has the segment {min(refused)!r}, which "
                    "no store accepts",
                    remedy="Write the path without it.",
                )


def check_data_location(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F19: on every cluster the feed must have a location for its data, or a table."""
    for name, entry in feed.clusters.items():
        if feed.lies_on(name):
            continue
        own: FieldPath = ("clusters", name, "locations") if entry.locations else ()
        yield Complaint(
            path=own or (("locations",) if feed.locations else ()),
            message=f"its data have no location on {name}",
            remedy='Write locations: {data: "/clicks/${YEAR}/${MONTH}/${DAY}/${HOUR}"}, or table.',
        )


def check_variables(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F19: the data path of a feed, or the partition of its table, must contain the time of the instance. The place of
    a current instance must not.

    Differs from Falcon: this also holds for feeds that are neither imported nor exported.
    """
    for path, data in _data_paths(feed):
        variables = find_variables(data)
        if feed.is_current:
            if variables:
                yield Complaint(
                    path=path,
                    message=f"{'.'.join(path)} {data!r} has {listed(variables)}, but instances: current has one place",
                    remedy=f"Write {_without_variables(data)}, or remove instances: current and write frequency.",
                )
            continue
        if variables is not None and not variables:
            yield Complaint(
                path=path,
                message=f"{'.'.join(path)} {data!r} has no time variable: all instances have the same "
                f"{'partition' if path[-1] == 'table' else 'path'}",
                remedy="Add ${YEAR} and as many of ${MONTH}, ${DAY}, ${HOUR}, ${MINUTE} as the frequency needs, or "
                "instances: current for data that are replaced in their place.",
            )


def check_granularity(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """F31: each instance must have its own path.

    Differs from Falcon: this is really checked, including clock changes.
    """
    for name in feed.clusters:
        template = scope.find_template(feed, name)
        if template is None or not template.variables:
            continue
        reason = template.find_collision(scope.sequence_on(feed, name))
        if reason is None:
            continue
        path = location_path(feed, name)
        remedy = "Set the time zone of the feed to UTC."
        if not template.covers(feed.frequency):
            part = "partition of the table" if path[-1] == "table" else "path"
            remedy = f"Add the missing variable to the {part}."
        elif feed.path_timezone is not None:
            remedy = f"Set path_timezone to {feed.timezone if feed.frequency.is_calendar else 'UTC'}."
        yield Complaint(path=path, message=f"{'.'.join(path)} is too coarse: {reason}", remedy=remedy)


def check_same_variables(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F25: a cluster's own data path, or table, must have the same variables as the feed's."""
    default = find_variables(own_place(feed))
    for name, entry in feed.clusters.items():
        own = find_variables(own_place(entry))
        if default is not None and own is not None and set(own) != set(default):
            what = "table" if entry.table else "data path"
            yield Complaint(
                path=("clusters", name, "table") if entry.table else ("clusters", name, "locations", "data"),
                message=f"the {what} on {name} has the variables {listed(own)}, the feed's has {listed(default)}",
                remedy="Use the same variables in both.",
            )


def check_shared_paths(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """Two feeds that nothing here writes should not have the same location."""
    for (other, other_cluster), cluster in scope.shared_paths.get(feed.name, ()):
        if frozenset(((feed.name, cluster), (other.name, other_cluster))) in scope.written_pairs:
            continue
        what = f"feed {other.name!r} on {other_cluster}" if other is not feed else f"the same feed on {other_cluster}"
        yield Complaint(
            path=location_path(feed, cluster),
            message=f"on {cluster} the data share a location with {what}: retention and publications would conflict",
            remedy="Give each its own path.",
            severity=Severity.WARNING,
        )


def check_written_places(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """What a process or a copy writes must not share a place with another location, which it would replace.

    Places that a ring of copies shares are left to the rule about rings.
    """
    for overlap in scope.written_overlaps.get(feed.name, ()):
        others = tuple(
            f"{nesting} {scope.describe(other)}"
            for other, nesting in overlap.others.items()
            if frozenset((overlap.own, other)) not in scope.ring_links
        )
        if not others:
            continue
        yield Complaint(
            path=location_path(feed, overlap.own[1]),
            message=f"a process or a copy writes {describe_location(overlap.own)}, "
            f"{render_some(others, _MOST_OTHERS)}: its publications would remove data of "
            f"{'both' if len(others) == 1 else 'all'}",
            remedy="Give each its own path.",
        )


def _without_variables(text: str) -> str:
    """Return a place without its time: the segments, or the keys of a table, that have none.

    >>> _without_variables("/ref/countries/${YEAR}-${MONTH}"), _without_variables("catalog:ref:lands#ds=${YEAR};of=eu")
    ('/ref/countries', 'catalog:ref:lands#of=eu')
    """
    place, _, keys = text.partition("#")
    path = "/".join(part for part in place.split("/") if not find_variables(part))
    kept = ";".join(part for part in keys.split(";") if part and not find_variables(part))
    return f"{path}#{kept}" if kept else path


def own_place(part: Feed | FeedCluster) -> str | None:
    """Return the data path or table of a feed, which clusters may replace, or of its entry for a cluster."""
    return part.table or (part.locations.data if part.locations else None)


def listed(variables: tuple[TimeVariable, ...]) -> str:
    """Return variables as text for messages."""
    return ", ".join(f"${{{variable}}}" for variable in variables) or "none"


def _texts(feed: Feed, cluster: str) -> Iterator[tuple[FieldPath, str]]:
    entry = feed.clusters[cluster]
    for kind, text in iter_texts(feed, cluster):
        yield location_path(feed, cluster, kind), text
    if entry.locations and feed.locations and feed.locations.data:
        yield ("locations", "data"), feed.locations.data
    if entry.partition is not None:
        yield ("clusters", cluster, "partition"), entry.partition


def _data_paths(feed: Feed) -> Iterator[tuple[tuple[str, ...], str]]:
    for path, part in feed.parts():
        if part.table is not None:
            yield (*path, "table"), part.table
        if part.locations is not None and part.locations.data is not None:
            yield (*path, "locations", "data"), part.locations.data


def check_addresses(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """A table's address must have database, table and partition, with variables that are known on every cluster."""
    for name, path, text in _tables(feed):
        cluster = scope.bundle.find_cluster(name)
        try:
            address = parse_table_address(text)
            if cluster is not None:
                cluster.fill(address.template)
        except (TableAddressError, TemplateError) as exc:
            yield complain(path, exc)


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
    sources = find_sources(feed)
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


def check_lake_tables(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """A feed in Iceberg tables has no flag, and its instances are not archived: they are rows of a table, not files."""
    for name, *_ in _tables(feed):
        cluster, retention = scope.bundle.find_cluster(name), feed.clusters[name].retention
        if cluster is None or not cluster.is_lake:
            continue
        if feed.availability_flag is not None:
            yield Complaint(
                path=("availability_flag",),
                message=f"a partition of the Iceberg table on {name} has no file {feed.availability_flag!r}",
                remedy="Remove availability_flag: a commit shows all of an instance at once.",
            )
        if retention is not None and retention.action is RetentionAction.ARCHIVE:
            yield Complaint(
                path=("clusters", name, "retention", "action"),
                message=f"instances in the Iceberg table on {name} cannot be archived",
                remedy="Write action: delete; a tag keeps the rows for the time of trash.",
            )


def check_other_columns(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """`columns` needs a schema or a table beside which columns are others, and files or a table that can have them."""
    if feed.columns is Columns.REFUSE:
        return
    tables = [name for name, *_ in _tables(feed)]
    clusters = [found for name in tables if (found := scope.bundle.find_cluster(name)) is not None]
    fault = None
    if not tables and feed.ddl is None:
        fault = "it decides about columns that are not in the schema, and the feed has none", "Write schema:"
    elif feed.columns is Columns.ADD and not tables and feed.format in (FeedFormat.CSV, FeedFormat.TEXT):
        fault = f"files of {feed.format.value} have the columns of the schema", "Write columns: ignore"
    elif feed.columns is Columns.ADD and any(not cluster.is_lake for cluster in clusters):
        fault = "columns are added to Iceberg tables, and the feed is in one of Hive", "Write columns: ignore"
    if fault is not None:
        yield Complaint(
            path=("columns",),
            message=f"columns: {feed.columns.value} has no effect: {fault[0]}",
            remedy=f"{fault[1]}, or remove columns.",
        )


def check_optional_tables(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P10: an optional input must not be a table."""
    for name, item in process.inputs.items():
        feed = scope.bundle.find_feed(item.feed)
        if item.optional and feed is not None and is_table_for(feed, process):
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


def _tables(feed: Feed) -> Iterator[tuple[str, FieldPath, str]]:
    """Yield each cluster on which the feed is a table, with the path and the address."""
    for name in feed.clusters:
        text = feed.table_on(name)
        if text is not None:
            yield name, location_path(feed, name), text


def check_hosts(scope: Scope, entity: AnyEntity) -> Iterator[Complaint]:
    """A local place is on this machine: after `file://` comes the third slash of a directory, not a host."""
    texts: list[tuple[FieldPath, str]] = []
    match entity:
        case Cluster():
            texts = [(("storage",), entity.storage)]
        case Feed():
            texts = [found for name in entity.clusters for found in _texts(entity, name)]
            texts += [(("inbox", "directory"), entity.inbox.directory)] if entity.inbox is not None else []
        case Process():
            texts = [(each.path, each.text) for each in iter_mirror_locations(scope.bundle.find_cluster, entity)]
    for path, text in dict(texts).items():
        host = text.removeprefix("file://").partition("/")[0] if text.startswith("file://") else ""
        if host and host != "localhost" and "${" not in host:
            yield Complaint(
                path=path,
                message=f"{'.'.join(map(str, path))}: a local place begins with file:///, but {text} names the host "
                f"{host!r}",
                remedy=f"Write file:///{host}, with three slashes and the whole path.",
            )
