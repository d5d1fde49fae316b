"""What a function says with the event of an output, who sees it, and the newest event of a feed."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.engines.errors import EventRefusedError, UnknownFeedError
from feed_assets.engines.port import Context, InputEvent
from feed_assets.entities.content.event_messages import NO_ROWS
from feed_assets.entities.process import Process
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.triggers.apply_triggers import TriggerResult, apply_triggers
from feed_assets.triggers.queues import show_batch, show_queue
from tests.context.contexts import about, context_of
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process, validity

AS_OF = at("02T00:00")


@pytest.fixture
def lifecycle(tmp_path: Path, state_url: str) -> LifecycleHarness:
    """Counts are made every hour; reports of them when a count is marked as the last of a day."""
    report = Process(
        name="report",
        clusters={"primary": validity(START, None)},
        trigger={"batch": {"until": "*_DAILY_END"}, "from": "earliest"},
        inputs={"counts": {"feed": "counts", "take": "new"}},
        workflow={"path": "jobs:report"},
    )
    counting = process("count", outputs={"counts": "now(0,0)"})
    return LifecycleHarness.of(tmp_path, feed("clicks"), feed("counts"), counting, report, state=state_url)


def said(lifecycle: LifecycleHarness, code: Callable[[Context], None], hour: int = 0, run: str = "run-1") -> None:
    """Run an instance of the process that counts; its function has the context."""
    lifecycle.code = code
    lifecycle.run("count", START + timedelta(hours=hour), AS_OF, run)


def route(lifecycle: LifecycleHarness, *, may_cut: bool = True) -> TriggerResult:
    """Read the log as a tick does."""
    return apply_triggers(lifecycle.open_tick(AS_OF, is_held=not may_cut))


def newest(lifecycle: LifecycleHarness, feed: str, hour: int = 0) -> InputEvent | None:
    """What the function finds as the newest event of a feed."""
    found: list[InputEvent | None] = []
    said(lifecycle, lambda context: found.append(context.last_event(feed)), hour, f"asks-{hour}")
    return found[0]


def test_af_30_those_who_take_the_event_of_an_output_see_what_the_function_has_said(
    lifecycle: LifecycleHarness,
) -> None:
    said(lifecycle, lambda context: context.event("counts", payload={"rows": 12}))
    said(lifecycle, lambda context: context.event("counts", payload={"rows": (7,)}, marking="1_DAILY_END"), hour=1)
    context = context_of(lifecycle, AS_OF)
    route(lifecycle, may_cut=False)
    shown = [({"rows": 12}, None), ({"rows": [7]}, "1_DAILY_END")]
    assert [(each.payload, each.marking) for each in show_queue(context, "report").events] == shown

    (batch,) = route(lifecycle).batches
    assert [(each.payload, each.marking) for each in about(show_batch, context, *batch[::2]).events] == shown
    read: list[InputEvent] = []
    lifecycle.code = lambda context: read.extend(context.events["counts"])
    lifecycle.run("report", batch.nominal_time, AS_OF, "run-3")
    assert [(each.payload, each.marking) for each in read] == shown


def test_an_increment_without_rows_is_there_and_wakes_nobody(lifecycle: LifecycleHarness) -> None:
    said(lifecycle, lambda context: context.event("counts", marking=NO_ROWS))
    assert (route(lifecycle).batches, show_queue(context_of(lifecycle, AS_OF), "report").events) == ((), ())
    assert lifecycle.feed_statuses("counts") == {START: FeedInstanceStatus.AVAILABLE}
    said(lifecycle, lambda context: context.event("counts", marking="1_DAILY_END"), hour=1)
    (batch,) = route(lifecycle).batches
    (taken,) = about(show_batch, context_of(lifecycle, AS_OF), *batch[::2]).events
    assert taken.marking == "1_DAILY_END"


@pytest.mark.parametrize(
    ("output", "more", "message"),
    [
        ("reports", {}, "the outputs here are counts"),
        ("counts", {"payload": {"text": "x" * 65_536}}, "its payload has 65,548 bytes, more than 65,536"),
        ("counts", {"payload": {"when": START}}, "datetime is not JSON serializable"),
        ("counts", {"payload": {"rows": float("nan")}}, "its payload is not JSON"),
        ("counts", {"payload": [1]}, "its payload is a list"),
        ("counts", {"marking": "two\nlines"}, "or not printable"),
        ("counts", {"marking": 7}, "its marking is a int"),
    ],
)
def test_what_an_event_cannot_say_is_refused_and_nothing_is_published(
    tmp_path: Path, output: str, more: dict[str, object], message: str
) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("counts"), process("count", outputs={"counts": "now(0,0)"}))
    with pytest.raises(EventRefusedError, match=message):
        said(lifecycle, lambda context: context.event(output, **more))  # type: ignore[arg-type]
    assert (lifecycle.events(), lifecycle.content("counts", START)) == ([], None)


def test_an_event_of_an_output_that_is_not_made_is_refused(tmp_path: Path) -> None:
    outputs = {"counts": "now(0,0)", "rest": "now(0,0)"}
    lifecycle = LifecycleHarness.of(tmp_path, feed("counts"), feed("rest"), process("count", outputs=outputs))
    lifecycle.job = lambda _: {"counts": "made"}
    with pytest.raises(EventRefusedError, match=r"'rest'.*the outputs here are counts"):
        said(lifecycle, lambda context: context.event("rest", marking="x"))
    assert lifecycle.events() == []


def test_a_step_whose_frames_are_no_outputs_says_nothing_of_them(lifecycle: LifecycleHarness) -> None:
    found: list[Context] = []
    said(lifecycle, found.append)
    with pytest.raises(EventRefusedError, match=r"no output is made here.*with steps, say it in the last one"):
        replace(found[0], output_urls={}).event("counts", marking="x")


def test_the_newest_event_of_a_feed_is_its_high_water_mark(lifecycle: LifecycleHarness) -> None:
    assert newest(lifecycle, "clicks") is None
    lifecycle.land("clicks", *hours(2))
    lifecycle.arrive(AS_OF)
    found = newest(lifecycle, "clicks")
    assert found is not None
    assert (found.feed, found.nominal_time, found.number) == ("clicks", START + timedelta(hours=1), 3)


def test_af_32_of_its_own_output_a_repetition_finds_the_mark_that_the_first_attempt_found(
    lifecycle: LifecycleHarness,
) -> None:
    said(lifecycle, lambda context: context.event("counts", payload={"up to": 40}))
    for run in ("first", "again"):
        found: list[InputEvent | None] = []

        def count(context: Context, found: list[InputEvent | None] = found) -> None:
            found.append(context.last_event("counts"))
            context.event("counts", payload={"up to": 50})

        said(lifecycle, count, 1, run)
        assert [each and each.payload for each in found] == [{"up to": 40}]
    (mark,) = [newest(lifecycle, "counts", hour=2)]
    assert mark is not None
    assert mark.payload == {"up to": 50}


def test_the_newest_event_of_no_feed_is_refused_with_the_names_nearby(lifecycle: LifecycleHarness) -> None:
    with pytest.raises(UnknownFeedError, match=r"process 'count': there is no feed 'click' on primary. Did you mean"):
        newest(lifecycle, "click")
