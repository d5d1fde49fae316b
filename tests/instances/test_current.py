"""Feeds with one current instance: versions that come, who reads them, and who writes them."""

import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.context.operation import resolve_subject
from feed_assets.engines.port import Work
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.explain.explanations import explain_instance, tell_why
from feed_assets.instances.arrival.arrival_notices import Notice, NoticeOutcome, record_notice
from feed_assets.instances.arrival.stored_data import record_gone
from feed_assets.instances.attempts.judging import conclude_unread
from feed_assets.instances.errors import InputChangedError, InputsMissingError
from feed_assets.instances.gates.actions import InstanceAction, apply_action
from feed_assets.instances.late.detection import apply_late_checks
from feed_assets.instances.late.hanging import find_hanging
from feed_assets.instances.lists.feed_listings import list_feed
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus, ProcessKey
from feed_assets.replication.queries import CopyQuery
from feed_assets.replication.status import Sync, find_status
from tests.instances.harness import START, LifecycleHarness, at, feed, process, read_inputs, validity

DAY = timedelta(days=1)
NOON = at("03T12:00")
WATCH = timedelta(minutes=5)
DAYS = [START, START + DAY, START + 2 * DAY]
SUCCEEDED = ProcessInstanceStatus.SUCCEEDED


def current(name: str, **more: Any) -> Feed:
    """A feed of CSV files in one place."""
    clusters = {"primary": validity(START, None)}
    return Feed(name=name, instances="current", format="csv", locations={"data": f"/{name}"}, clusters=clusters, **more)


def entities(on_update: str = "rerun", window: str = "now(0,0)") -> list[AnyEntity]:
    """Each day something is named after countries, and the names of the newest day are published in one place."""
    trigger = {"trigger": {"on_update": on_update}}
    return [
        current("countries"),
        feed("named", "days(1)"),
        current("newest"),
        process("naming", "days(1)", inputs={"countries": window}, outputs={"named": "now(0,0)"}, **trigger),
        process("publishing", "days(1)", inputs={"named": "now(0,0)"}, outputs={"newest": "now(0,0)"}),
    ]


def joined(work: Work) -> Mapping[str, str]:
    """What a job sees is what it makes, with its day where the output is shared."""
    text = "+".join(text for texts in read_inputs(work).values() for text in texts)
    return {each.name: f"{text}@{work.nominal_time:%d}" if each.name == "newest" else text for each in work.outputs}


def write(lifecycle: LifecycleHarness, text: str, modified_at: datetime) -> None:
    """Overwrite the countries in their place."""
    file = lifecycle.folder("countries", START) / "countries.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    for each in (file, file.parent):
        os.utime(each, times=(modified_at.timestamp(), modified_at.timestamp()))


def work(lifecycle: LifecycleHarness, as_of: datetime) -> list[tuple[str, datetime]]:
    """Tick and run until nothing is asked for; the instances that ran, in order."""
    ran: list[tuple[str, datetime]] = []
    quiet = 0
    while quiet < 2:
        requests = lifecycle.tick(as_of)
        lifecycle.look_for_late(as_of)
        lifecycle.launch(requests, as_of)
        quiet = 0 if requests else quiet + 1
        ran += [(each.process.process, time) for each in requests for time in each.nominal_times]
    return ran


def begun(tmp_path: Path, *own: AnyEntity, state: str | None = None) -> LifecycleHarness:
    """The countries came before the first day, and everything has run up to the morning of the third."""
    lifecycle = LifecycleHarness.of(tmp_path, *(own or entities()), state=state)
    lifecycle.job = joined
    write(lifecycle, "old", START - DAY)
    for day in DAYS:
        work(lifecycle, day + timedelta(hours=8))
    return lifecycle


def versions(lifecycle: LifecycleHarness, name: str) -> list[tuple[FeedEventKind, datetime]]:
    return [(each.kind, each.recorded_at) for each in lifecycle.events(name)]


def told(lifecycle: LifecycleHarness, kind: Kind, name: str, time: datetime, as_of: datetime = NOON) -> list[str]:
    context = lifecycle.context(as_of)
    with context.read() as connection:
        return [each.text for each in explain_instance(context, connection, kind, name, "primary", time).reasons]


