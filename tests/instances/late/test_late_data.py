"""Late data from the file that lands late to the output that is made again, under a clock that tests move."""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.engines.port import Work
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Retention
from feed_assets.entities.feed import Feed
from feed_assets.instances.arrival.stored_data import require_stored
from feed_assets.instances.attempts.attempt_inputs import has_same_inputs
from feed_assets.instances.late.contents import scan_contents
from feed_assets.instances.late.detection import apply_late_checks
from feed_assets.instances.late.lateness import LATE_DATA, UNSETTLED, LateVerdict
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.events import EventLog
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, FeedKey, ProcessInstanceStatus, ProcessKey
from feed_assets.storage.errors import StorageError
from feed_assets.triggers.input_windows import check_gate
from tests.instances.harness import LifecycleHarness, at, counted_statements, feed, hours, process, read_inputs

READY, RUNNING, SUCCEEDED, FAILED = (
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.RUNNING,
    ProcessInstanceStatus.SUCCEEDED,
    ProcessInstanceStatus.FAILED,
)
DAY = at("03")
LATE = {"policy": "periodic", "delay": "hours(2)", "inputs": ["weather"]}


def weather(**more: Any) -> Feed:
    return feed("weather", start=DAY, late_arrival={"cut_off": "hours(12)"}, **more)


def daily(**more: Any) -> AnyEntity:
    return process(
        "daily",
        "days(1)",
        inputs={"weather": "now(0,0) now(3,0)", "flights": "now(0,0)"},
        outputs={"delays": "now(0,0)"},
        start=DAY,
        end=DAY + timedelta(days=1),
        **{"late_process": LATE, "timeout": "days(9)", **more},
    )


def entities(**more: Any) -> list[AnyEntity]:
    return [
        weather(),
        feed("flights", "days(1)", start=DAY),
        feed("delays", "days(1)", start=DAY, late_arrival={"cut_off": "days(2)"}),
        daily(**more),
    ]


def joined(work: Work) -> Mapping[str, str]:
    """A job whose output is its inputs."""
    texts = read_inputs(work)
    return {
        target.name: "|".join(f"{name}={','.join(texts[name])}" for name in sorted(texts)) for target in work.outputs
    }


def processed(
    root: Path, *declared: AnyEntity, state: str | None = None, more: Sequence[datetime] = (), **other: Any
) -> LifecycleHarness:
    """The first day was processed at 05:00, a moment after its last hour; some hours had a file `more`."""
    lifecycle = LifecycleHarness.of(root, *(declared or entities(**other)), state=state)
    lifecycle.job = joined
    lifecycle.land("weather", *hours(4, DAY), text="w")
    lifecycle.land("weather", *more, text="more")
    lifecycle.land("flights", DAY, text="f")
    lifecycle.launch(lifecycle.tick(at("03T05")), at("03T05"))
    assert lifecycle.statuses("daily") == {DAY: SUCCEEDED}
    return lifecycle


def rewrite(lifecycle: LifecycleHarness, name: str, when: datetime, text: str) -> None:
    """Replace what the only file of an instance holds, at a moment that the filesystem can tell from the one before."""
    time.sleep(0.01)
    (file,) = lifecycle.folder(name, when).glob("*.csv")
    file.write_text(text)


def check(lifecycle: LifecycleHarness, as_of: datetime) -> list[datetime]:
    """Look for late data and run what is to be run again; the nominal times."""
    lifecycle.look_for_late(as_of)
    return lifecycle.launch(lifecycle.tick(as_of), as_of)


def test_row_69_data_added_are_processed_at_the_next_check_and_once(tmp_path: Path, state_url: str) -> None:
    lifecycle = processed(tmp_path, state=state_url)
    before = lifecycle.content("delays", DAY)
    lifecycle.land("weather", at("03T02"), text="late")
    lifecycle.land("weather", at("03T03"), text="late")
    assert check(lifecycle, at("03T05:59")) == []
    assert check(lifecycle, at("03T06")) == [DAY]
    assert lifecycle.content("delays", DAY) != before
    assert "late" in (lifecycle.content("delays", DAY) or "")
    assert check(lifecycle, at("03T08")) == []
    assert [event.kind for event in lifecycle.events("delays")] == [FeedEventKind.PRODUCED] * 2
    assert [event.nominal_time for event in lifecycle.events("weather") if event.kind is FeedEventKind.CHANGED] == [
        at("03T02"),
        at("03T03"),
    ]


