"""When the retention of feeds comes next."""

from feed_assets.state.database import Database
from feed_assets.state.sweep_turns import SweepTurns
from tests.state.samples import hour, turn


def test_due_turns_are_those_of_a_cluster_the_longest_waiting_first(database: Database) -> None:
    with database.begin() as connection:
        turns = SweepTurns(connection)
        turns.put([turn(3), turn(1, feed="views"), turn(4, feed="orders"), turn(0, cluster="backup")])
        assert [each.feed for each in turns.due("primary", hour(3), 9)] == ["views", "clicks"]
        assert [each.feed for each in turns.due("primary", hour(3), 1)] == ["views"]
        assert turns.due("primary", hour(0), 9) == []


def test_a_turn_is_replaced_found_and_removed(database: Database) -> None:
    moved = turn(9, last_at=hour(3), policy_digest="sha256:q")
    with database.begin() as connection:
        turns = SweepTurns(connection)
        turns.put([turn(3), turn(4, feed="views"), turn(cluster="backup")])
        turns.put([moved])
        turns.put([])
        assert turns.of_cluster("primary") == {"clicks": moved, "views": turn(4, feed="views")}
        assert turns.find_many([("clicks", "primary"), ("orders", "primary")]) == {("clicks", "primary"): moved}
        assert turns.find_many([]) == {}
        turns.remove([("clicks", "primary"), ("orders", "primary")])
        assert list(turns.of_cluster("primary")) == ["views"]
        assert list(turns.of_cluster("backup")) == ["clicks"]
