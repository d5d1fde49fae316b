"""Protect the data of feeds that are not in the plan: left out because of errors or missing files, or held and removed.

Their overlaps with other feeds cannot be seen in the plan. What they declared when they were last recorded counts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.overlaps import describe_location, iter_feed_locations
from feed_assets.entities.places import canonical_place
from feed_assets.lifecycle.releases.timeline import ReleaseTimeline
from feed_assets.plan.records import FeedRecord, Key
from feed_assets.state.definition_records import Member
from feed_assets.state.definitions import Definitions
from feed_assets.state.sweep_records import Hold
from feed_assets.timing.errors import TableAddressError, TemplateError
from feed_assets.timing.overlaps import Nesting, find_nesting
from feed_assets.timing.tables import parse_table_address

_PHRASES = {Nesting.AT: "at it", Nesting.INSIDE: "inside it", Nesting.AROUND: "around it"}


def find_left_out_neighbour(connection: Connection, timeline: ReleaseTimeline, record: FeedRecord) -> str | None:
    """Return how a location of a feed overlaps one of a feed that is left out of the plan; None if none does.

    Costs one query if no declared feed is left out.
    """
    declared = Definitions(connection).declared_versions()
    planned = {feed for feed, _ in timeline.plan.feeds}
    left_out = {
        name: version for (kind, name), version in declared.items() if kind == Kind.FEED and name not in planned
    }
    found = _find_nestings(connection, timeline, record, left_out) if left_out else ()
    return next((f"{place}, which is left out of the plan at present, is {where}" for _, place, where in found), None)


def find_former_holds(
    connection: Connection,
    timeline: ReleaseTimeline,
    record: FeedRecord,
    times: Collection[datetime],
    holds: Iterable[Hold],
) -> dict[datetime, str]:
    """Return the instances at the place of a held feed that is not declared any more, such as under an earlier name.

    `holds` are the active holds. Costs nothing more if all their feeds are declared.
    """
    planned = {feed for feed, _ in timeline.plan.feeds}
    former = [hold for hold in holds if hold.feed is not None and hold.feed not in planned]
    versions: dict[str, int] = {}
    for name in {hold.feed for hold in former if hold.feed is not None}:
        texts = [each for each in Definitions(connection).history(Kind.FEED, name) if each.text is not None]
        versions |= {name: texts[-1].version} if texts else {}
    found = list(_find_nestings(connection, timeline, record, versions)) if versions else []
    held: dict[datetime, str] = {}
    for hold in former:
        for (feed, cluster), place, where in found:
            covered = [time for time in times if hold.covers(feed, cluster, time)]
            reason = f"hold '{hold.name}' of {hold.author}: {hold.reason} ({place}, which was removed, is {where})"
            held |= dict.fromkeys(covered, reason)
    return held


def _find_nestings(
    connection: Connection, timeline: ReleaseTimeline, record: FeedRecord, versions: Mapping[str, int]
) -> Iterator[tuple[Key, str, str]]:
    """Yield the locations of recorded feeds that overlap those of a feed: key, name, and the relation as a phrase."""
    clusters = [key for key in Definitions(connection).declared_versions().items() if key[0][0] == Kind.CLUSTER]
    members = [Member(kind=kind, name=name, version=version) for (kind, name), version in clusters]
    members += [Member(kind=Kind.FEED, name=name, version=version) for name, version in versions.items()]
    loaded = timeline.load_recorded(connection, members)
    if record.table is not None:
        yield from _find_same_table(record, [*loaded.bundle.feeds, *loaded.salvaged])
        return
    own = [
        canonical_place(f"{location.store.url}/{location.template.text}")
        for location in (record.retention.locations if record.retention else ())
    ]
    for key, place in iter_feed_locations(loaded.bundle, left_out=loaded.salvaged):
        nesting = next((found for each in own if (found := find_nesting(place, each)) is not None), None)
        if nesting is not None:
            yield key[:2], describe_location(key), _PHRASES[nesting]


def _find_same_table(record: FeedRecord, feeds: Iterable[Feed]) -> Iterator[tuple[Key, str, str]]:
    assert record.table is not None
    own = f"{record.table.database}.{record.table.name}".lower()
    for feed in feeds:
        for cluster in feed.clusters:
            table = feed.table_on(cluster)
            with suppress(TableAddressError, TemplateError):
                if table is not None and parse_table_address(table).name.lower() == own:
                    yield (feed.name, cluster), f"feed '{feed.name}' on {cluster}", "in the same table"