def test_a_version_concerns_the_newest_instance_of_its_reader_and_lineage_tells_both(
    tmp_path: Path, state_url: str
) -> None:
    lifecycle = begun(tmp_path, state=state_url)
    assert [lifecycle.content("named", day) for day in DAYS] == ["old", "old", "old"]
    write(lifecycle, "new", NOON)
    assert work(lifecycle, NOON) == []  # written just now
    later = NOON + WATCH
    assert work(lifecycle, later) == [("naming", DAYS[2])]
    assert [lifecycle.content("named", day) for day in DAYS] == ["old", "old", "new"]
    (attempt,) = [each for each in told(lifecycle, Kind.PROCESS, "naming", DAYS[2], later) if "attempt 2" in each]
    assert attempt.endswith("updated: countries changed at 2013-11-03T12:05:00Z")
    changed = versions(lifecycle, "countries")
    assert changed == [(FeedEventKind.ARRIVED, DAYS[0] + timedelta(hours=8)), (FeedEventKind.CHANGED, later)]
    read = [told(lifecycle, Kind.PROCESS, "naming", day, later) for day in DAYS[1:]]
    texts = [text for each in read for text in each if "as input countries" in text]
    assert "the version of 2013-11-01T08:00:00Z" in texts[0]
    assert "the version of 2013-11-03T12:05:00Z" in texts[1]


@pytest.mark.parametrize("window", ["now(0,0)", "today(0,0)", "latest(0)"])
def test_each_window_that_holds_it_reads_the_present_version(window: str, tmp_path: Path) -> None:
    lifecycle = begun(tmp_path, *entities(window=window))
    assert [lifecycle.content("named", day) for day in DAYS] == ["old", "old", "old"]
    with lifecycle.database.read() as connection:
        hanging = find_hanging(connection, lifecycle.timeline, {("countries", "primary"): [START]})
    assert list(hanging) == [ProcessKey("naming", "primary", DAYS[2])]
    write(lifecycle, "new", NOON - timedelta(hours=1))
    assert work(lifecycle, NOON) == [("naming", DAYS[2])]
    assert lifecycle.content("named", DAYS[2]) == "new"


def test_ignore_runs_nothing_again_and_the_next_day_reads_the_new_version(tmp_path: Path) -> None:
    lifecycle = begun(tmp_path, *entities("ignore"))
    write(lifecycle, "new", NOON - timedelta(hours=1))
    assert work(lifecycle, NOON) == []
    work(lifecycle, NOON + DAY)
    assert [lifecycle.content("named", day) for day in (DAYS[2], DAYS[2] + DAY)] == ["old", "new"]


def test_equal_content_is_no_version_and_the_place_is_looked_at_for_ever(tmp_path: Path) -> None:
    lifecycle = begun(tmp_path)
    write(lifecycle, "old", NOON - timedelta(hours=1))
    assert work(lifecycle, NOON) == []
    assert len(versions(lifecycle, "countries")) == 1
    (check,) = [lifecycle.late_check("countries", START, AgendaKind.LATE_FEED)]
    assert check is not None
    assert check.due_at == NOON + WATCH


def test_a_notice_is_looked_at_at_once(tmp_path: Path) -> None:
    lifecycle = begun(tmp_path)
    write(lifecycle, "new", NOON)
    notice, context = (
        Notice(feed="countries", nominal_time=None, marking="final"),
        lifecycle.context(NOON),
    )
    assert record_notice(context.by("ann", dry_run=True), notice).outcome is NoticeOutcome.CHANGED
    assert record_notice(context.by("ann"), notice).outcome is NoticeOutcome.CHANGED
    assert record_notice(context.by("ann"), notice).outcome is NoticeOutcome.KNOWN
    told = lifecycle.events("countries")[-1]
    assert (told.kind, told.origin, told.marking) == (FeedEventKind.CHANGED, "notice:ann", "final")
    assert work(lifecycle, NOON) == [("naming", DAYS[2])]


