"""Deadlines that are watched, and when each is looked at next."""

import pytest

from feed_assets.alerts.forecasting.watches import SlaWatch, SlaWatches
from feed_assets.log.definitions.records import Schedule, ScheduleState
from feed_assets.log.definitions.schedules import Schedules
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.sql.database import Database
from tests.log.samples import hour

pytestmark = pytest.mark.both_databases


def watch(name: str, n: float, kind: str = "feed", cluster: str = "primary") -> SlaWatch:
    return SlaWatch(kind, name, cluster, hour(0), SlaLevel.LOW, hour(n))


def test_due_are_those_of_a_cluster_whose_time_has_come_the_longest_waiting_first(database: Database) -> None:
    late, later, other = watch("clicks", 1), watch("views", 2), watch("clicks", 1, cluster="backup")
    with database.begin() as connection:
        SlaWatches(connection).put([later, late, other])
        SlaWatches(connection).put([watch("counts", 1)])
        SlaWatches(connection).put([watch("counts", 9)])
    with database.read() as connection:
        watches = SlaWatches(connection)
        assert watches.due("primary", hour(0), 9) == []
        assert watches.due("primary", hour(2), 9) == [late, later]
        assert watches.due("primary", hour(2), 1) == [late]
    with database.begin() as connection:
        SlaWatches(connection).remove([late.key, watch("nothing", 1).key])
    with database.read() as connection:
        assert SlaWatches(connection).due("primary", hour(9), 9) == [later, watch("counts", 9)]


def test_those_of_a_process_are_due_while_it_is_scheduled(database: Database) -> None:
    mine = watch("daily", 1, "process")
    with database.begin() as connection:
        SlaWatches(connection).put([mine])
    with database.read() as connection:
        assert SlaWatches(connection).due("primary", hour(1), 9) == [mine]
        assert SlaWatches(connection).due("primary", hour(1), 9, without_row=ScheduleState.SUBMITTED) == []
    with database.begin() as connection:
        suspended = Schedule(
            kind="process",
            name="daily",
            cluster="primary",
            state=ScheduleState.SUSPENDED,
            changed_at=hour(0),
            author="ann",
        )
        Schedules(connection).put([suspended])
    with database.read() as connection:
        assert SlaWatches(connection).due("primary", hour(1), 9) == []
