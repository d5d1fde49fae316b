"""Instances that inboxes bring are held back until their rows are judged: nothing is lost, and nobody reads them."""

import shutil
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from feed_assets.context.consolidation import Lifecycle
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.explain.commands import why as explain_waiting
from feed_assets.instances.arrival.arrival_notices import Notice, NoticeOutcome, record_notice
from feed_assets.instances.attempts.judging import conclude_unread
from feed_assets.instances.inbox import ingest
from feed_assets.instances.inbox.inbox_files import FileStatus, SeenFile
from feed_assets.instances.inbox.store import TakenFiles
from feed_assets.instances.late.quality_checks import QualityCheck, QualityChecks, apply_quality_requests
from feed_assets.instances.lists.feed_listings import FileList, list_files
from feed_assets.instances.lists.queries import list_instances
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, FeedKey
from feed_assets.rebuild.rebuilding import rebuild_instances
from feed_assets.triggers.apply_triggers import apply_triggers
from feed_assets.triggers.queue.batches import Batches
from tests.context.contexts import query_of
from tests.databases import create_schema
from tests.instances.harness import START, LifecycleHarness, validity
from tests.instances.inbox.test_inboxes import (
    FIRST,
    MINUTE,
    InterruptError,
    contents,
    interrupt,
    look,
    orders,
    put,
    take,
)
from tests.retention.harness import RetentionHarness

AVAILABLE, PARTIAL = FeedInstanceStatus.AVAILABLE, FeedInstanceStatus.PARTIAL
ARRIVED, HELD = FeedEventKind.ARRIVED, FeedEventKind.HELD
RULE = {"rules": {"has-id": "id IS NOT NULL"}, "min_rows": 1}
BAD = "1 of 2 rows are good (50 %), 100 % must be; broken: has-id 1"
REFUSED = f"its rows are not good enough: {BAD}"


def judged(**inbox: Any) -> Feed:
    return Feed.model_validate({**orders(**inbox).model_dump(by_alias=True, exclude_unset=True), "quality": RULE})


def loaded() -> tuple[Feed, Process]:
    """What takes the orders, one instance by another."""
    place = "/loaded/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"
    on = {"primary": validity(START, None)}
    feed = Feed(name="loaded", instances="as-they-come", format="csv", locations={"data": place}, clusters=on)
    return feed, Process(
        name="load",
        clusters=on,
        trigger={"from": "earliest"},
        parallel=4,
        inputs={"orders": {"feed": "orders", "take": "new"}},
        outputs={"loaded": {"feed": "loaded", "instance": "now(0,0)"}},
        workflow={"path": "jobs:run"},
    )


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.server, pytest.mark.drill])])
def state(request: pytest.FixtureRequest) -> dict[str, str]:
    return {"state": create_schema(request.getfixturevalue("postgres_url"))} if request.param == "postgresql" else {}


@pytest.fixture(params=[False, True], ids=["moves", "leaves"])
def lifecycle(request: pytest.FixtureRequest, tmp_path: Path, state: dict[str, str]) -> LifecycleHarness:
    return LifecycleHarness.of(tmp_path, judged(leave=request.param), *loaded(), **state)


def batches(lifecycle: LifecycleHarness, as_of: datetime = FIRST) -> list[datetime]:
    """The instances that the batches have which are cut now."""
    with_batches = apply_triggers(lifecycle.open_tick(as_of)).batches
    with lifecycle.database.read() as connection:
        found = [each for key in with_batches for each in Batches(connection).events_of(key)]
    return [event.nominal_time for each in found for event in each.events]


def check(lifecycle: LifecycleHarness, time: datetime = FIRST) -> QualityCheck:
    key = FeedKey("orders", "primary", time)
    with lifecycle.database.read() as connection:
        return QualityChecks(connection).of_instances([key])[key]


def refuse(lifecycle: LifecycleHarness, time: datetime = FIRST) -> None:
    with lifecycle.database.begin() as connection:
        QualityChecks(connection).put([replace(check(lifecycle, time), due_at=None, summary=BAD)])