def test_row_69_without_new_data_nothing_is_run_again(tmp_path: Path, state_url: str) -> None:
    lifecycle = processed(tmp_path, state=state_url)
    for hour in (6, 8, 10, 12, 14, 15):
        assert lifecycle.look_for_late(at(f"03T{hour:02}")).verdicts == (LateVerdict.UNCHANGED,)
    assert lifecycle.late_check("daily", DAY) is None
    assert lifecycle.instances("daily")[DAY].attempt == 1


@pytest.mark.parametrize(
    ("policy", "due"),
    [("periodic", ["06", "08", "10", "12", "14", "15"]), ("exp-backoff", ["06", "14", "15"]), ("final", ["15"])],
)
def test_rows_69_70_71_checks_come_by_policy_from_the_nominal_time_to_the_cut_off(
    tmp_path: Path, state_url: str, policy: str, due: list[str]
) -> None:
    lifecycle = processed(tmp_path, state=state_url, late_process={**LATE, "policy": policy})
    made = []
    while (planned := lifecycle.late_check("daily", DAY)) is not None:
        assert planned.due_at is not None
        made.append(f"{planned.due_at:%H}")
        lifecycle.look_for_late(planned.due_at)
    assert made == due


def test_what_was_scanned_before_it_was_read_is_the_same_input_until_a_check_finds_other_content(
    tmp_path: Path, state_url: str
) -> None:
    lifecycle = processed(tmp_path, state=state_url)

    def is_same() -> bool:
        daily = lifecycle.process("daily")
        with lifecycle.database.read() as connection:
            (row,) = ProcessInstances(connection).get_many([ProcessKey(*daily.key, DAY)]).values()
            states, _ = check_gate(connection, lifecycle.plan, daily, row, at("03T06"))
            return has_same_inputs(connection, lifecycle.plan, row, states)

    assert is_same()
    rewrite(lifecycle, "weather", DAY, "x")
    lifecycle.look_for_late(at("03T06"))
    assert not is_same()


def test_row_70_exponential_checks_find_what_came_between_two_of_them(tmp_path: Path, state_url: str) -> None:
    late = {**LATE, "policy": "exp-backoff"}
    lifecycle = processed(tmp_path, state=state_url, late_process=late)
    assert check(lifecycle, at("03T06")) == []
    lifecycle.land("weather", DAY, text="late")
    assert check(lifecycle, at("03T12")) == []
    assert check(lifecycle, at("03T14")) == [DAY]
    assert check(lifecycle, at("03T15")) == []


def test_row_71_a_final_check_finds_everything_at_the_cut_off(tmp_path: Path, state_url: str) -> None:
    lifecycle = processed(tmp_path, state=state_url, late_process={**LATE, "policy": "final"})
    for hour in (0, 1, 2):
        lifecycle.land("weather", at(f"03T0{hour}"), text="late")
        assert check(lifecycle, at(f"03T1{hour}")) == []
    assert check(lifecycle, at("03T15")) == [DAY]
    assert (lifecycle.content("delays", DAY) or "").count("late") == 3


def test_row_72_the_check_at_the_cut_off_is_the_last(tmp_path: Path, state_url: str) -> None:
    lifecycle = processed(tmp_path, state=state_url)
    lifecycle.look_for_late(at("03T14"))
    lifecycle.land("weather", at("03T02"), text="late")
    lifecycle.look_for_late(at("03T15"))
    assert lifecycle.launch(lifecycle.tick(at("03T15:01")), at("03T15:01")) == [DAY]
    assert lifecycle.late_check("daily", DAY) is None
    lifecycle.land("weather", at("03T02"), text="too late")
    assert check(lifecycle, at("03T15:02")) == []
    assert check(lifecycle, at("04T15")) == []


def test_row_72_a_run_that_ends_after_the_cut_off_is_never_checked(tmp_path: Path, state_url: str) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *entities(), state=state_url)
    lifecycle.land("weather", *hours(4, DAY))
    lifecycle.land("flights", DAY)
    lifecycle.launch(lifecycle.tick(at("03T15:01")), at("03T15:01"))
    assert lifecycle.late_check("daily", DAY) is None
    lifecycle.land("weather", DAY, text="late")
    assert check(lifecycle, at("04")) == []


