"""A scrape says what has happened, in numbers; its cost does not grow with the history."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.alerts.deadlines.alerts import find_backlog
from feed_assets.context.operation import OperationContext
from feed_assets.context.safe_mode import record_restore
from feed_assets.log.events import EventLog
from feed_assets.log.instances.arrival_polls import ArrivalPolls
from feed_assets.log.records import FeedEventKind, NewFeedEvent
from feed_assets.metrics import families
from feed_assets.metrics.collecting import collect_metrics
from feed_assets.metrics.families import FAMILIES
from feed_assets.metrics.records import Family, Label, Metrics, Sample
from tests.context.contexts import context_of
from tests.instances.harness import START, LifecycleHarness, counted_statements, feed, hours, process
from tests.log.samples import arrival_poll
from tests.metrics.story import NOW

CLICKS, COUNTS = ("primary", "clicks"), ("backup", "counts")
COUNT, FLOW, GATHER = ("primary", "web,daily", "count"), ("backup", "", "counts@primary"), ("primary", "", "gather")
HOUR, MINUTE = 3600, 60


@pytest.fixture(scope="module")
def metrics(told: OperationContext) -> Metrics:
    return collect_metrics(told)


def samples(metrics: Metrics, family: Family) -> dict[tuple[str, ...], Sample]:
    return {sample.labels: sample for sample in metrics.families[family]}


def values(metrics: Metrics, family: Family) -> dict[tuple[str, ...], float]:
    """The values of a family by labels, without those that are 0."""
    return {labels: sample.value for labels, sample in samples(metrics, family).items() if sample.value}


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (families.TICK_AGE, {("primary",): 2 * MINUTE, ("backup",): 2 * MINUTE}),
        (families.TICK_FAILURES, {("primary", "retention"): 1}),
        (families.CHECK_FAILURES, {("failing_tick",): 1}),
        (families.SWEEP_ENDS, {("primary", "DONE"): 1}),
        (families.UNDELIVERED, {("ops",): 2}),
        (families.DEAD_LETTERS, {("mail",): 1}),
        (families.INSTANCES, {(*COUNT, "WAITING"): 2, (*FLOW, "WAITING"): 2}),
        (families.OLDEST_INSTANCE, {(*COUNT, "WAITING"): 2 * HOUR, (*FLOW, "WAITING"): 2 * HOUR}),
        (families.INSTANCE_ENDS, {(*COUNT, "SUCCEEDED"): 5, (*COUNT, "FAILED"): 1, (*FLOW, "SUCCEEDED"): 5}),
        (families.ATTEMPTS, {(*COUNT, "INPUTS"): 5, (*COUNT, "RETRY"): 1, (*FLOW, "INPUTS"): 5}),
        (families.PENDING_EVENTS, {GATHER: 5}),
        (families.OLDEST_EVENT, {GATHER: 7 * HOUR - 11 * MINUTE}),
        (families.MISSING, {CLICKS: 2}),
        (families.OLDEST_MISSING, {CLICKS: 2 * HOUR}),
        (families.FEED_EVENTS, {(*CLICKS, "ARRIVED"): 5, (*CLICKS, "EVICTED"): 3, (*COUNTS, "REPLICATED"): 5}),
        (families.FEED_BYTES, {(*CLICKS, "ARRIVED"): 20, (*CLICKS, "EVICTED"): 12, (*COUNTS, "REPLICATED"): 20}),
        (families.COPY_BYTES, {(*COUNTS, "primary"): 20}),
        (families.LATE_FEEDS, {(*CLICKS, "low"): 2, (*CLICKS, "high"): 1}),
        (families.FEED_MISSES, {(*CLICKS, "low"): 2, (*CLICKS, "high"): 1}),
        (families.LATE_PROCESSES, {(*COUNT, "low"): 2, (*COUNT, "high"): 1}),
        (families.PROCESS_MISSES, {(*COUNT, "low"): 2, (*COUNT, "high"): 1}),
        (families.BACKLOG, {COUNT: 2 * HOUR}),
    ],
    ids=lambda given: given.name if isinstance(given, Family) else "",
)
def test_row_152_a_family_says_what_has_happened(
    metrics: Metrics, family: Family, expected: dict[tuple[str, ...], float]
) -> None:
    of_counts = ("primary", "counts", "PRODUCED")
    found = {labels: value for labels, value in values(metrics, family).items() if labels != of_counts}
    assert found == expected


@pytest.mark.parametrize(
    ("family", "labels", "occurrences", "total"),
    [
        (families.START_DELAY, COUNT, 5, 5 * 11 * MINUTE),
        (families.LAUNCH_DELAY, COUNT, 6, 6 * MINUTE),
        (families.ARRIVAL_DELAY, CLICKS, 5, 5 * 10 * MINUTE),
        (families.PROCESSING, (*COUNT, "FAILED"), 1, 0),
        (families.PROCESSING, (*COUNT, "SUCCEEDED"), 5, 0),
    ],
    ids=lambda given: given.name if isinstance(given, Family) else "",
)
def test_row_152_a_summary_has_a_sum_and_a_number(
    metrics: Metrics, family: Family, labels: tuple[str, ...], occurrences: int, total: float
) -> None:
    found = samples(metrics, family)[labels]
    assert (found.occurrences, found.value) == (occurrences, total)


def test_the_backlog_is_that_of_the_command(told: OperationContext, metrics: Metrics) -> None:
    (backlog,) = find_backlog(told)
    assert values(metrics, families.BACKLOG) == {COUNT: backlog.minutes * MINUTE}
    assert backlog.minutes == 2 * HOUR // MINUTE


def test_every_family_has_samples_after_the_story_and_each_sample_all_labels(metrics: Metrics) -> None:
    assert list(metrics.families) == list(FAMILIES)
    for family, found in metrics.families.items():
        assert found, family.name
        assert {len(sample.labels) for sample in found} == {len(family.labels)}


def test_what_has_not_happened_is_0_so_that_a_rate_counts_the_first_time(tmp_path: Path) -> None:
    entities = (feed("clicks", sla={"low": "hours(1)", "high": "hours(2)"}), feed("counts"))
    counting = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    metrics = collect_metrics(context_of(LifecycleHarness.of(tmp_path, *entities, counting), START))
    (count,) = {labels[:3] for labels in samples(metrics, families.INSTANCES)}
    zeros = {
        families.INSTANCE_ENDS: {(*count, "SUCCEEDED"), (*count, "FAILED"), (*count, "TIMEDOUT")},
        families.ATTEMPTS: {(*count, "INPUTS"), (*count, "RETRY")},
        families.FEED_EVENTS: {(*CLICKS, "ARRIVED"), ("primary", "counts", "PRODUCED")},
        families.FEED_MISSES: {(*CLICKS, "low"), (*CLICKS, "high")},
        families.MISSING: {CLICKS},
    }
    for family, labels in zeros.items():
        assert {each: sample.value for each, sample in samples(metrics, family).items()} == dict.fromkeys(labels, 0)


def test_whole_entities_are_left_out_beyond_the_limit_and_the_system_stays(told: OperationContext) -> None:
    everything = collect_metrics(told)
    series = sum(len(found) * len(family.sample_names) for family, found in everything.families.items())
    limited = collect_metrics(told, limit=60)
    kept = {
        (labels[Label.CLUSTER], labels[Label.ENTITY])
        for family, found in limited.families.items()
        if Label.ENTITY in family.labels
        for sample in found
        if (labels := dict(zip(family.labels, sample.labels, strict=True)))
    }
    assert kept == {("backup", "counts"), ("backup", "counts@primary")}
    assert values(limited, families.TICK_AGE) == values(everything, families.TICK_AGE)
    left = sum(len(found) * len(family.sample_names) for family, found in limited.families.items())
    assert left <= 60
    assert limited.left_out == series - left > 0
    assert values(limited, families.LEFT_OUT) == {(): limited.left_out}
    assert (everything.left_out, values(limited, families.LIMIT)) == (0, {(): 60})


def test_each_cause_for_which_the_check_of_the_location_fails_is_counted(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    poll = arrival_poll(obstacle="denied")
    with lifecycle.database.begin() as connection:
        ArrivalPolls(connection).put([poll])
        record_restore(connection)
    found = values(collect_metrics(context_of(lifecycle, NOW), invalid={"a.yaml": 2}), families.CHECK_FAILURES)
    assert found == {("invalid_entity",): 2, ("unreadable_feed",): 1, ("restored_state",): 1}


def test_what_is_declared_no_more_has_no_series(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), feed("views"))
    lifecycle.land("clicks", START)
    lifecycle.tick(START + timedelta(hours=1))
    assert values(collect_metrics(context_of(lifecycle, NOW)), families.FEED_EVENTS)
    lifecycle.declare(feed("views"))
    assert set(samples(collect_metrics(context_of(lifecycle, NOW)), families.FEED_EVENTS)) == {
        ("primary", "views", "ARRIVED")
    }


def test_a_scrape_asks_as_much_whatever_the_history_and_the_number_of_entities(tmp_path: Path) -> None:
    asked = []
    for number in (1, 20):
        folder = tmp_path / str(number)
        folder.mkdir()
        lifecycle = LifecycleHarness.of(folder, *(feed(f"f{n}") for n in range(number)))
        event = NewFeedEvent(
            feed="f0",
            cluster="primary",
            nominal_time=START,
            kind=FeedEventKind.ARRIVED,
            origin="a test",
            recorded_at=START,
        )
        with lifecycle.database.begin() as connection:
            EventLog(connection).append([replace(event, nominal_time=time) for time in hours(number)])
        context = context_of(lifecycle, NOW)
        collect_metrics(context)
        with counted_statements() as statements:
            assert values(collect_metrics(context), families.FEED_EVENTS) == {("primary", "f0", "ARRIVED"): number}
        asked.append(len(statements))
        lifecycle.database.close()
    assert asked[0] == asked[1]