@pytest.mark.parametrize("noticed_by", ["run", "look"])
def test_what_vanishes_is_told_and_what_comes_again_is_a_version(noticed_by: str, tmp_path: Path) -> None:
    lifecycle = begun(tmp_path)
    (file,) = lifecycle.folder("countries", START).iterdir()
    file.unlink()
    if noticed_by == "run":
        with pytest.raises(Exception, match="Storage has lost"):
            lifecycle.run("naming", DAYS[2], NOON)
    else:
        tick = lifecycle.open_tick(NOON, bulkheads=Bulkheads("primary", FrozenClock(NOON)))
        record_gone(tick, apply_late_checks(tick).gone)
        (failure,) = tick.bulkheads.failures
        assert (failure.step, "has lost what it had: countries" in failure.reason) == (TickStep.STORED_DATA, True)
        assert lifecycle.tick(DAYS[2] + DAY) == []
        assert "input countries lacks 1 of 1 instances of feed countries" in told(
            lifecycle, Kind.PROCESS, "naming", DAYS[2] + DAY, DAYS[2] + DAY
        )
        (why,) = [each for each in told(lifecycle, Kind.FEED, "countries", START) if "storage has lost it" in each]
        assert why.endswith("noticed at 2013-11-03T12:00:00Z by look")
    assert versions(lifecycle, "countries")[-1] == (FeedEventKind.VANISHED, NOON)
    write(lifecycle, "new", NOON)
    day = DAYS[2] + (noticed_by == "look") * DAY
    work(lifecycle, day + timedelta(hours=13))
    assert lifecycle.content("named", day) == "new"


@pytest.mark.parametrize(("text", "again"), [("old", []), ("new", [("naming", DAYS[2])])])
@pytest.mark.parametrize("by", ["poll", "notice"])
def test_what_comes_back_is_one_version_and_wakes_readers_of_other_content(
    by: str, text: str, again: list[tuple[str, datetime]], tmp_path: Path
) -> None:
    lifecycle = begun(tmp_path)
    before = lifecycle.events("countries")[-1].manifest_digest
    assert (before or "").startswith("sha256:")
    (file,) = lifecycle.folder("countries", START).iterdir()
    file.unlink()
    lifecycle.look_for_late(NOON)
    write(lifecycle, text, NOON)
    later = NOON + DAY / 48
    if by == "notice":
        notice = Notice(feed="countries", nominal_time=None)
        assert record_notice(lifecycle.context(later).by("ann"), notice).outcome is NoticeOutcome.RECORDED
    assert work(lifecycle, later) == again
    assert work(lifecycle, later + WATCH) == []
    kinds = [FeedEventKind.ARRIVED, FeedEventKind.VANISHED, FeedEventKind.ARRIVED]
    assert [kind for kind, _ in versions(lifecycle, "countries")] == kinds
    assert (lifecycle.events("countries")[-1].manifest_digest == before) is (text == "old")


def test_an_empty_folder_is_missing_wherever_it_is_shown_and_a_version_has_its_own_time(tmp_path: Path) -> None:
    lifecycle = begun(tmp_path)
    (file,) = lifecycle.folder("countries", START).iterdir()

    def listed(as_of: datetime, *, look: bool) -> tuple[str, datetime | None]:
        context = lifecycle.context(as_of)
        found = list_feed(context, resolve_subject(context, "countries"), look=look).instances[0]
        return found.status.value, found.created_at

    write(lifecycle, "new", NOON - DAY / 24)
    lifecycle.look_for_late(NOON)
    assert listed(NOON, look=False) == ("AVAILABLE", NOON)
    file.unlink()
    os.utime(file.parent, times=(NOON.timestamp(), NOON.timestamp()))
    lifecycle.look_for_late(NOON + WATCH)
    for later in (NOON + WATCH, NOON + DAY):
        lifecycle.tick(later)
        assert [listed(later, look=look)[0] for look in (False, True)] == ["MISSING", "MISSING"]
        context = lifecycle.context(later)
        told = tell_why(context, resolve_subject(context, "countries", START), shows_all=False, look=True, author="ann")
        assert "is MISSING" in "\n".join(told.rows)


