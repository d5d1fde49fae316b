"""Which instances have missed a deadline, and what ends that."""

from datetime import timedelta

import pytest

from feed_assets.alerts.deadlines.records import Recovered, Recovery, SlaMiss, SlaPause
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import Attempt, FeedInstance, FeedInstanceStatus, ProcessInstance, ProcessInstanceStatus
from feed_assets.sql.database import Database
from tests.log.samples import hour

pytestmark = pytest.mark.both_databases


def miss(number: int, level: SlaLevel = SlaLevel.LOW, **others: object) -> SlaMiss:
    values: dict[str, object] = {
        "kind": "feed",
        "name": "clicks",
        "cluster": "primary",
        "nominal_time": hour(number),
        "level": level,
        "due_at": hour(number + 1),
        "missed_at": hour(number + 1),
        "told_at": hour(number + 1),
    }
    return SlaMiss(**(values | others))  # type: ignore[arg-type]


def feed_row(number: int, status: FeedInstanceStatus) -> FeedInstance:
    at = hour(number + 3)
    return FeedInstance(
        feed="clicks", cluster="primary", nominal_time=hour(number), status=status, updated_at=at, available_at=at
    )


def process_row(number: int, status: ProcessInstanceStatus, attempt: int = 0) -> ProcessInstance:
    return ProcessInstance(
        process="daily",
        cluster="primary",
        nominal_time=hour(number),
        status=status,
        updated_at=hour(number + 4),
        attempt=attempt,
        ended_at=hour(number + 4),
    )


def test_a_recorded_miss_stays_as_it_is_until_it_is_closed_once(database: Database) -> None:
    with database.begin() as connection:
        misses = SlaMisses(connection)
        misses.add([miss(1), miss(0), miss(0, SlaLevel.HIGH), miss(0, cluster="backup")])
        misses.add([miss(0, missed_at=hour(90))])
        assert [(each.nominal_time, each.level.value) for each in misses.open("primary")] == [
            (hour(0), "high"),
            (hour(0), "low"),
            (hour(1), "low"),
        ]
        assert misses.open("primary", "feed", "clicks", limit=1)[0].missed_at == hour(1)
        assert misses.open("primary", "process") == []
        misses.close([Recovered(miss(0), Recovery.ARRIVED, hour(3))])
        misses.close([Recovered(miss(0), Recovery.DELETED, hour(9))])
        found = misses.of([miss(0).instance, miss(7).instance])
        assert list(found) == [miss(0).instance]
        assert {(each.level.value, each.recovered_at) for each in found[miss(0).instance]} == {
            ("low", hour(3)),
            ("high", None),
        }
        late = misses.between(hour(0), hour(1), clusters=["primary"], kind="feed", open_only=True)
        assert [each.level.value for each in late] == ["high", "low"]
        assert len(misses.between(hour(0), hour(0), name="clicks")) == 3


def test_a_feed_s_instance_is_not_late_any_more_once_it_is_there_empty_or_evicted(database: Database) -> None:
    statuses = [*FeedInstanceStatus]
    with database.begin() as connection:
        SlaMisses(connection).add([miss(number) for number in range(len(statuses) + 1)])
        FeedInstances(connection).put([feed_row(number, status) for number, status in enumerate(statuses)])
        found = SlaMisses(connection).recovered("primary", 10)
        assert {
            (statuses[hour_of(each)].value, each.by.value, each.at == hour(hour_of(each) + 3)) for each in found
        } == {
            ("AVAILABLE", "arrived", True),
            ("EMPTY", "arrived", True),
            ("EVICTED", "evicted", True),
        }
        assert SlaMisses(connection).recovered("backup", 10) == []


def hour_of(recovered: Recovered) -> int:
    return (recovered.miss.nominal_time - hour(0)) // timedelta(hours=1)


