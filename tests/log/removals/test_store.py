"""Sweeps as stored plans, and how they move on."""

from dataclasses import replace

import pytest

from feed_assets.log.removals.records import FeedCount, Sweep, SweepObstacle, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateError
from tests.log.samples import finished, hour, sweep_draft
from tests.log.workers import Team, begin_sweep

pytestmark = pytest.mark.both_databases


PLANNED, ASKING, RUNNING, DONE = SweepState.PLANNED, SweepState.ASKING, SweepState.RUNNING, SweepState.DONE


def put(
    database: Database, sweep_id: str, n: float = 0, state: SweepState = PLANNED, cluster: str = "primary"
) -> Sweep:
    draft = sweep_draft(sweep_id, cluster=cluster)
    sweep = finished(draft, n, state)
    with database.begin() as connection:
        Sweeps(connection).add(sweep, draft.chunks)
    return sweep


def test_a_sweep_comes_back_as_it_was_stored(database: Database) -> None:
    draft = sweep_draft("s1", 5)
    sweep = replace(
        finished(draft, 3, ASKING),
        obstacles=(
            SweepObstacle(code="share", sentence="it takes 80 % of clicks"),
            SweepObstacle(code="b", sentence=""),
        ),
        approved_by="bob",
        approved_at=hour(4),
        started_at=hour(5),
        ended_at=hour(6),
        purge_at=hour(7),
        purged_at=hour(8),
        undone_at=hour(9),
        note="ä",
    )
    with database.begin() as connection:
        Sweeps(connection).add(sweep, draft.chunks)
    with database.read() as connection:
        assert Sweeps(connection).find("s1") == sweep
        assert Sweeps(connection).find("s2") is None
        assert Sweeps(connection).find_many(["s1", "s2"]) == {"s1": sweep}


def test_a_sweep_that_takes_nothing_is_stored_too(database: Database) -> None:
    draft = sweep_draft("s1", 0)
    with database.begin() as connection:
        Sweeps(connection).add(finished(draft), draft.chunks)
        found = Sweeps(connection).find("s1")
    assert found == finished(draft)
    assert (found.chunks, found.counts) == (0, ())


def test_an_id_is_used_once(database: Database) -> None:
    put(database, "s1")
    with pytest.raises(StateError):
        put(database, "s1")


def test_the_newest_sweeps_come_first_and_the_beginning_of_an_id_finds_it(database: Database) -> None:
    put(database, "a1", 2)
    put(database, "a2", 1, DONE)
    put(database, "b", 3, cluster="backup")
    with database.read() as connection:
        sweeps = Sweeps(connection)
        assert [sweep.sweep_id for sweep in sweeps.newest(9)] == ["b", "a1", "a2"]
        assert [sweep.sweep_id for sweep in sweeps.newest(1)] == ["b"]
        assert [sweep.sweep_id for sweep in sweeps.newest(9, ["primary"])] == ["a1", "a2"]
        assert [sweep.sweep_id for sweep in sweeps.newest(9, states={DONE})] == ["a2"]
        assert (sweeps.count(1), sweeps.count(1, ["primary"]), sweeps.count(1, states={DONE})) == (3, 2, 1)
        assert [sweep.sweep_id for sweep in sweeps.find_prefix("a")] == ["a1", "a2"]
        assert [sweep.sweep_id for sweep in sweeps.find_prefix("a2")] == ["a2"]
        assert sweeps.find_prefix("c") == []


def test_open_sweeps_are_those_that_wait_or_work(database: Database) -> None:
    for place, state in enumerate(SweepState):
        put(database, state.value, 9 - place, state)
    put(database, "elsewhere", cluster="backup")
    with database.read() as connection:
        found = Sweeps(connection).with_state("primary")
        assert [sweep.sweep_id for sweep in found] == ["UNDOING", "RUNNING", "ASKING", "PLANNED"]
        assert all(sweep.is_open for sweep in found)
        assert [sweep.sweep_id for sweep in Sweeps(connection).with_state("primary", {DONE})] == ["DONE"]


def test_a_sweep_moves_on_only_from_the_states_expected(database: Database) -> None:
    sweep = put(database, "s1", 0, ASKING)
    counts = (FeedCount(feed="clicks", instances=1, paths=2, bytes=3, files=4, evicted=5, kept=6, failed=7),)
    with database.begin() as connection:
        sweeps = Sweeps(connection)
        assert not sweeps.transition("s1", {PLANNED}, state=RUNNING, started_at=hour(1))
        assert sweeps.find("s1") == sweep
        assert sweeps.transition("s1", {ASKING}, state=PLANNED, approved_by="bob", obstacles=())
        assert sweeps.transition("s1", {PLANNED, ASKING}, state=RUNNING, started_at=hour(1), counts=counts)
        assert not sweeps.transition("none", {PLANNED}, state=RUNNING)
        assert sweeps.find("s1") == replace(
            sweep, state=RUNNING, approved_by="bob", started_at=hour(1), obstacles=(), counts=counts
        )


def test_sweeps_are_purged_when_their_time_has_come_and_only_once(database: Database) -> None:
    for n, state in enumerate([DONE, SweepState.UNDONE, RUNNING, DONE, DONE]):
        put(database, f"s{n}", n, RUNNING)
        with database.begin() as connection:
            Sweeps(connection).transition(f"s{n}", {RUNNING}, state=state, purge_at=hour(10 - n))
    with database.begin() as connection:
        sweeps = Sweeps(connection)
        assert [sweep.sweep_id for sweep in sweeps.to_purge("primary", hour(9), 9)] == ["s4", "s3", "s1"]
        assert [sweep.sweep_id for sweep in sweeps.to_purge("primary", hour(9), 1)] == ["s4"]
        assert sweeps.to_purge("backup", hour(99), 9) == []
        sweeps.transition("s4", {DONE}, state=SweepState.PURGED, purged_at=hour(9))
        assert [sweep.sweep_id for sweep in sweeps.to_purge("primary", hour(9), 9)] == ["s3", "s1"]


def test_of_workers_that_race_to_begin_a_sweep_one_does(database: Database, database_url: str) -> None:
    put(database, "s1")
    assert sorted(Team(begin_sweep, database_url, 4).results()) == [False, False, False, True]
