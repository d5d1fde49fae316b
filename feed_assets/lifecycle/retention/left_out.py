"""Protect the data of feeds that are declared, but left out of the plan because of errors or missing files.

Their overlaps with other feeds cannot be seen in the plan. What they declared when they were last recorded counts.
"""

from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.overlaps import describe_location, iter_feed_locations
from feed_assets.entities.places import canonical_place
from feed_assets.lifecycle.releases.timeline import ReleaseTimeline
from feed_assets.plan.records import FeedRecord
from feed_assets.state.definition_records import Member
from feed_assets.state.definitions import Definitions
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
    left_out = {name for kind, name in declared if kind == Kind.FEED and name not in planned}
    if not left_out:
        return None
    members = [
        Member(kind=kind, name=name, version=version)
        for (kind, name), version in declared.items()
        if kind == Kind.CLUSTER or (kind == Kind.FEED and name in left_out)
    ]
    loaded = timeline.load_recorded(connection, members)
    if record.table is not None:
        return _find_same_table(record, [*loaded.bundle.feeds, *loaded.salvaged])
    own = [
        canonical_place(f"{location.store.url}/{location.template.text}")
        for location in (record.retention.locations if record.retention else ())
    ]
    for key, place in iter_feed_locations(loaded.bundle, left_out=loaded.salvaged):
        for each in own:
            nesting = find_nesting(place, each)
            if nesting is not None:
                return (
                    f"{describe_location(key)}, a feed that is left out of the plan at present, is {_PHRASES[nesting]}"
                )
    return None


def _find_same_table(record: FeedRecord, feeds: Sequence[Feed]) -> str | None:
    assert record.table is not None
    own = f"{record.table.database}.{record.table.name}".lower()
    for feed in feeds:
        for cluster in feed.clusters:
            table = feed.table_on(cluster)
            with suppress(TableAddressError, TemplateError):
                if table is not None and parse_table_address(table).name.lower() == own:
                    return f"feed '{feed.name}', which is left out of the plan at present, is in the same table"
    return None
