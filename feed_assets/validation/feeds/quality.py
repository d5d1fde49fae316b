"""Rules about the quality that a feed demands, and about the feed that takes its bad rows."""

from collections.abc import Iterator

from feed_assets.entities.common import Kind
from feed_assets.entities.content.quality import BROKEN_RULES, OnFail, Quality
from feed_assets.entities.feed import ClusterRole, Feed, FeedFormat
from feed_assets.entities.process import iter_workflows
from feed_assets.entities.workflow import WorkflowEngine
from feed_assets.issues import Severity
from feed_assets.validation.scope import Complaint, Scope, column_names

_WHERE = ("quality", "quarantine")


def check_writers(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """Who writes the feed must have an engine whose rows can be looked at before they are published."""
    if feed.quality is None:
        return
    writers = [each for cluster in feed.clusters for each in scope.writers.get((feed.name, cluster), ())]
    for process in {writer.process.name: writer.process for writer in writers}.values():
        is_optional = any(output.optional and output.feed == feed.name for output in process.outputs.values())
        for _, workflow in iter_workflows(process):
            fault = _find_fault(feed, workflow.engine, is_optional=is_optional)
            if fault is not None:
                yield Complaint(
                    path=("quality",),
                    message=f"process {process.name!r} cannot be held to it: {fault}",
                    remedy="Write files of another feed, and let a python or sql process write this feed from them.",
                )


def check_outside(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """Nothing of what comes from outside is moved or left out: it is available as it is, or not at all."""
    quality = feed.quality
    outside = [
        name
        for name, entry in feed.clusters.items()
        if entry.type is not ClusterRole.TARGET
        and not scope.writers.get((feed.name, name))
        and feed.import_on(name) is None
    ]
    # a process with errors may write it
    if (
        quality is None
        or not outside
        or not all(scope.bundle.find(key) for key in scope.sources if key[0] == Kind.PROCESS)
    ):
        return
    faults = [("quarantine", "takes no rows")] if quality.quarantine is not None else []
    if quality.threshold < 100 and quality.on_fail is OnFail.BLOCK:
        faults.append(("threshold", "lets bad rows reach who reads the feed"))
    for name, fault in faults:
        yield Complaint(
            path=("quality", name),
            message=f"quality.{name} {fault}: no process writes the feed on {', '.join(outside)}, and what comes from "
            "outside stays as it is",
            remedy=f"Remove {name}, or let a process read this feed and write another one with this quality."
            + (" With on_fail: warn bad rows are told and let in." if name == "threshold" else ""),
            is_absence=True,
            causes=tuple(
                process.label
                for process in scope.bundle.processes
                if any(
                    output.feed == feed.name or not scope.is_declared((Kind.FEED, output.feed))
                    for output in process.outputs.values()
                )
            ),
        )


def check_compare(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """What is compared with earlier instances must have some."""
    if feed.is_current and feed.quality is not None and feed.quality.compare:
        yield Complaint(
            path=("quality", "compare"),
            message="it compares with earlier instances, but a feed with instances: current has one alone",
            remedy="Write aggregates about its rows, such as count(*) > 1000.",
        )


def check_columns(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """What in_feed names must be columns, and feeds with data on the clusters of this feed."""
    known, quality = column_names(feed), feed.quality
    for column, key in quality.keys.items() if quality is not None else ():
        path, other = ("quality", "in_feed", column), scope.bundle.find_feed(key.feed)
        if known is not None and column.lower() not in known:
            message = f"in_feed names {column!r}, which is no column of the feed's schema"
            yield Complaint(path=path, message=message, remedy=f"Write some of {', '.join(sorted(known))}.")
        if other is None:
            continue
        theirs = column_names(other)
        if key.feed == feed.name:
            remedy = "Name another feed, or write a rule on the rows."
            yield Complaint(path=path, message="in_feed names the feed itself", remedy=remedy)
        elif not other.has_data:
            message = f"in_feed names feed {key.feed!r}, which has no data"
            yield Complaint(path=path, message=message, remedy="Name a feed with locations or a table.")
        elif theirs is not None and key.column.lower() not in theirs:
            message = f"in_feed names {key.column!r}, which is no column of feed {key.feed!r}"
            yield Complaint(path=path, message=message, remedy=f"Write one of {', '.join(sorted(theirs))}.")
        elif lacking := sorted(set(feed.clusters) - set(other.clusters)):
            message = f"in_feed names feed {key.feed!r}, which is not on {', '.join(lacking)}"
            yield Complaint(path=path, message=message, remedy="Declare it there.")


def _find_fault(feed: Feed, engine: WorkflowEngine, *, is_optional: bool) -> str | None:
    """Return why the rows that an engine writes cannot be judged, as a clause; None if they can."""
    match engine:
        case WorkflowEngine.EXTERNAL:
            return "its work runs elsewhere, where no Spark of this location sees the rows"
        case WorkflowEngine.SPARK_SUBMIT if any(feed.table_on(cluster) for cluster in feed.clusters):
            return "its application writes the files of a table, which are read only after they are published"
        case WorkflowEngine.SPARK_SUBMIT if feed.partitions:
            return "its application decides the directories of partitions, and the rows are written anew without them"
        case WorkflowEngine.SPARK_SUBMIT if is_optional:
            return "its application may leave the output out, and what is not there cannot be read"
        case _:
            return None


def check_threshold(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """The threshold is a percentage, not a share."""
    quality = feed.quality
    if quality is not None and 0 < quality.threshold <= 1:
        yield Complaint(
            path=("quality", "threshold"),
            message=f"quality.threshold is in percent: with {quality.needed} an instance is published of which "
            f"{100 - quality.needed} percent of the rows are bad",
            remedy=f"Write {(quality.needed * 100).normalize():f} for {(quality.needed * 100).normalize():f} percent.",
            severity=Severity.WARNING,
        )


def check_quarantine(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """The feed that takes the bad rows must be able to hold them, at the same times, and belong to this feed alone."""
    quality = feed.quality
    if quality is None or quality.quarantine is None:
        return
    if quality.quarantine == feed.name:
        message = "the feed is its own quarantine"
        yield Complaint(path=_WHERE, message=message, remedy="Declare a feed for the bad rows.")
        return
    quarantine = scope.bundle.find_feed(quality.quarantine)
    if quarantine is None:
        return
    for fault, remedy in _find_obstacles(scope, feed, quarantine):
        message = f"feed {quarantine.name!r} cannot take the bad rows: {fault}"
        yield Complaint(path=_WHERE, message=message, remedy=remedy)


def _find_obstacles(scope: Scope, feed: Feed, quarantine: Feed) -> Iterator[tuple[str, str]]:
    if not quarantine.has_data:
        yield "it has no data", "Name a feed with locations or a table."
        return
    yield from _find_faults(quarantine)
    yield from _find_sharing(scope, feed, quarantine)
    yield from _find_other_times(scope, feed, quarantine)
    yield from _find_other_columns(feed, quarantine)


def _find_faults(quarantine: Feed) -> Iterator[tuple[str, str]]:
    if quarantine.quality is not None:
        yield "it demands quality itself", "Remove quality from the quarantine."
    if quarantine.format is FeedFormat.TEXT and quarantine.table is None:
        yield f"text has one column, and {BROKEN_RULES} is another", "Write another format, such as parquet."
    if any(entry.type is ClusterRole.TARGET for entry in quarantine.clusters.values()):
        yield "a replication copies it", "Name a feed that is not a target."


def _find_sharing(scope: Scope, feed: Feed, quarantine: Feed) -> Iterator[tuple[str, str]]:
    """Find the first other feed with this quarantine, and processes that write it themselves."""
    remedy = "Give each feed a quarantine of its own, which nothing else writes."
    first = scope.quarantined[quarantine.name][0]
    if first != feed.name:
        yield f"feed {first!r} has the same quarantine", remedy
    for process in scope.bundle.processes:
        if any(output.feed == quarantine.name for output in process.outputs.values()):
            yield f"process {process.name!r} writes it, too", remedy


def _find_other_times(scope: Scope, feed: Feed, quarantine: Feed) -> Iterator[tuple[str, str]]:
    for cluster in feed.clusters:
        if not scope.writers.get((feed.name, cluster)) and feed.import_on(cluster) is None:
            continue
        if cluster not in quarantine.clusters:
            yield f"it is not on cluster {cluster}", "Declare it there."
        elif quarantine.sequence_on(cluster) != feed.sequence_on(cluster) or quarantine.instances != feed.instances:
            remedy = "Give it the same frequency, timezone and validity."
            yield f"on {cluster} its instances have other times than those of the feed", remedy


def _find_other_columns(feed: Feed, quarantine: Feed) -> Iterator[tuple[str, str]]:
    """Compare declared columns; those that are not declared are those that are written."""
    own, others = column_names(feed), column_names(quarantine)
    if own is None:
        return
    if BROKEN_RULES in own:
        yield f"the feed has a column {BROKEN_RULES}, which is the quarantine's", "Rename the column."
    elif others is not None and others != own | {BROKEN_RULES}:
        found = [f"{name} is missing" for name in sorted((own | {BROKEN_RULES}) - others)]
        found += [f"{name} is not a column of the feed" for name in sorted(others - own - {BROKEN_RULES})]
        yield f"in its schema {', '.join(found)}", f"Write the feed's columns and {BROKEN_RULES} string."


def check_unique(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """The columns that must be unique must be columns of the schema, if it is declared."""
    quality: Quality | None = feed.quality
    known = column_names(feed)
    if quality is None or known is None:
        return
    for position, name in enumerate(quality.unique):
        if name.lower() not in known:
            yield Complaint(
                path=("quality", "unique", position),
                message=f"unique names {name!r}, which is no column of the feed's schema",
                remedy=f"Write some of {', '.join(sorted(known))}.",
            )
