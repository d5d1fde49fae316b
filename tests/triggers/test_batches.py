from datetime import timedelta
from typing import Any

import pytest

from feed_assets.entities.common import Kind
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import ArrivalPayload
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.sql.database import Database
from feed_assets.triggers.waiting import FORESEEN_AT_MOST
from tests.triggers.harness import Queues, at, build_plan, sequence

FEEDS = ("d1", "d2", "d3")
ALL = {"when": ["d1", "d2", "d3"]}


def joined(database: Database, feeds: tuple[str, ...] = FEEDS, **trigger: object) -> Queues:
    queues = Queues(database=database, plan=build_plan(feeds, {"joined": {"when": list(feeds), **trigger}}))
    queues.tick()
    return queues


def test_af_10_a_batch_runs_once_when_all_have_come_and_takes_all_their_events(database: Database) -> None:
    queues = joined(database)
    assert sequence(queues, ["d1", "d1", "d1", "d2"]) == []
    assert queues.pending("joined") == {"d1": [1, 2, 3], "d2": [4], "d3": []}
    assert sequence(queues, ["d3"], ["d1"]) == [[1, 2, 3, 4, 5]]
    assert queues.pending("joined") == {"d1": [6], "d2": [], "d3": []}
    (batch,) = queues.instances("joined")
    assert (batch.status, batch.nominal_time.microsecond) == (ProcessInstanceStatus.SUCCEEDED, 0)


def test_a_batch_that_is_cut_is_told_in_the_topic_of_arrivals(database: Database) -> None:
    queues = joined(database)
    assert sequence(queues, ["d1", "d2", "d3"]) == [[1, 2, 3]]
    (batch,) = queues.instances("joined")
    with database.read() as connection:
        (told,) = Outbox(connection).read(0, 9)
    assert told.payload == ArrivalPayload(
        kind=Kind.PROCESS,
        entity="joined",
        cluster="primary",
        count=1,
        oldest=batch.nominal_time,
        newest=batch.nominal_time,
    )


def test_af_11_each_consumer_has_its_own_place_in_the_log(database: Database) -> None:
    plan = build_plan(FEEDS, {"multi": {"when": ["d1", "d2"]}, "single": {"when": "d1"}})
    queues = Queues(database=database, plan=plan)
    queues.tick()
    queues.come("d1", "d1")
    assert queues.tick() == [[1, 2]]
    assert [each.process for each in queues.instances("single")] == ["single"]
    assert queues.instances("multi") == []
    assert queues.pending("multi")["d1"] == [1, 2]


def test_processes_that_write_one_feed_never_have_a_batch_of_the_same_second(database: Database) -> None:
    outputs = {"log": {"feed": "log", "instance": "now(0,0)"}}
    triggers = {name: {"when": "d1"} for name in ("one", "other", "third")}
    queues = Queues(database=database, plan=build_plan(FEEDS, triggers, logs=["log"], outputs=outputs))
    queues.tick()
    queues.come("d1")
    assert queues.tick() == [[1], [1], [1]]
    times = [queues.instances(name)[0].nominal_time for name in triggers]
    assert [time - times[0] for time in times] == [timedelta(seconds=number) for number in range(3)]
    queues.end()
    queues.come("d1")
    queues.tick()
    every = [each.nominal_time for name in triggers for each in queues.instances(name)]
    assert len(set(every)) == len(every)


def test_af_21_a_batch_takes_what_is_pending_at_all_its_names(database: Database) -> None:
    queues = Queues(database=database, plan=build_plan(FEEDS, {"p": {"when": {"any": [["d1", "d2"], "d3"]}}}))
    queues.tick()
    assert sequence(queues, ["d1"], ["d3"], ["d2"], ["d1"]) == [[1, 2], [3, 4]]


