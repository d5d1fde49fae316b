"""Planning finds what may go, says what it exceeds, stores it, and touches nothing."""

import re
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from feed_assets.entities.common import LocationKind
from feed_assets.log.removals.records import SweepState
from feed_assets.retention.rules.clock_witness import load_known_times
from feed_assets.retention.sweeps.sweeping import begin_sweep
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.pool import StorePool
from tests.instances.harness import START, at, counted_statements
from tests.retention.harness import RetentionHarness, hourly, kept_feed, paths_of

EXPIRED = hourly(START, 24)
YOUNG = hourly(at("02"), 48)
READING = {"walk_folders", "listings", "measure", "look", "root_url", "url", "spark_scheme"}
TRACES = {"traces", "documents"}
"""Beside reading, planning keeps the traces of holds up to date, in the hidden folder."""


class ReadOnlyStore(LocalStore):
    """A store that can only be walked, looked at and measured, and has traces: anything else fails."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name not in READING | TRACES:

            def refuse(*_: object, **__: object) -> NoReturn:
                raise AssertionError(f"planning has called {name}")

            return refuse
        return super().__getattribute__(name)


@pytest.fixture
def harness(tmp_path: Path, state_url: str) -> RetentionHarness:
    """Three days of clicks, of which two are kept."""
    harness = RetentionHarness.of(tmp_path, state=state_url)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    return harness


def two_feeds(tmp_path: Path, **more: Any) -> RetentionHarness:
    harness = RetentionHarness.of(tmp_path, kept_feed(), kept_feed("views", **more))
    for name in ("clicks", "views"):
        harness.land(name, *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    return harness


def codes(harness: RetentionHarness, **more: Any) -> set[str]:
    return {obstacle.code for sweep in harness.plan(**more).sweeps for obstacle in sweep.obstacles}


def test_a_plan_has_every_path_with_time_size_rule_and_reason(harness: RetentionHarness) -> None:
    sweep = harness.planned()
    assert sweep.state is SweepState.PLANNED
    assert (sweep.instances, sweep.paths, sweep.bytes, sweep.files) == (24, 24, 96, 24)
    (chunk,) = harness.chunks(sweep)
    assert (chunk.feed, chunk.kind, chunk.first, chunk.last) == ("clicks", "data", EXPIRED[0], EXPIRED[-1])
    item = chunk.items[5]
    assert (item.path, item.nominal_time, item.bytes, item.files) == ("clicks/2013-11-01/05", EXPIRED[5], 4, 1)
    assert (item.rule, item.reason) == ("age", "it is older than days(2) as of 2013-11-04T00:00Z")


def test_planning_uses_nothing_that_could_change_storage(harness: RetentionHarness) -> None:
    before = harness.tree(hidden=True)
    harness.lifecycle.stores = StorePool(lambda url, _: ReadOnlyStore(url.removeprefix("file://")))
    assert harness.plan().sweeps[0].paths == 24
    assert harness.tree(hidden=True) == before


def test_a_plan_that_is_only_tried_is_not_stored(harness: RetentionHarness) -> None:
    assert harness.plan(dry_run=True).sweeps[0].paths == 24
    assert harness.planned().paths == 24
    with harness.lifecycle.database.read() as connection:
        assert connection.exec_driver_sql("select count(*) from fa_sweeps").scalar() == 1


def test_where_nothing_has_expired_there_is_no_sweep(harness: RetentionHarness) -> None:
    harness.now = at("03")
    planned = harness.plan()
    assert planned.sweeps == ()
    assert planned.feeds[0].survey is not None


def test_plans_for_the_same_moment_are_the_same(harness: RetentionHarness) -> None:
    assert harness.planned().digest == harness.planned().digest


def test_a_plan_for_an_earlier_or_later_moment_takes_less_or_more(harness: RetentionHarness) -> None:
    assert harness.planned(as_of=at("03T12:00")).paths == 12
    assert harness.plan(as_of=at("04T12:00")).sweeps[0].paths == 36


def test_a_newer_plan_supersedes_one_that_has_not_begun(harness: RetentionHarness) -> None:
    first = harness.planned()
    planned = harness.plan()
    assert [sweep.sweep_id for sweep in planned.superseded] == [first.sweep_id]
    assert harness.sweep(first.sweep_id).state is SweepState.SUPERSEDED


def test_the_schedule_leaves_alone_for_a_day_what_a_person_has_planned(harness: RetentionHarness) -> None:
    first = harness.planned()
    by_schedule = {"automatic": True, "author": "schedule"}
    planned = harness.plan(**by_schedule)
    assert (planned.sweeps, planned.superseded) == ((), ())
    assert {each.left_out for each in planned.feeds} == {
        f"its sweep {first.sweep_id} was planned by ann and has not begun"
    }
    harness.now += timedelta(days=1)
    assert [sweep.sweep_id for sweep in harness.plan(**by_schedule).superseded] == [first.sweep_id]


def test_a_plan_of_some_feeds_supersedes_one_of_more_and_the_others_have_their_turn(tmp_path: Path) -> None:
    harness = two_feeds(tmp_path)
    both = harness.planned()
    harness.plan("views")
    assert harness.sweep(both.sweep_id).state is SweepState.SUPERSEDED


def test_a_feed_that_a_sweep_is_at_work_on_is_left_out(tmp_path: Path) -> None:
    harness = two_feeds(tmp_path)
    sweep = harness.planned("clicks")
    begin_sweep(harness.context(), sweep.sweep_id)
    planned = harness.plan()
    assert [count.feed for count in planned.sweeps[0].counts] == ["views"]
    assert [each.left_out for each in planned.feeds] == [f"its sweep {sweep.sweep_id} is RUNNING", None]


def test_only_the_feed_that_exceeds_a_limit_asks(tmp_path: Path) -> None:
    harness = two_feeds(tmp_path, sweep_limits={"instances": 10})
    quiet, asking = harness.plan().sweeps
    assert ([count.feed for count in quiet.counts], quiet.state) == (["clicks"], SweepState.PLANNED)
    assert ([count.feed for count in asking.counts], asking.state) == (["views"], SweepState.ASKING)
    assert [obstacle.code for obstacle in asking.obstacles] == ["instances"]


def test_an_automatic_plan_leaves_alone_what_waits_for_approval(tmp_path: Path) -> None:
    harness = two_feeds(tmp_path, sweep_limits={"instances": 10})
    _, asking = harness.plan(automatic=True).sweeps
    planned = harness.plan(automatic=True)
    assert [each.left_out for each in planned.feeds] == [None, f"its sweep {asking.sweep_id} waits for approval"]
    assert harness.sweep(asking.sweep_id).state is SweepState.ASKING


def test_the_share_is_of_what_there_is_whether_it_is_on_record_or_not(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(limit="hours(20)"))
    harness.land("clicks", *hourly(START, 100))
    harness.now = START + timedelta(hours=60)
    assert codes(harness) == set()
    harness.now = START + timedelta(hours=100)
    assert codes(harness) == {"share"}


def test_a_sweep_that_would_take_all_asks(harness: RetentionHarness) -> None:
    harness.now = at("20")
    assert "everything" in codes(harness)


def empty(harness: RetentionHarness, *times: datetime) -> None:
    """Make directories without files, as a job does that has not written yet."""
    for time in times:
        harness.lifecycle.folder("clicks", time).mkdir(parents=True)


@pytest.mark.parametrize("policy", [{"keep_newest": 2}, {"limit": None, "max_instances": 2}])
def test_empty_directories_do_not_crowd_out_instances_with_data(tmp_path: Path, policy: dict[str, Any]) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(**policy))
    harness.land("clicks", *hourly(START, 4))
    empty(harness, *hourly(START + timedelta(hours=4), 40))
    harness.now = at("09")
    (planned,) = harness.plan().feeds
    assert planned.survey is not None
    taken = planned.survey.taken[LocationKind.DATA, None]
    assert [item.path for item in taken if item.files] == ["clicks/2013-11-01/00", "clicks/2013-11-01/01"]


def test_a_sweep_asks_that_would_leave_nothing_but_empty_directories(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed())
    harness.land("clicks", *hourly(START, 4))
    empty(harness, *hourly(at("03"), 40))
    harness.now = at("03T12:00")
    assert "everything" in codes(harness)


def test_a_sweep_of_empty_directories_alone_does_not_ask(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed())
    empty(harness, *hourly(START, 4))
    harness.now = at("03T12:00")
    assert codes(harness) == set()
    assert harness.planned().paths == 4


def test_a_clock_that_stands_before_the_last_sweep_asks(harness: RetentionHarness) -> None:
    harness.run(harness.planned())
    harness.land("clicks", *hourly(at("2013-10-20"), 3))
    harness.now = at("03T20:00")
    assert codes(harness, as_of=at("03T20:00")) == {"clock-back"}


def test_a_clock_that_has_jumped_asks_and_is_not_believed_the_second_time_either(harness: RetentionHarness) -> None:
    harness.run(harness.planned())
    harness.now = at("08")
    harness.lifecycle.land("clicks", at("07T22:00"))
    harness.lifecycle.tick(harness.now)
    for _ in range(3):
        planned = harness.plan()
        assert "clock-jump" in {obstacle.code for obstacle in planned.sweeps[0].obstacles}
    with harness.lifecycle.database.read() as connection:
        assert load_known_times(connection, "primary").newest == at("04")


def test_the_newest_stay_however_old_they_are(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(keep_newest=30))
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("08"))
    (sweep,) = harness.plan().sweeps
    taken = {item.path for chunk in harness.chunks(sweep) for item in chunk.items}
    assert taken == paths_of((EXPIRED + YOUNG)[:-30])


def test_there_are_never_more_than_the_policy_says(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(limit=None, max_instances=50, sweep_limits={"share": 0.9}))
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    harness.run(harness.planned())
    left = [time for time in EXPIRED + YOUNG if (harness.root / f"clicks/{time:%Y-%m-%d/%H}").exists()]
    assert left == (EXPIRED + YOUNG)[-50:]


def test_there_is_never_more_than_the_size_that_the_policy_says(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(limit=None, max_bytes="1KiB", sweep_limits={"share": 0.9}))
    for time in YOUNG:
        harness.land("clicks", time, text="x" * 100)
    harness.arrive(at("04"))
    harness.run(harness.planned())
    left = [time for time in YOUNG if (harness.root / f"clicks/{time:%Y-%m-%d/%H}").exists()]
    assert left == YOUNG[-10:]


def test_what_is_not_on_record_is_measured(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.now = at("04")
    sweep = harness.planned()
    assert (sweep.bytes, sweep.files) == (96, 24)
    assert all(item.fingerprint for chunk in harness.chunks(sweep) for item in chunk.items)


def test_a_link_in_the_place_of_an_instance_is_not_taken(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.now = at("04")
    (harness.root / "clicks/2013-11-01/05").rename(tmp_path / "elsewhere")
    (harness.root / "clicks/2013-11-01/05").symlink_to(tmp_path / "elsewhere")
    done = harness.run(harness.planned())
    assert set(harness.results(done)) == paths_of(EXPIRED) - {"clicks/2013-11-01/05"}
    assert (tmp_path / "elsewhere").is_dir()
    assert (harness.root / "clicks/2013-11-01/05").is_symlink()


def test_places_that_are_never_swept_are_told(tmp_path: Path) -> None:
    locations = {"data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}", "stats": "/stats/clicks"}
    harness = RetentionHarness.of(tmp_path, kept_feed(locations=locations))
    (feed,) = harness.plan().feeds
    assert feed.survey is not None
    assert [(place.kind.value, place.template.text) for place in feed.survey.unswept] == [("stats", "/stats/clicks")]


def test_a_place_that_cannot_be_listed_leaves_its_feed_out(harness: RetentionHarness) -> None:
    (harness.root / "clicks").rename(harness.root / "away")
    (harness.root / "clicks").symlink_to(harness.root / "away")
    (feed,) = harness.plan().feeds
    assert feed.survey is None
    assert feed.left_out is not None
    assert re.search("link", feed.left_out)


def test_planning_costs_no_more_statements_for_more_history(tmp_path: Path) -> None:
    counts = []
    for number, evicted in enumerate((0, 400)):
        (tmp_path / str(number)).mkdir()
        harness = RetentionHarness.of(tmp_path / str(number))
        harness.land("clicks", *hourly(START, evicted + 72))
        harness.arrive(START + timedelta(hours=evicted + 72))
        if evicted:
            harness.sweep_now()
            harness.arrive(harness.now + timedelta(hours=24))
        with counted_statements() as statements:
            harness.plan()
        counts.append(len(statements))
    assert counts[1] <= counts[0] + 2


@pytest.mark.parametrize("left", ["nothing", "empty directories", "one"])
def test_only_instances_with_data_count_as_those_that_stay(tmp_path: Path, left: str) -> None:
    daily = {"data": "/clicks/${YEAR}-${MONTH}-${DAY}"}
    harness = RetentionHarness.of(tmp_path, kept_feed("clicks", "days(1)", limit="days(5)", locations=daily))
    days = [START + timedelta(days=number) for number in range(12)]
    harness.land("clicks", *days)
    harness.arrive(days[-1] + timedelta(hours=1))
    newer = [harness.lifecycle.folder("clicks", day) for day in days[7:]]
    for folder in newer[1:] if left == "one" else newer:
        shutil.rmtree(folder)
        if left == "empty directories":
            folder.mkdir()
    refusals = 0
    while (planned := harness.plan("clicks")).feeds[0].left_out is not None:
        refusals += 1
        assert "it has lost what it had: clicks 2013-11-" in planned.feeds[0].left_out
    assert refusals == (4 if left == "one" else 5)
    (sweep,) = planned.sweeps
    assert sweep.state is SweepState.ASKING
    sentence = "All 7 instances of the feed would be removed."
    if left == "one":
        sentence = "7 of the 8 instances would be removed, more than the share 0.5."
    assert [each.sentence for each in sweep.obstacles] == [sentence]


def test_the_first_sweep_of_a_clock_far_ahead_asks_though_its_record_agrees_with_it(tmp_path: Path) -> None:
    harness = RetentionHarness.of(tmp_path, kept_feed(frequency="days(1)", keep_newest=2, sweep_limits={"share": 1.0}))
    harness.land("clicks", *map(at, ("01", "02", "03")))
    harness.arrive(at("2033-11-04"))
    for _ in range(2):
        assert codes(harness) == {"clock-jump"}
    harness.run(harness.approve(harness.planned()))
    harness.now = at("03T06:00")
    assert codes(harness) == set()
