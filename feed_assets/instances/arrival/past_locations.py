"""Find instances of a feed that has moved: they are where the record has them, or where somebody has moved them to."""

from collections.abc import Collection
from datetime import datetime

from feed_assets.instances.arrival.store_polls import Candidate, poll_instances
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.records import FeedKey
from feed_assets.plan.records import FeedRecord
from feed_assets.sql.database import Database
from feed_assets.storage.pool import StorePool
from feed_assets.storage.records import Availability


def find_records(
    database: Database, stores: StorePool, record: FeedRecord, times: Collection[datetime]
) -> dict[datetime, FeedRecord]:
    """Return for each instance of a feed the feed at the place where the instance is. Looks only at those that are at
    another place than that of `record`, by the record.
    """
    with database.read() as connection:
        rows = FeedInstances(connection).get_many([FeedKey(*record.key, time) for time in times])
        places = FeedPlaces(connection)
        there = {row.nominal_time: places.at_place(record, row) for row in rows.values()}
    return {time: find_record(stores, there.get(time, record), record, time) for time in times}


def find_record(stores: StorePool, there: FeedRecord, record: FeedRecord, nominal_time: datetime) -> FeedRecord:
    """Return that of two records of a feed at whose location an instance is; `there` if it is there or nowhere. Where
    they differ by the zone of their paths only, what is at the other path is another instance.
    """
    if (there.store, there.template.text) == (record.store, record.template.text):
        return there
    looks = poll_instances(stores, [Candidate(record=each, nominal_time=nominal_time) for each in (there, record)])
    at_there, here = (look.availability is Availability.AVAILABLE for look in looks)
    return record if here and not at_there else there
