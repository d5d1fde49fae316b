from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete

from feed_assets.context.consolidation import Result
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import resolve_subject
from feed_assets.context.safe_mode import record_restore, set_safe_mode
from feed_assets.definitions.verbs.schedules import apply_schedules, decide_schedules
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.explain.choosing import choose_instance
from feed_assets.explain.explanations import explain, explain_instance, explain_process_instances
from feed_assets.explain.records import Explanation, Reason, ReasonCode
from feed_assets.instances.gates.actions import InstanceAction
from feed_assets.instances.lists.control import control_instances
from feed_assets.instances.lists.lifecycles import find_work
from feed_assets.json_form import render_document
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.tables import process_instances
from feed_assets.log.leases import Leases
from feed_assets.log.records import (
    Cause,
    FeedEventKind,
    FeedInstance,
    FeedInstanceStatus,
    NewFeedEvent,
    ProcessInstanceStatus,
    ProcessKey,
)
from feed_assets.timing.dates import NEVER
from tests.context.contexts import WEBSERVER, about, context_of, counting_harness, put, row
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process

READY, RUNNING, FAILED = (
    ProcessInstanceStatus.READY,
    ProcessInstanceStatus.RUNNING,
    ProcessInstanceStatus.FAILED,
)

BOOM = {"cause": Cause.FAILURE, "cause_detail": "boom"}


def why(
    lifecycle: LifecycleHarness, name: str, time: datetime, as_of: datetime, kind: Kind = Kind.PROCESS
) -> Explanation:
    (only,) = about(explain, context_of(lifecycle, as_of), name, time, kind=kind).items
    return only


def codes(explanation: Explanation) -> list[ReasonCode]:
    return [reason.code for reason in explanation.reasons]


def reason(explanation: Explanation, code: ReasonCode) -> Reason:
    (only,) = [each for each in explanation.reasons if each.code is code]
    return only


def set_schedule(lifecycle: LifecycleHarness, name: str, state: ScheduleState, now: datetime) -> None:
    view = ScheduleView(without_row=ScheduleState.SCHEDULED)
    with lifecycle.database.begin() as connection:
        rows = decide_schedules(view, Kind.PROCESS, name, ["primary"], state, author="ops", now=now)
        apply_schedules(connection, view, rows, now)


def test_a_missing_file_is_followed_through_the_processes_up_to_the_path(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", *hours(2))
    lifecycle.flag("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T01:30")), at("01T01:30"))

    found = why(lifecycle, "report", START, at("01T01:40"))

    assert found.headline == "process report on primary at 2013-11-01T00:00Z is WAITING"
    lacking = reason(found, ReasonCode.INPUT_MISSING)
    assert lacking.text == "input counts lacks 3 of 4 instances of feed counts, 2013-11-01T01:00Z to 2013-11-01T03:00Z"
    assert lacking.facts["missing"] == ["2013-11-01T01:00Z", "2013-11-01T02:00Z", "2013-11-01T03:00Z"]
    (first, *_) = lacking.causes
    assert first.headline == "feed counts on primary at 2013-11-01T01:00Z is MISSING"
    (count,) = reason(first, ReasonCode.NOT_WRITTEN).causes
    assert (count.name, count.status) == ("count", "WAITING")
    (clicks,) = reason(count, ReasonCode.INPUT_MISSING).causes
    url = context_of(lifecycle, START).feed_url(lifecycle.feed("clicks"), at("01T01:00"))
    assert reason(clicks, ReasonCode.FLAG_MISSING).text == f"{url} lacked its flag _SUCCESS at 2013-11-01T01:30:00Z"
    polls = reason(clicks, ReasonCode.POLLS)
    assert polls.facts == {"polled_at": "2013-11-01T01:30:00Z", "next_poll_at": "2013-11-01T01:30:36Z"}
    assert reason(found, ReasonCode.TIMES_OUT).facts["at"] == "2013-11-02T01:30:00Z"
    roots = [root.headline for root in found.root_causes()]
    assert roots == [
        "feed clicks on primary at 2013-11-01T01:00Z is PARTIAL",
        "feed counts on primary at 2013-11-01T02:00Z is not due yet",
        "feed counts on primary at 2013-11-01T03:00Z is not due yet",
    ]


