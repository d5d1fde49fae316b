"""What is due today comes first, and a long past behind it: every instance once, whatever happens meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine as SqlEngine
from sqlalchemy import event

from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.explain.explanations import explain
from feed_assets.instances.arrival import polling
from feed_assets.instances.gates import readiness
from feed_assets.instances.gates.reconciliation import apply_clock
from feed_assets.log import watermarks
from feed_assets.log.records import ProcessInstanceStatus, WatermarkKind
from feed_assets.timing.dates import render_datetime
from tests.context.contexts import about, context_of
from tests.drills import sized
from tests.instances.harness import START, LifecycleHarness, at, feed, hours, process

FEED, PROCESS = WatermarkKind.FEED, WatermarkKind.PROCESS
READY = ProcessInstanceStatus.READY
HOUR = timedelta(hours=1)
NOW = at("05")
DUE = hours(97)
NEWEST = DUE[-10:]


def entities(start: datetime = START, end: datetime | None = None) -> tuple[Feed, Process]:
    counting = process("count", inputs={"clicks": "now(0,0)"}, end=end, timeout="days(900)")
    return feed("clicks", start=start, end=end), counting


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    set_few(monkeypatch)


def set_few(patch: pytest.MonkeyPatch) -> None:
    """Ten instances come first, and of the past a tick takes twenty."""
    patch.setattr(watermarks, "NEWEST", 10)
    patch.setattr(polling, "BATCH", 10)
    patch.setattr(readiness, "INSTANCES_A_STEP", 5)
    for module in (polling, readiness):
        patch.setattr(module, "PAST_A_TICK", 20)


@pytest.mark.usefixtures("_few")
def test_what_is_due_today_comes_with_the_first_tick_and_the_past_behind_it(tmp_path: Path, state_url: str) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *entities(), process("ping"), state=state_url)
    lifecycle.land("clicks", *DUE)

    requests = lifecycle.tick(NOW)

    assert list(lifecycle.feed_statuses("clicks")) == [*DUE[:20], *NEWEST]
    assert lifecycle.statuses("count") == dict.fromkeys(NEWEST, READY)
    assert list(lifecycle.statuses("ping")) == [*DUE[:20], *NEWEST]
    assert [list(request.nominal_times) for request in requests] == [NEWEST, NEWEST]
    ticks = catch_up(lifecycle, NOW)
    assert list(lifecycle.statuses("count")) == list(lifecycle.statuses("ping")) == DUE
    assert len(lifecycle.looked) == len(lifecycle.events()) == len(DUE)
    lifecycle.declare(*entities(), process("ping", parallel=2))
    assert [request.nominal_times for request in lifecycle.tick(NOW + HOUR)] == [
        (NOW + HOUR,)
    ]  # the past is ready, too
    assert ticks == 8  # the past of the process begins when that of the feed has been looked for


@pytest.mark.usefixtures("_few")
def test_why_says_of_what_is_not_created_what_the_next_ticks_do(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, *entities())

    def why(name: str, time: datetime, kind: Kind = Kind.PROCESS) -> str:
        return about(explain, context_of(lifecycle, NOW), name, time, kind=kind).items[0].reasons[0].text

    behind = f"ticks create the past behind what is due, {render_datetime(START)} next"
    of_past = f"ticks poll the past behind what is due, {render_datetime(START)} next"
    newest = f"the next instance that ticks create is {render_datetime(NEWEST[0])}"
    assert why("count", NOW) == f"it is not yet created: {newest}"
    assert why("count", DUE[3]) == f"it is not yet created: {behind}"
    assert why("clicks", DUE[3], Kind.FEED).endswith(of_past)
    assert why("clicks", NOW, Kind.FEED).endswith(": the next one does")
    lifecycle.tick(NOW)
    looked_for = "that waits until ticks have looked for the past of clicks on primary"
    assert why("count", DUE[3]) == f"it is not yet created: {looked_for}"
    while lifecycle.arrive(NOW).is_complete is False:
        pass
    assert why("count", DUE[3]) == f"it is not yet created: {behind}"


@pytest.mark.usefixtures("_few")
def test_a_long_past_leaves_the_past_of_others_their_share(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(
        tmp_path, feed("old"), feed("young", start=at("04")), process("ping"), process("pong", start=at("04"))
    )

    lifecycle.tick(NOW)

    for old, young in (
        (lifecycle.feed_statuses("old"), lifecycle.feed_statuses("young")),
        (lifecycle.statuses("ping"), lifecycle.statuses("pong")),
    ):
        assert list(young) == hours(25, at("04"))
        assert len(old) == 30


@contextmanager
def killed_at(number: int) -> Iterator[None]:
    """Nothing of the block is done from a statement on."""
    numbers = count(1)

    def strike(*_given: object) -> None:
        if next(numbers) >= number:
            raise KeyboardInterrupt

    event.listen(SqlEngine, "before_cursor_execute", strike)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        event.remove(SqlEngine, "before_cursor_execute", strike)


def set_clock(lifecycle: LifecycleHarness, now: datetime) -> None:
    """What a tick does first."""
    apply_clock(lifecycle.open_tick(now))


def catch_up(lifecycle: LifecycleHarness, now: datetime) -> int:
    """Tick until nothing is left; how often."""
    for ticks in count(1):
        arrived, readied = lifecycle.arrive(now), lifecycle.ready(now)
        if arrived.is_complete and readied.is_complete:
            break
        assert ticks < 100
    return ticks


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize("setback", [timedelta(seconds=2), 2 * HOUR, 50 * HOUR])
def test_a_clock_that_is_set_back_loses_nothing_of_what_is_away(tmp_path: Path, setback: timedelta) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), process("ping"))

    def tick(now: datetime) -> None:
        set_clock(lifecycle, now)
        lifecycle.arrive(now)
        lifecycle.ready(now)

    tick(NOW)
    lifecycle.declare(feed("other"))
    tick(NOW + timedelta(minutes=2))
    tick(NOW + timedelta(minutes=2) - setback)
    lifecycle.declare(feed("clicks"), process("ping"))
    catch_up(lifecycle, NOW + timedelta(minutes=3))

    assert list(lifecycle.feed_statuses("clicks")) == list(lifecycle.statuses("ping")) == DUE


@pytest.mark.usefixtures("_few")
def test_a_feed_that_leaves_after_the_clock_was_set_back_keeps_its_past(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"))
    set_clock(lifecycle, NOW)
    lifecycle.arrive(NOW)
    set_clock(lifecycle, NOW - timedelta(seconds=2))  # and the tick ends here

    lifecycle.declare(feed("other"))
    lifecycle.arrive(NOW)
    lifecycle.declare(feed("clicks"))
    catch_up(lifecycle, NOW)

    assert list(lifecycle.feed_statuses("clicks")) == DUE


@pytest.mark.usefixtures("_few")
def test_after_a_stop_amid_a_past_today_comes_first_again(tmp_path: Path) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), process("ping"))
    lifecycle.tick(NOW)
    now = NOW + 100 * HOUR

    lifecycle.arrive(now, seconds=0.0)
    lifecycle.ready(now, seconds=0.0)
    latest = [list(lifecycle.feed_statuses("clicks"))[-10:], list(lifecycle.statuses("ping"))[-5:]]
    catch_up(lifecycle, now)

    assert latest == [hours(197)[-10:], hours(192)[-5:]]
    assert list(lifecycle.feed_statuses("clicks")) == list(lifecycle.statuses("ping")) == hours(197)


@pytest.mark.usefixtures("_few")
def test_a_past_has_its_share_of_ticks_whose_time_is_used_up(tmp_path: Path) -> None:
    busy = [feed(f"busy{number}", "minutes(5)", start=at("04T23:00")) for number in range(3)]
    lifecycle = LifecycleHarness.of(tmp_path, feed("clicks"), *busy)

    for number in range(12):
        lifecycle.arrive(NOW + number * timedelta(minutes=5), seconds=0.0)

    assert list(lifecycle.feed_statuses("clicks"))[:87] == DUE[:87]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.integers(0, 30)),
        st.tuples(st.just("short tick"), st.integers(0, 30)),
        st.tuples(st.just("killed"), st.integers(1, 60)),
        st.tuples(st.just("set back"), st.integers(1, 60)),
        st.tuples(st.just("start"), st.integers(-40, 0)),
        st.tuples(st.just("end"), st.integers(50, 200)),
    ),
    max_size=8,
)


@pytest.mark.sample
@settings(max_examples=sized(5, 60), deadline=None, suppress_health_check=list(HealthCheck))
@given(operations=OPERATIONS)
def test_whatever_happens_every_instance_is_there_in_the_end_and_has_come_once(
    operations: list[tuple[str, int]],
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        set_few(patch)
        lifecycle = LifecycleHarness.of(Path(folder), *entities())
        lifecycle.land("clicks", *hours(400, START - 50 * HOUR)[::9])
        now, start, end = NOW, START, at("2014-01-01")
        set_clock(lifecycle, now)
        for what, number in operations:
            match what:
                case "tick" | "short tick":
                    now += number * HOUR
                    set_clock(lifecycle, now)
                    lifecycle.arrive(now, seconds=0.0 if what == "short tick" else 60.0)
                    lifecycle.ready(now, seconds=0.0 if what == "short tick" else 60.0)
                case "killed":
                    with killed_at(number):
                        lifecycle.tick(now)
                case "set back":
                    now -= number * HOUR
                    set_clock(lifecycle, now)
                case "start" | "end":
                    start = START + number * HOUR if what == "start" else start
                    end = START + number * HOUR if what == "end" else end
                    lifecycle.declare(*entities(start, end))
        catch_up(lifecycle, now)

        due = {time for time in hours(400, start) if time <= now and time < end}
        assert due <= lifecycle.feed_statuses("clicks").keys()
        assert {time for time in due if time >= START} <= lifecycle.statuses("count").keys()
        events = [each.nominal_time for each in lifecycle.events()]
        assert len(events) == len(set(events))
        for kind, name in ((FEED, "clicks"), (PROCESS, "count")):
            standing = lifecycle.watermark(kind, name)
            assert standing is not None
            assert not any(standing.is_ahead(time) for time in due)