def test_row_73_an_input_that_shrinks_is_another_one_too_and_waits_for_a_person(tmp_path: Path, state_url: str) -> None:
    lifecycle = processed(tmp_path, state=state_url)
    lifecycle.land("weather", DAY, text="more")
    assert check(lifecycle, at("03T06")) == [DAY]
    assert "more" in (lifecycle.content("delays", DAY) or "")
    max(lifecycle.folder("weather", DAY).glob("*.csv"), key=lambda file: file.stat().st_size).unlink()
    bulkheads = Bulkheads("primary", FrozenClock(at("03T08")))
    held = apply_late_checks(lifecycle.open_tick(at("03T08"), bulkheads=bulkheads))
    assert (held.verdicts, held.changed) == ((LateVerdict.PUT_OFF,), frozenset())
    assert [each.subject for each in bulkheads.failures] == ["weather"]
    assert "late data are less than what was read: files have gone, none has come" in bulkheads.failures[0].reason
    assert check(lifecycle, at("03T10")) == []
    lifecycle.run("daily", DAY, at("03T11"), lifecycle.run_id())
    assert "more" not in (lifecycle.content("delays", DAY) or "")
    assert check(lifecycle, at("03T12")) == []
    assert lifecycle.look_for_late(at("03T20")).verdicts in ((), (LateVerdict.UNCHANGED,))


def test_what_is_less_stays_held_when_another_process_has_read_it_and_its_return_runs_that_one_again(
    tmp_path: Path,
) -> None:
    times = {"start": DAY, "end": DAY + timedelta(days=1), "late_process": LATE, "timeout": "days(9)"}
    other = process(
        "other", "days(1)", inputs={"weather": "now(0,0) now(5,0)"}, outputs={"others": "now(0,0)"}, **times
    )
    lifecycle = processed(tmp_path, *entities(), feed("others", "days(1)", start=DAY), other, more=[at("03T01")])
    less = min(lifecycle.folder("weather", at("03T01")).glob("*.csv")).rename(tmp_path / "aside")
    lifecycle.land("weather", *hours(2, at("03T04")), text="w")
    assert lifecycle.launch(lifecycle.tick(at("03T05:30")), at("03T05:30")) == [DAY]
    assert lifecycle.statuses("other") == {DAY: SUCCEEDED}
    assert check(lifecycle, at("03T06")) == []
    less.rename(lifecycle.folder("weather", at("03T01")) / "part-again.csv")
    assert check(lifecycle, at("03T08")) == [DAY]
    assert [lifecycle.instances(name)[DAY].attempt for name in ("daily", "other")] == [1, 2]


def test_what_was_gone_and_comes_back_as_less_is_held_too(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path, more=[at("03T03")])
    folder = lifecycle.folder("weather", at("03T03"))
    kept = min(folder.glob("*.csv")).rename(tmp_path / "aside")
    shutil.rmtree(folder)
    with pytest.raises(StorageError, match="it has lost what it had: weather 2013-11-03T03:00Z"):
        require_stored(lifecycle.context(at("03T05")), lifecycle.feed("weather"))
    folder.mkdir()
    kept.rename(folder / "part-again.csv")
    lifecycle.tick(at("03T05:30"))
    assert lifecycle.feed_statuses("weather")[at("03T03")] is FeedInstanceStatus.AVAILABLE
    assert lifecycle.look_for_late(at("03T06")).verdicts == (LateVerdict.PUT_OFF,)
    assert check(lifecycle, at("03T06")) == []


def test_a_feed_fails_until_what_has_failed_is_tried_again(tmp_path: Path) -> None:
    """What else is looked at of it meanwhile does not end the failure."""
    lifecycle = processed(tmp_path)
    for hour, fails in ((6, True), (8, False)):
        bulkheads = Bulkheads.open(lifecycle.database, "primary", FrozenClock(at(f"03T{hour:02}")))
        if fails:
            bulkheads.fail(TickStep.LATE_DATA, "weather", OSError("less"), next_try_at=at("03T07"))
        apply_late_checks(lifecycle.open_tick(at(f"03T{hour:02}"), bulkheads=bulkheads))
        bulkheads.save(lifecycle.database)
        assert bulkheads.has_failed(TickStep.LATE_DATA, "weather") is fails