def test_airflow_56050_while_a_batch_is_under_way_what_comes_joins_the_next_one(database: Database) -> None:
    queues = joined(database, ("d1",))
    queues.come("d1")
    assert queues.tick() == [[1]]
    queues.come("d1", "d1")
    assert queues.tick() == []
    queues.come("d1")
    assert queues.tick() == []
    queues.end()
    assert queues.tick() == [[2, 3, 4]]


def test_bd_27_a_failed_batch_keeps_its_events_and_others_wait_while_it_is_tried_again(database: Database) -> None:
    queues = joined(database, ("d1",))
    queues.come("d1")
    queues.tick()
    queues.end(ProcessInstanceStatus.FAILED, retry_at=at("12:00"))
    queues.come("d1")
    assert queues.tick() == []
    assert queues.events_of(queues.instances("joined")[0].key) == [1]
    queues.end(ProcessInstanceStatus.FAILED)
    assert queues.tick() == []


def test_bd_12_a_batch_takes_the_oldest_and_the_rest_stays(database: Database) -> None:
    queues = joined(database, ("d1",), batch={"max": 3})
    queues.come(*["d1"] * 5)
    assert queues.tick() == [[1, 2, 3]]
    assert queues.pending("joined") == {"d1": [4, 5]}
    queues.end()
    assert queues.tick() == [[4, 5]]


def test_bd_13_a_batch_takes_the_events_up_to_the_marked_one(database: Database) -> None:
    queues = joined(database, ("d1",), batch={"until": "*_DAILY_END"})
    queues.come("d1", marking="x")
    assert queues.tick() == []
    queues.come("d1", marking="2026-01-01_DAILY_END")
    queues.come("d1", marking="y")
    assert queues.tick() == [[1, 2]]
    queues.end()
    assert queues.tick() == []
    assert queues.pending("joined") == {"d1": [3]}
    queues.come("d1", marking="2026-01-02_DAILY_END")
    assert queues.tick() == [[3, 4]]


def test_bd_28_with_backlog_latest_only_the_newest_instance_is_taken(database: Database) -> None:
    queues = joined(database, ("d1",), backlog="latest")
    for hour in (3, 5, 4):
        queues.come("d1", hour=hour)
    assert queues.tick() == [[2]]
    assert (queues.passed("joined"), queues.pending("joined")) == (2, {"d1": []})
    queues.end()
    queues.come("d1", hour=1)
    assert queues.tick() == [[4]]


def test_min_makes_a_name_true(database: Database) -> None:
    queues = joined(database, ("d1",), batch={"min": 3})
    assert sequence(queues, ["d1"], ["d1"], ["d1"]) == [[1, 2, 3]]


def test_quiet_waits_for_silence(database: Database) -> None:
    queues = joined(database, ("d1",), batch={"quiet": "minutes(5)"})
    queues.come("d1")
    assert queues.tick(at("00:04")) == []
    queues.come("d1")
    assert queues.tick(at("00:08")) == []
    assert queues.tick(at("00:09:01")) == [[1, 2]]


def test_af_25_a_time_or_data(database: Database) -> None:
    queues = joined(database, ("d1",), or_every="days(1)")
    assert queues.tick(at("02T00:00")) == [[]]
    queues.end()
    queues.come("d1")
    assert queues.tick() == [[1]]
    queues.end()
    assert queues.tick(at("02T23:00")) == []
    assert queues.tick(at("05T23:00")) == [[]]
    queues.end()
    assert queues.tick(at("05T23:30")) == []


def test_af_26_a_time_and_data(database: Database) -> None:
    queues = joined(database, ("d1",), and_every="days(1)")
    assert queues.tick(at("02T00:00")) == []
    queues.come("d1")
    assert queues.tick() == [[1]]
    queues.end()
    queues.come("d1")
    assert queues.tick(at("02T23:59")) == []
    assert queues.tick(at("03T00:00")) == [[2]]


