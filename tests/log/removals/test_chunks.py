"""The work on a sweep, chunk by chunk, by one worker or several, living or dead."""

import pytest
from sqlalchemy import text

from feed_assets.log.events import EventLog
from feed_assets.log.removals.chunks import SweepChunks, SweepDraft
from feed_assets.log.removals.records import ChunkState, ItemOutcome, ItemResult, Sweep, SweepChunk, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.sql.database import Database
from feed_assets.sql.errors import ChunkTakenError, SweepDamagedError
from tests.log.samples import HOUR, event, finished, hour, sweep_item
from tests.log.workers import SWEEP_CHUNKS, Team, sweep_all, sweep_until_killed

pytestmark = pytest.mark.both_databases


OPEN, DONE, UNDONE = ChunkState.OPEN, ChunkState.DONE, ChunkState.UNDONE
EVICTED = ItemResult(ItemOutcome.EVICTED)


def put(database: Database, sweep_id: str = "s1", chunks: int = 3, state: SweepState = SweepState.RUNNING) -> Sweep:
    """A sweep with chunks of one item, alternating between two feeds."""
    draft = SweepDraft(sweep_id, "primary")
    for n in range(chunks):
        draft.add(("clicks", "views")[n % 2], "data", [sweep_item(n)])
    sweep = finished(draft, state=state)
    with database.begin() as connection:
        Sweeps(connection).add(sweep, draft.chunks)
    return sweep


def claim(database: Database, holder: str, now: float = 0, limit: int = 1, **which: object) -> list[int]:
    with database.begin() as connection:
        chunks = SweepChunks(connection, "s1")
        return [chunk.number for chunk in chunks.claim(holder, hour(now), HOUR, limit, **which)]  # type: ignore[arg-type]


def finish(database: Database, number: int, holder: str, state: ChunkState = DONE) -> SweepChunk:
    with database.begin() as connection:
        chunks = SweepChunks(connection, "s1")
        chunk = chunks.get(number)
        chunks.finish(chunk, holder, state, dict.fromkeys(chunk.items, EVICTED))
        return chunks.get(number)


def test_chunks_are_read_one_by_one_all_or_without_their_items(database: Database) -> None:
    put(database, chunks=45)
    with database.read() as connection:
        chunks = SweepChunks(connection, "s1")
        every = list(chunks.iter_all())
        assert [chunk.number for chunk in every] == list(range(45))
        assert [chunk.items for chunk in every] == [(sweep_item(n),) for n in range(45)]
        assert chunks.get(7) == every[7]
        assert [chunk.number for chunk in chunks.iter_all(feed="views")] == list(range(1, 45, 2))
        assert chunks.heads(state=DONE) == []
        assert [(head.number, head.first) for head in chunks.heads(state=OPEN)] == [(n, hour(n)) for n in range(45)]
        with pytest.raises(SweepDamagedError, match="chunk 45"):
            chunks.get(45)


def test_a_chunk_is_claimed_worked_on_and_ended(database: Database) -> None:
    put(database)
    assert claim(database, "a") == [0]
    ended = finish(database, 0, "a")
    assert (ended.state, ended.results, ended.holder, ended.held_until) == (
        DONE,
        {sweep_item(0): EVICTED},
        None,
        None,
    )
    assert claim(database, "a", limit=9) == [1, 2]
    with database.read() as connection:
        assert [head.state for head in SweepChunks(connection, "s1").heads()] == [DONE, OPEN, OPEN]


def test_chunks_are_undone_and_what_is_partly_undone_is_passed_over(database: Database) -> None:
    put(database)
    for number in claim(database, "a", limit=9):
        finish(database, number, "a")
    assert claim(database, "b") == []
    assert claim(database, "b", limit=9, state=DONE) == [0, 1, 2]
    assert finish(database, 0, "b", DONE).state == DONE
    assert finish(database, 2, "b", UNDONE).state == UNDONE
    assert claim(database, "b", limit=9, state=DONE, after=0) == [1]
    assert claim(database, "b", limit=9, state=DONE) == [0, 1]


def test_what_a_worker_has_claimed_another_passes_over_until_its_time_has_come(database: Database) -> None:
    put(database)
    assert claim(database, "a", limit=2) == [0, 1]
    assert claim(database, "b", limit=9) == [2]
    assert claim(database, "b", 0.5, limit=9) == [2]
    assert claim(database, "a", 0.5, limit=9) == [0, 1]
    assert claim(database, "b", 1.5, limit=9) == [0, 1, 2]


def test_a_worker_whose_claim_was_taken_over_writes_nothing(database: Database) -> None:
    put(database)
    claim(database, "a")
    claim(database, "b", 1)
    with database.read() as connection:
        mine = SweepChunks(connection, "s1").get(0)
    is_refused = pytest.raises(ChunkTakenError, match=r"chunk 0 of the sweep s1 .* by 'a', but by 'b'")
    with is_refused, database.begin() as connection:
        EventLog(connection).append([event()])
        SweepChunks(connection, "s1").finish(mine, "a", DONE, {sweep_item(0): EVICTED})
    finish(database, 0, "b")
    with pytest.raises(ChunkTakenError, match="by nobody"), database.begin() as connection:
        SweepChunks(connection, "s1").finish(mine, "b", DONE, {sweep_item(0): EVICTED})
    with database.read() as connection:
        assert EventLog(connection).last_seq() == 0


