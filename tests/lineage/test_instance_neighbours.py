from pathlib import Path

import pytest

from feed_assets.context.consolidation import Result
from feed_assets.context.operation import resolve_subject
from feed_assets.entities.common import Kind
from feed_assets.json_form import render_document
from feed_assets.lineage.instance_views import NeighbourInstance, find_dependencies
from tests.context.contexts import about, context_of, counting_harness
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process


def told(found: tuple[NeighbourInstance, ...]) -> list[tuple[str, str, int]]:
    return [(each.tag, each.name, each.nominal_time.hour) for each in found]


def test_row_118_a_process_instance_has_its_inputs_and_outputs(tmp_path: Path, state_url: str) -> None:
    context = context_of(counting_harness(tmp_path, state_url), at("02"))
    found = find_dependencies(context, resolve_subject(context, "count", at("01T05:00")))
    assert found.result is Result.SUCCEEDED
    assert told(found.items) == [("Input", "clicks", 5), ("Input", "weather", 5), ("Output", "counts", 5)]
    report = find_dependencies(context, resolve_subject(context, "report", at("01T04:00")))
    assert told(report.items) == [*(("Input", "counts", hour) for hour in (4, 5, 6, 7)), ("Output", "reports", 4)]


def test_row_118_a_feed_instance_has_its_producer_and_consumers(tmp_path: Path) -> None:
    context = context_of(counting_harness(tmp_path), at("02"))
    found = find_dependencies(context, resolve_subject(context, "counts", at("01T05:00")))
    assert told(found.items) == [("Output", "count", 5), ("Input", "report", 4)]
    assert render_document(found.items[0]) == {
        "version": 2,
        "kind": "process",
        "name": "count",
        "cluster": "primary",
        "nominal_time": "2013-11-01T05:00Z",
        "tag": "Output",
        "by": "counts",
    }


@pytest.mark.parametrize(
    ("kind", "name", "match"),
    [(Kind.FEED, "clicks", "between two instances"), (Kind.PROCESS, "count", "between two instances")],
)
def test_row_118_a_misaligned_time_is_an_error(tmp_path: Path, kind: Kind, name: str, match: str) -> None:
    found = about(find_dependencies, context_of(counting_harness(tmp_path), at("02")), name, at("01T05:30"), kind=kind)
    assert found.result is Result.FAILED
    assert match in found.message


def test_row_118_a_time_outside_the_validity_is_an_error(tmp_path: Path) -> None:
    found = about(find_dependencies, context_of(counting_harness(tmp_path), at("02")), "clicks", at("2013-10-01"))
    assert "it is outside the validity" in found.message


def test_several_producers_are_found_across_a_change_of_the_clock(tmp_path: Path) -> None:
    """A day in New York has 25 hours on 3 November 2013: the last hour of the day is still read by that day."""
    lifecycle = LifecycleHarness.of(
        tmp_path,
        feed("hours"),
        feed("days", "days(1)", start=at("01T04:00"), timezone="America/New_York"),
        process(
            "sum",
            "days(1)",
            start=at("01T04:00"),
            timezone="America/New_York",
            inputs={"hours": "today(0,0) tomorrow(0,-60)"},
            outputs={"days": "now(0,0)"},
        ),
    )
    context = context_of(lifecycle, at("09"))
    (reader,) = find_dependencies(context, resolve_subject(context, "hours", at("04T04:00"))).items
    assert reader.nominal_time == at("03T04:00")
    day = find_dependencies(context, resolve_subject(context, "sum", at("03T04:00"))).items
    assert sum(each.tag == "Input" for each in day) == 25


def test_latest_is_what_the_instance_read_or_what_it_would_read_now(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("clicks"), process("peek", inputs={"clicks": "latest(-1) latest(0)"})
    )
    lifecycle.land("clicks", *hours(2))
    lifecycle.launch(lifecycle.tick(at("01T01:30"))[:1], at("01T01:30"))
    lifecycle.land("clicks", at("01T02:00"))
    lifecycle.arrive(at("01T02:30"))
    context = context_of(lifecycle, at("01T02:30"))
    ran = find_dependencies(context, resolve_subject(context, "peek", START)).items
    now = find_dependencies(context, resolve_subject(context, "peek", at("01T02:00"))).items
    assert (told(ran), told(now)) == (
        [("Input", "clicks", 0), ("Input", "clicks", 1)],
        [("Input", "clicks", 1), ("Input", "clicks", 2)],
    )
    guessed = find_dependencies(context, resolve_subject(context, "clicks", at("01T01:00"))).items
    assert told(guessed) == [("Input", "peek", 0), ("Input", "peek", 1)]


def test_neighbours_follow_the_definition_that_governs(tmp_path: Path) -> None:
    """Until the new definition takes effect at 04:00 an instance reads one hour, from then on two."""
    clicks = feed("clicks", start=at("2013-10-31"))
    narrow = process("count", inputs={"clicks": "now(0,0)"}, outputs={"counts": "now(0,0)"})
    lifecycle = LifecycleHarness.of(tmp_path, clicks, feed("counts"), narrow)
    lifecycle.land("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T03:30")), at("01T03:30"))
    wider = process("count", inputs={"clicks": "now(-1,0) now(0,0)"}, outputs={"counts": "now(0,0)"})
    lifecycle.declare(clicks, feed("counts"), wider)
    context = context_of(lifecycle, at("01T03:30"))
    readers = find_dependencies(context, resolve_subject(context, "clicks", at("01T03:00"))).items
    assert told(readers) == [("Input", "count", 3), ("Input", "count", 4)]
    assert told(find_dependencies(context, resolve_subject(context, "clicks", at("01T02:00"))).items) == [
        ("Input", "count", 2)
    ]
    old, new = (
        find_dependencies(context, resolve_subject(context, "count", at(text))).items
        for text in ("01T03:00", "01T04:00")
    )
    assert [each.tag for each in old] == ["Input", "Output"]
    assert [each.tag for each in new] == ["Input", "Input", "Output"]


def test_who_has_run_is_a_reader_of_what_it_has_frozen_alone(tmp_path: Path) -> None:
    """The weather was optional, and came after the count of its hour."""
    lifecycle = counting_harness(tmp_path)
    lifecycle.land("clicks", START)
    lifecycle.flag("clicks", START)
    lifecycle.launch(lifecycle.tick(at("01T00:10")), at("01T00:10"))
    lifecycle.land("weather", START)
    lifecycle.arrive(at("01T00:30"))
    context = context_of(lifecycle, at("01T00:40"))
    assert find_dependencies(context, resolve_subject(context, "weather", START)).items == ()
    assert told(find_dependencies(context, resolve_subject(context, "clicks", START)).items) == [("Input", "count", 0)]
    count = find_dependencies(context, resolve_subject(context, "count", START)).items
    assert told(count) == [("Input", "clicks", 0), ("Output", "counts", 0)]
    waiting = find_dependencies(context, resolve_subject(context, "weather", at("01T01:00"))).items
    assert told(waiting) == [("Input", "count", 1)]