def test_what_changes_between_its_arrival_and_the_first_look_is_a_version(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *entities())
    write(lifecycle, "old", NOON - DAY)
    lifecycle.tick(NOON)
    write(lifecycle, "new", NOON - timedelta(hours=1))
    lifecycle.look_for_late(NOON + WATCH)
    assert [kind for kind, _ in versions(lifecycle, "countries")] == [FeedEventKind.ARRIVED, FeedEventKind.CHANGED]


def test_why_names_the_place_that_is_missing_gone_or_being_written(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *entities(window="latest(0)"))
    later = NOON + WATCH

    def told(name: str, instance: datetime, as_of: datetime = NOON) -> str:
        context = lifecycle.context(as_of)
        subject = resolve_subject(context, name, instance)
        return "\n".join(tell_why(context, subject, shows_all=False, look=True, author="ann").rows)

    lifecycle.tick(NOON)
    assert "input countries waits for a version of feed countries" in told("naming", DAYS[2])
    assert "because feed countries on primary at 2013-11-01T00:00Z is MISSING" in told("naming", DAYS[2])
    write(lifecycle, "new", NOON)
    assert "had been written less than a minute before at 2013-11-03T12:00:00Z" in told("naming", DAYS[2])
    work(lifecycle, later)
    (file,) = lifecycle.folder("countries", START).iterdir()
    file.unlink()
    assert "is not there any more, noticed at" in told("countries", START, later)
    write(lifecycle, "newer", later)
    again = told("countries", START, later)
    assert "was gone, noticed at" in again
    assert "had been written less than a minute before" in again


def test_work_is_repeated_once_if_the_place_changes_meanwhile_and_then_fails(tmp_path: Path) -> None:
    lifecycle = begun(tmp_path)
    changes = iter(("one", None))

    def changing(work: Work) -> Mapping[str, str]:
        made = joined(work)
        if (text := next(changes, "more")) is not None:
            write(lifecycle, f"{text}{made['named']}", NOON)
        return made

    lifecycle.job = changing
    lifecycle.run("naming", DAYS[2], NOON, "again")
    assert lifecycle.content("named", DAYS[2]) == "oneold"
    with pytest.raises(InputChangedError, match="feed countries changed while it was read, and again"):
        lifecycle.run("naming", DAYS[2], NOON, "never")
    assert lifecycle.content("named", DAYS[2]) == "oneold"
    assert lifecycle.statuses("naming")[DAYS[2]] is ProcessInstanceStatus.FAILED


def test_an_older_instance_leaves_the_version_of_a_newer_one_and_a_repeat_replaces_it(tmp_path: Path) -> None:
    lifecycle = begun(tmp_path)
    assert lifecycle.content("newest", START) == "old@03"
    made = len(versions(lifecycle, "newest"))
    assert lifecycle.run("publishing", DAYS[1], NOON, "older") == ()
    assert lifecycle.content("newest", START) == "old@03"
    assert lifecycle.statuses("publishing")[DAYS[1]] is SUCCEEDED
    left = "it left feed newest as it was: there was the version of a newer instance, 2013-11-03T00:00Z"
    assert left in told(lifecycle, Kind.PROCESS, "publishing", DAYS[1])
    assert not [each for each in told(lifecycle, Kind.PROCESS, "publishing", DAYS[0]) if "newer" in each]
    lifecycle.job = lambda work: {each.name: "again" for each in work.outputs}
    lifecycle.run("publishing", DAYS[2], NOON, "repeat")
    assert lifecycle.content("newest", START) == "again"
    events = lifecycle.events("newest")
    assert len(events) == made + 1
    assert [str(each.maker and each.maker.nominal_time) for each in events] == [str(day) for day in (*DAYS, DAYS[2])]


def test_a_reader_of_what_a_process_writes_follows_its_versions(tmp_path: Path) -> None:
    reader = process(
        "reading",
        "days(1)",
        inputs={"newest": "now(0,0)"},
        outputs={"copied": "now(0,0)"},
        start=DAYS[2],
        trigger={"on_update": "rerun"},
    )
    lifecycle = begun(tmp_path, *entities(), feed("copied", "days(1)"), reader)
    assert lifecycle.content("copied", DAYS[2]) == "old@03"
    write(lifecycle, "new", NOON - timedelta(hours=1))
    assert [name for name, _ in work(lifecycle, NOON)] == ["naming"]
    lifecycle.run("publishing", DAYS[2], NOON, "by-hand")
    assert work(lifecycle, NOON + WATCH) == [("reading", DAYS[2])]
    assert lifecycle.content("copied", DAYS[2]) == "new@03"


