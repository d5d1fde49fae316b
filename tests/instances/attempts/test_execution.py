from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.engines.port import Work
from feed_assets.entities.feed import Feed
from feed_assets.instances.attempts.execution import Published
from feed_assets.instances.errors import InputsMissingError, OutputOutsideValidityError
from feed_assets.instances.leasing import TTL
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import Cause, FeedEventKind, FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.sql.errors import FencedOutError, LeaseHeldError, StateUnreachableError
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process, validity

RUNNING, SUCCEEDED = ProcessInstanceStatus.RUNNING, ProcessInstanceStatus.SUCCEEDED
FAILED, KILLED = ProcessInstanceStatus.FAILED, ProcessInstanceStatus.KILLED
AVAILABLE = FeedInstanceStatus.AVAILABLE
NOON = at("01T12:00")


def counting(tmp_path: Path) -> LifecycleHarness:
    """One process that makes counts of clicks; the first clicks are there."""
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks"),
        feed("counts", flag="_DONE"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}),
    )
    lifecycle.land("clicks", START)
    return lifecycle


def making(text: str) -> Mapping[str, str]:
    return {"counts": text}


def failing(_: Work) -> Mapping[str, str]:
    raise ArithmeticError("no numbers today")


def test_an_output_is_visible_then_logged_then_told_and_then_the_instance_has_succeeded(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    seen: list[object] = []

    def told(done: Published) -> None:
        seen.append(lifecycle.content("counts", START))
        seen.append([event.kind for event in lifecycle.events("counts")])
        seen.append(lifecycle.feed_statuses("counts"))
        seen.append(lifecycle.statuses("count")[START])
        seen.append((done.output, done.attempt, dict(done.inputs), done.rows))

    lifecycle.run("count", START, NOON, on_published=told)

    assert seen == ["made", [FeedEventKind.PRODUCED], {START: AVAILABLE}, RUNNING, ("counts", 1, {"clicks": 1}, 1)]
    assert lifecycle.statuses("count") == {START: SUCCEEDED}
    assert (lifecycle.folder("counts", START) / "_DONE").exists()


def test_the_event_the_instance_and_the_manifest_agree(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    (done,) = lifecycle.run("count", START, NOON, "run-7")
    (event,) = lifecycle.events("counts")
    row = lifecycle.feed_instances("counts")[START]
    assert event.manifest_digest == row.manifest_digest == done.content.digest
    assert (row.event_seq, row.fence, row.bytes, row.files) == (event.seq, 2, 4, 1)
    assert (event.origin, event.payload["process"], event.payload["rows"]) == ("run:run-7", "count", 1)
    manifest = lifecycle.store().published_manifest(lifecycle.feed("counts").path(START))
    assert manifest is not None
    assert manifest.extra == {"process": "count", "run": "run-7", "fence": "2"}


def test_a_failure_leaves_the_old_output_and_says_why(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    lifecycle.run("count", START, NOON)
    before = lifecycle.feed_instances("counts")
    lifecycle.job = failing

    with pytest.raises(ArithmeticError):
        lifecycle.run("count", START, NOON, "run-2")

    row = lifecycle.instances("count")[START]
    assert (row.status, row.attempt, row.run_id, row.ended_at) == (FAILED, 2, "run-2", NOON)
    assert row.reason == "ArithmeticError: no numbers today"
    assert (lifecycle.content("counts", START), lifecycle.feed_instances("counts")) == ("made", before)
    assert len(lifecycle.events("counts")) == 1


def test_a_first_failure_leaves_nothing(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    lifecycle.job = failing
    with pytest.raises(ArithmeticError):
        lifecycle.run("count", START, NOON)
    assert not lifecycle.folder("counts", START).exists()
    assert (lifecycle.events("counts"), lifecycle.feed_instances("counts"), lifecycle.staged()) == ([], {}, [])


@pytest.mark.parametrize(("is_cancelled", "status"), [(True, KILLED), (False, RUNNING)])
def test_an_interruption_kills_if_somebody_asked_for_it_and_else_is_the_death_of_a_worker(
    tmp_path: Path, is_cancelled: bool, status: ProcessInstanceStatus
) -> None:
    lifecycle = counting(tmp_path)

    def interrupted(_: Work) -> Mapping[str, str]:
        raise KeyboardInterrupt

    lifecycle.job = interrupted
    runner = lifecycle.runner(NOON, "run-1")
    runner = replace(runner, context=replace(runner.context, is_cancelled=lambda: is_cancelled))
    with pytest.raises(KeyboardInterrupt):
        runner.run(lifecycle.process("count"), START, lambda _: None)
    assert lifecycle.statuses("count") == {START: status}
    assert lifecycle.staged() == []


def test_a_rerun_replaces_the_whole_instance(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    lifecycle.run("count", START, NOON)
    lifecycle.land("counts", START, text="left by somebody")
    lifecycle.job = lambda _: making("again")

    lifecycle.run("count", START, NOON, "run-2")

    assert sorted(file.name for file in lifecycle.folder("counts", START).glob("part-*")) == ["part-0.csv"]
    assert lifecycle.content("counts", START) == "again"
    produced = [event for event in lifecycle.events("counts") if event.kind is FeedEventKind.PRODUCED]
    assert [event.payload["attempt"] for event in produced] == [1, 2]


def test_the_inputs_are_frozen_with_their_digests(tmp_path: Path) -> None:
    reader = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, start=at("01T01:00"))
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), reader)
    lifecycle.land("clicks", *hours(2))
    lifecycle.tick(at("01T01:00"))
    lifecycle.run("count", at("01T01:00"), NOON)

    (frozen,) = lifecycle.instances("count")[at("01T01:00")].inputs

    rows = lifecycle.feed_instances("clicks")
    assert (frozen.name, frozen.feed, frozen.nominal_times) == ("clicks", "clicks", tuple(hours(2)))
    assert frozen.digests == tuple(rows[time].manifest_digest for time in hours(2))
    assert None not in frozen.digests


def test_only_what_was_there_of_an_optional_input_is_frozen(tmp_path: Path) -> None:
    reader = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, optional=["clicks"], start=at("01T01:00"))
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), reader)
    lifecycle.land("clicks", START)

    lifecycle.run("count", at("01T01:00"), NOON)

    (frozen,) = lifecycle.instances("count")[at("01T01:00")].inputs
    assert frozen.nominal_times == (START,)


