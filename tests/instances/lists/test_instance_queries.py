from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.context.consolidation import Result
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.instances.attempts.attempts import Published
from feed_assets.instances.errors import InputsMissingError
from feed_assets.instances.lists.feed_listings import list_feed
from feed_assets.instances.lists.queries import find_running, list_instances, summarize_instances
from feed_assets.instances.lists.query_fields import OrderField
from feed_assets.instances.lists.ranges import InstanceFilter, decide_range, parse_filter
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.timing.errors import DateTimeError
from tests.context.contexts import WEBSERVER, context_of, counting_harness, listed, put, query_of, row
from tests.instances.harness import START, LifecycleHarness, at, counted_statements, feed, hours, process

WAITING, RUNNING, SUCCEEDED, FAILED = (
    ProcessInstanceStatus.WAITING,
    ProcessInstanceStatus.RUNNING,
    ProcessInstanceStatus.SUCCEEDED,
    ProcessInstanceStatus.FAILED,
)


def hours_of(page: object) -> list[int]:
    return [each.nominal_time.hour for each in page.instances]  # type: ignore[attr-defined]


def test_row_107_a_list_has_falcons_window_details_and_order(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T12:30")), at("01T12:30"))
    context = context_of(lifecycle, at("01T12:30"))

    page = listed(context, "count")

    assert (page.result, page.start, page.end) == (Result.SUCCEEDED, at("01T02:30"), at("01T12:30"))
    assert hours_of(page) == list(range(12, 2, -1))
    assert {each.status for each in page.instances} == {"WAITING"}
    clicks = context.feed_url(lifecycle.feed("clicks"), at("01T12:00"))
    assert page.instances[0].details == (clicks,)
    assert (page.listed, page.total, page.has_more) == (10, 13, True)


def test_row_107_a_given_start_turns_the_order_and_the_end_is_left_out(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.tick(at("01T12:30"))
    context = context_of(lifecycle, at("01T12:30"))
    page = listed(context, "count", start=at("01T02:00"), end=at("01T05:00"))
    assert hours_of(page) == [2, 3, 4]
    assert hours_of(listed(context, "count", start=at("01T02:00"), end=at("01T02:00"))) == []
    newest = listed(context, "count", start=at("01T02:00"), order=OrderField.NOMINAL_TIME, descending=True, results=2)
    assert hours_of(newest) == [12, 11]
    assert newest.has_more


def test_row_107_pages_follow_one_another(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T12:30"))
    context = context_of(lifecycle, at("01T12:30"))
    pages = [listed(context, "count", start=START, offset=offset, results=5) for offset in (0, 5, 10)]
    assert [hours_of(page) for page in pages] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12]]
    assert [(page.listed, page.total, page.has_more) for page in pages] == [
        (5, 13, True),
        (5, 13, True),
        (3, 13, False),
    ]


def test_pages_without_a_start_follow_one_another_into_the_past(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T12:30"))
    context = context_of(lifecycle, at("01T12:30"))
    pages = [listed(context, "count", offset=offset, results=5) for offset in (0, 5, 10)]
    assert [hours_of(page) for page in pages] == [[12, 11, 10, 9, 8], [7, 6, 5, 4, 3], [2, 1, 0]]
    assert [(page.total, page.has_more) for page in pages] == [(13, True), (13, True), (13, False)]


def test_a_page_far_on_costs_what_the_first_costs(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    context = context_of(lifecycle, START + 2_000 * timedelta(hours=1))
    query = query_of(context, "clicks", Kind.FEED, results=2)
    with counted_statements() as of_first:
        first = list_instances(context, query)
    for far in (replace(query, offset=1_500), replace(query, offset=1_500, start=START)):
        with counted_statements() as of_far:
            page = list_instances(context, far)
        assert len(of_far) == len(of_first)
        step = timedelta(hours=1) * (1 if far.start else -1)
        begin = START if far.start else first.instances[0].nominal_time
        assert [each.nominal_time for each in page.instances] == [begin + 1_500 * step, begin + 1_501 * step]


def test_a_page_says_how_many_instances_meet_its_filter(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.land("clicks", *hours(4))
    lifecycle.flag("clicks", *hours(4))
    lifecycle.tick(at("01T12:30"))
    context = context_of(lifecycle, at("01T12:30"))

    def told(kind: Kind, name: str, *filters: str) -> tuple[int, int]:
        query = query_of(context, name, kind, filter=parse_filter(kind, filters), results=2)
        page = list_instances(context, query)
        return page.listed, page.total

    assert told(Kind.PROCESS, "count") == (2, 13)
    assert told(Kind.PROCESS, "count", "STATUS:READY") == (0, 4)
    assert told(Kind.FEED, "clicks") == (2, 13)
    assert told(Kind.FEED, "clicks", "STATUS:MISSING") == (2, 9)
    assert told(Kind.FEED, "clicks", "STARTEDAFTER:2013-11-01T12:00Z") == (0, 4)
    assert told(Kind.FEED, "clicks", "STARTEDAFTER:2013-11-01T13:00Z") == (0, 0)
    listing = list_feed(context, resolve_subject(context, "clicks"), results=2)
    assert (len(listing.instances), listing.total, listing.has_more) == (2, 13, True)
    every = list_feed(context, resolve_subject(context, "clicks"), start=START, statuses=frozenset({"AVAILABLE"}))
    assert (len(every.instances), every.total, every.has_more) == (4, 4, False)


def test_row_107_filters_and_orders(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    times = hours(4)
    put(
        lifecycle,
        row("count", times[0], SUCCEEDED, started_at=at("01T05:00"), ended_at=at("01T05:30")),
        row("count", times[1], FAILED, started_at=at("01T04:00"), ended_at=at("01T06:00")),
        row("count", times[2], RUNNING, started_at=at("01T05:10")),
        row("count", times[3], WAITING),
    )
    context = context_of(lifecycle, at("01T06:00"))

    def found(order: OrderField | None = None, descending: bool | None = None, **conditions: object) -> list[int]:
        return hours_of(
            listed(
                context,
                "count",
                start=START,
                order=order,
                descending=descending,
                filter=InstanceFilter(**conditions),  # type: ignore[arg-type]
            )
        )

    assert found(statuses=frozenset({"FAILED", "RUNNING"})) == [1, 2]
    assert found(started_after=at("01T04:30")) == [0, 2]
    assert found(clusters=frozenset({"backup"})) == []
    assert found(order=OrderField.STATUS) == [1, 2, 0, 3]
    assert found(order=OrderField.START_TIME, descending=True) == [2, 0, 1, 3]
    assert found(order=OrderField.END_TIME) == [0, 1, 2, 3]


def test_row_107_running_shows_what_runs_whatever_its_time(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    put(
        lifecycle,
        row("count", hours(2)[0], RUNNING, started_at=at("01T05:00"), run_id="r1", attempt=1),
        row("count", hours(2)[1], WAITING),
    )
    context = context_of(lifecycle, at("09T06:00"))
    page = find_running(context, query_of(context, "count"))
    (only,) = page.instances
    assert (only.nominal_time, only.run_id, only.log) == (START, "r1", f"{WEBSERVER}/runs/r1")
    assert find_running(context, query_of(context, "clicks")).instances == ()


def test_row_107_instances_of_a_feed_are_listed_from_their_nominal_time_on(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", *hours(3))
    lifecycle.flag("clicks", START)
    lifecycle.tick(at("01T04:10"))
    context = context_of(lifecycle, at("01T04:10"))
    page = listed(context, "clicks", Kind.FEED, start=START, end=at("02"))
    assert [each.status for each in page.instances] == ["AVAILABLE", "PARTIAL", "PARTIAL", "MISSING", "MISSING"]
    assert page.instances[0].bytes == 4
    missing = listed(
        context, "clicks", Kind.FEED, start=START, filter=InstanceFilter(statuses=frozenset({"MISSING"})), results=1
    )
    assert (hours_of(missing), missing.has_more) == ([3], True)


def test_row_113_each_attempt_is_a_row(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)

    def fail(_: object) -> dict[str, str]:
        raise RuntimeError("no luck")

    job, lifecycle.job = lifecycle.job, fail
    requests = lifecycle.tick(at("01T00:10"))
    with pytest.raises(RuntimeError):
        lifecycle.launch(requests, at("01T00:10"))
    lifecycle.job = job
    lifecycle.run("count", START, at("01T00:20"), "by-hand")

    context = context_of(lifecycle, at("01T00:30"))
    page = listed(context, "count", all_attempts=True)

    assert [(each.attempt, each.status, each.run_id) for each in page.instances] == [
        (2, "SUCCEEDED", "by-hand"),
        (1, "FAILED", page.instances[1].run_id),
    ]
    assert page.instances[1].reason == "RuntimeError: no luck"
    assert [each.trigger for each in page.instances] == ["a run that was started by hand", "its inputs are there"]
    (one,) = listed(context, "count").instances
    assert (one.attempt, one.status) == (2, "SUCCEEDED")


def test_each_attempt_says_what_it_read_and_what_it_published(tmp_path: Path, state_url: str) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("counts"),
        feed("reports"),
        process("count", outputs={"counts": "now(0,0)"}),
        process("report", inputs={"counts": "now(0,0)"}, outputs={"reports": "now(0,0)"}),
        state=state_url,
    )
    written: list[Published] = []

    def run(name: str, minute: int, text: str) -> None:
        lifecycle.job = lambda work: {work.outputs[0].name: text} if text else {}
        with nullcontext() if text else pytest.raises(KeyError):
            lifecycle.run(name, START, START + timedelta(minutes=minute), on_published=written.append)

    with pytest.raises(InputsMissingError):
        lifecycle.run("report", START, START + timedelta(minutes=5))
    run("count", 10, "old")
    run("report", 20, "")
    run("count", 30, "new")
    run("report", 40, "done")

    page = listed(context_of(lifecycle, at("01T00:50")), "report", all_attempts=True)

    old, new, done = (each.content.digest for each in written)
    read = [[(each.name, each.instances[0].digest) for each in row.inputs or ()] for row in page.instances]
    assert read == [[("counts", new)], [("counts", old)]]
    published = [[(each.name, each.event, each.digest) for each in row.outputs or ()] for row in page.instances]
    assert published == [[("reports", 3, done)], []]


def test_row_113_an_instance_that_waits_has_a_row_beside_its_attempts(tmp_path: Path) -> None:
    lifecycle = counting_harness(tmp_path)
    lifecycle.tick(at("01T00:10"))
    (waiting,) = listed(context_of(lifecycle, at("01T00:30")), "count", all_attempts=True).instances
    assert (waiting.attempt, waiting.status) == (None, "WAITING")


def test_row_114_a_summary_counts_each_status_and_what_has_not_come_into_being(tmp_path: Path, state_url: str) -> None:
    lifecycle = counting_harness(tmp_path, state_url)
    lifecycle.land("clicks", *hours(2))
    lifecycle.flag("clicks", *hours(2))
    lifecycle.launch(lifecycle.tick(at("01T05:30")), at("01T05:30"))
    context = context_of(lifecycle, at("01T05:30"))

    def counts(kind: Kind, name: str, **more: object) -> dict[str, int]:
        query = query_of(context, name, kind, start=START, end=at("01T10:00"), **more)
        (only,) = summarize_instances(context, query).clusters
        return dict(only.counts)

    assert counts(Kind.PROCESS, "count") == {"SUCCEEDED": 2, "UNSCHEDULED": 4, "WAITING": 4}
    assert counts(Kind.FEED, "clicks") == {"AVAILABLE": 2, "MISSING": 4, "UNSCHEDULED": 4}
    only_waiting = InstanceFilter(statuses=frozenset({"WAITING"}))
    assert counts(Kind.PROCESS, "count", filter=only_waiting) == {"WAITING": 4}
    assert counts(Kind.FEED, "counts") == {"AVAILABLE": 2, "MISSING": 4, "UNSCHEDULED": 4}


def test_a_summary_covers_a_change_of_the_definition(tmp_path: Path) -> None:
    """03:00 is the last of the old definition, then come 04:00, 06:00 and 08:00 of the new one."""
    lifecycle = counting_harness(tmp_path)
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T02:30")), at("01T02:30"))
    slower = process("count", "hours(2)", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    lifecycle.declare(feed("clicks", flag="_SUCCESS"), feed("counts"), slower)
    context = context_of(lifecycle, at("01T02:40"))
    (only,) = summarize_instances(context, query_of(context, "count", start=START, end=at("01T10:00"))).clusters
    assert only.counts == {"SUCCEEDED": 1, "WAITING": 2, "UNSCHEDULED": 4}


def test_a_summary_takes_no_filter_of_single_instances(tmp_path: Path) -> None:
    context = context_of(counting_harness(tmp_path), at("01T02:30"))
    started = InstanceFilter(started_after=START)
    for more in ({"filter": started}, {"order": OrderField.STATUS}):
        with pytest.raises(InstanceQueryError, match="Filter by STATUS or CLUSTER"):
            summarize_instances(context, query_of(context, "count", **more))


def test_row_121_a_cluster_that_cannot_answer_makes_the_result_partial_and_all_make_it_fail(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("clicks", clusters=("primary", "backup")),
        process("count", inputs={"clicks": "now(0,0)"}, clusters=("primary", "backup")),
        clusters=("primary", "backup"),
    )
    for cluster in ("primary", "backup"):
        lifecycle.tick(at("01T02:30"), cluster)
    context = context_of(lifecycle, at("01T02:30"))
    both = listed(context, "count")
    assert both.result is Result.SUCCEEDED
    assert [each.cluster for each in both.instances] == ["primary", "backup"] * 3
    some = listed(context, "count", clusters=frozenset({"primary", "mars"}))
    assert some.result is Result.PARTIAL
    assert len(some.instances) == 3
    assert some.message == "mars/process 'count': it is not on cluster 'mars'. It is on backup, primary."
    none = listed(context, "count", clusters=frozenset({"venus", "mars"}))
    assert (none.result, none.instances) == (Result.FAILED, ())
    query = query_of(context, "count", clusters=frozenset({"primary", "mars"}))
    assert summarize_instances(context, query).result is Result.PARTIAL


def test_a_range_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    context = context_of(counting_harness(tmp_path), at("01T02:30"))
    with pytest.raises(InstanceQueryError, match="before the start of the entity at 2013-11-01T00:00Z"):
        listed(context, "count", end=at("2013-10-01"))
    with pytest.raises(InstanceQueryError, match="it is after the end 2013-11-01T01:00Z"):
        listed(context, "count", start=at("01T02:00"), end=at("01T01:00"))
    with pytest.raises(EntityNotFoundError, match="Did you mean 'count'"):
        listed(context, "cuont")


def test_the_default_range_of_a_monthly_process_has_months_of_30_days(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, process("pay", "months(1)", start=at("2013-01-01"), end=at("2013-09-01")))
    start, stop = decide_range(
        [lifecycle.process("pay").sequence], start=None, end=None, results=2, now=at("2013-12-01")
    )
    assert (start, stop) == (at("2013-07-03"), at("2013-09-01"))


def test_before_the_first_instance_there_is_nothing_and_no_error(tmp_path: Path) -> None:
    context = context_of(counting_harness(tmp_path), at("2013-10-01"))
    page = listed(context, "count")
    assert (page.start, page.end, page.instances) == (START, START, ())


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("SIZE:3", "known field"),
        ("STATUS", "known field"),
        ("STATUS:AVAILABLE", "an instance of a process never has it"),
        ("STATUS:UNSCHEDULED", "not created yet: a summary counts them, and no list has them"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(text: str, match: str) -> None:
    with pytest.raises(InstanceQueryError, match=match):
        parse_filter(Kind.PROCESS, [text])


def test_a_time_in_a_filter_is_written_as_entities_write_it() -> None:
    found = parse_filter(Kind.PROCESS, ["STARTEDAFTER:2013-11-01T05:00Z", "cluster:a,CLUSTER:b"])
    assert (found.started_after, found.clusters) == (at("01T05:00"), frozenset({"a", "b"}))
    with pytest.raises(DateTimeError):
        parse_filter(Kind.PROCESS, ["STARTEDAFTER:yesterday"])


def test_a_direction_needs_an_order(tmp_path: Path) -> None:
    context = context_of(counting_harness(tmp_path), START)
    with pytest.raises(InstanceQueryError, match="a direction needs a field to order by"):
        query_of(context, "count", descending=True)


def test_a_page_of_a_long_history_reads_no_more_than_a_page(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks", start=at("1990-01-01")))
    context = context_of(lifecycle, at("2013-12-01"))
    with counted_statements() as statements:
        page = list_instances(context, query_of(context, "clicks", start=at("1990-01-01"), descending=None, results=3))
    assert len(page.instances) == 3
    rows, counts = (
        [text for text in statements if "fa_feed_instances" in text and ("count(*)" in text) is is_count]
        for is_count in (False, True)
    )
    assert (len(rows), len(counts)) == (1, 1)


def test_row_113_what_began_each_attempt_is_told(tmp_path: Path) -> None:
    """A failure is retried by its policy: the second attempt says so."""
    lifecycle = counting_harness(tmp_path, retry={"policy": "periodic", "delay": "minutes(5)", "attempts": 1})
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)

    def fail(_: object) -> dict[str, str]:
        raise RuntimeError("no luck")

    job, lifecycle.job = lifecycle.job, fail
    with pytest.raises(RuntimeError):
        lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:10"))
    lifecycle.job = job
    lifecycle.tick(at("01T00:11"))
    lifecycle.launch(lifecycle.tick(at("01T00:20")), at("01T00:20"))
    page = listed(context_of(lifecycle, at("01T00:30")), "count", all_attempts=True)
    assert [each.trigger for each in page.instances] == [
        "retry 1 after: RuntimeError: no luck",
        "its inputs are there",
    ]