def test_af_66_by_a_time_of_day_what_is_pending_runs(database: Database) -> None:
    queues = joined(database, by="06:00")
    queues.come("d1")
    assert queues.tick(at("05:59")) == []
    assert queues.tick(at("06:00")) == [[1]]
    queues.end()
    assert queues.tick(at("02T06:00")) == []
    queues.come("d2")
    assert queues.tick() == []
    assert queues.tick(at("03T06:00:30")) == [[2]]


def test_an_event_that_is_too_old_opens_nothing_and_goes_with_the_next_batch(database: Database) -> None:
    queues = joined(database, ("d1", "d2"), max_age="hours(12)")
    queues.come("d1")
    queues.tick()
    queues.now = at("12:30")
    queues.come("d2")
    assert queues.tick() == []
    queues.come("d1")
    assert queues.tick() == [[1, 2, 3]]


def test_an_event_with_the_content_that_was_there_triggers_nothing(database: Database) -> None:
    counting = {"when": "d1", "unchanged": "count"}
    queues = Queues(database=database, plan=build_plan(["d1"], {"careful": {"when": "d1"}, "counting": counting}))
    queues.tick()
    cut: dict[str, list[list[int]]] = {"careful": [], "counting": []}
    for digest in ("a", "a", "b", "a"):
        queues.come("d1", digest=digest, hour=1)
        queues.tick()
        for batch in queues.ticks[-1].batches:
            cut[batch.process].append(queues.events_of(batch))
        queues.end()
    assert cut == {"careful": [[1], [3], [4]], "counting": [[1], [2], [3], [4]]}


@pytest.mark.parametrize(("on_pause", "taken"), [("queue", [1, 2, 3, 4]), ("drop", [1, 4]), ("latest", [3, 4])])
def test_af_12_on_pause_says_what_becomes_of_what_comes_meanwhile(
    database: Database, on_pause: str, taken: list[int]
) -> None:
    queues = joined(database, ("d1",), on_pause=on_pause, batch={"min": 2})
    queues.come("d1")
    queues.tick()
    queues.suspend("joined")
    queues.come("d1", "d1")
    assert queues.tick() == []
    queues.suspend("joined", ScheduleState.SCHEDULED)
    queues.come("d1")
    assert queues.tick() == [taken]


@pytest.mark.parametrize(
    ("start", "taken"), [("now", [4]), ("earliest", [1, 2, 3, 4]), ("2026-01-01T00:01Z", [2, 3, 4])]
)
def test_airflow_38826_a_new_consumer_begins_where_from_says(database: Database, start: str, taken: list[int]) -> None:
    queues = Queues(database=database, plan=build_plan(["d1"], {}))
    queues.come("d1")
    queues.now = at("00:01")
    queues.come("d1", "d1")
    queues.follow(build_plan(["d1"], {"new": {"when": "d1", "from": start, "batch": {"min": len(taken)}}}))
    assert queues.tick() == []
    queues.come("d1")
    assert queues.tick() == [taken]


def test_what_comes_before_the_time_in_from_does_not_count(database: Database) -> None:
    queues = joined(database, ("d1",), **{"from": "2026-01-01T00:10Z"})
    queues.come("d1")
    assert queues.tick() == []
    queues.now = at("00:10")
    queues.come("d1")
    assert queues.tick() == [[2]]


def test_airflow_49857_of_ten_thousand_old_events_the_oldest_hundred_come_first(database: Database) -> None:
    queues = Queues(database=database, plan=build_plan(["d1"], {}))
    queues.flood("d1", 10_000)
    queues.follow(build_plan(["d1"], {"new": {"when": "d1", "from": "earliest", "batch": {"max": 100}}}))
    assert queues.tick() == [list(range(1, 101))]
    queues.end()
    assert queues.tick() == [list(range(101, 201))]
    assert queues.marks("new")["d1"].pending == 9_800


def test_two_cuts_in_one_second_and_a_clock_that_was_set_back_get_names_of_their_own(database: Database) -> None:
    queues = joined(database, ("d1",))
    for _ in range(3):
        queues.come("d1")
        queues.tick(at("00:10"))
        queues.end()
    queues.come("d1")
    queues.tick(at("00:00"))
    assert [each.nominal_time for each in queues.instances("joined")] == [
        at("00:00"),
        at("00:10"),
        at("00:10:01"),
        at("00:10:02"),
    ]


