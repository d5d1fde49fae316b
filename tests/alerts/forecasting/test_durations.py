"""When earlier instances came, could begin, began and succeeded."""

import pytest

from feed_assets.alerts.forecasting.chains import InstanceDuration, InstanceDurations
from feed_assets.log.events import EventLog
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import (
    Attempt,
    FeedEventKind,
    FeedInstanceStatus,
    FeedKey,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.sql.database import Database
from tests.log.samples import event, feed_instance, hour, process_instance

pytestmark = pytest.mark.both_databases


S = ProcessInstanceStatus


def test_an_instance_has_come_when_it_came_first_whatever_became_of_it(database: Database) -> None:
    with database.begin() as connection:
        assert InstanceDurations(connection).first_events([("clicks", "primary")]) == {}
        EventLog(connection).append(
            [
                event(0, recorded_at=hour(5)),
                event(0, recorded_at=hour(6), kind=FeedEventKind.CHANGED),
                event(0, recorded_at=hour(7), kind=FeedEventKind.EVICTED),
                event(0, recorded_at=hour(8), kind=FeedEventKind.RESTORED),
                event(1, recorded_at=hour(9), kind=FeedEventKind.EVICTED),
                event(2, recorded_at=hour(9), cluster="backup"),
            ]
        )
        FeedInstances(connection).put([feed_instance(3, FeedInstanceStatus.EMPTY, updated_at=hour(4))])
        FeedInstances(connection).put([feed_instance(2, FeedInstanceStatus.PARTIAL, updated_at=hour(4))])
    keys = [FeedKey("clicks", "primary", hour(n)) for n in range(4)]
    with database.read() as connection:
        durations = InstanceDurations(connection)
        assert durations.arrivals(keys) == {keys[0]: hour(5), keys[3]: hour(4)}
        assert durations.arrivals([]) == {}
        assert durations.first_events([("clicks", "primary"), ("orders", "primary")]) == {
            ("clicks", "primary"): hour(5)
        }


def test_of_an_instance_of_a_process_the_first_attempt_counts_and_the_first_that_succeeded(database: Database) -> None:
    def attempt(n: int, number: int) -> Attempt:
        return Attempt(
            process="daily",
            cluster="primary",
            nominal_time=hour(n),
            attempt=number,
            run_id="run-1",
            status=S.RUNNING,
            started_at=hour(n + number),
        )

    keys = [ProcessKey("daily", "primary", hour(n)) for n in (0, 20, 40, 60)]
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting(
            [
                process_instance(0, S.SUCCEEDED, materialized_at=hour(0), ready_at=hour(0.5)),
                process_instance(20, S.SUCCEEDED, materialized_at=hour(20), ready_at=hour(23)),
                process_instance(40, S.WAITING, materialized_at=hour(40)),
            ]
        )
        attempts = Attempts(connection)
        for n, number, end in ((0, 1, S.FAILED), (0, 2, S.SUCCEEDED), (20, 1, S.SUCCEEDED), (20, 4, S.SUCCEEDED)):
            attempts.begin(attempt(n, number))
            attempts.end(ProcessKey("daily", "primary", hour(n)), end, hour(n + number + 0.5), None)
    with database.read() as connection:
        assert InstanceDurations(connection).of_processes(keys) == {
            keys[0]: InstanceDuration(S.SUCCEEDED, hour(0), hour(0.5), hour(1), hour(2.5)),
            keys[1]: InstanceDuration(S.SUCCEEDED, hour(20), None, hour(21), hour(21.5)),
            keys[2]: InstanceDuration(S.WAITING, hour(40), None, None, None),
        }
        assert InstanceDurations(connection).of_processes([]) == {}
