"""Data that somebody deletes by hand, or that storage loses."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from shutil import rmtree

import pytest

from feed_assets.context.errors import ArrivalRefusedError
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.explain.explanations import explain
from feed_assets.explain.records import ReasonCode
from feed_assets.instances.arrival.arrival_notices import Notice, record_notice
from feed_assets.instances.arrival.recording import find_free_time
from feed_assets.instances.errors import InputsMissingError
from feed_assets.instances.lists.feed_listings import list_feed
from feed_assets.instances.lists.polled_ranges import record_vanished_now
from feed_assets.instances.lists.queries import list_instances
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.rebuild.rebuilding import rebuild_instances
from feed_assets.storage.errors import StorageAwayError
from tests.context.contexts import about, context_of, query_of
from tests.instances.harness import START, LifecycleHarness, feed, hours, process

MISSING, AVAILABLE = FeedInstanceStatus.MISSING, FeedInstanceStatus.AVAILABLE
ARRIVED, VANISHED = FeedEventKind.ARRIVED, FeedEventKind.VANISHED
SOON = START + timedelta(minutes=5)
LATER = START + timedelta(minutes=50)


def deleted(root: Path, state: str | None = None) -> LifecycleHarness:
    """`p` reads `a` and `c`; data of `a` have arrived, and somebody has deleted the folder."""
    made = process("p", inputs={"a": "now(0,0)", "c": "now(0,0)"}, outputs={"b": "now(0,0)"})
    lifecycle = LifecycleHarness.of(root, feed("a"), feed("b"), feed("c"), made, state=state)
    lifecycle.land("a", START)
    assert lifecycle.tick(START) == []
    rmtree(lifecycle.folder("a", START))
    return lifecycle


def kinds(lifecycle: LifecycleHarness, name: str = "a") -> list[FeedEventKind]:
    return [event.kind for event in lifecycle.events(name)]


def list_it(context: OperationContext) -> None:
    (found,) = list_feed(context, resolve_subject(context, "a"), look=True, author="ann").instances
    assert (found.status, found.bytes) == (MISSING, None)


def ask_why(context: OperationContext) -> None:
    assert record_vanished_now(context.by("ann"), resolve_subject(context, "a", START), ["primary"]) == 1


def ask_why_of_its_reader(context: OperationContext) -> None:
    assert record_vanished_now(context.by("ann"), resolve_subject(context, "p", START), ["primary"]) == 1


def give_notice(context: OperationContext) -> None:
    with pytest.raises(ArrivalRefusedError, match="does not exist"):
        record_notice(context.by("ann"), Notice(feed="a", nominal_time=START))


def rebuild(context: OperationContext) -> None:
    planned, rebuilt = rebuild_instances(context, dry_run=True), rebuild_instances(context)
    assert (planned.feeds, planned.is_empty, rebuild_instances(context).is_empty) == (rebuilt.feeds, False, True)
    assert {each.feed: each.vanished for each in rebuilt.feeds} == {"a": 1, "b": 0, "c": 0}


@pytest.mark.parametrize("look", [list_it, ask_why, ask_why_of_its_reader, give_notice, rebuild])
def test_whoever_misses_what_the_record_has_records_that_it_is_gone(
    look: Callable[[OperationContext], None], tmp_path: Path, state_url: str
) -> None:
    lifecycle = deleted(tmp_path, state_url)

    look(context_of(lifecycle, SOON))

    assert kinds(lifecycle) == [ARRIVED, VANISHED]
    (row,) = lifecycle.feed_instances("a").values()
    assert (row.status, row.bytes, row.available_at, row.event_seq) == (MISSING, None, None, 2)
    lifecycle.land("c", START)
    assert lifecycle.tick(SOON + timedelta(seconds=1)) == []
    lifecycle.land("a", START)
    (request,) = lifecycle.tick(LATER)
    assert request.nominal_times == (START,)
    assert kinds(lifecycle) == [ARRIVED, VANISHED, ARRIVED]


def test_why_says_that_storage_has_lost_it(tmp_path: Path) -> None:
    lifecycle = deleted(tmp_path)
    context = context_of(lifecycle, SOON)
    ask_why(context)
    (found,) = explain(context, resolve_subject(context, "a", START)).items
    lost, polls, before = found.reasons
    url = context.feed_url(lifecycle.feed("a"), START)
    assert (lost.code, lost.blocks) == (ReasonCode.VANISHED, True)
    assert lost.text == (
        f"storage has lost it: {url} is not there any more, noticed at 2013-11-01T00:05:00Z by notice:ann"
    )
    assert (polls.code, before.text) == (
        ReasonCode.POLLS,
        "its last event before: ARRIVED at 2013-11-01T00:00:00Z by arrival",
    )


def test_a_run_whose_input_is_gone_fails_at_the_gate(tmp_path: Path) -> None:
    lifecycle = deleted(tmp_path)
    lifecycle.land("c", START)
    (request,) = lifecycle.tick(SOON)
    with pytest.raises(InputsMissingError, match=r"lacks file://.*/a/2013.* Storage has lost file://.*/a/2013"):
        lifecycle.run("p", START, SOON)
    assert kinds(lifecycle) == [ARRIVED, VANISHED]
    assert lifecycle.statuses("p") == {START: ProcessInstanceStatus.FAILED}
    assert (kinds(lifecycle, "c"), request.nominal_times) == ([ARRIVED], (START,))


def test_a_run_goes_on_without_an_optional_input_that_is_gone(tmp_path: Path) -> None:
    made = process("p", inputs={"a": "now(0,0)"}, optional=["a"], outputs={"b": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("a"), feed("b"), made)
    lifecycle.land("a", START)
    lifecycle.tick(START)
    rmtree(lifecycle.folder("a", START))
    lifecycle.run("p", START, SOON)
    (row,) = lifecycle.instances("p").values()
    assert (row.status, row.inputs[0].nominal_times) == (ProcessInstanceStatus.SUCCEEDED, ())


def test_what_was_produced_and_is_gone_is_not_polled_and_its_writer_stays(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("b"), feed("z"), process("p", outputs={"b": "now(0,0)"}))
    lifecycle.launch(lifecycle.tick(START), START)
    rmtree(lifecycle.folder("b", START))
    lifecycle.land("z", START)
    list_feed(context_of(lifecycle, SOON), resolve_subject(context_of(lifecycle, SOON), "b"), look=True)
    assert kinds(lifecycle, "b") == [FeedEventKind.PRODUCED, VANISHED]
    assert lifecycle.next_poll("b", START) is None
    assert lifecycle.statuses("p") == {START: ProcessInstanceStatus.SUCCEEDED}


AWAY = r"primary: nothing at all lies below it, .* Mount it, .* put any file there"


@pytest.mark.parametrize("is_mounted", [True, False])
@pytest.mark.parametrize("look", [ask_why, ask_why_of_its_reader, give_notice])
def test_a_storage_that_is_away_has_lost_nothing_and_the_answer_says_so(
    look: Callable[[OperationContext], object], tmp_path: Path, is_mounted: bool
) -> None:
    lifecycle = deleted(tmp_path)
    (tmp_path / "primary").rename(tmp_path / "unmounted")
    if is_mounted:
        (tmp_path / "primary").mkdir()
    context = context_of(lifecycle, SOON)
    with pytest.raises(StorageAwayError, match=AWAY):
        look(context)
    with pytest.raises(StorageAwayError, match=AWAY):
        list_feed(context, resolve_subject(context, "a"), look=True)
    assert re.search(AWAY, rebuild_instances(context).feeds[0].problem or "")
    assert (lifecycle.feed_statuses("a"), kinds(lifecycle)) == ({START: AVAILABLE}, [ARRIVED])
    (tmp_path / "primary").mkdir(exist_ok=True)
    (tmp_path / "primary" / "any").touch()
    look(context)
    assert kinds(lifecycle) == [ARRIVED, VANISHED]


def test_what_somebody_works_on_is_left_alone(tmp_path: Path) -> None:
    lifecycle = deleted(tmp_path)
    Leases(lifecycle.database).acquire("feed/a", "primary", START, "sweep", SOON, timedelta(hours=1))
    assert (
        record_vanished_now(
            context_of(lifecycle, SOON).by("ann"), resolve_subject(context_of(lifecycle, SOON), "a", START), ["primary"]
        )
        == 0
    )
    assert kinds(lifecycle) == [ARRIVED]


def test_what_was_taken_on_trust_is_not_looked_for(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("a"), feed("c"))
    lifecycle.land("c", START)
    context = context_of(lifecycle, SOON)
    record_notice(context.by("ann"), Notice(feed="a", nominal_time=START, is_trusted=True))
    assert record_vanished_now(context.by("ann"), resolve_subject(context, "a", START), ["primary"]) == 0


def moved(root: Path, state: str | None = None) -> tuple[LifecycleHarness, Path]:
    """`a` has another path since its data have arrived; with the folder of its data."""
    lifecycle = LifecycleHarness.of(root, feed("a"), state=state)
    lifecycle.land("a", START)
    lifecycle.tick(START)
    former = lifecycle.folder("a", START)
    lifecycle.declare(feed("a").model_copy(update={"locations": feed("elsewhere").locations}))
    return lifecycle, former


def test_what_has_stayed_in_a_former_place_is_looked_for_there(tmp_path: Path, state_url: str) -> None:
    lifecycle, former = moved(tmp_path, state_url)
    context = context_of(lifecycle, SOON)
    for look in (False, True):
        listed = list_feed(context, resolve_subject(context, "a"), look=look)
        (found,) = listed.instances
        assert (found.status, found.url, listed.staying) == (AVAILABLE, former.as_uri(), 1)
    (row,) = list_instances(context, query_of(context, "a", start=START, end=SOON)).instances
    assert row.url == former.as_uri()
    (why,) = explain(context, resolve_subject(context, "a", START)).items
    place = next(each for each in why.reasons if each.code is ReasonCode.FORMER_PLACE)
    assert place.text == f"it is at {former.as_uri()}, a former place of its feed"
    assert record_vanished_now(context.by("ann"), resolve_subject(context, "a", START), ["primary"]) == 0
    rmtree(former)
    assert record_vanished_now(context.by("ann"), resolve_subject(context, "a", START), ["primary"]) == 1
    (why,) = explain(context, resolve_subject(context, "a", START)).items
    assert f"storage has lost it: {former.as_uri()} is not there any more" in why.render()
    assert kinds(lifecycle) == [ARRIVED, VANISHED]


def test_what_somebody_has_moved_to_the_new_place_is_not_lost(tmp_path: Path) -> None:
    lifecycle, former = moved(tmp_path)
    there = lifecycle.folder("a", START)
    there.parent.mkdir(parents=True)
    former.rename(there)
    context = context_of(lifecycle, SOON)
    (found,) = list_feed(context, resolve_subject(context, "a"), look=True).instances
    assert (found.status, found.url) == (AVAILABLE, there.as_uri())
    assert record_vanished_now(context.by("ann"), resolve_subject(context, "a", START), ["primary"]) == 0
    assert kinds(lifecycle) == [ARRIVED]
    listed = list_feed(context, resolve_subject(context, "a"))
    assert ([each.url for each in listed.instances], listed.staying) == ([there.as_uri()], 0)


def test_a_path_that_the_new_zone_gives_to_another_instance_is_none_of_this_one(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("a"))
    other = START + timedelta(hours=9)
    lifecycle.land("a", START, other)
    lifecycle.tick(other)
    former = lifecycle.folder("a", START)
    lifecycle.declare(feed("a").model_copy(update={"path_timezone": "Asia/Tokyo"}))
    rmtree(former)
    context = context_of(lifecycle, other)
    assert lifecycle.folder("a", START).is_dir()
    assert record_vanished_now(context.by("ann"), resolve_subject(context, "a", START), ["primary"]) == 1
    assert record_vanished_now(context.by("ann"), resolve_subject(context, "a", other), ["primary"]) == 0


def test_what_is_at_the_path_of_another_instance_has_not_arrived(tmp_path: Path) -> None:
    """Five hours west, instances to come have the paths of those that came five hours before."""
    lifecycle = LifecycleHarness.of(tmp_path, feed("a"))
    lifecycle.land("a", *hours(2))
    lifecycle.tick(START + timedelta(hours=1))
    lifecycle.declare(feed("a").model_copy(update={"path_timezone": "Etc/GMT+5"}))
    time = START + timedelta(hours=5)
    lifecycle.tick(time)
    assert lifecycle.feed_instances("a").get(time) is None
    why = "its path is that of instance 2013-11-01T00:00Z, which came before the place of the feed changed"
    (told,) = about(explain, context_of(lifecycle, time), "a", time).items
    assert told.reasons[0].text == f"{lifecycle.folder('a', time).as_uri()} cannot be polled: {why}"
    with pytest.raises(ArrivalRefusedError, match=why):
        record_notice(context_of(lifecycle, time).by("ann"), Notice(feed="a", nominal_time=time))
    with lifecycle.database.begin() as connection:
        assert find_free_time(connection, lifecycle.feed("a"), time) == time + timedelta(hours=2)
        (row,) = [row for each, row in lifecycle.feed_instances("a").items() if each == START]
        FeedInstances(connection).put([replace(row, status=FeedInstanceStatus.EVICTED)])
    lifecycle.tick(time + timedelta(minutes=20))
    assert lifecycle.feed_instances("a")[time].status is AVAILABLE
    assert len(lifecycle.events()) == 3


def test_a_dry_run_records_nothing(tmp_path: Path) -> None:
    lifecycle = deleted(tmp_path)
    with pytest.raises(ArrivalRefusedError, match="does not exist"):
        record_notice(context_of(lifecycle, SOON).by("ann", dry_run=True), Notice(feed="a", nominal_time=START))
    assert kinds(lifecycle) == [ARRIVED]