def test_a_batch_in_safe_mode_waits(database: Database) -> None:
    queues = joined(database, ("d1",))
    queues.come("d1")
    assert queues.tick(is_held=True) == []
    assert queues.pending("joined") == {"d1": [1]}
    assert queues.tick() == [[1]]


@pytest.mark.parametrize("trigger", [{"when": {"any": ["d1", "d2"]}}, {"when": ["d1"], "batch": {"min": 2}}])
def test_a_condition_that_is_changed_so_that_it_holds_cuts_a_batch_without_another_event(
    database: Database, trigger: dict[str, Any]
) -> None:
    before = {"when": ["d1", "d2"]} if "batch" not in trigger else {"when": ["d1"], "batch": {"min": 3}}
    queues = Queues(database=database, plan=build_plan(["d1", "d2"], {"joined": before}))
    queues.tick()
    taken = queues.come("d1", "d1")
    assert queues.tick() == []
    queues.follow(build_plan(["d1", "d2"], {"joined": trigger}))
    assert queues.tick() == [taken]


def test_what_a_changed_trigger_would_cut_is_foreseen_and_nothing_moves(database: Database) -> None:
    queues = joined(database, ("d1", "d2"))
    queues.come(*["d1"] * 5)
    queues.tick()
    queues.come("d1")  # not routed yet
    assert queues.foresee("joined") is None
    before = queues.marks("joined")
    queues.follow(build_plan(["d1", "d2"], {"joined": {"when": {"any": ["d1", "d2"]}, "batch": {"min": 2, "max": 2}}}))
    assert queues.foresee("joined") == (3, 2)
    assert queues.marks("joined") == before
    cut = []
    for _ in range(4):
        cut += queues.tick()
        queues.end()
    assert cut == [[1, 2], [3, 4], [5, 6]]


def test_many_batches_are_foreseen_as_so_many_or_more(database: Database) -> None:
    queues = Queues(database=database, plan=build_plan(["d1"], {}))
    queues.flood("d1", 1_000)
    queues.follow(build_plan(["d1"], {"new": {"when": "d1", "from": "earliest", "batch": {"max": 10}}}))
    assert queues.foresee("new") == (FORESEEN_AT_MOST, 10)


def test_a_changed_trigger_keeps_the_place_of_names_that_stay(database: Database) -> None:
    queues = joined(database, ("d1", "d2"))
    queues.come("d1")
    queues.tick()
    queues.follow(build_plan(FEEDS, {"joined": {"when": ["d1", "d3"]}}))
    queues.tick()
    queues.come("d2")
    queues.come("d3")
    assert queues.tick() == [[1, 3]]
    queues.end()
    queues.follow(build_plan(FEEDS, {"joined": {"when": ["d1", "d2"]}}))
    queues.tick()
    queues.come("d1")
    assert queues.tick() == [[2, 4]]


def test_a_process_that_comes_back_goes_on_where_it_was(database: Database) -> None:
    plan = build_plan(["d1"], {"other": {"when": "d1"}})
    queues = joined(database, ("d1",), batch={"min": 2})
    queues.come("d1")
    queues.tick()
    both = queues.plan
    queues.follow(plan)
    queues.come("d1")
    queues.tick()
    queues.follow(both)
    assert queues.tick() == [[1, 2]]


def test_no_tick_cuts_a_batch_of_work_elsewhere_and_its_queue_grows(database: Database) -> None:
    plan = build_plan(["d1"], {"joined": {"when": ["d1"]}}, workflow={"engine": "external"})
    queues = Queues(database=database, plan=plan)
    queues.tick()
    queues.come("d1", "d1")
    assert queues.tick() == queues.tick() == []
    assert queues.pending("joined") == {"d1": [1, 2]}