def conclude(lifecycle: LifecycleHarness, as_of: datetime, time: datetime = FIRST) -> None:
    conclude_unread(lifecycle.runner(as_of).context, lifecycle.feed("orders"), time)


def asked(lifecycle: LifecycleHarness, as_of: datetime = FIRST) -> list[datetime]:
    """The instances that a run is asked for to judge."""

    def find_alive(_: Collection[str]) -> Collection[str]:
        return ()

    return [
        time for each in apply_quality_requests(lifecycle.open_tick(as_of), find_alive) for time in each.nominal_times
    ]


def kinds(lifecycle: LifecycleHarness) -> list[FeedEventKind]:
    return [event.kind for event in lifecycle.events("orders")]


def listed(lifecycle: LifecycleHarness, **span: Any) -> FileList:
    return list_files(lifecycle.context(FIRST + 9 * MINUTE), "orders", **span)


def test_what_comes_is_held_back_until_it_is_judged_and_is_then_read_once(lifecycle: LifecycleHarness) -> None:
    path = put(lifecycle, "1.json", "one")
    assert look(lifecycle).arrived == 1
    assert path.exists() == lifecycle.feed("orders").inbox.leaves  # type: ignore[union-attr]
    assert (lifecycle.feed_statuses("orders"), kinds(lifecycle), batches(lifecycle)) == ({FIRST: PARTIAL}, [HELD], [])
    assert listed(lifecycle).files == ()
    (held,) = listed(lifecycle).held
    assert (held.names, held.reason) == (("1.json",), "its quality is checked: the next tick asks for a run")
    assert (asked(lifecycle), asked(lifecycle)) == ([FIRST], [])
    conclude(lifecycle, FIRST + MINUTE)
    assert (lifecycle.feed_statuses("orders"), kinds(lifecycle)) == ({FIRST: AVAILABLE}, [HELD, ARRIVED])
    assert batches(lifecycle, FIRST + MINUTE) == [FIRST]
    assert look(lifecycle, FIRST + MINUTE).arrived == 0
    assert batches(lifecycle, FIRST + 2 * MINUTE) == []
    for span in ({}, {"start": FIRST}, {"first_event": 2}):
        found = listed(lifecycle, **span)
        (file,) = found.files
        assert (file.url.rpartition("/")[2], file.event, (file.checksum or "").partition(":")[0]) == (
            "1.json",
            2,
            "blake3",
        )
        assert (found.held, found.notes) == ((), ("",))


def test_a_refused_file_is_known_and_told_with_its_rule_until_somebody_accepts_it(lifecycle: LifecycleHarness) -> None:
    put(lifecycle, "1.json", "one")
    (seen,) = take(lifecycle)
    assert (seen.status, seen.reason) == (FileStatus.TAKEN, "its quality is checked: the next tick asks for a run")
    refuse(lifecycle)
    again, other = put(lifecycle, "1.json", "one"), put(lifecycle, "copy.json", "one")
    assert status_of(take(lifecycle, FIRST + MINUTE)) == {"1.json": FileStatus.KNOWN, "copy.json": FileStatus.DUPLICATE}
    assert again.exists() == other.exists() == lifecycle.feed("orders").inbox.leaves or other.exists()  # type: ignore[union-attr]
    if again.exists():
        known = {each.name: each.reason for each in take(lifecycle, FIRST + MINUTE)}
        assert known["1.json"] == f"event 1 has taken it; {REFUSED}"
    put(lifecycle, "2.json", "two")
    look(lifecycle, FIRST + 2 * MINUTE)
    conclude(lifecycle, FIRST + 3 * MINUTE, FIRST + 2 * MINUTE)
    assert batches(lifecycle, FIRST + 3 * MINUTE) == [FIRST + 2 * MINUTE]
    assert listed(lifecycle).notes[0].endswith(f": nobody reads 1.json: {REFUSED}")
    next_batch = explain_waiting(lifecycle.context(FIRST + 3 * MINUTE), name="load", author="ann")
    assert next_batch.rows[0].endswith("\n  - orders has 1 instance held back because of rows")
    assert asked(lifecycle, FIRST + 5 * MINUTE) == []
    notice = Notice(feed="orders", nominal_time=FIRST, accept="a sale")
    assert record_notice(lifecycle.context(FIRST + 6 * MINUTE).by("ann"), notice).outcome is NoticeOutcome.ACCEPTED
    assert batches(lifecycle, FIRST + 6 * MINUTE) == [FIRST]
    assert [(file.url.rpartition("/")[2], file.event) for file in listed(lifecycle).files] == [
        ("2.json", 3),
        ("1.json", 4),
    ]
    assert all(file.checksum for file in listed(lifecycle).files)


