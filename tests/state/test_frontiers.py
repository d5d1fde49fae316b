from feed_assets.state.database import Database
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.records import Frontier, FrontierKind
from tests.state.samples import hour

FEED, PROCESS = FrontierKind


def frontier(entity: str, n: int | None, kind: FrontierKind = FEED, cluster: str = "primary") -> Frontier:
    next_time = None if n is None else hour(n)
    return Frontier(kind=kind, entity=entity, cluster=cluster, next_index=n or 0, next_time=next_time)


def test_a_frontier_is_due_from_the_time_of_its_next_instance_on(database: Database) -> None:
    rows = [frontier("a", 3), frontier("b", 2), frontier("c", 4), frontier("d", None)]
    others = [frontier("a", 1, PROCESS), frontier("a", 1, cluster="backup")]
    with database.begin() as connection:
        frontiers = Frontiers(connection)
        frontiers.put(rows + others)
        assert frontiers.due(FEED, hour(3), 9) == [others[1], rows[1], rows[0]]
        assert frontiers.due(FEED, hour(3), 9, cluster="primary") == [rows[1], rows[0]]
        assert frontiers.due(FEED, hour(3), 1, cluster="primary") == [rows[1]]
        assert frontiers.due(PROCESS, hour(0), 9) == []


def test_put_moves_a_frontier(database: Database) -> None:
    with database.begin() as connection:
        frontiers = Frontiers(connection)
        frontiers.put([frontier("a", 1)])
        frontiers.put([frontier("a", 2), frontier("a", None)])
        frontiers.put([])
        assert frontiers.get(FEED, "a", "primary") == frontier("a", None)
        assert frontiers.get(PROCESS, "a", "primary") is None


def test_entities_without_a_frontier_are_found_in_the_order_asked(database: Database) -> None:
    with database.begin() as connection:
        frontiers = Frontiers(connection)
        frontiers.put([frontier("a", 1), frontier("b", 1, PROCESS)])
        keys = [("c", "primary"), ("b", "primary"), ("a", "primary"), ("a", "backup")]
        assert frontiers.missing(FEED, keys) == [keys[0], keys[1], keys[3]]
        assert frontiers.missing(FEED, []) == []


def test_a_removed_frontier_is_missing_again(database: Database) -> None:
    with database.begin() as connection:
        frontiers = Frontiers(connection)
        frontiers.put([frontier("a", 1), frontier("a", 1, PROCESS), frontier("b", 1)])
        frontiers.remove(FEED, [("a", "primary"), ("unknown", "primary")])
        assert frontiers.missing(FEED, [("a", "primary"), ("b", "primary")]) == [("a", "primary")]
        assert frontiers.get(PROCESS, "a", "primary") is not None