def test_a_replica_follows_the_versions_of_its_source(tmp_path: Path) -> None:
    roles = {"primary": "source", "backup": "target"}
    clusters = {name: {**validity(START, None), "type": role} for name, role in roles.items()}
    copied = Feed(
        name="countries", instances="current", format="csv", locations={"data": "/countries"}, clusters=clusters
    )
    lifecycle = LifecycleHarness.of(tmp_path, copied, clusters=tuple(roles))
    for moment in (START, START + DAY / 2):
        lifecycle.tick(moment, "backup")  # the copy waits, however long it takes
    for text, moment in (("old", START + DAY), ("new", NOON)):
        write(lifecycle, text, moment - timedelta(hours=1))
        for _ in range(3):
            lifecycle.tick(moment)
            lifecycle.look_for_late(moment)
            lifecycle.launch(lifecycle.tick(moment, "backup"), moment)
        (replica,) = (tmp_path / "backup/countries").glob("*.csv")
        assert replica.read_text() == text
    (flow,) = find_status(lifecycle.context(NOON + WATCH), CopyQuery(feed="countries")).flows
    assert flow.counts == {Sync.IN_SYNC: 1}


def test_a_time_that_is_far_ahead_does_not_keep_a_version_back(tmp_path: Path) -> None:
    lifecycle = begun(tmp_path)
    write(lifecycle, "new", NOON + 1000 * DAY)
    assert work(lifecycle, NOON) == [("naming", DAYS[2])]


@pytest.mark.parametrize("change", ["schedule", "place", "start"])
def test_what_is_declared_otherwise_is_looked_at_where_it_is_then(change: str, tmp_path: Path) -> None:
    others = entities()[1:]
    start = START - 30 * DAY if change == "start" else START
    moved = Feed(
        name="countries",
        instances="current",
        format="csv",
        locations={"data": "/countries" if change == "start" else "/elsewhere"},
        clusters={"primary": validity(start, None)},
    )
    lifecycle = begun(tmp_path) if change != "schedule" else LifecycleHarness.of(tmp_path)
    if change == "schedule":
        lifecycle.job = joined
        lifecycle.declare(feed("countries", "days(1)"), *others)
        lifecycle.land("countries", *DAYS, text="old")
        for day in DAYS:
            work(lifecycle, day + timedelta(hours=8))
    lifecycle.declare(moved, *others)
    work(lifecycle, NOON)  # nothing stands there yet, so what stood elsewhere is read
    write(lifecycle, "new", NOON)
    work(lifecycle, NOON + DAY)
    work(lifecycle, NOON + 2 * DAY)
    was = lifecycle.content("named", DAYS[2])
    assert was == ("new" if change == "place" else "old")  # a version of what it has read
    assert lifecycle.content("named", DAYS[2] + 2 * DAY) == "new"
    assert (lifecycle.late_check("countries", START, AgendaKind.LATE_FEED) is None) == (change == "start")
    assert not lifecycle.feed("countries").sequence.contains(start - DAY)


@pytest.mark.parametrize("days", [-30, 1])
def test_what_is_written_here_stays_the_version_if_the_validity_starts_at_another_time(
    tmp_path: Path, days: int
) -> None:
    def since(start: datetime) -> list[AnyEntity]:
        clusters = {"primary": {**validity(start, None), "retention": {"versions": 2}}}
        newest = Feed(
            name="newest", instances="current", format="csv", locations={"data": "/newest"}, clusters=clusters
        )
        others = [each for each in entities() if each.name not in ("newest", "publishing")]
        windows = {"inputs": {"named": "now(0,0)"}, "outputs": {"newest": "now(0,0)"}}
        return [*others, newest, process("publishing", "days(1)", start=START + 2 * DAY, **windows)]

    lifecycle = begun(tmp_path, *since(START))
    start = START + days * DAY
    lifecycle.declare(*since(start))
    assert lifecycle.tick(NOON) == []
    assert lifecycle.feed_statuses("newest") == {start: FeedInstanceStatus.AVAILABLE}
    (present,) = [each for each in told(lifecycle, Kind.FEED, "newest", start) if "the present version" in each]
    assert "by process publishing, another start of the validity" in present
    lifecycle.job = lambda work: {each.name: "next" for each in work.outputs}
    work(lifecycle, DAYS[2] + DAY + timedelta(hours=8))
    assert lifecycle.content("newest", start) == "next"
    kept = [each for each in lifecycle.events("newest") if each.kind is FeedEventKind.EVICTED]
    assert [each.nominal_time for each in kept] == [start]
    lifecycle.job = joined
    assert lifecycle.run("publishing", DAYS[2], NOON + DAY, "older") == ()