def test_a_chunk_is_ended_with_a_result_for_each_item(database: Database) -> None:
    put(database)
    claim(database, "a")
    with database.begin() as connection:
        chunks = SweepChunks(connection, "s1")
        with pytest.raises(ValueError, match="0 results for 1 items of chunk 0"):
            chunks.finish(chunks.get(0), "a", DONE, {})


def test_outcomes_are_counted_by_feed_and_at_some_times(database: Database) -> None:
    put(database, "s0")
    put(database, chunks=4)
    for number in claim(database, "a", limit=3):
        finish(database, number, "a")
    with database.read() as connection:
        chunks, evicted = SweepChunks(connection, "s1"), ItemOutcome.EVICTED
        assert chunks.count_outcomes() == {("clicks", evicted): 2, ("views", evicted): 1, ("views", None): 1}
        assert chunks.count_outcomes(["views"]) == {("views", evicted): 1, ("views", None): 1}
        assert chunks.count_outcomes(times=[hour(0), hour(3)]) == {("clicks", evicted): 1, ("views", None): 1}
        assert chunks.count_outcomes(["clicks"], [hour(3)]) == {}
        assert chunks.find_samples(evicted) == {**{n: [sweep_item(n)] for n in range(3)}, 3: []}
        assert not any(chunks.find_samples(ItemOutcome.KEPT).values())


def test_the_nearest_times_of_a_sweep_are_found(database: Database) -> None:
    put(database, "s0", chunks=9)
    put(database, chunks=5)
    with database.read() as connection:
        chunks = SweepChunks(connection, "s1")
        assert chunks.find_nearest(hour(2)) == (hour(2), hour(2))
        assert chunks.find_nearest(hour(2.5)) == (hour(2), hour(3))
        assert chunks.find_nearest(hour(2), ["views"]) == (hour(1), hour(3))
        assert chunks.find_nearest(hour(-1)) == (None, hour(0))
        assert chunks.find_nearest(hour(7)) == (hour(4), None)
        assert SweepChunks(connection, "none").find_nearest(hour(0)) == (None, None)


def test_a_renewed_claim_lasts_longer_and_no_other_is_made(database: Database) -> None:
    put(database)
    claim(database, "a")
    with database.begin() as connection:
        chunks = SweepChunks(connection, "s1")
        mine, free, _ = chunks.heads()
        chunks.renew(mine, "a", hour(9))
        chunks.renew(free, "a", hour(9))
        chunks.renew(mine, "b", hour(99))
        assert [(head.holder, head.held_until) for head in chunks.heads()] == [
            ("a", hour(9)),
            (None, None),
            (None, None),
        ]
    assert claim(database, "b", 8, limit=9) == [1, 2]
    assert claim(database, "b", 9) == [0]


def test_a_worker_gives_back_all_that_it_has(database: Database) -> None:
    put(database)
    claim(database, "heir", limit=9)
    with database.begin() as connection:
        assert SweepChunks(connection, "s1").release("heir") == 3
    assert claim(database, "b", limit=9) == [0, 1, 2]


def test_workers_that_share_a_sweep_take_each_chunk_once(database: Database, database_url: str) -> None:
    put(database, chunks=SWEEP_CHUNKS)
    taken = Team(sweep_all, database_url, 3).results()
    assert sorted(number for numbers in taken for number in numbers) == list(range(SWEEP_CHUNKS))
    with database.read() as connection:
        events = EventLog(connection).read(0, 999)
        assert sorted(each.nominal_time for each in events) == [hour(n) for n in range(SWEEP_CHUNKS)]
        assert {head.state for head in SweepChunks(connection, "s1").heads()} == {DONE}
        assert sum(SweepChunks(connection, "s1").count_outcomes().values()) == SWEEP_CHUNKS


def test_what_a_killed_worker_had_begun_is_done_by_the_next(database: Database, database_url: str) -> None:
    put(database)
    sweep_until_killed(database_url)
    with database.read() as connection:
        assert SweepChunks(connection, "s1").heads()[0].holder == "killed"
        assert EventLog(connection).last_seq() == 0
    with database.begin() as connection:
        SweepChunks(connection, "s1").release("killed")
    assert claim(database, "heir") == [0]
    assert finish(database, 0, "heir").state == DONE


def test_a_sweep_is_intact_only_with_all_its_chunks_as_they_were(database: Database) -> None:
    sweep = put(database)
    claim(database, "a", limit=9)
    finish(database, 0, "a")
    with database.begin() as connection:
        chunks = SweepChunks(connection, "s1")
        chunks.require_intact(sweep)
        connection.execute(text("UPDATE fa_sweep_chunks SET feed = 'orders' WHERE number = 1"))
        with pytest.raises(SweepDamagedError, match="its list of chunks is missing or does not match"):
            chunks.require_intact(sweep)
        connection.execute(text("UPDATE fa_sweep_chunks SET feed = 'views' WHERE number = 1"))
        chunks.require_intact(sweep)
        connection.execute(text("DELETE FROM fa_sweep_chunks WHERE number = 2"))
        with pytest.raises(SweepDamagedError):
            chunks.require_intact(sweep)


def test_content_that_was_changed_in_the_database_is_refused(database: Database) -> None:
    put(database)
    with database.begin() as connection:
        other = "(SELECT items FROM fa_sweep_chunks WHERE number = 1)"
        connection.execute(text(f"UPDATE fa_sweep_chunks SET items = {other} WHERE number = 0"))
        with pytest.raises(SweepDamagedError, match="its chunk 0"):
            SweepChunks(connection, "s1").get(0)
