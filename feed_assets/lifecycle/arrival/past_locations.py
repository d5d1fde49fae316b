"""Find instances of a feed that has moved: they are at the location of one of its definitions."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.lifecycle.arrival.store_polls import Candidate, poll_instances
from feed_assets.lifecycle.releases.timeline import ActiveRelease, ReleaseTimeline
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability

RELEASES = 10
"""The number of newest releases that are searched for locations."""

PastLocations: TypeAlias = Mapping[Key, tuple[FeedRecord, ...]]
"""For each feed, other records at whose locations its instances may be."""


def is_same_place(one: FeedRecord, other: FeedRecord) -> bool:
    """Return whether two records of a feed have the same locations and the same availability flag."""
    return (one.store, one.template, one.flag) == (other.store, other.template, other.flag)


def find_other_locations(
    connection: Connection, timeline: ReleaseTimeline, active: ActiveRelease
) -> dict[Key, tuple[FeedRecord, ...]]:
    """Return the other locations of an instance's inputs; empty if no feed has moved.

    They are from other releases of its process and from the current declaration.
    """
    spans = timeline.spans(connection, active.record.key)[-RELEASES:]
    plans = [timeline.plan, *(each.plan for each in spans)]
    found: dict[Key, list[FeedRecord]] = {}
    for edge in active.record.inputs:
        key = edge.feed_key
        known = [active.plan.feeds[key]]
        for plan in plans:
            record = plan.feeds.get(key)
            if record is not None and not any(is_same_place(record, each) for each in known):
                known.append(record)
        if len(known) > 1:
            found[key] = known[1:]
    return {key: tuple(records) for key, records in found.items()}


def find_record(
    stores: StorePool, record: FeedRecord, others: Sequence[FeedRecord], nominal_time: datetime
) -> FeedRecord:
    """Return the record at whose location an instance is available; `record` if it is there or nowhere."""
    if not others:
        return record
    records = [each for each in (record, *others) if each.sequence.contains(nominal_time)]
    looks = poll_instances(stores, [Candidate(record=each, nominal_time=nominal_time) for each in records])
    there = (each for each, look in zip(records, looks, strict=True) if look.availability is Availability.AVAILABLE)
    return next(there, record)
