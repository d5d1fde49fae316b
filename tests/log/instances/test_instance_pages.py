import pytest

from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.instance_pages import Counted, InstancePages, PageOrder
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedInstanceStatus, ProcessInstance, ProcessInstanceStatus
from feed_assets.sql.database import Database
from tests.log.samples import feed_instance, hour, process_instance

pytestmark = pytest.mark.both_databases


WAITING, RUNNING, FAILED = (
    ProcessInstanceStatus.WAITING,
    ProcessInstanceStatus.RUNNING,
    ProcessInstanceStatus.FAILED,
)


def hours_of(rows: list[ProcessInstance]) -> list[float]:
    return [(row.nominal_time - hour(0)) / (hour(1) - hour(0)) for row in rows]


def test_a_page_has_a_range_a_limit_and_an_order(database: Database) -> None:
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting(
            [
                process_instance(0, FAILED, started_at=hour(9), ended_at=hour(10)),
                process_instance(1, RUNNING, started_at=hour(8)),
                process_instance(2),
                process_instance(3),
                process_instance(1, process="other"),
                process_instance(1, cluster="backup"),
            ]
        )
        pages = InstancePages(connection)

        def page(**more: object) -> list[float]:
            return hours_of(pages.of_process("daily", "primary", hour(0), hour(3), 9, **more))  # type: ignore[arg-type]

        assert page() == [2, 1, 0]
        assert page(descending=False) == [0, 1, 2]
        assert hours_of(pages.of_process("daily", "primary", hour(0), hour(3), 2)) == [2, 1]
        assert hours_of(pages.of_process("daily", "primary", hour(0), hour(3), 2, skip=2)) == [0]
        assert page(statuses=[WAITING, FAILED]) == [2, 0]
        assert page(started_after=hour(8)) == [0]
        assert page(order=PageOrder.STARTED_AT) == [0, 1, 2]
        assert page(order=PageOrder.STARTED_AT, descending=False) == [1, 0, 2]
        assert page(order=PageOrder.ENDED_AT) == [0, 2, 1]
        assert page(order=PageOrder.STATUS, descending=False) == [0, 1, 2]


@pytest.mark.parametrize("are_most", [False, True])
def test_instances_of_a_range_are_counted_by_status(database: Database, are_most: bool) -> None:
    with database.begin() as connection:
        ProcessInstances(connection).add_waiting([process_instance(0, FAILED), *map(process_instance, (1, 2, 3))])
        FeedInstances(connection).put(
            [feed_instance(0), feed_instance(1, FeedInstanceStatus.PARTIAL), feed_instance(5)]
        )
        pages = InstancePages(connection)
        daily, other = ("daily", "primary", hour(0), hour(3)), ("other", "primary", hour(0), hour(9))
        for spans in ([daily], [daily, other]):
            assert pages.process_counts(spans, are_most=are_most) == {
                daily: {FAILED: Counted(1, hour(0)), WAITING: Counted(2, hour(2))}
            }
        assert pages.process_counts([daily], started_after=hour(0), are_most=are_most) == {}
        clicks, later = ("clicks", "primary", hour(0), hour(2)), ("clicks", "primary", hour(5), hour(6))
        assert pages.feed_counts([clicks, later], are_most=are_most) == {
            clicks: {
                FeedInstanceStatus.AVAILABLE: Counted(1, hour(0)),
                FeedInstanceStatus.PARTIAL: Counted(1, hour(1)),
            },
            later: {FeedInstanceStatus.AVAILABLE: Counted(1, hour(5))},
        }
        assert pages.feed_counts([], are_most=are_most) == {}
