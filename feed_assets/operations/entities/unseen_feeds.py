"""Find feeds that somebody reads and nobody here writes, and of which nothing has ever come: often a wrong name."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.conditions import condition_of, find_named
from feed_assets.entities.feed import Feed
from feed_assets.entities.flows import find_targets
from feed_assets.entities.triggers import iter_names
from feed_assets.issues import EntityKey, Issue, Severity, SourceMap
from feed_assets.plan.edges import Key
from feed_assets.state.event_log import EventLog

NEVER_CAME = "never-came"


def find_unseen_feeds(
    connection: Connection,
    before: Bundle,
    after: Bundle,
    sources: SourceMap,
    keys: Collection[EntityKey],
    as_of: datetime,
) -> Iterator[Issue]:
    """Yield a warning for each feed of which nothing has ever come, by the log, on a cluster where it should have.

    Concerns feeds among `keys`, and those that processes among `keys` read; not feeds that were not declared before:
    nothing can have come of them. Costs one look into an index for each suspect.
    """
    written = {
        (feed, cluster)
        for process in after.processes
        for feed in after.written_feeds(process)
        for cluster in process.clusters
    }
    suspects: dict[Key, tuple[Feed, list[str]]] = {}
    for (name, cluster), readers in _find_readers(after, as_of).items():
        feed = after.find_feed(name)
        is_concerned = any(key in keys for key in ((Kind.FEED, name), *((Kind.PROCESS, each) for each in readers)))
        if feed is None or not is_concerned or before.find_feed(name) is None or (name, cluster) in written:
            continue
        if cluster in feed.clusters and cluster not in find_targets(feed) and _is_due(feed, cluster, as_of):
            suspects[name, cluster] = feed, readers
    for key in sorted(suspects.keys() - EventLog(connection).find_seen(suspects)):
        yield _warn(*suspects[key], key[1], sources)


def _find_readers(bundle: Bundle, as_of: datetime) -> dict[Key, list[str]]:
    """Return the processes that read or wait for feeds, by feed and cluster, without those that are over."""
    found: dict[Key, list[str]] = defaultdict(list)
    for process in bundle.processes:
        for cluster, entry in process.clusters.items():
            if entry.validity.end <= as_of:
                continue
            read = {item.feed for item in process.inputs.values()}
            for text in iter_names(condition_of(process)) if process.makes_batches else ():
                read |= {feed for _, feed in find_named(bundle, process, cluster, text)}
            for feed in read:
                found[feed, cluster].append(process.name)
    return found


def _is_due(feed: Feed, cluster: str, as_of: datetime) -> bool:
    """Return whether something should have come: the feed is valid, and the first instance on schedule is over."""
    validity = feed.clusters[cluster].validity
    first = feed.frequency.as_duration() if feed.is_expected else timedelta(0)
    return as_of - validity.start >= first and as_of < validity.end


def _warn(feed: Feed, readers: Collection[str], cluster: str, sources: SourceMap) -> Issue:
    name, *others = sorted(readers)
    who = f"process {name!r}{f' and {len(others)} more read' if others else ' reads'} it"
    producer = feed.clusters[cluster].produced_by
    asset = feed.asset or (producer.asset if producer is not None else None)
    if asset is not None:
        why, remedy = f"but no materialization of asset {'/'.join(asset)} was seen", "Check the key of the asset."
    elif feed.has_data:
        why, remedy = "but no process here writes it", "Check its location, or declare the process that writes it."
    else:
        why, remedy = "but nobody has ever given notice of it", "Check whether its name is the one that is given."
    return Issue(
        severity=Severity.WARNING,
        code=NEVER_CAME,
        entity=feed.label,
        message=f"it has never come on {cluster}: {who}, {why}",
        remedy=remedy,
        source=sources.locate(feed.key),
    )
