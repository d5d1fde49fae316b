"""Record how far imports by mark have come: the stretch of an instance is frozen before it is read, and moves the mark
when it is published; the event and the manifest say it.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.catalog.run_metadata import Facts
from feed_assets.engines.databases.marks import KnownStretches, Marks, Stretch
from feed_assets.engines.errors import EarlierUnreadError, InputReadError
from feed_assets.engines.port import STRETCH, InputData
from feed_assets.instances.attempts.attempt_inputs import InstanceAddresses
from feed_assets.instances.attempts.attempts import HeldInstance
from feed_assets.instances.attempts.work_data import feed_data
from feed_assets.instances.gates.turns import find_unread
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, FeedKey, ProcessKey
from feed_assets.plan.records import FeedRecord
from feed_assets.timing.dates import render_datetime


def find_stretches(connection: Connection, key: ProcessKey, feed: FeedRecord) -> KnownStretches:
    """Return the stretch that is recorded of an instance of an import, and those of the published others."""
    facts = [each for each in Facts(connection).of(key) if each.category == STRETCH]
    events = EventLog(connection).for_feed(*feed.key, FeedEventKind.PRODUCED)
    told = {each.nominal_time: str(each.payload[STRETCH]) for each in events if STRETCH in each.payload}
    if facts:
        told[key.nominal_time] = facts[-1].value
    found = {time: Stretch(*json.loads(text)) for time, text in told.items()}
    return KnownStretches(own=found.pop(key.nominal_time, None), others=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMarks(Marks):
    """The marks of one feed, for an attempt at one instance of its import."""

    held: HeldInstance
    attempt: int
    feed: FeedRecord
    addresses: InstanceAddresses

    def known(self) -> KnownStretches:
        with self.held.context.database.read() as connection:
            unread = find_unread(connection, [self.held.process.key]).get(self.held.process.key)
            found = find_stretches(connection, self.held.key, self.feed)
        if unread is not None and unread < self.held.key.nominal_time:
            raise EarlierUnreadError(
                process=self.held.key.process, nominal_time=self.held.key.nominal_time, earlier=unread
            )
        return found

    def freeze(self, stretch: Stretch) -> None:
        with self.held.context.database.begin() as connection:
            self.held.check_in(connection)
            said = {"rows": json.dumps(stretch)}
            Facts(connection).add(self.held.key, self.attempt, STRETCH, said, self.held.context.clock.now())

    def rows_of(self, times: Collection[datetime]) -> InputData:
        keys = [FeedKey(*self.feed.key, time) for time in sorted(times)]
        with self.held.context.database.read() as connection:
            rows = FeedInstances(connection).get_many(keys)
        for key in keys:
            if key not in rows or rows[key].status is not FeedInstanceStatus.AVAILABLE:
                raise InputReadError(
                    name="overlap",
                    feed=self.feed.feed,
                    reason=f"the instance of {render_datetime(key.nominal_time)} is not there, and its rows cannot be "
                    "told from new ones",
                    next_step="Write a shorter overlap, or keep instances for longer.",
                )
        return feed_data("overlap", self.feed, self.addresses.find("overlap", self.feed, [key[2] for key in keys]))
