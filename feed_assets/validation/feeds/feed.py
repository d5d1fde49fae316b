"""Rules about the policies of feeds: validity, SLA, flag, partitions, groups and inboxes."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from feed_assets.entities.content.columns import find_unknown_type, parse_columns, suggest_type
from feed_assets.entities.copies.mirror import url_of
from feed_assets.entities.datasource import TABLE
from feed_assets.entities.errors import ColumnsError
from feed_assets.entities.feed import ClusterRole, Feed, Inbox, Instances
from feed_assets.entities.locations.overlaps import FixedPlace
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.errors import TemplateError
from feed_assets.timing.overlaps import Nesting, find_nesting
from feed_assets.timing.sequence import Unit
from feed_assets.timing.templates import find_variables, parse_path_template
from feed_assets.validation.feeds.paths import REFUSED_SEGMENTS, listed, own_place
from feed_assets.validation.feeds.retention import find_retention_period
from feed_assets.validation.scope import Complaint, Scope, complain


def check_validity(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F10: the end must not be before the start (equal is allowed: no instances)."""
    for name, entry in feed.clusters.items():
        start, end = entry.validity.start, entry.validity.end
        if end < start:
            yield Complaint(
                path=("clusters", name, "validity", "end"),
                message=f"the validity on {name} ends at {render_datetime(end)}, "
                f"before its start {render_datetime(start)}",
                remedy="Move the end after the start.",
            )


