"""How a tick works off what is due: in steps, units apart, at most for its time."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.context.tick import Handler, Tick, work_off
from feed_assets.log.agenda import Agenda, AgendaKind, Entry
from tests.instances.harness import LifecycleHarness
from tests.log.samples import entry, hour

pytestmark = pytest.mark.both_databases

NOW = hour(100)


@pytest.fixture
def lifecycle(tmp_path: Path, state_url: str) -> LifecycleHarness:
    return LifecycleHarness.of(tmp_path, state=state_url)


def tick(lifecycle: LifecycleHarness, seconds: float = 60.0) -> Tick:
    return lifecycle.open_tick(NOW, bulkheads=Bulkheads("primary", FrozenClock(NOW)), seconds=seconds)


class Removals(Handler[Entry, str]):
    """Handles entries by removing them; those of a broken unit are put off."""

    step = TickStep.RETENTION
    at_once = 4

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.steps: list[list[str]] = []

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[Entry]:
        return Agenda[Entry](connection).due([AgendaKind.RETENTION], tick.cluster, tick.as_of, limit)

    def unit_of(self, entry: Entry) -> str:
        return entry.name

    def handle(self, tick: Tick, entries: Sequence[Entry]) -> list[str]:
        self.steps.append([each.name for each in entries])
        with tick.database.begin() as connection:
            Agenda[Entry](connection).remove([each.key for each in entries])
            if self.broken & {each.name for each in entries}:
                raise ValueError("broken")
        return [each.name for each in entries]

    def put_off(self, tick: Tick, entries: Sequence[Entry], pause: timedelta) -> list[str]:
        with tick.database.begin() as connection:
            Agenda[Entry](connection).put([each._replace(due_at=tick.as_of + pause) for each in entries])
        return [f"{each.name} later" for each in entries]


def plan(lifecycle: LifecycleHarness, *entries: Entry) -> None:
    with lifecycle.database.begin() as connection:
        Agenda[Entry](connection).put(entries)


def left(lifecycle: LifecycleHarness) -> dict[str, datetime | None]:
    with lifecycle.database.read() as connection:
        found: dict[str, Entry] = Agenda[Entry](connection).of_cluster(AgendaKind.RETENTION, "primary")
    return {name: each.due_at for name, each in found.items()}


def test_everything_that_is_due_is_handled_in_steps(lifecycle: LifecycleHarness) -> None:
    plan(lifecycle, *(entry(n, name=f"feed{n}") for n in range(10)), entry(101, name="later"))
    removals = Removals()
    done, is_complete = work_off(tick(lifecycle), removals)
    assert (sorted(done), is_complete) == ([f"feed{n}" for n in range(10)], True)
    assert list(map(len, removals.steps)) == [4, 4, 2]
    assert list(left(lifecycle)) == ["later"]
    assert work_off(tick(lifecycle), removals) == ([], True)


def test_what_became_due_last_does_not_wait_for_a_long_past(lifecycle: LifecycleHarness) -> None:
    plan(lifecycle, *(entry(n, name=f"old{n:02}") for n in range(30)), entry(99, name="today"))
    removals = Removals()
    done, is_complete = work_off(tick(lifecycle, seconds=0), removals)
    assert (set(done), is_complete) == ({"old00", "old01", "old29", "today"}, False)


def test_a_unit_that_fails_is_put_off_and_the_others_are_handled(lifecycle: LifecycleHarness) -> None:
    plan(lifecycle, *(entry(n, name=name) for n, name in enumerate(["a", "b", "c"])))
    done, is_complete = work_off(tick(lifecycle), Removals("b"))
    assert (sorted(done), is_complete) == (["a", "b later", "c"], True)
    assert left(lifecycle) == {"b": NOW + timedelta(seconds=1)}


def test_entries_that_stay_due_end_the_work_of_a_tick(lifecycle: LifecycleHarness) -> None:
    class Stubborn(Removals):
        def put_off(self, tick: Tick, entries: Sequence[Entry], pause: timedelta) -> list[str]:
            return Handler.put_off(self, tick, entries, pause)

    plan(lifecycle, entry(1, name="a"))
    removals = Stubborn("a")
    assert work_off(tick(lifecycle), removals) == ([], False)
    assert left(lifecycle) == {"a": hour(1)}


def test_a_tick_that_dies_leaves_what_it_has_not_handled_due(lifecycle: LifecycleHarness) -> None:
    class Dying(Removals):
        def handle(self, tick: Tick, entries: Sequence[Entry]) -> list[str]:
            if self.steps:
                raise KeyboardInterrupt
            return super().handle(tick, entries)

    plan(lifecycle, *(entry(n, name=f"feed{n}") for n in range(6)))
    with pytest.raises(KeyboardInterrupt):
        work_off(tick(lifecycle), Dying())
    assert len(left(lifecycle)) == 2
    assert work_off(tick(lifecycle), Removals())[1]
    assert left(lifecycle) == {}


def test_of_two_ticks_at_once_neither_forgets_what_comes_meanwhile(lifecycle: LifecycleHarness) -> None:
    class Overlapping(Removals):
        def handle(self, tick_now: Tick, entries: Sequence[Entry]) -> list[str]:
            if not self.steps:
                assert work_off(tick(lifecycle), Removals()) == (["a", "b"], True)
                plan(lifecycle, entry(1, name="new"))
            return super().handle(tick_now, entries)

    plan(lifecycle, entry(1, name="a"), entry(2, name="b"))
    overlapping = Overlapping()
    work_off(tick(lifecycle), overlapping)
    assert overlapping.steps == [["a", "b"], ["new"]]
    assert left(lifecycle) == {}


def test_a_unit_that_stays_due_keeps_no_other_waiting(lifecycle: LifecycleHarness) -> None:
    class Stubborn(Removals):
        def unit_of(self, entry: Entry) -> str:
            return entry.name[:3]

        def handle(self, tick_now: Tick, entries: Sequence[Entry]) -> list[str]:
            if any(each.name.startswith("bad") for each in entries):
                raise ValueError("broken")
            return super().handle(tick_now, entries)

        def put_off(self, tick: Tick, entries: Sequence[Entry], pause: timedelta) -> list[str]:
            return Handler.put_off(self, tick, entries, pause)

    plan(lifecycle, *(entry(n, name=f"bad{n:03}") for n in range(50)), *(entry(60, name=f"ok-{n}") for n in range(6)))
    now = tick(lifecycle)
    assert sorted(work_off(now, Stubborn())[0]) == [f"ok-{n}" for n in range(6)]
    plan(lifecycle, entry(70, name="ok-9"))
    assert work_off(now, Stubborn()) == (["ok-9"], False)  # it is put off now
    assert len(left(lifecycle)) == 50