@pytest.mark.parametrize(("on_timeout", "says"), [("give-up", "times out"), ("run", "runs with what is there")])
def test_why_says_what_a_waiting_instance_does_at_its_time_out(tmp_path: Path, on_timeout: str, says: str) -> None:
    lifecycle = counting_harness(tmp_path, on_timeout=on_timeout)
    lifecycle.tick(at("01T00:30"))
    found = why(lifecycle, "count", START, at("01T00:40"))
    assert reason(found, ReasonCode.TIMES_OUT).text == f"it {says} at 2013-11-01T06:30:00Z"


def test_nothing_is_said_of_a_storage_that_nobody_has_polled(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.land("clicks", START)
    found = why(lifecycle, "clicks", START, at("01T00:40"), Kind.FEED)
    url = context_of(lifecycle, START).feed_url(lifecycle.feed("clicks"), START)
    assert [(each.code, each.text) for each in found.reasons] == [
        (ReasonCode.NOT_POLLED, f"no tick has polled {url} yet: the next one does")
    ]


def test_several_instances_are_explained_together_each_as_if_alone(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path, parallel=1)
    put(lifecycle, row("count", START, RUNNING, run_id="run"))
    lifecycle.tick(at("01T03:30"))
    context = context_of(lifecycle, at("01T03:40"))
    counts = [ProcessKey("count", "primary", time) for time in hours(4)]
    keys = [ProcessKey("report", "primary", START), *counts]
    with context.read() as connection:
        with counted_statements() as by_one:
            alone = {key: explain_instance(context, connection, Kind.PROCESS, *key) for key in keys}
        with counted_statements() as at_once:
            together = explain_process_instances(context, connection, keys)
    assert together == alone
    assert ReasonCode.NO_SLOT in codes(alone[counts[1]])  # said only of the instance that is asked for
    assert "active run" not in alone[keys[0]].render()
    assert len(at_once) < len(by_one) / 2


def test_the_tree_as_text_and_json(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T00:30"))
    found = why(lifecycle, "counts", START, at("01T00:40"), Kind.FEED)
    url = context_of(lifecycle, START).feed_url(lifecycle.feed("clicks"), START)
    assert found.render().splitlines() == [
        "feed counts on primary at 2013-11-01T00:00Z is MISSING",
        "  - it has not been produced:",
        "    - process count on primary at 2013-11-01T00:00Z is WAITING",
        "      - input clicks lacks 1 of 1 instances of feed clicks:",
        "        - feed clicks on primary at 2013-11-01T00:00Z is MISSING",
        f"          - {url} did not exist at 2013-11-01T00:30:00Z, and neither did its flag _SUCCESS",
        "            $ feed-assets feed notify clicks 2013-11-01T00:00Z --cluster primary",
        "          - the last poll was at 2013-11-01T00:30:00Z, the next poll has been due since 2013-11-01T00:30:36Z",
        "      - it times out at 2013-11-01T06:30:00Z",
    ]
    (reason, _) = render_document(found)["reasons"][0]["causes"][0]["reasons"]
    assert reason["code"] == "input-missing"
    (root,) = found.root_causes()
    assert (root.kind, root.name, root.nominal_time, root.status) == (Kind.FEED, "clicks", START, "MISSING")


def test_what_has_run_says_what_began_it_and_what_it_was_made_from(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T00:30")), at("01T00:30"))

    found = why(lifecycle, "count", START, at("01T00:40"))

    assert codes(found) == [
        ReasonCode.ENDED,
        ReasonCode.TRIGGER,
        ReasonCode.GOVERNED_BY,
        ReasonCode.INPUT_READ,
        ReasonCode.INPUT_READ,
        ReasonCode.OUTPUT,
    ]
    trigger = reason(found, ReasonCode.TRIGGER)
    assert trigger.text == "attempt 1 began at 2013-11-01T00:30:00Z: its inputs are there"
    assert trigger.facts["log"] == f"{WEBSERVER}/runs/{trigger.facts['run']}"
    assert reason(found, ReasonCode.GOVERNED_BY).facts == {"release": 1, "version": 1}
    clicks, weather = (each for each in found.reasons if each.code is ReasonCode.INPUT_READ)
    read = clicks.facts["instances"][0]  # type: ignore[index]
    assert (read["instance"], read["digest"][:5]) == ("2013-11-01T00:00Z", "look:")
    assert weather.text == "it read nothing as input weather"
    assert reason(found, ReasonCode.OUTPUT).facts["kind"] == "PRODUCED"
    assert found.blockers == ()
    made = why(lifecycle, "counts", START, at("01T00:40"), Kind.FEED)
    assert "PRODUCED at 2013-11-01T00:30:00Z by process count, run:" in reason(made, ReasonCode.EVENT).text


def test_what_failed_says_why_and_when_it_is_tried_again(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    put(
        lifecycle,
        row(
            "count",
            START,
            FAILED,
            cause=Cause.FAILURE,
            cause_detail="boom",
            ended_at=at("01T01:00"),
            retry_at=at("01T01:05"),
            retries=1,
        ),
        row(
            "count",
            at("01T01:00"),
            FAILED,
            cause=Cause.FAILURE,
            cause_detail="boom",
            ended_at=at("01T01:00"),
            retry_at=NEVER,
        ),
    )
    again = why(lifecycle, "count", START, at("01T01:01"))
    rerun = "feed-assets instance rerun count --instance 2013-11-01T00:00Z --clusters primary"
    assert [(each.text, each.command) for each in again.reasons[:2]] == [
        ("it ended at 2013-11-01T01:00:00Z: boom", rerun),
        ("the next retry is at 2013-11-01T01:05:00Z", None),
    ]
    assert reason(why(lifecycle, "count", at("01T01:00"), at("01T01:01")), ReasonCode.RETRY).text == "it is not retried"
    (cause,) = reason(why(lifecycle, "counts", START, at("01T01:01"), Kind.FEED), ReasonCode.NOT_WRITTEN).causes
    assert cause.status == "FAILED"
    assert [root.name for root in why(lifecycle, "counts", START, at("01T01:01"), Kind.FEED).root_causes()] == ["count"]


@pytest.mark.parametrize(
    ("state", "text"),
    [(ScheduleState.SUBMITTED, "entity schedule"), (ScheduleState.SUSPENDED, "entity resume")],
)
def test_a_process_that_is_not_scheduled_says_so(tmp_path: Path, state: ScheduleState, text: str) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T00:30"))
    set_schedule(lifecycle, "count", state, at("01T00:35"))
    found = why(lifecycle, "count", START, at("01T00:40"))
    assert codes(found)[:2] == [ReasonCode.NOT_SCHEDULED, ReasonCode.INPUT_MISSING]
    assert reason(found, ReasonCode.NOT_SCHEDULED).command == f"feed-assets {text} process count --clusters primary"
    later = why(lifecycle, "count", at("01T02:00"), at("01T02:10"))
    assert codes(later)[:2] == [ReasonCode.NOT_REACHED, ReasonCode.NOT_SCHEDULED]


def test_slots_turns_and_requests_are_named(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path, parallel=1)
    put(
        lifecycle,
        row("count", hours(4)[0], READY, request_key="k", requested_at=at("01T03:00")),
        row("count", hours(4)[1], READY),
        row("count", hours(4)[2], READY),
    )
    now = at("01T03:01")
    asked = why(lifecycle, "count", hours(4)[0], now)
    assert (codes(asked), asked.blockers) == ([ReasonCode.REQUESTED], ())
    following = reason(why(lifecycle, "count", hours(4)[1], now), ReasonCode.NO_SLOT)
    assert following.facts == {"parallel": 1, "in_flight": 1}
    assert codes(why(lifecycle, "count", hours(4)[2], now))[:1] == [ReasonCode.NO_SLOT]


def test_what_no_tick_creates_any_more_is_told_from_what_the_next_ticks_create(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T00:30"))
    with lifecycle.database.begin() as connection:
        connection.execute(delete(process_instances))
    asked = [why(lifecycle, "count", hours(4)[each], at("01T06:00")) for each in (0, 3)]
    assert [reason(each, ReasonCode.NOT_REACHED).text for each in asked] == [
        "ticks are past it and go on with 2013-11-01T01:00Z: a release from then on creates it",
        "it is not yet created: the next instance that ticks create is 2013-11-01T01:00Z",
    ]


def test_with_last_only_an_older_one_has_no_turn(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path, order="LAST_ONLY")
    put(lifecycle, *(row("count", time, READY) for time in hours(2)))
    older = reason(why(lifecycle, "count", START, at("01T02:00")), ReasonCode.NOT_ITS_TURN)
    assert older.facts == {"order": "LAST_ONLY", "ahead": 1}
    assert codes(why(lifecycle, "count", hours(2)[1], at("01T02:00"))) == [ReasonCode.NEXT_TICK]


def test_whoever_works_on_an_output_is_named(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    put(lifecycle, row("count", START, READY))
    now = at("01T00:30")
    Leases(lifecycle.database).acquire("feed/counts", "primary", START, "run-9", now, timedelta(seconds=60))
    held = reason(why(lifecycle, "count", START, now), ReasonCode.LEASE_HELD)
    assert held.text == "run-9 has leased feed/counts until at least 2013-11-01T00:31:00Z"
    assert ReasonCode.LEASE_HELD not in codes(why(lifecycle, "count", START, at("01T00:31")))


def test_a_suspended_instance_and_a_running_one(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    put(
        lifecycle,
        row("count", START, ProcessInstanceStatus.SUSPENDED),
        row("count", at("01T01:00"), RUNNING, run_id="r7", attempt=2, started_at=at("01T01:05")),
    )
    held = why(lifecycle, "count", START, at("01T01:10"))
    assert codes(held)[:2] == [ReasonCode.SUSPENDED, ReasonCode.INPUT_MISSING]
    assert render_document(held)["reasons"][0]["facts"] == {}
    runs = why(lifecycle, "count", at("01T01:00"), at("01T01:10"))
    assert reason(runs, ReasonCode.RUNNING).text == "run r7 has been running since 2013-11-01T01:05:00Z, attempt 2"
    assert runs.blockers == ()


def test_what_was_evicted_says_when_and_by_what(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    lifecycle.arrive(at("01T00:30"))
    with lifecycle.database.begin() as connection:
        event = NewFeedEvent(
            feed="clicks",
            cluster="primary",
            nominal_time=START,
            kind=FeedEventKind.EVICTED,
            origin="sweep:7",
            recorded_at=at("20T00:00"),
            payload={"limit": "days(19)"},
        )
        EventLog(connection).append([event])
        evicted = FeedInstance(
            feed="clicks",
            cluster="primary",
            nominal_time=START,
            status=FeedInstanceStatus.EVICTED,
            updated_at=at("20T00:00"),
        )
        FeedInstances(connection).put([evicted])
    found = why(lifecycle, "clicks", START, at("21T00:00"), Kind.FEED)
    gone = reason(found, ReasonCode.EVICTED)
    assert gone.text == "it was evicted at 2013-11-20T00:00:00Z by sweep:7"
    assert gone.facts["limit"] == "days(19)"
    assert "ARRIVED at 2013-11-01T00:30:00Z" in reason(found, ReasonCode.EVENT).text


def test_future_and_unresolved_windows(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("peek", inputs={"clicks": "latest(-1) latest(0)"})
    )
    lifecycle.tick(at("01T00:30"))
    found = why(lifecycle, "peek", START, at("01T00:40"))
    assert reason(found, ReasonCode.INPUT_UNRESOLVED).facts["window"] == "latest(-1) to latest(0)"
    tomorrow = why(lifecycle, "peek", at("02T00:00"), at("01T00:40"))
    assert codes(tomorrow)[0] is ReasonCode.NOT_DUE
    assert tomorrow.status == "UNSCHEDULED"
    early = why(lifecycle, "clicks", at("02T00:00"), at("01T00:40"), Kind.FEED)
    assert codes(early) == [ReasonCode.NOT_DUE]


def test_an_optional_input_blocks_nothing(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T00:30"))
    found = why(lifecycle, "count", START, at("01T00:40"))
    optional = reason(found, ReasonCode.OPTIONAL_INPUT)
    assert not optional.blocks
    assert optional.text == "optional input weather lacks 1 of 1 instances; it can run without them"


def test_safe_mode_is_mentioned(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T00:30"))
    assert ReasonCode.SAFE_MODE not in codes(why(lifecycle, "count", START, at("01T00:40")))
    set_safe_mode(lifecycle.database, is_on=True, author="ops", now=at("01T00:35"))
    assert ReasonCode.SAFE_MODE in codes(why(lifecycle, "count", START, at("01T00:40")))
    with lifecycle.database.begin() as connection:
        record_restore(connection)
    assert ReasonCode.RESTORED in codes(why(lifecycle, "count", START, at("01T00:40")))


def test_of_many_missing_the_oldest_are_followed_and_all_are_counted(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", start=at("2013-10-01")),
        process("day", "days(1)", inputs={"clicks": "now(-23,0) now(0,0)"}),
    )
    lifecycle.tick(at("01T00:30"))
    lacking = reason(why(lifecycle, "day", START, at("01T00:40")), ReasonCode.INPUT_MISSING)
    assert lacking.text == (
        "input clicks lacks 24 of 24 instances of feed clicks, 2013-10-31T01:00Z to 2013-11-01T00:00Z; the oldest 5 are"
    )
    assert (len(lacking.causes), len(lacking.facts["missing"])) == (5, 24)  # type: ignore[arg-type]


def test_one_cause_of_many_is_explained_once(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks"),
        feed("counts"),
        feed("sums"),
        process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"}),
        process("sum", inputs={"clicks": "now(0,0)"}, outputs={"sums": "now(0,0)"}),
        process("both", inputs={"counts": "now(0,0)", "sums": "now(0,0)"}),
    )
    lifecycle.tick(at("01T00:30"))
    text = why(lifecycle, "both", START, at("01T00:40")).render()
    assert text.count("did not exist") == 1
    assert text.count("see above") == 1
    assert [root.name for root in why(lifecycle, "both", START, at("01T00:40")).root_causes()] == ["clicks"]


def test_a_long_chain_ends_and_says_so(tmp_path: Path) -> None:
    stages = [feed(f"f{n}") for n in range(40)]
    steps = [process(f"p{n}", inputs={f"f{n}": "now(0,0)"}, outputs={f"f{n + 1}": "now(0,0)"}) for n in range(39)]
    lifecycle = LifecycleHarness.of(tmp_path, *stages, *steps)
    lifecycle.tick(at("01T00:30"))
    text = why(lifecycle, "p38", START, at("01T00:40")).render()
    assert "too far upstream to follow from here" in text


def test_a_time_that_is_no_instance_is_refused_alone(tmp_path: Path) -> None:
    found = about(explain, context_of(counting_harness(tmp_path), at("02")), "count", at("01T00:30"))
    assert (found.result, found.items) == (Result.FAILED, ())
    assert "it is between two instances" in found.message


def test_late_data_that_are_looked_for_are_mentioned(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", late_arrival={"cut_off": "hours(6)"}),
        feed("counts"),
        process(
            "count",
            inputs={"clicks": "now(0,0)"},
            outputs={"counts": "now(0,0)"},
            late_process={"policy": "periodic", "delay": "hours(2)", "inputs": ["clicks"]},
        ),
    )
    lifecycle.land("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T00:30")), at("01T00:30"))
    check = lifecycle.late_check("count", START)
    assert check is not None
    assert check.due_at is not None
    told = reason(why(lifecycle, "count", START, at("01T00:40")), ReasonCode.LATE_CHECK)
    assert told.facts == {"at": f"{check.due_at:%Y-%m-%dT%H:%M:%SZ}", "until": f"{check.cut_off_at:%Y-%m-%dT%H:%M:%SZ}"}


def test_why_an_instance_is_to_run_again_is_told(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    put(
        lifecycle,
        row(
            "count",
            START,
            READY,
            cause=Cause.LATE_DATA,
            cause_detail="late data: clicks changed",
            attempt=1,
            ended_at=at("01T01:00"),
        ),
    )
    found = why(lifecycle, "count", START, at("01T02:00"))
    assert reason(found, ReasonCode.LAST_CHANGE).text == "last change: late data: clicks changed"
    assert ReasonCode.ENDED not in codes(found)


@pytest.mark.parametrize("name", ["count", "counts"])
def test_what_waits_for_a_feed_that_is_not_declared_any_more_is_explained_by_its_release(
    tmp_path: Path, name: str
) -> None:
    counts, made = feed("counts"), process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), counts, made)
    lifecycle.land("clicks", START)
    lifecycle.tick(at("01T01:00"))
    url = context_of(lifecycle, START).feed_url(lifecycle.feed("clicks"), at("01T01:00"))
    renamed = feed("views").model_copy(update={"locations": feed("clicks").locations})
    later = process("count", inputs={"views": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    lifecycle.now = at("01T01:30")

    lifecycle.declare(renamed, counts, later)
    lifecycle.tick(at("01T01:30"))

    kind = Kind.PROCESS if name == "count" else Kind.FEED
    (found,) = about(explain, context_of(lifecycle, at("01T01:30")), name, at("01T01:00"), kind=kind).items
    told = found.render()
    assert "lacks 1 of 1 instances of feed clicks, which is not declared any more" in told
    assert f"no tick has polled {url} yet" in told or f"{url} did not exist" in told
    assert "feed notify clicks" not in told
    command = "feed-assets entity touch process count --clusters primary --effective-from 2013-11-01T01:00Z"
    (root,) = found.root_causes()
    assert (root.name, root.blockers[0].command) == ("count", command), "nobody sends what is not declared any more"
    subject = resolve_subject(context_of(lifecycle, at("01T01:30")), "count", at("01T01:00"))
    done = control_instances(
        context_of(lifecycle, at("01T01:30")).by("ann", dry_run=True), InstanceAction.RERUN, subject
    )
    told = "1 instance on primary waits for feed 'clicks', which is not declared any more"
    gone = f"{told}; to follow what is declared: {command}"
    assert done.obstacles == (gone,)
    assert done.summary.endswith(gone)


def test_an_import_names_the_one_before_it_and_when_a_period_is_over(tmp_path: Path) -> None:
    datasource = Datasource.model_validate(
        {
            "name": "shop",
            "type": "postgres",
            "interfaces": {"readonly": {"endpoint": "jdbc:postgresql://127.0.0.1/shop"}},
            "driver": {"class": "org.postgresql.Driver", "jars": ["postgresql.jar"]},
            "credential": {"user": "shop", "password": "${env:SHOP_PASSWORD}"},
        }
    )

    def imported(name: str, by: str) -> Feed:
        made = feed(name, "days(1)").model_dump(mode="json", by_alias=True, exclude_defaults=True)
        extract = {"type": "incremental", "delta_column": "id", "by": by}
        made["clusters"]["primary"] |= {
            "type": "source",
            "import": {"source": {"name": "shop", "table": name, "extract": extract}},
        }
        return Feed.model_validate(made | {"schema": "id int", "format": "parquet"})

    lifecycle = LifecycleHarness.of(tmp_path, datasource, imported("orders", "mark"), imported("items", "window"))
    lifecycle.tick(at("03T00:30"))
    found = why(lifecycle, "orders", at("03T00"), at("03T00:30"), Kind.FEED)
    (root,) = found.root_causes()
    assert (root.name, root.nominal_time, root.status) == ("orders.import", START, "READY")
    assert reason(root, ReasonCode.REQUESTED).text.startswith("a run was requested at ")
    context = context_of(lifecycle, at("03T00:30"))
    for name, time in (("orders", at("03T00")), ("items", at("02T00"))):  # what is not due yet does not wait
        assert choose_instance(context, resolve_subject(context, name), None)[0].nominal_time == time
    (ahead,) = why(lifecycle, "items", at("03T00"), at("03T00:30"), Kind.FEED).root_causes()
    assert reason(ahead, ReasonCode.NOT_DUE).text == "it is due at 2013-11-04T00:00:00Z"
    assert ahead.headline == "the import of feed 'items' on primary at 2013-11-03T00:00Z is not due yet"
    with pytest.raises(InstanceQueryError, match="Add --lifecycle import"):
        find_work(context, resolve_subject(context, "orders"))