def status_of(seen: Collection[SeenFile]) -> dict[str, FileStatus]:
    return {each.name: each.status for each in seen}


def test_other_content_in_its_place_is_judged_and_what_was_taken_is_not_told_of_it(lifecycle: LifecycleHarness) -> None:
    put(lifecycle, "1.json", "one")
    look(lifecycle)
    refuse(lifecycle)
    lifecycle.arrive(FIRST + MINUTE)
    assert (check(lifecycle).summary, asked(lifecycle, FIRST + MINUTE)) == (BAD, []), "the same is not judged again"
    (lifecycle.folder("orders", FIRST) / "1.json").write_text("other content")
    lifecycle.arrive(FIRST + 30 * MINUTE)
    assert asked(lifecycle, FIRST + 30 * MINUTE) == [FIRST]
    conclude(lifecycle, FIRST + 31 * MINUTE)
    assert batches(lifecycle, FIRST + 31 * MINUTE) == [FIRST]
    (file,) = list_files(lifecycle.context(FIRST + 31 * MINUTE), "orders").files
    assert (file.url.rpartition("/")[2], file.bytes, file.checksum) == ("1.json", 13, None)


def test_what_is_removed_from_its_place_is_forgotten_and_no_run_is_asked_for(lifecycle: LifecycleHarness) -> None:
    put(lifecycle, "1.json", "one")
    look(lifecycle)
    shutil.rmtree(lifecycle.folder("orders", FIRST))
    lifecycle.arrive(FIRST + 10 * MINUTE)
    assert (lifecycle.feed_statuses("orders"), asked(lifecycle, FIRST + 10 * MINUTE)) == ({}, [])
    put(lifecycle, "1.json", "one", ago=3 * MINUTE)
    is_new = look(lifecycle, FIRST + 11 * MINUTE).arrived == 1
    assert is_new
    assert lifecycle.feed_statuses("orders") == {FIRST + 11 * MINUTE: PARTIAL}


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        (ingest._Inbox, "_publish", True),
        (ingest._Inbox, "_record_arrival", True),
        (ingest._Inbox, "_remove", True),
        (QualityChecks, "put", False),
        (FeedInstances, "put", False),
        (TakenFiles, "add", True),
    ],
)
def test_a_look_that_is_killed_before_the_rows_are_judged_is_continued(
    lifecycle: LifecycleHarness, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    put(lifecycle, "1.json", "one")
    with monkeypatch.context() as patch:
        interrupt(patch, owner, name, after=after)
        if name != "_remove" or not lifecycle.feed("orders").inbox.leaves:  # type: ignore[union-attr]
            with pytest.raises(InterruptError):
                take(lifecycle)
    put(lifecycle, "2.json", "two")
    take(lifecycle, FIRST + MINUTE), take(lifecycle, FIRST + 2 * MINUTE)
    assert batches(lifecycle, FIRST + 3 * MINUTE) == []
    came = sorted(asked(lifecycle, FIRST + 3 * MINUTE))
    assert set(lifecycle.feed_statuses("orders").values()) == {PARTIAL}
    for time in came:
        conclude(lifecycle, FIRST + 4 * MINUTE, time)
    assert sorted([*batches(lifecycle, FIRST + 5 * MINUTE), *batches(lifecycle, FIRST + 6 * MINUTE)]) == came
    held = {name: text for time in came for name, text in contents(lifecycle, time).items()}
    assert held == {"1.json": "one", "2.json": "two"}
    assert sorted((file.url.rpartition("/")[2], file.checksum is not None) for file in listed(lifecycle).files) == [
        ("1.json", True),
        ("2.json", True),
    ]


def test_two_looks_at_once_hold_a_file_back_once(lifecycle: LifecycleHarness) -> None:
    for number in range(8):
        put(lifecycle, f"{number}.json", str(number))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: take(lifecycle), range(4)))
    take(lifecycle, FIRST + MINUTE)
    (held,) = listed(lifecycle).held
    assert (sorted(held.names), kinds(lifecycle)) == ([f"{number}.json" for number in range(8)], [HELD])