def test_a_run_by_hand_needs_no_sensor_to_find_its_inputs(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    assert lifecycle.feed_instances("clicks") == {}

    lifecycle.run("count", START, NOON)

    assert lifecycle.feed_statuses("clicks") == {START: AVAILABLE}
    assert [event.kind for event in lifecycle.events("clicks")] == [FeedEventKind.ARRIVED]


def test_a_run_by_hand_does_not_look_before_the_nominal_time(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    lifecycle.land("clicks", at("01T01:00"))
    with pytest.raises(InputsMissingError):
        lifecycle.run("count", at("01T01:00"), at("01T00:59"))
    assert lifecycle.looked == []


def test_missing_inputs_are_told_in_whole_sentences(tmp_path: Path) -> None:
    reader = process("count", inputs={"clicks": "now(-1,0) now(0,0)", "views": "latest(0)"}, start=at("01T01:00"))
    looker = process("look", outputs={"views": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("views"), reader, looker)
    lifecycle.land("clicks", START)

    with pytest.raises(InputsMissingError) as caught:
        lifecycle.run("count", at("01T01:00"), NOON)

    assert str(caught.value) == (
        "process 'count' at 2013-11-01T01:00Z lacks mandatory inputs: clicks lacks "
        f"file://{tmp_path}/primary/clicks/2013-11-01/01-00 (external: others deliver it); "
        "views cannot be resolved yet (process 'look' makes it). "
        "Nothing was begun: the instance is created at its time, and runs when they are there."
    )
    assert lifecycle.instances("count") == {}


def test_a_run_by_hand_before_its_inputs_leaves_the_instance_as_it_is(tmp_path: Path) -> None:
    reader = process(
        "count", inputs={"rates": "now(0,0)"}, outputs={"counts": "now(0,0)"}, timeout="hours(2)", end=at("01T01:00")
    )
    theirs = {"primary": {**validity(START, None), "produced_by": {"asset": ["team", "rates"]}}}
    rates = Feed.model_validate({**feed("rates").model_dump(exclude_unset=True), "clusters": theirs})
    lifecycle = LifecycleHarness.of(tmp_path, rates, feed("counts"), reader)
    lifecycle.tick(START)
    before = lifecycle.instances("count")
    with pytest.raises(InputsMissingError) as caught:
        lifecycle.run("count", START, START)
    assert str(caught.value).endswith(
        "(asset team/rates makes it). Nothing was begun: the instance stays WAITING with its own time-out, "
        "and runs when they are there."
    )
    assert lifecycle.instances("count") == before
    lifecycle.tick(at("01T02:00"))
    assert lifecycle.statuses("count") == {START: ProcessInstanceStatus.TIMEDOUT}
    with pytest.raises(InputsMissingError, match=r"stays TIMEDOUT\. When they are there, run it again"):
        lifecycle.run("count", START, at("01T02:00"))
    with lifecycle.database.begin() as connection:
        changed = {"status": ProcessInstanceStatus.SUSPENDED}
        ProcessInstances(connection).transition(before[START].key, {ProcessInstanceStatus.TIMEDOUT}, **changed)
    with pytest.raises(InputsMissingError, match=r"stays SUSPENDED\. Resume it, and it runs when they are there"):
        lifecycle.run("count", START, at("01T02:00"))


def test_a_requested_run_whose_inputs_are_gone_has_failed(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("count", inputs={"clicks": "now(0,0)"}, end=at("01T01:00"))
    )
    lifecycle.land("clicks", START)
    (request,) = lifecycle.tick(START)
    lifecycle.evict("clicks", START)
    with pytest.raises(InputsMissingError, match=r"Deliver the data .* and run the instance again") as caught:
        lifecycle.launch([request], START)
    row = lifecycle.instances("count")[START]
    assert (row.status, row.reason) == (FAILED, str(caught.value))


def test_an_output_outside_the_validity_of_its_feed_fails_the_instance(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("counts", end=at("01T05:00")),
        process("count", outputs={"counts": "now(0,0)"}, end=at("01T05:00")),
    )
    with pytest.raises(OutputOutsideValidityError, match="output 'counts' is outside the validity of feed 'counts'"):
        lifecycle.run("count", at("01T06:00"), NOON)
    assert lifecycle.statuses("count") == {at("01T06:00"): FAILED}


def test_two_workers_cannot_run_one_instance(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    refusals: list[LeaseHeldError] = []

    def meanwhile(_: Work) -> Mapping[str, str]:
        before = lifecycle.instances("count")
        with pytest.raises(LeaseHeldError) as caught:
            lifecycle.run("count", START, NOON, "second")
        assert lifecycle.instances("count") == before
        refusals.append(caught.value)
        return making("first")

    lifecycle.job = meanwhile
    lifecycle.run("count", START, NOON, "first")

    assert [refusal.holder for refusal in refusals] == ["first"]
    assert (lifecycle.statuses("count"), lifecycle.content("counts", START)) == ({START: SUCCEEDED}, "first")


def test_another_writer_of_an_output_keeps_the_instance_as_it_was(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    Leases(lifecycle.database).acquire("feed/counts", "primary", START, "another process", NOON, TTL)

    with pytest.raises(LeaseHeldError, match="'another process'"):
        lifecycle.run("count", START, NOON)

    assert lifecycle.instances("count") == {}
    lifecycle.run("count", START, NOON + TTL)
    assert lifecycle.feed_instances("counts")[START].fence > 1


@pytest.mark.parametrize("entity", ["process/count", "feed/counts"])
def test_a_worker_whose_lease_was_taken_over_publishes_nothing(tmp_path: Path, entity: str) -> None:
    lifecycle = counting(tmp_path)
    lifecycle.run("count", START, NOON)

    def overslept(_: Work) -> Mapping[str, str]:
        Leases(lifecycle.database).acquire(entity, "primary", START, "successor", NOON + 2 * TTL, TTL)
        return making("too late")

    lifecycle.job = overslept
    with pytest.raises(FencedOutError, match="taken over by 'successor'"):
        lifecycle.run("count", START, NOON, "run-2")

    assert (lifecycle.content("counts", START), len(lifecycle.events("counts"))) == ("made", 1)
    assert lifecycle.statuses("count") == {START: RUNNING}
    assert lifecycle.staged() == []


@pytest.mark.parametrize("ends_in", [making("stale"), None])
def test_a_worker_that_wakes_up_late_does_not_touch_what_its_successor_has_done(
    tmp_path: Path, ends_in: Mapping[str, str] | None
) -> None:
    lifecycle = counting(tmp_path)

    def overslept(work: Work) -> Mapping[str, str]:
        lifecycle.job = lambda _: making("by the successor")
        lifecycle.run("count", START, NOON + 2 * TTL, "successor")
        if ends_in is None:
            return failing(work)
        return ends_in

    lifecycle.job = overslept
    with pytest.raises(FencedOutError if ends_in else ArithmeticError):
        lifecycle.run("count", START, NOON, "sleeper")

    row = lifecycle.instances("count")[START]
    assert (row.status, row.run_id, row.reason) == (SUCCEEDED, "successor", None)
    assert (lifecycle.content("counts", START), len(lifecycle.events("counts"))) == ("by the successor", 1)


def test_when_telling_fails_the_first_output_stands_and_a_rerun_makes_both(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("a"), feed("b"), process("both", outputs={"a": "now(0,0)", "b": "now(0,0)"})
    )

    def refuse(_: Published) -> None:
        raise OSError("nobody listens")

    with pytest.raises(OSError, match="nobody listens"):
        lifecycle.run("both", START, NOON, on_published=refuse)
    assert (lifecycle.content("a", START), lifecycle.content("b", START)) == ("made", None)
    assert lifecycle.statuses("both") == {START: FAILED}

    lifecycle.run("both", START, NOON, "run-2")

    assert (lifecycle.content("a", START), lifecycle.content("b", START)) == ("made", "made")
    assert lifecycle.staged() == []


@pytest.mark.parametrize("where", ["work", "code of the work", "telling"])
def test_a_record_that_is_away_is_no_failure_of_the_work_and_the_instance_is_repeated(
    tmp_path: Path, where: str
) -> None:
    lifecycle = counting(tmp_path)
    away = StateUnreachableError(reason="it cannot be used: server closed the connection", next_step="Start it.")

    def refuse(_: object) -> Mapping[str, str]:
        if where != "code of the work":
            raise away
        raise RuntimeError("the workflow asked for the newest event") from away

    if where == "telling":
        with pytest.raises(StateUnreachableError):
            lifecycle.run("count", START, NOON, on_published=refuse)
    else:
        lifecycle.job = refuse
        with pytest.raises((StateUnreachableError, RuntimeError)):
            lifecycle.run("count", START, NOON)
    assert lifecycle.statuses("count") == {START: RUNNING}
    assert lifecycle.content("counts", START) == ("made" if where == "telling" else None)


def test_leases_are_given_back_whatever_happens(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    for job in (failing, lambda _: making("x")):
        lifecycle.job = job
        with suppress(ArithmeticError):
            lifecycle.run("count", START, NOON, lifecycle.run_id())
        for entity in ("process/count", "feed/counts"):
            lease = Leases(lifecycle.database).acquire(entity, "primary", START, "somebody", NOON, TTL)
            Leases(lifecycle.database).release_many([lease])


def test_arguments_are_filled_in(tmp_path: Path) -> None:
    submitted = process(
        "count",
        inputs={"clicks": "now(0,0)"},
        properties={"level": "7"},
        workflow={
            "engine": "spark-submit",
            "path": "app.py",
            "args": ["--day=${YEAR}-${MONTH}-${DAY}", "${level}", "${dataIn('clicks','')}"],
        },
    )
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), submitted)
    lifecycle.land("clicks", START)
    seen: list[tuple[str, ...]] = []

    def job(work: Work) -> Mapping[str, str]:
        assert work.submit is not None
        seen.append(work.submit.args)
        return {}

    lifecycle.job = job
    lifecycle.run("count", START, NOON)
    assert seen == [("--day=2013-11-01", "7", lifecycle.folder("clicks", START).as_uri())]


def test_seconds_are_those_of_the_day_and_times_those_of_the_data(tmp_path: Path) -> None:
    lifecycle = counting(tmp_path)
    later = datetime.fromisoformat("2030-01-01T00:00+00:00")
    (done,) = lifecycle.runner(NOON, real_now=later).run(lifecycle.process("count"), START, lambda _: None)
    assert done.seconds == 0.0
    assert lifecycle.instances("count")[START].started_at == NOON
    assert lifecycle.events("counts")[0].recorded_at == NOON


def test_a_skipped_instance_can_be_run_by_hand(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("ping", order="LAST_ONLY"))
    lifecycle.tick(at("01T02:00"))
    assert lifecycle.instances("ping")[START].cause is Cause.SUPERSEDED
    lifecycle.run("ping", START, NOON)
    row = lifecycle.instances("ping")[START]
    assert (row.status, row.reason, row.ended_at) == (SUCCEEDED, None, NOON + timedelta(0))
