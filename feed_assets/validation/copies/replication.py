"""Rules about replication: sources and targets, the copied instances, and the options."""

import re
from collections.abc import Iterator

from feed_assets.entities.cluster import is_hdfs
from feed_assets.entities.copies.globs import find_glob_fault
from feed_assets.entities.copies.options import OF_HDFS, PRESERVED
from feed_assets.entities.feed import (
    ClusterRole,
    Feed,
    are_validities_apart,
    find_sources,
    find_targets,
    flow_delay,
    flow_sequence,
    iter_pairs,
)
from feed_assets.entities.process import effective_timeout
from feed_assets.entities.replication import (
    PROPERTIES,
    WITHOUT_EFFECT,
    Replication,
    complete_replication,
    unkept_properties,
    unreadable_properties,
)
from feed_assets.issues import FieldPath, Severity
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import is_same_grid
from feed_assets.validation.scope import Complaint, Scope

_CLUSTER_VARIABLE = "${cluster."
_VARIABLE = re.compile(r"\$\{([^}]*)\}")  # ${cluster.colo}
_USED = {"parallel": "1", "order": "FIFO", "maxMaps": "5", "mapBandwidth": "no limit"}
"""The value in force if a property cannot be read; a timeout follows the frequency."""


def check_sources(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F21, F22: targets need a source, and several sources need slices that differ by cluster."""
    sources, targets = find_sources(feed), find_targets(feed)
    if targets and not sources:
        yield Complaint(
            path=("clusters", targets[0]),
            message=f"cluster {', '.join(targets)} is a target of replication, but no cluster is a source",
            remedy="Write type: source at the cluster that has the data.",
        )
    if len(sources) < 2 or not targets:
        return
    for name in sources:
        partition = feed.clusters[name].partition
        if partition is None or _CLUSTER_VARIABLE not in partition:
            yield Complaint(
                path=("clusters", name, "partition" if partition else "type"),
                message=f"there are {len(sources)} sources, and the partition of {name} does not differ by cluster: "
                "they would overwrite each other at the target",
                remedy='Write for example partition: "${cluster.colo}" at every source.',
            )


def check_target_slices(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F24: if one of several targets has a slice, the slice must name the cluster."""
    targets = find_targets(feed)
    if len(targets) < 2 or not find_sources(feed):
        return
    for name in targets:
        partition = feed.clusters[name].partition
        if partition is not None and _CLUSTER_VARIABLE not in partition:
            yield Complaint(
                path=("clusters", name, "partition"),
                message=f"there are {len(targets)} targets, and the partition {partition!r} of {name} "
                "does not differ by cluster",
                remedy="Use ${cluster.colo} or another cluster variable in it, or leave it out for a full copy.",
            )


def check_slice_depth(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F23: source and target slice together must not be deeper than the declared partitions."""
    for source, target in iter_pairs(feed):
        slices = [feed.clusters[name].partition for name in (source, target)]
        parts = [part for text in slices for part in (text or "").split("/") if part]
        if len(parts) > len(feed.partitions):
            yield Complaint(
                path=("clusters", target if slices[1] else source, "partition"),
                message=f"the partitions of source {source} and target {target}, {'/'.join(parts)}, are "
                f"{len(parts)} levels deep, but the feed declares {len(feed.partitions)}",
                remedy="Declare the levels under partitions, or shorten the partition.",
            )


def check_delay(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """A delay has an effect only at a source."""
    for name, entry in feed.clusters.items():
        if entry.delay is not None and entry.type is not ClusterRole.SOURCE:
            yield Complaint(
                path=("clusters", name, "delay"),
                message=f"the delay on {name} has no effect: only replication from a source is delayed",
                remedy="Remove it, or write type: source.",
                severity=Severity.WARNING,
            )


def check_overlap(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """The validities of source and target must overlap or at least touch, with the source's delay included."""
    for source, target in iter_pairs(feed):
        if are_validities_apart(feed, source, target) and not _is_reversed(feed, source, target):
            yield Complaint(
                path=("clusters", target, "validity"),
                message=f"{_validities(feed, source, target)} do not have overlapping dates for replication",
                remedy="Move a validity, or shorten the delay, so that both are valid at the same time.",
            )


def check_copies_exist(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """Validities that only touch, or leave no time for the delay, are allowed, but nothing is ever copied."""
    for source, target in iter_pairs(feed):
        if are_validities_apart(feed, source, target) or flow_sequence(feed, source, target) is not None:
            continue
        if any(feed.clusters[name].validity.start >= feed.clusters[name].validity.end for name in (source, target)):
            continue
        yield Complaint(
            path=("clusters", target, "validity"),
            message=f"{_validities(feed, source, target)} have no instance in common: nothing will ever be copied",
            remedy="Move a validity, or shorten the delay, unless this is intended.",
            severity=Severity.WARNING,
        )


def check_grid(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """Every instance at the target must be an instance at the source, at the same time.

    Differs from Falcon: there, each side counts from its own start, so data can end up in the directory of another
    time.
    """
    for source, target in iter_pairs(feed):
        of_source, of_target = (scope.sequence_on(feed, name) for name in (source, target))
        if flow_sequence(feed, source, target) is None or is_same_grid(of_source, of_target):
            continue
        yield Complaint(
            path=("clusters", target, "validity", "start"),
            message=f"the instances of {feed.frequency} from {render_datetime(of_source.start)} at source {source} and "
            f"from {render_datetime(of_target.start)} at target {target} have different times",
            remedy="Start both at the same time.",
        )


def check_tables(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """Iceberg tables are replicated to Iceberg tables only, and so are tables of Hive metastores."""
    for target in find_targets(feed):
        names = [*find_sources(feed), target]
        lakes = [
            name
            for name in names
            if feed.table_on(name) is not None
            and (found := scope.bundle.find_cluster(name)) is not None
            and found.is_lake
        ]
        if lakes and len(lakes) < len(names):
            others = [name for name in names if name not in lakes]
            yield Complaint(
                path=("clusters", target, "type"),
                message=f"the feed is an Iceberg table on {', '.join(lakes)}, and not on {', '.join(others)}: nothing "
                f"is copied to {target}",
                remedy="Use Iceberg tables on all of them, or on none.",
                severity=Severity.WARNING,
            )


def check_options(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """Every option of `replication` must have an effect: there is a target, import or export, which are retried by it,
    and no option disables another.
    """
    policy = feed.replication
    if policy is None:
        return
    is_transferred = any(each.import_ is not None or each.export is not None for each in feed.clusters.values())
    if not find_targets(feed) and not is_transferred:
        yield Complaint(
            path=("replication",),
            message="replication has no effect: no cluster of the feed is a target",
            remedy="Write type: target at the cluster that receives the copies, or remove it.",
            severity=Severity.WARNING,
        )
    for key, message, remedy in _without_effect(policy):
        yield Complaint(path=("replication", *key), message=message, remedy=remedy, severity=Severity.WARNING)


def check_patterns(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """Patterns of files, and partitions, must be valid globs without variables other than those of clusters."""
    policy = feed.replication or Replication()
    texts: list[tuple[FieldPath, str]] = [
        (("replication", key, number), text)
        for key, patterns in (("include", policy.include), ("exclude", policy.exclude))
        for number, text in enumerate(patterns)
    ]
    texts += [(("clusters", name, "partition"), each.partition or "") for name, each in feed.clusters.items()]
    for path, text in texts:
        where = f"{'.'.join(map(str, path))} {text!r}"
        other = next((name for name in _VARIABLE.findall(text) if not name.startswith("cluster.")), None)
        fault = find_glob_fault(_VARIABLE.sub("x", text))
        if other is not None and path[-1] == "partition":
            message = f"{where} contains ${{{other}}}, but its path is the same in all instances"
            yield Complaint(path=path, message=message, remedy="Write variables of the cluster only, or globs.")
        elif fault is not None:
            remedy = "Write globs such as day=*, {a,b} or [a-z], and a backslash before a literal character."
            yield Complaint(path=path, message=f"{where} is not a glob: {fault}", remedy=remedy)


def check_properties(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """Falcon's properties for copies must be readable, agree with `replication`, and have an effect here."""
    if not find_targets(feed):
        return
    policy = feed.replication or Replication()
    unreadable = unreadable_properties(feed.properties)
    for name in unreadable:
        own = getattr(policy, PROPERTIES[name])
        default = effective_timeout(None, feed.frequency).render() if name == "timeout" else _USED[name]
        yield Complaint(
            path=("properties", name),
            message=f"the property {name} {feed.properties[name]!r} is invalid: "
            f"{own if own is not None else default} is used",
            remedy=f"Correct it, or write replication.{PROPERTIES[name]}.",
            severity=Severity.WARNING,
        )
    for name in [name for name in PROPERTIES if name in feed.properties and name not in unreadable]:
        key = PROPERTIES[name]
        own, said = getattr(policy, key), getattr(complete_replication(None, feed.properties), key)
        if own is not None and said is not None and own != said:
            yield Complaint(
                path=("properties", name),
                message=f"the property {name} {feed.properties[name]!r} is not used: replication.{key} overrides it",
                remedy="Remove one of them.",
                severity=Severity.WARNING,
            )
    for name in unkept_properties(feed.properties):
        yield Complaint(
            path=("properties", name),
            message=f"the property {name} has no effect: {WITHOUT_EFFECT[name]}",
            remedy="Remove it.",
            severity=Severity.WARNING,
        )
    asked = (complete_replication(policy, feed.properties).preserve or frozenset()) & OF_HDFS
    others = [each.name for each in scope.bundle.clusters if each.name in feed.clusters and not is_hdfs(each.storage)]
    if asked and others:
        named = next((name for name, kept in PRESERVED.items() if kept in asked and name in feed.properties), None)
        yield Complaint(
            path=("properties", named) if named else ("replication", "preserve"),
            message=f"only copies on HDFS preserve {', '.join(sorted(asked))}, and {others[0]} is not on it",
            remedy="Remove it.",
            severity=Severity.WARNING,
        )


def _without_effect(policy: Replication) -> Iterator[tuple[FieldPath, str, str]]:
    """Yield the options of a policy that another option disables: the path, the message and the remedy."""
    if policy.bandwidth is not None and policy.task_bandwidth is not None and policy.task_bandwidth > policy.bandwidth:
        yield (
            ("task_bandwidth",),
            f"task_bandwidth {policy.task_bandwidth} has no effect: bandwidth, of all tasks, is {policy.bandwidth}",
            "Lower task_bandwidth, or raise bandwidth.",
        )
    for number, text in enumerate(policy.include):
        if text in policy.exclude:
            yield (
                ("include", number),
                f"include {text!r} has no effect: exclude contains it, too",
                "Remove one of them.",
            )
        elif not policy.hidden and _names_hidden(text):
            message = f"include {text!r} has no effect: hidden files are not copied"
            yield ("include", number), message, "Write hidden: true, or remove it."


def _names_hidden(glob: str) -> bool:
    """Return whether a glob can only name files that readers ignore, such as `_metadata` and `.crc`."""
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in glob.split("/"))


def _is_reversed(feed: Feed, *clusters: str) -> bool:
    """Return whether a validity ends before it starts, which another rule refuses."""
    return any(feed.clusters[name].validity.end < feed.clusters[name].validity.start for name in clusters)


def _validities(feed: Feed, source: str, target: str) -> str:
    delay = feed.clusters[source].delay
    later = f", {delay} later," if delay is not None and flow_delay(feed, source) else ""
    return (
        f"source {source} ({feed.clusters[source].validity.render()}){later} and "
        f"target {target} ({feed.clusters[target].validity.render()})"
    )
