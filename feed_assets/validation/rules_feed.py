"""Rules about the policies of feeds: validity, SLA, replication and groups."""

from collections.abc import Iterator

from feed_assets.entities.columns import parse_columns
from feed_assets.entities.errors import ColumnsError
from feed_assets.entities.feed import ClusterRole, Feed, FeedCluster
from feed_assets.issues import Severity
from feed_assets.timing.dates import render_datetime
from feed_assets.validation.kept import find_kept
from feed_assets.validation.rules_paths import default_place, listed, variables_of
from feed_assets.validation.scope import Complaint, Scope

_CLUSTER_VARIABLE = "${cluster."


def check_validity(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F10: the end is not before the start (equal is allowed: no instances)."""
    for name, entry in feed.clusters.items():
        start, end = entry.validity.start, entry.validity.end
        if end < start:
            yield Complaint(
                path=("clusters", name, "validity", "end"),
                message=f"the validity on {name} ends at {render_datetime(end)}, "
                f"before its start {render_datetime(start)}",
                remedy="Move the end behind the start.",
            )


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
        kept = find_kept(feed, name)
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
    """The schema is a list of column names and types; Spark checks the types when it reads."""
    if feed.columns is None:
        return
    try:
        parse_columns(feed.columns)
    except ColumnsError as exc:
        yield Complaint(
            path=("schema",),
            message=f"its schema cannot be read: {exc.reason}",
            remedy="Write columns as Spark does: name type, name type.",
        )


def check_sources(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F21, F22: targets need a source, and several sources need slices that differ by cluster."""
    sources, targets = _of_role(feed, ClusterRole.SOURCE), _of_role(feed, ClusterRole.TARGET)
    if targets and not sources:
        yield Complaint(
            path=("clusters", next(iter(targets))),
            message=f"cluster {', '.join(targets)} is a target of replication, but no cluster is a source",
            remedy="Write type: source at the cluster that the data come from.",
        )
    if len(sources) < 2 or not targets:
        return
    for name, entry in sources.items():
        if entry.partition is None or _CLUSTER_VARIABLE not in entry.partition:
            yield Complaint(
                path=("clusters", name, "partition" if entry.partition else "type"),
                message=f"there are {len(sources)} sources, and the partition of {name} does not differ by cluster: "
                "they would overwrite each other at the target",
                remedy='Write for example partition: "${cluster.colo}" at every source.',
            )


def check_target_slices(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F24: of several targets, one that takes a slice names it by cluster."""
    targets = _of_role(feed, ClusterRole.TARGET)
    if len(targets) < 2 or not _of_role(feed, ClusterRole.SOURCE):
        return
    for name, entry in targets.items():
        if entry.partition is not None and _CLUSTER_VARIABLE not in entry.partition:
            yield Complaint(
                path=("clusters", name, "partition"),
                message=f"there are {len(targets)} targets, and the partition {entry.partition!r} of {name} "
                "does not differ by cluster",
                remedy="Use ${cluster.colo} or another cluster variable in it, or leave it out for a full copy.",
            )


def check_slice_depth(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F23: source and target slice together are not deeper than the declared partitions."""
    for source_name, source in _of_role(feed, ClusterRole.SOURCE).items():
        for target_name, target in _of_role(feed, ClusterRole.TARGET).items():
            parts = [part for text in (source.partition, target.partition) for part in (text or "").split("/") if part]
            if len(parts) > len(feed.partitions):
                named = target_name if target.partition else source_name
                yield Complaint(
                    path=("clusters", named, "partition"),
                    message=f"the partitions of source {source_name} and target {target_name}, {'/'.join(parts)}, are "
                    f"{len(parts)} levels deep, but the feed declares {len(feed.partitions)}",
                    remedy="Declare the levels under partitions, or shorten the partition.",
                )


def check_delay(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """A delay means something at a source only."""
    for name, entry in feed.clusters.items():
        if entry.delay is not None and entry.type is not ClusterRole.SOURCE:
            yield Complaint(
                path=("clusters", name, "delay"),
                message=f"the delay on {name} has no effect: only replication from a source is delayed",
                remedy="Remove it, or write type: source.",
                severity=Severity.WARNING,
            )


def check_groups(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """F26: the feeds of a group have one frequency (as written) and the same variables in their paths."""
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
        mine, others = (variables_of(default_place(each)) for each in (feed, first))
        if mine is not None and others is not None and mine != others:
            yield Complaint(
                path=("groups",),
                message=f"group {group!r} has feeds with the path variables {listed(others)} (such as {first.name!r}), "
                f"this one has {listed(mine)}",
                remedy="Use the same variables, or leave the group.",
            )


def check_flag(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """The availability flag is the name of a file in the instance."""
    flag = feed.availability_flag
    if flag is not None and ("/" in flag or flag in (".", "..")):
        yield Complaint(
            path=("availability_flag",),
            message=f"availability_flag {flag!r} is not the name of a file in the instance",
            remedy="Write a name without slashes, for example _SUCCESS.",
        )


def check_partition_names(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """Declared partitions differ in their names."""
    for position, name in enumerate(feed.partitions):
        if name in feed.partitions[:position]:
            yield Complaint(
                path=("partitions", position),
                message=f"the partition {name!r} is declared twice",
                remedy="Give each level its own name.",
            )


def _of_role(feed: Feed, role: ClusterRole) -> dict[str, FeedCluster]:
    return {name: entry for name, entry in feed.clusters.items() if entry.type is role}