def test_a_state_that_was_lost_holds_back_what_it_finds_and_takes_nothing_again(
    lifecycle: LifecycleHarness, tmp_path: Path
) -> None:
    put(lifecycle, "1.json", "one")
    look(lifecycle)
    refuse(lifecycle)
    leaves = lifecycle.feed("orders").inbox.leaves  # type: ignore[union-attr]
    lost = LifecycleHarness.of(tmp_path, judged(leave=leaves), *loaded(), state=f"sqlite:///{tmp_path / 'lost.db'}")
    found = rebuild_instances(lost.context(FIRST + MINUTE))
    assert [each.begins_anew for each in found.feeds if each.feed == "orders"] == [False]
    assert (lost.feed_statuses("orders"), kinds(lost), batches(lost)) == ({FIRST: PARTIAL}, [HELD], [])
    assert [each.names for each in listed(lost).held] == [("1.json",)]
    put(lost, "1.json", "one")
    assert status_of(take(lost, FIRST + 2 * MINUTE)) == {"1.json": FileStatus.KNOWN}
    conclude(lost, FIRST + 3 * MINUTE)
    assert batches(lost, FIRST + 3 * MINUTE) == [FIRST]


def test_what_was_held_back_comes_once_there_are_no_rules_any_more(lifecycle: LifecycleHarness) -> None:
    put(lifecycle, "1.json", "one")
    look(lifecycle)
    lifecycle.declare(orders(leave=lifecycle.feed("orders").inbox.leaves), *loaded())  # type: ignore[union-attr]
    lifecycle.arrive(FIRST + 30 * MINUTE)
    assert batches(lifecycle, FIRST + 30 * MINUTE) == [FIRST]
    assert [file.checksum is not None for file in listed(lifecycle).files] == [True]


def test_what_a_batch_has_taken_before_the_state_was_lost_is_let_in_and_taken_once(
    lifecycle: LifecycleHarness, tmp_path: Path
) -> None:
    put(lifecycle, "1.json", "one")
    look(lifecycle)
    conclude(lifecycle, FIRST + MINUTE)
    (batch,) = apply_triggers(lifecycle.open_tick(FIRST + MINUTE)).batches
    lifecycle.run("load", batch.nominal_time, FIRST + MINUTE)
    leaves = lifecycle.feed("orders").inbox.leaves  # type: ignore[union-attr]
    lost = LifecycleHarness.of(tmp_path, judged(leave=leaves), *loaded(), state=f"sqlite:///{tmp_path / 'lost.db'}")
    rebuild_instances(lost.context(FIRST + 2 * MINUTE))
    assert (lost.feed_statuses("orders"), kinds(lost)) == ({FIRST: AVAILABLE}, [HELD, ARRIVED])
    assert (asked(lost), batches(lost)) == ([], [])
    put(lost, "2.json", "two")
    look(lost, FIRST + 3 * MINUTE)
    conclude(lost, FIRST + 4 * MINUTE, FIRST + 3 * MINUTE)
    assert batches(lost, FIRST + 4 * MINUTE) == [FIRST + 3 * MINUTE]


