import pytest
from sqlalchemy import select

from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog, digest_key
from feed_assets.log.records import FeedEvent, FeedEventKind
from feed_assets.log.tables import shared_payloads
from feed_assets.masking import encodable
from feed_assets.sql.database import Database
from tests.log.samples import event, hour
from tests.log.workers import Team, append_slowly

pytestmark = pytest.mark.both_databases


def test_an_event_comes_back_as_it_was_written(database: Database) -> None:
    written = event(
        5,
        kind=FeedEventKind.PRODUCED,
        manifest_digest="sha256:abc",
        bytes=2**40,
        files=3,
        payload={"path": "/clicks/ünï", "rows": 7, "nested": {"list": [1, None, True]}},
        idempotency_key="run 1",
    )
    with database.begin() as connection:
        (seq,) = EventLog(connection).append([written])
    with database.read() as connection:
        (read,) = EventLog(connection).read(0, 10)
    assert read == FeedEvent(
        seq=seq,
        feed="clicks",
        cluster="primary",
        nominal_time=hour(5),
        kind=FeedEventKind.PRODUCED,
        origin="a test",
        recorded_at=hour(5),
        manifest_digest="sha256:abc",
        bytes=2**40,
        files=3,
        payload={"path": "/clicks/ünï", "rows": 7, "nested": {"list": [1, None, True]}},
        idempotency_key=digest_key("run 1"),
    )
    assert read.nominal_time.utcoffset() is not None


ITS = {"sweep": "s1", "kind": "data", "reason": "it is old", "rows": 7}


@pytest.mark.parametrize(
    ("path", "is_kept_once"),
    [
        ("clicks/2024/01/01/05", True),
        ("v2/clicks-5/dt=2024-01-01/hour=05", True),
        ("20240101/all", True),
        ("100%/%Y/{feed}/2024", False),
        ("{feed}/2024", False),
        ("clicks/2024/part-7", False),
        ("clicks/2024\0\udcff", False),
        ("ü/2024", False),
        ("clicks/all", False),
        (None, False),
    ],
)
@pytest.mark.parametrize("origin", ["arrival", "run:5b0c0c9e-7c1f-4f0c-9f57-0d3a5a3f6a11", "file 7"])
def test_what_events_have_in_common_comes_back(
    database: Database, path: str | None, origin: str, is_kept_once: bool
) -> None:
    written = [event(n, origin=origin, payload={**ITS, "path": path and path.replace("05", f"{n:02}")}) for n in (5, 6)]
    with database.begin() as connection:
        EventLog(connection).append(written)
    with database.read() as connection:
        read = EventLog(connection).read(0, 10)
        shared = connection.scalars(select(shared_payloads.c.payload)).all()
    assert [(each.payload, each.origin) for each in read] == [(each.payload, each.origin) for each in written]
    assert [("path" in each, "rows" in each, "origin" in each) for each in shared] == [
        (is_kept_once, False, origin == "arrival")
    ]


@pytest.mark.parametrize("who", ["\udcff", "\udcff9", "\0"])
def test_an_origin_is_what_can_be_written_anywhere(database: Database, who: str) -> None:
    with database.begin() as connection:
        EventLog(connection).append([event(origin=f"notice:{who}")])
        (found,) = EventLog(connection).read(0, 10)
    assert found.origin == f"notice:{encodable(who)}"


def test_numbers_start_at_one_and_have_no_gaps_even_after_a_rollback(database: Database) -> None:
    with database.begin() as connection:
        assert EventLog(connection).append([event(0), event(1)]) == [1, 2]
    try:
        with database.begin() as connection:
            EventLog(connection).append([event(2)])
            raise KeyError
    except KeyError:
        pass
    with database.begin() as connection:
        assert EventLog(connection).append([event(3)]) == [3]
        assert EventLog(connection).last_seq() == 3


def test_appending_nothing_returns_nothing_and_an_empty_log_ends_at_zero(database: Database) -> None:
    with database.begin() as connection:
        assert EventLog(connection).append([]) == []
        assert EventLog(connection).last_seq() == 0


