"""Updates as Falcon has them: what changes at once, what from an effective time on, and what is left alone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from feed_assets.engines.port import Work
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.instances.gates.plan_changes import apply_plan, touch_process
from feed_assets.json_form import render_document
from feed_assets.log.definitions.records import Release
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.plan.release_fingerprint import Step
from feed_assets.releases.errors import ReleaseError
from feed_assets.releases.store import Releases
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import DefinitionChanges
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process

WAITING, READY = ProcessInstanceStatus.WAITING, ProcessInstanceStatus.READY
SUCCEEDED = ProcessInstanceStatus.SUCCEEDED
KEY = ("count", "primary")
NOW = at("01T02:10")
EARLY = at("2013-10-30")
CLICKS, COUNTS = feed("clicks", start=EARLY), feed("counts", start=EARLY)


def counting(**more: Any) -> Process:
    """Hourly counts of clicks."""
    return process("count", **{"inputs": {"clicks": "now(0,0)"}, "outputs": {"counts": "now(0,0)"}, **more})


def busy(tmp_path: Path, *entities: Feed, **more: Any) -> LifecycleHarness:
    """It is 02:10: the first hour has been counted, and the next two wait for clicks."""
    lifecycle = LifecycleHarness.of(tmp_path, *(entities or (CLICKS, COUNTS)), counting(**more))
    lifecycle.land("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:20"))
    lifecycle.tick(NOW)
    assert lifecycle.times("count", WAITING) == hours(3)[1:]
    return lifecycle


def releases(lifecycle: LifecycleHarness, name: str = "count") -> list[Release]:
    with lifecycle.database.read() as connection:
        return Releases(connection).of(name, "primary")


def effective_times(lifecycle: LifecycleHarness) -> list[datetime]:
    return [release.effective_from for release in releases(lifecycle)]


def version(lifecycle: LifecycleHarness, release: Release, kind: str) -> int:
    return next(member.version for member in release.members if member.kind == kind)


def seen_by(lifecycle: LifecycleHarness, time: datetime, as_of: datetime) -> list[str]:
    """The clicks that a run of an instance is given, by the hours of their paths."""
    seen: list[str] = []

    def watch(work: Work) -> None:
        seen.extend(sorted(path.split("/")[-1] for data in work.inputs for path in data.paths))

    lifecycle.run_watched("count", time, as_of, watch)
    return seen


SOFT: Mapping[str, dict[str, Any]] = {
    "tags": {"tags": {"team": "a"}},
    "acl": {"acl": {"owner": "a", "group": "b"}},
    "description": {"description": "how often"},
    "pipelines": {"pipelines": ["nightly"]},
    "retry": {"retry": {"policy": "periodic", "delay": "minutes(5)", "attempts": 3}},
    "sla": {"sla": {"should_end_in": "hours(2)"}},
}


@pytest.mark.parametrize("field", SOFT)
def test_row_98_soft_fields_begin_no_new_release(tmp_path: Path, field: str) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting(**SOFT[field]))
    (release,) = releases(lifecycle)
    assert (release.release, version(lifecycle, release, "process")) == (1, 2)
    assert [decision.step for decision in lifecycle.decisions] == [Step.IN_PLACE]
    assert lifecycle.times("count", WAITING) == hours(3)[1:]


def test_row_98_other_handling_of_late_data_is_soft_and_handling_them_at_all_is_not(tmp_path: Path) -> None:
    late = {"policy": "periodic", "delay": "hours(1)", "inputs": ["clicks"]}
    clicks = feed("clicks", start=EARLY, late_arrival={"cut_off": "hours(6)"})
    lifecycle = busy(tmp_path, clicks, COUNTS)
    lifecycle.declare(clicks, COUNTS, counting(late_process=late))
    assert effective_times(lifecycle) == [START, at("01T03:00")]
    lifecycle.declare(clicks, COUNTS, counting(late_process={**late, "delay": "hours(2)"}))
    lifecycle.declare(clicks, COUNTS, counting())
    assert effective_times(lifecycle) == [START, at("01T03:00")]


def test_row_99_parallel_and_the_end_change_in_place(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path, end=at("01T12:00"))
    lifecycle.declare(CLICKS, COUNTS, counting(parallel=4, end=at("01T05:00")))
    assert effective_times(lifecycle) == [START]
    assert lifecycle.process("count").parallel == 4
    lifecycle.tick(at("01T09:00"))
    assert list(lifecycle.statuses("count")) == hours(5)

    lifecycle.declare(CLICKS, COUNTS, counting(parallel=4, end=at("01T07:00")))
    lifecycle.tick(at("01T09:00"))
    assert effective_times(lifecycle) == [START]
    assert list(lifecycle.statuses("count")) == hours(7)


def test_row_99_an_earlier_end_takes_back_what_waits_beyond_it(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting(end=at("01T02:00")))
    assert lifecycle.statuses("count") == {START: SUCCEEDED, at("01T01:00"): WAITING}
    lifecycle.declare(CLICKS, COUNTS, counting(end=at("01T04:00")))
    lifecycle.tick(at("01T09:00"))
    assert list(lifecycle.statuses("count")) == hours(4)


def test_row_100_a_changed_window_holds_from_the_effective_time_on(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path, parallel=3)
    lifecycle.declare(CLICKS, COUNTS, counting(parallel=3, inputs={"clicks": "now(-1,0) now(0,0)"}))

    (decision,) = lifecycle.decisions
    assert (decision.step, decision.effective_from, decision.waiting) == (Step.SUCCEEDED, at("01T03:00"), 2)
    assert "effective time 2013-11-01T03:00Z: release 2 from then on, release 1 before (2 waiting)" in decision.render()
    lifecycle.land("clicks", *hours(4))
    requests = lifecycle.tick(at("01T03:10"))

    assert [time for request in requests for time in request.nominal_times] == hours(4)[1:]
    for hour, paths in ((1, ["01-00"]), (2, ["02-00"]), (3, ["02-00", "03-00"])):
        assert seen_by(lifecycle, hours(4)[hour], at("01T03:20")) == paths
    assert [row.release for row in lifecycle.instances("count").values()] == [1, 1, 1, 2]


def test_row_100_the_effective_time_is_at_least_three_minutes_ahead(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.now = at("01T02:57")
    lifecycle.declare(CLICKS, COUNTS, counting(order="LIFO"))
    lifecycle.now = at("01T02:58")
    lifecycle.declare(CLICKS, COUNTS, counting(timeout="hours(9)"))
    assert effective_times(lifecycle) == [START, at("01T03:00"), at("01T04:00")]


def test_row_100_a_rerun_of_an_old_instance_uses_the_old_definition(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting(inputs={"clicks": "now(-1,0) now(0,0)"}))
    lifecycle.land("clicks", *hours(9))
    lifecycle.tick(at("01T08:10"))
    assert seen_by(lifecycle, START, at("01T08:20")) == ["00-00"]
    assert lifecycle.instances("count")[START].release == 1


def test_row_100_another_frequency_leaves_neither_hole_nor_overlap(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting(frequency="minutes(20)", outputs={}, start=at("01T00:10")))
    assert effective_times(lifecycle) == [START, at("01T02:30")]
    lifecycle.tick(at("01T03:20"))
    assert list(lifecycle.statuses("count")) == [*hours(3), at("01T02:30"), at("01T02:50"), at("01T03:10")]


def test_row_100_what_stood_goes_on_until_a_new_start_in_the_future(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting(start=at("01T05:00")))
    lifecycle.tick(at("01T06:00"))
    assert effective_times(lifecycle) == [START, at("01T05:00")]
    assert list(lifecycle.statuses("count")) == hours(7)


def test_row_100_the_extension_of_what_has_ended_begins_where_it_ended(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting(end=at("01T02:00")))
    lifecycle.land("clicks", *hours(9))
    lifecycle.launch(lifecycle.tick(at("01T06:10")), at("01T06:20"))
    lifecycle.declare(CLICKS, COUNTS, counting(end=at("01T09:00"), timeout="hours(40)"))
    lifecycle.tick(at("01T07:10"))
    assert effective_times(lifecycle) == [START, at("01T02:00")]
    assert list(lifecycle.statuses("count")) == hours(8)


def test_row_101_a_definition_whose_end_is_past_governs_nothing(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting(end=at("01T01:00"), order="LIFO"))
    (decision,) = lifecycle.decisions
    assert (decision.step, decision.effective_from) == (Step.OVER, None)
    lifecycle.tick(at("01T09:00"))
    assert lifecycle.statuses("count") == {START: SUCCEEDED}


TRIGGERS: Mapping[str, Feed] = {
    "frequency": feed("clicks", "minutes(30)", start=EARLY),
    "time zone": feed("clicks", start=EARLY, timezone="Asia/Kolkata"),
    "availability flag": feed("clicks", start=EARLY, flag="_DONE"),
    "validity start": feed("clicks", start=at("2013-10-01")),
    "location": Feed.model_validate(
        {**CLICKS.model_dump(by_alias=True), "locations": {"data": "/else/${YEAR}-${MONTH}-${DAY}-${HOUR}"}}
    ),
}
NO_TRIGGERS: Mapping[str, Feed] = {
    "schema": feed("clicks", start=EARLY, ddl="n int"),
    "late arrival": feed("clicks", start=EARLY, late_arrival={"cut_off": "hours(1)"}),
    "groups": feed("clicks", start=EARLY, groups=["a"]),
    "partitions": feed("clicks", start=EARLY, partitions=("country",)),
    "tags": feed("clicks", start=EARLY, tags={"a": "b"}),
    "end": feed("clicks", start=EARLY, end=at("2013-12-01")),
}


@pytest.mark.parametrize("name", TRIGGERS)
def test_row_103_four_changes_of_a_feed_begin_a_new_release_of_its_processes(tmp_path: Path, name: str) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(TRIGGERS[name], COUNTS, counting())
    assert effective_times(lifecycle) == [START, at("01T03:00")]


@pytest.mark.parametrize("name", NO_TRIGGERS)
def test_row_103_other_changes_of_a_feed_begin_none(tmp_path: Path, name: str) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(NO_TRIGGERS[name], COUNTS, counting())
    (release,) = releases(lifecycle)
    assert (release.release, version(lifecycle, release, "feed")) == (1, 2)


def test_row_104_a_touch_begins_a_new_release_with_the_same_definition(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    decision = touch_process(lifecycle.database, lifecycle.timeline, KEY, NOW)
    assert (decision.step, decision.effective_from) == (Step.SUCCEEDED, at("01T03:00"))
    first, second = releases(lifecycle)
    assert (second.members, second.fingerprint, second.reason) == (first.members, first.fingerprint, "touched")
    lifecycle.land("clicks", *hours(4))
    lifecycle.launch(lifecycle.tick(at("01T03:10")), at("01T03:20"))
    assert [row.release for row in lifecycle.instances("count").values()] == [1, 1, 1, 2]


def test_row_104_a_touch_after_the_end_is_refused(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting(end=at("01T03:00")))
    with pytest.raises(ReleaseError, match="has no instance left"):
        touch_process(lifecycle.database, lifecycle.timeline, KEY, NOW)
    with pytest.raises(ReleaseError, match=r"'count' on 'elsewhere'.*not declared"):
        touch_process(lifecycle.database, lifecycle.timeline, ("count", "elsewhere"), NOW)


def test_a_touch_may_say_from_when(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    touch_process(lifecycle.database, lifecycle.timeline, KEY, NOW, effective_from=at("01T00:30"))
    assert effective_times(lifecycle) == [START, at("01T01:00")]


def test_a_touch_from_a_time_that_another_definition_governed_takes_its_instances_over(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting(frequency="minutes(40)", outputs={}, start=START))
    assert effective_times(lifecycle) == [START, at("01T02:40")]
    touch_process(lifecycle.database, lifecycle.timeline, KEY, NOW, effective_from=at("01T01:30"))
    lifecycle.tick(at("01T03:00"))
    assert effective_times(lifecycle)[-1] == at("01T02:00")
    assert list(lifecycle.statuses("count")) == [*hours(3), at("01T02:40")]
    lifecycle.tick(at("01T03:30"))
    assert list(lifecycle.statuses("count"))[-1] == at("01T03:20")


def test_a_definition_that_nothing_was_begun_by_is_corrected_from_its_start(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, CLICKS, COUNTS, counting())
    lifecycle.tick(NOW)
    lifecycle.declare(CLICKS, COUNTS, counting(frequency="minutes(30)", outputs={}))
    assert [decision.step for decision in lifecycle.decisions] == [Step.CORRECTED]
    lifecycle.tick(NOW)
    assert effective_times(lifecycle) == [START]
    assert list(lifecycle.statuses("count")) == [at(f"01T0{n // 2}:{n % 2 * 30:02}") for n in range(5)]


def test_an_earlier_start_brings_earlier_instances_by_what_is_declared_now(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting(timeout="hours(9)"))
    lifecycle.tick(at("01T03:10"))
    earlier = at("2013-10-31T22:00")
    lifecycle.declare(CLICKS, COUNTS, counting(timeout="hours(9)", start=earlier))
    lifecycle.tick(at("01T04:10"))
    assert list(lifecycle.statuses("count")) == [*hours(2, earlier), *hours(5)]
    active = [lifecycle.active_release("count", time) for time in (earlier, START, at("01T02:00"), at("01T03:00"))]
    timeouts = [each.record.timeout.render() for each in active if each is not None]
    assert timeouts == ["hours(9)", "hours(6)", "hours(6)", "hours(9)"]


def test_always_lets_the_newest_definition_govern_what_has_not_ended(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.policy = DefinitionChanges.ALWAYS
    lifecycle.declare(CLICKS, COUNTS, counting(inputs={"clicks": "now(-1,0) now(0,0)"}))
    assert effective_times(lifecycle) == [START, at("01T01:00")]
    lifecycle.land("clicks", *hours(3))
    lifecycle.tick(at("01T02:20"))
    assert seen_by(lifecycle, at("01T01:00"), at("01T02:30")) == ["00-00", "01-00"]
    assert seen_by(lifecycle, START, at("01T02:30")) == ["00-00"]


def test_a_process_that_was_deleted_and_submitted_again_begins_anew(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS)
    lifecycle.declare(CLICKS, COUNTS, counting(order="LIFO", start=at("2013-10-31T23:00")))
    assert [release.reason for release in releases(lifecycle)] == ["declared", "declared"]
    assert effective_times(lifecycle) == [START, at("2013-10-31T23:00")]
    lifecycle.tick(NOW)
    assert list(lifecycle.statuses("count")) == [at("2013-10-31T23:00"), *hours(3)]


def test_what_is_declared_again_as_it_was_begins_nothing(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting())
    assert lifecycle.decisions == ()
    with counted_statements() as statements:
        lifecycle.use(lifecycle.plan)
    assert len([text for text in statements if "SELECT" in text]) <= 4


def test_what_was_not_recorded_takes_no_effect(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    plan = replace(lifecycle.plan, digest="another")
    assert apply_plan(lifecycle.database, ReleaseTimeline(plan), NOW, record=lambda: False) == ()
    asked: list[bool] = []
    apply_plan(lifecycle.database, ReleaseTimeline(plan), NOW, record=lambda: asked.append(True) is None)
    apply_plan(lifecycle.database, ReleaseTimeline(plan), NOW, record=lambda: asked.append(True) is None)
    assert asked == [True]


def test_a_read_of_the_report_says_all_in_json(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.declare(CLICKS, COUNTS, counting(order="LIFO"))
    assert render_document(decisions=lifecycle.decisions)["decisions"] == [
        {
            "process": "count",
            "cluster": "primary",
            "step": "new release",
            "release_before": 1,
            "release_after": 2,
            "effective_from": "2013-11-01T03:00Z",
            "waiting": 2,
        }
    ]


def test_ready_instances_keep_their_release(tmp_path: Path) -> None:
    lifecycle = busy(tmp_path)
    lifecycle.land("clicks", at("01T01:00"))
    lifecycle.arrive(at("01T02:20"))
    lifecycle.ready(at("01T02:20"))
    assert lifecycle.times("count", READY) == [at("01T01:00")]
    lifecycle.declare(CLICKS, COUNTS, counting(inputs={"clicks": "now(-1,0) now(0,0)"}))
    assert lifecycle.times("count", READY) == [at("01T01:00")]
    assert seen_by(lifecycle, at("01T01:00"), at("01T02:30")) == ["01-00"]
