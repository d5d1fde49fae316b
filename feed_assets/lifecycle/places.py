"""Where instances of a feed lie that has moved: at the place of one or another of its definitions."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.lifecycle.arrivals import Candidate, look_at
from feed_assets.lifecycle.governance import Governance, Governed
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import FeedRecord, Key
from feed_assets.storage.records import Availability

RELEASES = 10
"""How many of the newest releases are asked where feeds lie."""

Places: TypeAlias = Mapping[Key, tuple[FeedRecord, ...]]
"""By feed, other records by which its instances may be found."""


def is_same_place(one: FeedRecord, other: FeedRecord) -> bool:
    """Whether the instances of two records of a feed lie at the same places, and are complete by the same sign."""
    return (one.store, one.template, one.flag) == (other.store, other.template, other.flag)


def other_places(
    connection: Connection, governance: Governance, governed: Governed
) -> dict[Key, tuple[FeedRecord, ...]]:
    """Where else the inputs of an instance may lie, as other releases of its process and what is declared now have it.

    Empty where no feed has moved.
    """
    stretches = governance.stretches(connection, governed.record.key)[-RELEASES:]
    plans = [governance.plan, *(each.plan for each in stretches)]
    found: dict[Key, list[FeedRecord]] = {}
    for edge in governed.record.inputs:
        key = edge.feed_key
        known = [governed.plan.feeds[key]]
        for plan in plans:
            record = plan.feeds.get(key)
            if record is not None and not any(is_same_place(record, each) for each in known):
                known.append(record)
        if len(known) > 1:
            found[key] = known[1:]
    return {key: tuple(records) for key, records in found.items()}


def find_place(
    stores: StorePool, record: FeedRecord, others: Sequence[FeedRecord], nominal_time: datetime
) -> FeedRecord:
    """The record by which an instance is found: its own, if it lies there or nowhere."""
    if not others:
        return record
    records = [each for each in (record, *others) if each.sequence.contains(nominal_time)]
    looks = look_at(stores, [Candidate(record=each, nominal_time=nominal_time) for each in records])
    there = (each for each, look in zip(records, looks, strict=True) if look.availability is Availability.AVAILABLE)
    return next(there, record)