def test_what_an_undo_brings_back_is_in_no_batch_before_its_rows_have_passed(tmp_path: Path) -> None:
    kept = {"primary": {**validity(START, None), "retention": {"limit": "hours(2)"}}}
    feed = Feed.model_validate({**judged().model_dump(by_alias=True, exclude_unset=True), "clusters": kept})
    harness = RetentionHarness.of(tmp_path, feed, *loaded())
    lifecycle, later = harness.lifecycle, FIRST + 240 * MINUTE
    for number, time in enumerate((FIRST, FIRST + MINUTE, later)):
        put(lifecycle, f"{number}.json", str(number))
        look(lifecycle, time)
    refuse(lifecycle)
    conclude(lifecycle, later, later)
    assert batches(lifecycle, later) == [later]
    harness.wait(later)
    sweep = harness.sweep_now("orders")
    lifecycle.arrive(later + MINUTE)
    assert harness.undo(sweep).restored == 2
    assert lifecycle.feed_statuses("orders") == {FIRST: PARTIAL, FIRST + MINUTE: PARTIAL, later: AVAILABLE}
    assert batches(lifecycle, later + 2 * MINUTE) == []
    held = {each.nominal_time: each for each in listed(lifecycle).held}
    assert (held[FIRST].names, held[FIRST].reason) == (("0.json",), REFUSED)
    context = lifecycle.context(later + 2 * MINUTE)
    evictions = query_of(context, "orders", Kind.FEED, start=START, lifecycles=frozenset({Lifecycle.EVICTION}))
    rows = list_instances(context, evictions).instances
    assert {row.nominal_time: row.status for row in rows} == dict.fromkeys((FIRST, FIRST + MINUTE), "RESTORED")
    (lifecycle.folder("orders", FIRST) / "0.json").write_text("corrected")
    lifecycle.arrive(later + 3 * MINUTE)
    assert asked(lifecycle, later + 3 * MINUTE) == [FIRST, FIRST + MINUTE]
    for time in (FIRST, FIRST + MINUTE):
        conclude(lifecycle, later + 4 * MINUTE, time)
    assert sorted(batches(lifecycle, later + 5 * MINUTE)) == [FIRST, FIRST + MINUTE]
    assert [file.url.rpartition("/")[2] for file in listed(lifecycle).files if file.checksum] == ["2.json", "1.json"]


def test_what_is_left_of_a_look_whose_bad_file_was_removed_is_not_taken_again(lifecycle: LifecycleHarness) -> None:
    for name in ("bad.json", "good.json"):
        put(lifecycle, name, name)
    look(lifecycle)
    refuse(lifecycle)
    (lifecycle.folder("orders", FIRST) / "bad.json").unlink()
    lifecycle.arrive(FIRST + 30 * MINUTE)
    put(lifecycle, "good.json", "good.json", ago=3 * MINUTE)
    if not lifecycle.feed("orders").inbox.leaves:  # type: ignore[union-attr]
        put(lifecycle, "bad.json", "bad.json", ago=3 * MINUTE)
    assert status_of(take(lifecycle, FIRST + 31 * MINUTE))["good.json"] is FileStatus.KNOWN
    conclude(lifecycle, FIRST + 32 * MINUTE)
    assert batches(lifecycle, FIRST + 33 * MINUTE) == [FIRST]
    assert contents(lifecycle, FIRST) == {"good.json": "good.json"}
    others = lifecycle.feed_statuses("orders").keys() - {FIRST}
    assert {name for time in others for name in contents(lifecycle, time)} <= {"bad.json"}


def test_a_notice_of_what_was_refused_says_so_and_what_would_let_it_in(lifecycle: LifecycleHarness) -> None:
    put(lifecycle, "1.json", "one")
    look(lifecycle)
    notice = Notice(feed="orders", nominal_time=FIRST)
    assert record_notice(lifecycle.context(FIRST).by("ann"), notice).outcome is NoticeOutcome.HELD
    refuse(lifecycle)
    found = record_notice(lifecycle.context(FIRST).by("ann"), notice)
    assert (found.outcome, found.other.startswith(f"; {REFUSED}; ")) == (NoticeOutcome.KNOWN, True)
    assert "--accept REASON" in found.other
    shutil.rmtree(lifecycle.folder("orders", FIRST))
    lifecycle.arrive(FIRST + 10 * MINUTE)
    lifecycle.folder("orders", FIRST).mkdir()
    (lifecycle.folder("orders", FIRST) / "1.json").write_text("other")
    assert record_notice(lifecycle.context(FIRST + 11 * MINUTE).by("ann"), notice).outcome is NoticeOutcome.HELD
