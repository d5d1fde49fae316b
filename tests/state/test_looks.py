"""When missing instances are looked at again."""

from feed_assets.state.database import Database
from feed_assets.state.looks import Looks
from tests.state.samples import hour, planned_look


def test_due_looks_are_those_of_a_cluster_the_longest_waiting_first(database: Database) -> None:
    with database.begin() as connection:
        looks = Looks(connection)
        looks.put([planned_look(0, next_look_at=hour(5)), planned_look(1, next_look_at=hour(3))])
        looks.put([planned_look(2, next_look_at=hour(6)), planned_look(3, cluster="backup", next_look_at=hour(1))])
        due = looks.due("primary", hour(5), 10)
        assert [look.nominal_time for look in due] == [hour(1), hour(0)]
        assert looks.due("primary", hour(5), 1) == due[:1]


def test_a_look_is_replaced_and_found(database: Database) -> None:
    with database.begin() as connection:
        looks = Looks(connection)
        looks.put([planned_look(0)])
        looks.put([planned_look(0, found="PARTIAL|1|1", next_look_at=hour(9))])
        assert looks.find("clicks", "primary", hour(0)) == planned_look(0, found="PARTIAL|1|1", next_look_at=hour(9))
        assert looks.find("clicks", "primary", hour(1)) is None


def test_only_looks_that_are_planned_are_moved(database: Database) -> None:
    with database.begin() as connection:
        looks = Looks(connection)
        looks.put([planned_look(0)])
        looks.move([planned_look(0, looked_at=hour(2), next_look_at=hour(4)), planned_look(1)])
        assert looks.due("primary", hour(99), 10) == [planned_look(0, looked_at=hour(2), next_look_at=hour(4))]


def test_removed_looks_are_gone(database: Database) -> None:
    with database.begin() as connection:
        looks = Looks(connection)
        looks.put([planned_look(0), planned_look(1)])
        looks.remove([planned_look(0).key, planned_look(7).key])
        assert [look.nominal_time for look in looks.due("primary", hour(99), 10)] == [hour(1)]