def test_a_process_s_instance_has_started_and_has_succeeded_at_its_first_attempt_to_do_so(database: Database) -> None:
    running = ProcessInstanceStatus.RUNNING
    rows = [
        process_row(0, ProcessInstanceStatus.WAITING),
        process_row(1, running, 2),
        process_row(2, ProcessInstanceStatus.SUCCEEDED, 1),
        process_row(3, ProcessInstanceStatus.FAILED, 1),
        process_row(4, ProcessInstanceStatus.SKIPPED),
    ]
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting(rows)
        attempts = Attempts(connection)
        for number, attempt in ((1, 1), (1, 2), (2, 1), (3, 1)):
            status = running if (number, attempt) == (1, 2) else ProcessInstanceStatus.SUCCEEDED
            attempts.begin(
                Attempt(
                    process="daily",
                    cluster="primary",
                    nominal_time=hour(number),
                    attempt=attempt,
                    run_id=None,
                    status=status,
                    started_at=hour(number + attempt),
                    ended_at=None if status is running else hour(number + attempt + 1),
                )
            )
        misses = SlaMisses(connection)
        misses.add([miss(n, level, kind="process", name="daily") for n in range(5) for level in SlaLevel])
        found = {
            (hour_of(each), each.miss.level.value): (each.by.value, each.at) for each in misses.recovered("primary", 20)
        }
        assert found == {
            (1, "low"): ("started", hour(2)),
            (2, "low"): ("started", hour(3)),
            (2, "high"): ("succeeded", hour(6)),
            (3, "low"): ("started", hour(4)),
            (4, "low"): ("skipped", hour(8)),
            (4, "high"): ("skipped", hour(8)),
        }
        starts = misses.starts([row.key for row in rows])
        assert starts[rows[1].key] == (hour(2), hour(3))
        assert rows[0].key not in starts


def test_what_is_late_is_counted_for_each_entity_with_its_oldest_and_the_sum_of_the_delays(database: Database) -> None:
    as_of = hour(10) + timedelta(seconds=30)
    with database.begin() as connection:
        misses = SlaMisses(connection)
        misses.add([miss(0), miss(2), miss(3), miss(2, SlaLevel.HIGH), miss(5, cluster="backup")])
        misses.close([Recovered(miss(3), Recovery.ARRIVED, hour(4))])
        misses.acknowledge([miss(0)], "ann", as_of)
        counts = misses.open_counts(as_of, ["primary"])
        assert [(each.level.value, each.instances, each.acknowledged, each.oldest, each.newest) for each in counts] == [
            ("high", 1, 0, hour(2), hour(2)),
            ("low", 2, 1, hour(0), hour(2)),
        ]
        assert [each.nominal_seconds for each in counts] == [8 * 3600 + 30, 18 * 3600 + 60]
        assert [each.cluster for each in misses.open_counts(as_of)] == ["backup", "primary", "primary"]
        assert misses.open("primary")[0].acknowledged_by == "ann"


def test_dagster_is_told_of_each_miss_once(database: Database) -> None:
    with database.begin() as connection:
        misses = SlaMisses(connection)
        misses.add([miss(1), miss(0), miss(3, cluster="backup")])
        assert [each.nominal_time for each in misses.unshown("primary", 1)] == [hour(0)]
        misses.mark_shown(misses.unshown("primary", 1), hour(5))
        assert [each.nominal_time for each in misses.unshown("primary", 9)] == [hour(1)]


def test_another_episode_of_a_miss_has_a_row_of_its_own(database: Database) -> None:
    with database.begin() as connection:
        misses = SlaMisses(connection)
        misses.add([miss(0)])
        misses.close([Recovered(miss(0), Recovery.MOVED, hour(3))])
        assert misses.last_episodes([miss(0).instance, miss(1).instance]) == {(miss(0).instance, SlaLevel.LOW): 1}
        misses.add([miss(0, episode=2)])
        assert [each.episode for each in misses.open("primary")] == [2]


def test_the_pauses_of_a_process_come_in_order(database: Database) -> None:
    first, second = (SlaPause("daily", "primary", hour(n), hour(n + 2)) for n in (0, 4))
    with database.begin() as connection:
        misses = SlaMisses(connection)
        misses.add_pause(second)
        misses.add_pause(first)
        misses.add_pause(SlaPause("other", "primary", hour(0), hour(9)))
        assert misses.pauses([("daily", "primary")]) == {("daily", "primary"): [first, second]}