def check_producer(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """An instance that an asset of another Dagster code produces is written by nobody here."""
    for name, entry in feed.clusters.items():
        if entry.produced_by is None:
            continue
        writers = [f"process {writer.process.name!r} writes it" for writer in scope.writers[feed.name, name]]
        writers += ["a replication copies it"] if entry.type is ClusterRole.TARGET else []
        if writers:
            yield Complaint(
                path=("clusters", name, "produced_by"),
                message=f"asset {'/'.join(entry.produced_by.asset)} produces the feed on {name}, "
                f"but {writers[0]} there, too",
                remedy="Remove produced_by, or give each a feed of its own.",
            )


def check_table_assets(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """The asset of a table, `[datasource, shop, orders]`, produces no feed: imports and exports say what it is."""
    for name, entry in feed.clusters.items():
        if "process" in {table.name for _, table in entry.tables()} and scope.bundle.find_cluster(TABLE) is not None:
            yield Complaint(
                path=("clusters", name),
                message=f"the tables of datasource 'process' and the processes on cluster {TABLE!r} have the same keys",
                remedy="Give the datasource or the cluster another name.",
            )
        asset = (entry.produced_by.asset if entry.produced_by is not None else feed.asset) or ()
        if asset[:1] == (TABLE,) and asset[1:] in scope.tables_of_datasources:
            yield Complaint(
                path=("clusters", name, "produced_by") if entry.produced_by is not None else ("asset",),
                message=f"asset {'/'.join(asset)} is a table that a feed is imported from or exported to",
                remedy="Give the asset that produces this feed another key.",
            )


_SCHEDULED = ("sla", "late_arrival", "produced_by", "delay")
_UNSCHEDULED = ("watch", "inbox")
_DATED = ("inbox", "sla", "late_arrival", "lifecycle", "signal", "asset", "produced_by", "delay")
_DATA = (
    *("ddl", "availability_flag", "locations", "table", "lifecycle", "replication", "partitions", "watch", "inbox"),
    *("quality", "type", "retention", "import_", "export"),
)
"""Fields of a feed, or of its entries for clusters, that have no meaning for some feeds."""


def check_instances(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """Instances on schedule are at whole minutes; those that come as they come have nothing that asks for punctuality,
    and without data nothing that concerns data. What counts from a time has no meaning for a current instance.
    """
    if feed.is_current:
        remedy = "Remove it; processes that read it follow its versions with trigger: {on_update: rerun}."
        yield from _refused(feed, _DATED, "its one instance has no time of its own", remedy)
        return
    if feed.is_expected:
        if feed.frequency.unit is Unit.SECONDS:
            yield Complaint(
                path=("frequency",),
                message=f"{feed.frequency} is too fine for instances on schedule",
                remedy="Write at least minutes(1), or instances: as-they-come.",
            )
        remedy = "Remove it; they are looked for."
        yield from _refused(feed, _UNSCHEDULED, "its instances are on schedule", remedy)
    else:
        remedy = "Remove it, or write instances: on-schedule."
        yield from _refused(feed, _SCHEDULED, "its instances come as they come", remedy)
    if feed.has_data:
        return
    if feed.signal and feed.asset is not None:
        yield Complaint(path=("asset",), message="both signal and asset are written", remedy="Remove one of them.")
    what = "a signal" if feed.signal else "the asset of somebody else"
    reason = f"the feed is {what}, without data of its own"
    yield from _refused(feed, _DATA, reason, "Remove it, or remove signal and asset.")
    if feed.is_expected:
        message = f"the instances of {what} come as they come"
        yield Complaint(path=("instances",), message=message, remedy="Remove instances.")


def check_watch(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """A location can be watched if it is of files, and somebody else puts them there."""
    if feed.watch is None or feed.instances is Instances.ON_SCHEDULE or not feed.has_data:
        return
    tables = [name for name in feed.clusters if feed.table_on(name) is not None]
    if tables and not feed.is_current:
        yield Complaint(
            path=("watch",),
            message=f"a table cannot be watched, such as that on {tables[0]}: each look would list all its partitions",
            remedy="Remove watch, and give notice of each partition.",
        )
    if (writer := find_only_writer(scope, feed)) is not None:
        yield Complaint(
            path=("watch",),
            message=f"watch has no meaning: {writer}, and each publication is an event by itself",
            remedy="Remove it.",
        )


def find_only_writer(scope: Scope, feed: Feed) -> str | None:
    """Return who writes the feed, as a clause, if it comes from outside on no cluster."""
    writers = {
        name: f"process {found[0].process.name!r} writes it" if found else "a copy writes it"
        for name, entry in feed.clusters.items()
        if (found := scope.writers.get((feed.name, name))) or entry.type is ClusterRole.TARGET
    }
    return next(iter(writers.values())) if writers.keys() == feed.clusters.keys() else None


def _refused(feed: Feed, names: tuple[str, ...], reason: str, remedy: str) -> Iterator[Complaint]:
    """Yield a complaint about each of the fields that has a value, at the feed or at a cluster."""
    for place, holder in feed.parts():
        for name in names:
            if getattr(holder, name, None):
                key = ".".join(map(str, (*place, name))).replace("ddl", "schema").removesuffix("_")
                yield Complaint(path=(*place, name), message=f"{key} has no meaning: {reason}", remedy=remedy)


def check_sla(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F27: slaLow ≤ slaHigh ≤ retention limit."""
    for name, entry in feed.clusters.items():
        sla = feed.sla_on(name)
        if sla is None:
            continue
        path = ("clusters", name, "sla") if entry.sla else ("sla",)
        if sla.low.as_duration() > sla.high.as_duration():
            yield Complaint(
                path=(*path, "low"),
                message=f"sla.low {sla.low} is longer than sla.high {sla.high}",
                remedy="Lower sla.low, or raise sla.high.",
            )
        kept = find_retention_period(feed, name)
        if kept is None or (kept.key == "limit" and feed.retention_stage_on(name) is not None):
            continue
        if sla.high.as_duration() > kept.duration:
            yield Complaint(
                path=(*path, "high"),
                message=f"sla.high {sla.high} is longer than retention {kept.text} on {name}: "
                "an instance could be evicted before it is late",
                remedy=f"Lower sla.high, or raise retention.{kept.key} to at least {kept.enough(sla.high)}.",
            )


def check_schema(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """The schema must be a list of column names and types of Spark."""
    if feed.ddl is None:
        return
    try:
        unknown = [(name, fault) for name, kind in parse_columns(feed.ddl) if (fault := find_unknown_type(kind))]
    except ColumnsError as exc:
        yield Complaint(
            path=("schema",),
            message=f"its schema cannot be read: {exc.reason}",
            remedy="Write columns as Spark does: name type, name type.",
        )
        return
    for column, fault in unknown:
        close = suggest_type(fault)
        yield Complaint(
            path=("schema",),
            message=f"its column {column!r} has a type that Spark does not know: {fault!r}",
            remedy=f"Did you mean {close!r}?" if close else "Write a type such as string, bigint, double or timestamp.",
        )


def check_groups(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """F26: the feeds of a group must have the same frequency (as written) and the same variables in their paths."""
    for group in feed.groups:
        first = scope.groups[group][0]
        if first is feed:
            continue
        if first.frequency != feed.frequency:
            yield Complaint(
                path=("groups",),
                message=f"group {group!r} has feeds of frequency {first.frequency} (such as {first.name!r}), "
                f"this one has {feed.frequency}",
                remedy="Write the same frequency, or leave the group.",
            )
        own, others = (find_variables(own_place(each)) for each in (feed, first))
        if own is not None and others is not None and own != others:
            yield Complaint(
                path=("groups",),
                message=f"group {group!r} has feeds with the path variables {listed(others)} (such as {first.name!r}), "
                f"this one has {listed(own)}",
                remedy="Use the same variables, or leave the group.",
            )


def check_flag(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """The availability flag must be the name of a file in the instance."""
    flag = feed.availability_flag
    if flag is not None and ("/" in flag or flag in (".", "..")):
        yield Complaint(
            path=("availability_flag",),
            message=f"availability_flag {flag!r} is not the name of a file in the instance",
            remedy="Write a name without slashes, for example _SUCCESS.",
        )


def check_partition_names(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """Declared partitions must have different names."""
    for position, name in enumerate(feed.partitions):
        if name in feed.partitions[:position]:
            yield Complaint(
                path=("partitions", position),
                message=f"the partition {name!r} is declared twice",
                remedy="Give each level its own name.",
            )


_DIRECTORY = ("inbox", "directory")


def check_inbox(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """An inbox is a directory outside of all instances, from which files go into a feed that nobody else writes."""
    inbox = feed.inbox
    if inbox is None or feed.is_expected or not feed.has_data:
        return
    if feed.watch is not None:
        remedy = "Remove watch: what is taken from the inbox is known."
        yield Complaint(path=("watch",), message="both watch and inbox are written", remedy=remedy)
    if "/" in inbox.pattern:
        message = f"pattern {inbox.pattern!r} has a slash, but only files in the directory itself are taken"
        yield Complaint(path=("inbox", "pattern"), message=message, remedy="Write a pattern of names, such as *.json.")
    if tables := [name for name in feed.clusters if feed.table_on(name) is not None]:
        message = f"an inbox cannot fill a table, such as that on {tables[0]}"
        remedy = "Write locations, and let a process load the table."
        yield Complaint(path=("inbox",), message=message, remedy=remedy)
    if (writer := find_only_writer(scope, feed)) is not None:
        yield Complaint(path=("inbox",), message=f"inbox has no meaning: {writer}", remedy="Remove it.")
    for name in feed.clusters:
        complaint = _check_directory(scope, feed, inbox, name)
        if complaint is not None:
            yield complaint
            return


def _check_directory(scope: Scope, feed: Feed, inbox: Inbox, cluster: str) -> Complaint | None:
    text, found = inbox.directory, scope.bundle.find_cluster(cluster)
    if not (text.startswith("/") and text.strip("/")) and "://" not in text:
        return Complaint(
            path=_DIRECTORY,
            message=f"directory {text!r} is no directory below a storage",
            remedy="Write one such as /in/orders.",
        )
    if refused := REFUSED_SEGMENTS.intersection(text.split("/")):
        return Complaint(
            path=_DIRECTORY,
            message=f"directory {text!r} has the segment {min(refused)!r}",
            remedy="Write a path without it.",
        )
    try:
        template = parse_path_template(text) if found is None else found.fill(parse_path_template(text))
    except TemplateError as exc:
        return complain(_DIRECTORY, exc)
    if not template.is_static:
        return Complaint(
            path=_DIRECTORY,
            message=f"directory {text!r} has a time in it, but an inbox is one directory",
            remedy="Write one such as /in/orders.",
        )
    if (overlap := scope.overlaps.get((feed.name, cluster, FixedPlace.INBOX))) is not None:
        return Complaint(
            path=_DIRECTORY,
            message=f"the inbox on {cluster} overlaps other data: {overlap}",
            remedy="Use another directory.",
        )
    if found is not None and (data := scope.find_address(feed, cluster)) is not None:
        place = scope.places.canonical(url_of(found.storage, template.text))
        if feed.table_on(cluster) is None and find_nesting(data, place) in (Nesting.AT, Nesting.INSIDE):
            return Complaint(
                path=_DIRECTORY,
                message=f"the inbox {text} on {cluster} holds the data of the feed, {feed.data_on(cluster)}",
                remedy=f"Take files from elsewhere, such as /in/{feed.name}, or move the data.",
            )
    for other, theirs in scope.inboxes[text.rstrip("/")]:
        stays = inbox.leave and theirs.leave
        if other.name < feed.name and cluster in other.clusters and not stays and _share_files(inbox, theirs):
            where = scope.where(other.key, _DIRECTORY)
            message = f"feed {other.name!r}{where} takes the same files from {text} on {cluster}"
            remedy = "Write patterns that no file fits both, or leave: true in both."
            return Complaint(path=_DIRECTORY, message=message, remedy=remedy)
    return None


def _share_files(one: Inbox, other: Inbox) -> bool:
    """Return whether one of two patterns is seen to fit what the other one does."""
    return fnmatchcase(one.pattern, other.pattern) or fnmatchcase(other.pattern, one.pattern)