def test_what_stays_at_a_former_place_of_its_feed_is_looked_for_there(tmp_path: Path) -> None:
    late = {"late_process": LATE, "start": at("03T03"), "end": at("03T04")}
    windows = {"weather": "now(-3,0) now(0,0)"}
    others = [feed("sums", start=DAY), process("sum", inputs=windows, outputs={"sums": "now(0,0)"}, **late)]
    lifecycle = LifecycleHarness.of(tmp_path, weather(), *others)
    lifecycle.land("weather", *hours(3, DAY))
    lifecycle.tick(at("03T02:30"))
    former = lifecycle.folder("weather", DAY)
    moved = weather().locations.model_copy(update={"data": "/moved/${YEAR}-${MONTH}-${DAY}/${HOUR}"})
    lifecycle.declare(weather().model_copy(update={"locations": moved}), *others)
    lifecycle.land("weather", at("03T03"))
    assert lifecycle.launch(lifecycle.tick(at("03T03:10")), at("03T03:10")) == [at("03T03")]
    (read,) = lifecycle.instances("sum")[at("03T03")].inputs
    assert UNSETTLED not in read.digests
    assert check(lifecycle, at("03T05")) == []
    (former / "part-late.csv").write_text("late")
    assert check(lifecycle, at("03T07")) == [at("03T03")]


def test_row_74_an_input_that_is_not_listed_does_not_count(tmp_path: Path, state_url: str) -> None:
    lifecycle = processed(tmp_path, state=state_url)
    lifecycle.land("flights", DAY, text="late")
    assert check(lifecycle, at("03T06")) == []
    assert lifecycle.events("flights")[-1].kind is FeedEventKind.ARRIVED


