"""Rules about the policies of feeds: validity, SLA, flag, partitions and groups."""

from collections.abc import Iterable, Iterator

from feed_assets.entities.columns import find_unknown_type, parse_columns, suggest_type
from feed_assets.entities.errors import ColumnsError
from feed_assets.entities.feed import ClusterRole, Feed
from feed_assets.issues import FieldPath
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.frequency import Unit
from feed_assets.validation.kept import find_retention_period
from feed_assets.validation.rules_paths import default_place, listed, variables_of
from feed_assets.validation.scope import Complaint, Scope


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


def check_instances(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """Instances on schedule are at whole minutes; those that come as they come have nothing that asks for punctuality,
    and without data nothing that concerns data.
    """
    if feed.is_expected:
        if feed.frequency.unit is Unit.SECONDS:
            yield Complaint(
                path=("frequency",),
                message=f"{feed.frequency} is too fine for instances on schedule",
                remedy="Write at least minutes(1), or instances: as-they-come.",
            )
        refused: tuple[tuple[str, ...], ...] = (("watch",),)
        reason, remedy = "its instances are on schedule", "Remove it; they are looked for."
    else:
        refused, reason = _OF_SCHEDULES, "its instances come as they come"
        remedy = "Remove it, or write instances: on-schedule."
    yield from (
        Complaint(path=path, message=f"{_key(path)} has no meaning: {reason}", remedy=remedy)
        for path in _written(feed, refused)
    )
    if feed.has_data:
        return
    if feed.signal and feed.asset is not None:
        yield Complaint(path=("asset",), message="both signal and asset are written", remedy="Remove one of them.")
    what = "a signal" if feed.signal else "the asset of somebody else"
    remedy = "Remove it, or remove signal and asset."
    yield from (
        Complaint(
            path=path,
            message=f"{_key(path)} has no meaning: the feed is {what}, without data of its own",
            remedy=remedy,
        )
        for path in _written(feed, _OF_DATA)
    )
    if feed.is_expected:
        yield Complaint(
            path=("instances",), message=f"the instances of {what} come as they come", remedy="Remove instances."
        )


_OF_SCHEDULES: tuple[tuple[str, ...], ...] = (
    ("sla",),
    ("late_arrival",),
    ("clusters", "*", "sla"),
    ("clusters", "*", "produced_by"),
    ("clusters", "*", "delay"),
)
_OF_DATA: tuple[tuple[str, ...], ...] = (
    *(
        (key,)
        for key in (
            "columns",
            "availability_flag",
            "locations",
            "table",
            "lifecycle",
            "replication",
            "partitions",
            "watch",
        )
    ),
    *(("clusters", "*", key) for key in ("type", "retention", "locations", "table", "lifecycle", "import_", "export")),
)


def _written(feed: Feed, fields: Iterable[tuple[str, ...]]) -> Iterator[FieldPath]:
    """Yield the paths of the fields that have a value, `*` being each cluster."""
    for field in fields:
        if len(field) == 1:
            parts: list[tuple[FieldPath, object]] = [((), feed)]
        else:
            parts = [(("clusters", name), entry) for name, entry in feed.clusters.items()]
        yield from ((*place, field[-1]) for place, part in parts if getattr(part, field[-1]))


def _key(path: FieldPath) -> str:
    return ".".join(map(str, path)).replace("columns", "schema").removesuffix("_")


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
    if feed.columns is None:
        return
    try:
        unknown = [(name, fault) for name, kind in parse_columns(feed.columns) if (fault := find_unknown_type(kind))]
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
        own, others = (variables_of(default_place(each)) for each in (feed, first))
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