def test_the_log_keeps_22_characters_of_an_idempotency_key_however_long_it_is(database: Database) -> None:
    key = "sweep/s1/evicted/data/" + "clicks/" * 40
    with database.begin() as connection:
        log = EventLog(connection)
        log.append([event(0, idempotency_key=key), event(1, idempotency_key=f"{key}/2")])
        assert [len(each.idempotency_key or "") for each in log.read(0, 10)] == [22, 22]
        assert (found := log.find_key(key)) is not None
        assert found.seq == 1


def test_a_repeated_idempotency_key_returns_the_number_of_the_first(database: Database) -> None:
    with database.begin() as connection:
        log = EventLog(connection)
        assert log.append([event(0, idempotency_key="a"), event(1), event(2, idempotency_key="a")]) == [1, 2, 1]
    with database.begin() as connection:
        log = EventLog(connection)
        assert log.append([event(9, idempotency_key="b"), event(9, idempotency_key="a"), event(9)]) == [3, 1, 4]
        assert [found.nominal_time for found in log.read(0, 10)] == [hour(0), hour(1), hour(9), hour(9)]


def test_a_reader_goes_on_after_its_cursor_and_gets_no_more_than_its_limit(database: Database) -> None:
    with database.begin() as connection:
        log = EventLog(connection)
        log.append([event(n) for n in range(7)])
        assert [found.seq for found in log.read(2, 3)] == [3, 4, 5]
        assert [found.seq for found in log.read(5, 3)] == [6, 7]
        assert log.read(7, 3) == []


def test_a_reader_may_ask_for_some_feeds_or_one_cluster(database: Database) -> None:
    with database.begin() as connection:
        log = EventLog(connection)
        log.append(
            [event(feed="a"), event(feed="b"), event(feed="c", cluster="backup"), event(feed="a", cluster="backup")]
        )
        assert [found.seq for found in log.read(0, 10, ["a", "c"])] == [1, 3, 4]
        assert [found.seq for found in log.read(1, 10, {"a"}, clusters=["backup"])] == [4]
        assert log.read(0, 10, []) == []


def test_a_reader_of_a_cluster_walks_once_over_what_others_have_recorded(database: Database) -> None:
    with database.begin() as connection:
        log = EventLog(connection)
        log.append([event(n, cluster="backup" if n in (2, 5, 6, 7) else "primary") for n in range(8)])
        assert [found.seq for found in log.read(0, 3, clusters=["primary"])] == [1, 2, 4]
        assert [found.seq for found in log.read(4, 3, clusters=["primary"])] == [5, 8]  # the newest, of the other one
        assert log.read(8, 3, clusters=["primary"]) == []
        assert [found.seq for found in log.read(5, 2, clusters=["primary"])] == [6, 8]  # that behind it, of the other


def test_the_history_of_an_instance_is_in_order(database: Database) -> None:
    kinds = [FeedEventKind.ARRIVED, FeedEventKind.CHANGED, FeedEventKind.EVICTED, FeedEventKind.RESTORED]
    with database.begin() as connection:
        log = EventLog(connection)
        for kind in kinds:
            log.append([event(0, kind=kind), event(1, kind=kind), event(0, kind=kind, cluster="backup")])
        assert [found.kind for found in log.of_numbers([7, 1, 10, 4, 99]).values()] == kinds
        assert [found.nominal_time for found in log.for_feed("clicks", "primary", FeedEventKind.EVICTED)] == [
            hour(0),
            hour(1),
        ]


def test_a_cursor_that_follows_the_log_misses_nothing_while_others_append(
    database: Database, database_url: str
) -> None:
    team = Team(append_slowly, database_url, 3)
    seen: list[int] = []
    while True:
        was_working = team.is_working
        with database.read() as connection:
            found = EventLog(connection).read(seen[-1] if seen else 0, 7)
        seen += [row.seq for row in found]
        if not found and not was_working:
            break
    assert seen == list(range(1, 181))
    assert sorted(seq for seqs in team.results() for seq in seqs) == seen


def test_a_cursor_keeps_what_was_put_last(database: Database) -> None:
    with database.begin() as connection:
        cursors = Cursors(connection)
        assert cursors.get("readiness") is None
        cursors.put("readiness", "5")
        cursors.put("other", "1")
        cursors.put("readiness", "6")
    with database.read() as connection:
        assert Cursors(connection).get("readiness") == "6"