def test_a_rewrite_of_equal_size_counts(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    rewrite(lifecycle, "weather", at("03T01"), "W")
    assert check(lifecycle, at("03T06")) == [DAY]
    assert "W" in (lifecycle.content("delays", DAY) or "")
    assert lifecycle.events("weather")[-1].payload["replaced"] == 1


def test_a_file_that_was_only_touched_does_not_count(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    rewrite(lifecycle, "weather", at("03T01"), "w")
    os.utime(lifecycle.folder("weather", at("03T02")))
    assert check(lifecycle, at("03T06")) == []
    assert {event.kind for event in lifecycle.events("weather")} == {FeedEventKind.ARRIVED}


def test_a_change_while_the_run_is_at_work_is_noticed(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *entities())
    lifecycle.land("weather", *hours(4, DAY), text="w")
    lifecycle.land("flights", DAY, text="f")

    def busy(work: Work) -> Mapping[str, str]:
        texts = joined(work)
        if lifecycle.instances("daily")[DAY].attempt == 1:
            lifecycle.land("weather", DAY, text="meanwhile")
        return texts

    lifecycle.job = busy
    lifecycle.launch(lifecycle.tick(at("03T05")), at("03T05"))
    assert "meanwhile" not in (lifecycle.content("delays", DAY) or "")
    assert check(lifecycle, at("03T06")) == [DAY]
    assert "meanwhile" in (lifecycle.content("delays", DAY) or "")


def test_an_optional_instance_that_arrives_late_counts(tmp_path: Path) -> None:
    optional = process(
        "daily",
        "days(1)",
        inputs={"weather": "now(0,0) now(3,0)", "flights": "now(0,0)"},
        outputs={"delays": "now(0,0)"},
        optional=["weather"],
        start=DAY,
        end=DAY + timedelta(days=1),
        late_process=LATE,
    )
    lifecycle = LifecycleHarness.of(tmp_path, *entities()[:3], optional)
    lifecycle.job = joined
    lifecycle.land("weather", *hours(3, DAY), text="w")
    lifecycle.land("flights", DAY, text="f")
    lifecycle.launch(lifecycle.tick(at("03T05")), at("03T05"))
    lifecycle.land("weather", at("03T03"), text="late")
    assert check(lifecycle, at("03T06")) == []
    lifecycle.arrive(at("03T07"))
    assert check(lifecycle, at("03T08")) == [DAY]
    assert lifecycle.instances("daily")[DAY].reason is None
    assert "late" in (lifecycle.content("delays", DAY) or "")


def test_a_correction_flows_down_as_far_as_it_is_declared(tmp_path: Path) -> None:
    report = process(
        "report",
        "days(1)",
        inputs={"delays": "now(0,0)"},
        outputs={"summary": "now(0,0)"},
        start=DAY,
        end=DAY + timedelta(days=1),
        late_process={"policy": "periodic", "delay": "hours(4)", "inputs": ["delays"]},
    )
    deaf = process(
        "deaf",
        "days(1)",
        inputs={"delays": "now(0,0)"},
        outputs={"old": "now(0,0)"},
        start=DAY,
        end=DAY + timedelta(days=1),
    )
    more = [feed(name, "days(1)", start=DAY) for name in ("summary", "old")]
    lifecycle = processed(tmp_path, *entities(), *more, report, deaf)
    lifecycle.launch(lifecycle.tick(at("03T05:10")), at("03T05:10"))
    assert lifecycle.statuses("report") == lifecycle.statuses("deaf") == {DAY: SUCCEEDED}
    lifecycle.land("weather", DAY, text="late")
    assert check(lifecycle, at("03T06")) == [DAY]
    assert "late" not in (lifecycle.content("summary", DAY) or "")
    lifecycle.look_for_late(at("03T08"))
    assert lifecycle.statuses("report") == {DAY: READY}
    assert lifecycle.instances("report")[DAY].reason == f"{LATE_DATA}delays 2013-11-03T00:00Z changed"
    lifecycle.launch(lifecycle.tick(at("03T08")), at("03T08"))
    assert "late" in (lifecycle.content("summary", DAY) or "")
    assert "late" not in (lifecycle.content("old", DAY) or "")
    assert lifecycle.instances("deaf")[DAY].attempt == 1


def test_the_reason_names_what_changed_and_the_run_is_told(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    lifecycle.land("weather", *hours(4, DAY), text="late")
    lifecycle.look_for_late(at("03T06"))
    row = lifecycle.instances("daily")[DAY]
    assert row.reason == (
        "late data: weather 2013-11-03T00:00Z changed, weather 2013-11-03T01:00Z changed, "
        "weather 2013-11-03T02:00Z changed and 1 more"
    )
    (request,) = lifecycle.tick(at("03T06"))
    assert request.late == {DAY: ("weather",)}
    (published,) = lifecycle.run("daily", DAY, at("03T06"), "run-9")
    assert published.late == ("weather",)
    assert lifecycle.events("delays")[-1].payload["late"] == ["weather"]
    assert lifecycle.tick(at("03T06:01")) == []
    (published,) = lifecycle.run("daily", DAY, at("03T06:02"), "run-10")
    assert published.late == ()


def test_the_workflow_for_late_data_is_run_for_them(tmp_path: Path) -> None:
    late = {**LATE, "inputs": {"weather": {"path": "jobs:late"}}}
    lifecycle = processed(tmp_path, late_process=late)
    seen = []

    def note(work: Work) -> Mapping[str, str]:
        seen.append(work.path)
        return {target.name: "again" for target in work.outputs}

    lifecycle.job = note
    lifecycle.land("weather", DAY, text="late")
    assert check(lifecycle, at("03T06")) == [DAY]
    lifecycle.run("daily", DAY, at("03T06:30"), lifecycle.run_id())
    assert seen == ["jobs:late", "jobs:run"]


def test_a_late_rerun_that_fails_leaves_the_old_output_and_its_retry_is_late_too(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    before = lifecycle.content("delays", DAY)

    def fail(work: Work) -> Mapping[str, str]:
        raise RuntimeError("no")

    lifecycle.job = fail
    lifecycle.land("weather", DAY, text="late")
    lifecycle.look_for_late(at("03T06"))
    lifecycle.tick(at("03T06"))
    with pytest.raises(RuntimeError):
        lifecycle.run("daily", DAY, at("03T06"), lifecycle.run_id())
    assert lifecycle.statuses("daily") == {DAY: FAILED}
    assert lifecycle.content("delays", DAY) == before
    assert check(lifecycle, at("03T08")) == []
    lifecycle.job = joined
    (published,) = lifecycle.run("daily", DAY, at("03T09"), lifecycle.run_id())
    assert published.late == ("weather",)


def test_what_failed_since_is_run_again_when_more_data_come(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    lifecycle.job = lambda _: {}
    with pytest.raises(KeyError):
        lifecycle.run("daily", DAY, at("03T05:30"), lifecycle.run_id())
    lifecycle.job = joined
    lifecycle.land("weather", DAY, text="late")
    assert check(lifecycle, at("03T06")) == [DAY]
    assert lifecycle.statuses("daily") == {DAY: SUCCEEDED}


def test_an_instance_at_work_is_looked_at_after_the_same_delay(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    lifecycle.land("weather", DAY, text="late")
    with lifecycle.database.begin() as connection:
        key = ProcessKey("daily", "primary", DAY)
        ProcessInstances(connection).transition(key, {SUCCEEDED}, status=RUNNING, updated_at=at("03T05:30"))
    assert lifecycle.look_for_late(at("03T06")).verdicts == (LateVerdict.PUT_OFF,)
    planned = lifecycle.late_check("daily", DAY)
    assert planned is not None
    assert planned.due_at == at("03T07")
    assert lifecycle.events("weather")[-1].kind is FeedEventKind.ARRIVED


def test_in_safe_mode_checks_are_put_off(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    lifecycle.land("weather", DAY, text="late")
    assert lifecycle.look_for_late(at("03T06"), is_held=True).verdicts == (LateVerdict.PUT_OFF,)
    assert lifecycle.statuses("daily") == {DAY: SUCCEEDED}
    assert check(lifecycle, at("03T07")) == [DAY]


def test_an_input_that_was_evicted_since_refuses_the_rerun_and_says_so(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    lifecycle.land("weather", DAY, text="late")
    lifecycle.evict("flights", DAY)
    assert check(lifecycle, at("03T06")) == []
    row = lifecycle.instances("daily")[DAY]
    assert (row.status, row.attempt) == (SUCCEEDED, 1)
    assert row.reason == (
        "late data: weather 2013-11-03T00:00Z changed; not run again: flights 2013-11-03T00:00Z was evicted since"
    )


def test_an_eviction_alone_is_no_late_data(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    lifecycle.evict("weather", DAY)
    assert lifecycle.look_for_late(at("03T06")).verdicts == (LateVerdict.UNCHANGED,)
    assert lifecycle.instances("daily")[DAY].reason is None


@pytest.mark.parametrize("limit", ["days(9)", "days(1)"])
def test_what_has_expired_and_is_gone_is_no_late_data_whatever_the_record_says(tmp_path: Path, limit: str) -> None:
    expiring = weather()
    kept = expiring.clusters["primary"].model_copy(update={"retention": Retention(limit=limit)})
    expiring = expiring.model_copy(update={"clusters": {"primary": kept}})
    lifecycle = processed(tmp_path, expiring, *entities()[1:3], daily(optional=["weather"]))
    for hour in hours(4, DAY):
        shutil.rmtree(lifecycle.folder("weather", hour))
    done = lifecycle.look_for_late(at("04T12"))
    assert done.verdicts == ((LateVerdict.REFUSED,) if limit == "days(9)" else (LateVerdict.UNCHANGED,))
    if limit == "days(9)":
        assert str(lifecycle.instances("daily")[DAY].reason).endswith(
            "not run again: that is less than what it has read"
        )


def test_an_instance_that_is_being_rewritten_is_waited_for(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    folder = lifecycle.folder("weather", DAY)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert check(lifecycle, at("03T06")) == []
    lifecycle.land("weather", DAY, text="rewritten")
    assert check(lifecycle, at("03T08")) == [DAY]
    assert "rewritten" in (lifecycle.content("delays", DAY) or "")


def test_an_instance_that_is_gone_for_good_refuses_the_rerun(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    for file in lifecycle.folder("weather", DAY).iterdir():
        file.unlink()
    lifecycle.look_for_late(at("03T14"))
    assert lifecycle.instances("daily")[DAY].reason is None
    assert check(lifecycle, at("03T15")) == []
    assert (lifecycle.instances("daily")[DAY].reason or "").endswith("weather 2013-11-03T00:00Z is not there any more")


def test_two_processes_that_read_one_change_are_both_run_again(tmp_path: Path) -> None:
    other = process(
        "other",
        "days(1)",
        inputs={"weather": "now(0,0) now(1,0)"},
        outputs={"others": "now(0,0)"},
        start=DAY,
        end=DAY + timedelta(days=1),
        late_process={**LATE, "delay": "hours(3)"},
    )
    lifecycle = processed(tmp_path, *entities(), feed("others", "days(1)", start=DAY), other)
    lifecycle.land("weather", DAY, text="late")
    check(lifecycle, at("03T06"))
    assert lifecycle.instances("daily")[DAY].attempt == 2
    assert lifecycle.instances("other")[DAY].attempt == 2
    lifecycle.land("weather", DAY, text="later")
    assert check(lifecycle, at("03T08")) == [DAY]
    assert check(lifecycle, at("03T09")) == [DAY]
    changed = [event for event in lifecycle.events("weather") if event.kind is FeedEventKind.CHANGED]
    assert len(changed) == 2


def test_a_newest_instance_alone_does_not_leave_out_a_late_rerun(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        weather(),
        feed("delays", start=DAY),
        process(
            "hourly",
            inputs={"weather": "now(0,0)"},
            outputs={"delays": "now(0,0)"},
            start=DAY,
            order="LAST_ONLY",
            late_process={**LATE, "delay": "hours(1)"},
        ),
    )
    lifecycle.job = joined
    lifecycle.land("weather", *hours(2, DAY), text="w")
    lifecycle.launch(lifecycle.tick(DAY), DAY)
    lifecycle.launch(lifecycle.tick(at("03T01")), at("03T01"))
    lifecycle.land("weather", DAY, text="late")
    lifecycle.land("weather", at("03T02"), text="w")
    lifecycle.look_for_late(at("03T02"))
    lifecycle.launch(lifecycle.tick(at("03T02")), at("03T02"))
    lifecycle.launch(lifecycle.tick(at("03T02:01")), at("03T02:01"))
    assert set(lifecycle.statuses("hourly").values()) == {SUCCEEDED}
    assert "late" in (lifecycle.content("delays", DAY) or "")


def test_a_feed_that_no_process_watches_is_checked_itself(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, weather())
    lifecycle.land("weather", DAY, text="w")
    lifecycle.arrive(DAY)
    assert lifecycle.look_for_late(DAY).changed == frozenset()
    lifecycle.land("weather", DAY, text="late")
    assert lifecycle.look_for_late(at("03T02:59")).verdicts == ()
    assert lifecycle.look_for_late(at("03T03")).changed == {FeedKey("weather", "primary", DAY)}
    row = lifecycle.feed_instances("weather")[DAY]
    event = lifecycle.events("weather")[-1]
    assert (event.kind, event.files, event.payload["added"]) == (FeedEventKind.CHANGED, 2, 1)
    assert (row.status, row.event_seq, row.manifest_digest) == (
        FeedInstanceStatus.AVAILABLE,
        event.seq,
        event.manifest_digest,
    )
    assert lifecycle.look_for_late(at("03T09")).changed == frozenset()
    assert lifecycle.look_for_late(at("03T12")).verdicts == (LateVerdict.UNCHANGED,)
    assert lifecycle.late_check("weather", DAY, AgendaKind.LATE_FEED) is None


def test_a_process_whose_definition_is_gone_is_looked_at_when_it_is_back(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    lifecycle.land("weather", DAY, text="late")
    everything = entities()
    lifecycle.declare(*everything[:3])
    assert lifecycle.look_for_late(at("03T06")).verdicts == (LateVerdict.PUT_OFF,)
    lifecycle.declare(*everything)
    assert check(lifecycle, at("03T07")) == [DAY]


def test_without_a_due_check_a_tick_asks_one_question(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    with counted_statements() as statements:
        lifecycle.look_for_late(at("03T05:30"))
    assert len([text for text in statements if "fa_" in text]) <= 2


def test_an_instance_that_was_run_again_meanwhile_is_left_alone(tmp_path: Path) -> None:
    lifecycle = processed(tmp_path)
    lifecycle.land("weather", DAY, text="late")
    lifecycle.run("daily", DAY, at("03T05:40"), lifecycle.run_id())
    assert "late" in (lifecycle.content("delays", DAY) or "")
    assert check(lifecycle, at("03T06")) == []
    with lifecycle.database.read() as connection:
        events = EventLog(connection).for_feed("weather", "primary", FeedEventKind.CHANGED)
    assert [event.nominal_time for event in events] == [DAY]


def test_a_run_that_ends_while_storage_is_scanned_has_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = processed(tmp_path)
    lifecycle.land("weather", DAY, text="late")

    def scan_and_run(*arguments: Any, **more: Any) -> Any:
        found = scan_contents(*arguments, **more)
        lifecycle.run("daily", DAY, at("03T06"), lifecycle.run_id())
        return found

    monkeypatch.setattr("feed_assets.instances.late.detection.scan_contents", scan_and_run)
    assert lifecycle.look_for_late(at("03T06")).verdicts == ()
    assert lifecycle.statuses("daily") == {DAY: SUCCEEDED}
    planned = lifecycle.late_check("daily", DAY)
    assert planned is not None
    assert (planned.due_at, planned.changed) == (at("03T08"), ())