def let_in(lifecycle: LifecycleHarness, as_of: datetime) -> None:
    conclude_unread(lifecycle.runner(as_of).context, lifecycle.feed("countries"), START)


def test_a_version_whose_rows_are_judged_is_not_read_before_it_has_passed(tmp_path: Path) -> None:
    judged = current("countries", quality={"rules": {"named": "name IS NOT NULL"}})
    lifecycle = begun(tmp_path, judged, *entities()[1:])
    assert lifecycle.feed_statuses("countries") == {START: FeedInstanceStatus.PARTIAL}
    assert lifecycle.statuses("naming")[DAYS[2]] is ProcessInstanceStatus.WAITING
    let_in(lifecycle, DAYS[2] + timedelta(hours=8))
    work(lifecycle, DAYS[2] + timedelta(hours=9))
    assert [lifecycle.content("named", day) for day in DAYS] == ["old", "old", "old"]
    write(lifecycle, "new", NOON - timedelta(hours=1))
    with pytest.raises(InputsMissingError):  # no look has found it yet
        lifecycle.run("naming", DAYS[2], NOON, "by-hand")
    assert lifecycle.content("named", DAYS[2]) == "old"
    assert work(lifecycle, NOON + WATCH) == []
    assert len(versions(lifecycle, "countries")) == 1
    write(lifecycle, "newer", NOON - timedelta(minutes=30))
    assert work(lifecycle, NOON + 2 * WATCH) == []
    let_in(lifecycle, NOON + 2 * WATCH)
    assert ("naming", DAYS[2]) in work(lifecycle, NOON + 3 * WATCH)
    assert lifecycle.content("named", DAYS[2]) == "newer"
    write(lifecycle, "newest", NOON)
    assert work(lifecycle, NOON + 4 * WATCH) == []
    let_in(lifecycle, NOON + 4 * WATCH)
    assert work(lifecycle, NOON + 5 * WATCH) == [("naming", DAYS[2])]
    assert lifecycle.content("named", DAYS[2]) == "newest"
    assert len(versions(lifecycle, "countries")) == 3


@pytest.mark.parametrize("on_update", ["rerun", "hold"])
def test_hold_waits_for_who_writes_a_current_instance(tmp_path: Path, on_update: str) -> None:
    windows = {"inputs": {"newest": "now(0,0)"}, "outputs": {"copied": "now(0,0)"}, "start": DAYS[2]}
    reader = process("reading", "days(1)", trigger={"on_update": on_update}, **windows)
    lifecycle = begun(tmp_path, *entities(), feed("copied", "days(1)"), reader)
    keys = [ProcessKey("publishing", "primary", day) for day in DAYS[1:]]
    apply_action(lifecycle.context(NOON).by("ann"), InstanceAction.RERUN, keys)
    lifecycle.job = lambda work: {each.name: "again" for each in work.outputs}
    lifecycle.run("publishing", DAYS[2], NOON, "first")
    moment = NOON + timedelta(minutes=1)
    lifecycle.tick(moment)
    statuses = lifecycle.statuses("reading")[DAYS[2]]
    assert statuses is (SUCCEEDED if on_update == "hold" else ProcessInstanceStatus.READY)
    lifecycle.run("publishing", DAYS[1], moment, "second")
    lifecycle.tick(moment + timedelta(minutes=1))
    assert lifecycle.statuses("reading")[DAYS[2]] is ProcessInstanceStatus.READY
