"""BD-80: whatever happens in whatever order, each event is in one place, and batches are those of a small model."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.sql.database import Database
from feed_assets.triggers import apply_triggers as applying
from feed_assets.triggers import cuts
from feed_assets.triggers.errors import QueueChangeError
from feed_assets.triggers.queue.records import QueueAction
from feed_assets.triggers.queues import change_queue, verify_queues
from tests.databases import create_schema, open_migrated
from tests.drills import IS_DRILL
from tests.triggers.harness import CLUSTER, Queues, build_plan

FEEDS = ("a", "b", "c")
TRIGGERS: tuple[dict[str, Any], ...] = (
    {"when": ["a", "b"], "on_pause": "drop"},
    {"when": ["a", "b"], "batch": {"max": 2}},
    {"when": {"any": ["a", "b"]}, "batch": {"min": 2, "max": 3}, "on_pause": "latest"},
    {"when": ["a", "c"], "batch": {"until": "*END"}, "on_pause": "drop"},
    {"when": {"any": ["b", "c"]}, "backlog": "latest", "on_pause": "latest"},
)
PLANS = tuple(build_plan(FEEDS, {"p": trigger}) for trigger in TRIGGERS)
PENDING, HELD, DROPPED, PASSED, BEFORE = "pending", "held", "dropped", "passed", "before"
FROM = {
    QueueAction.ADD: (HELD, DROPPED, PASSED, BEFORE),
    QueueAction.DROP: (PENDING, HELD),
    QueueAction.HOLD: (PENDING,),
}
TO = {QueueAction.ADD: PENDING, QueueAction.DROP: DROPPED, QueueAction.HOLD: HELD}


class Model:
    """The place of each event: pending, held, …, or the batch that has taken it."""

    def __init__(self) -> None:
        self.events: dict[int, tuple[str, int, bool]] = {}
        self.places: dict[int, str | int] = {}
        self.known: set[str] = set()
        self.unrouted: set[int] = set()
        self.added: set[int] = set()

    def pending(self, feed: str) -> list[int]:
        return [seq for seq, (of, _, _) in self.events.items() if of == feed and self.places[seq] == PENDING]

    def newest(self, seqs: list[int]) -> int:
        return max(seqs, key=lambda seq: (self.events[seq][1], seq))

    def place(self, seqs: list[int], place: str | int) -> None:
        self.places |= dict.fromkeys(seqs, place)

    def route(self, trigger: dict[str, Any], names: list[str], *, is_suspended: bool) -> None:
        for name in set(names) - self.known:
            self.place(self.pending(name), BEFORE)
        self.known |= set(names)
        if is_suspended and any(self.events[seq][0] in names for seq in self.unrouted):
            for name in names:
                found = self.pending(name)
                if trigger.get("on_pause") == "drop":
                    self.place([seq for seq in found if seq in self.unrouted - self.added], PASSED)
                elif trigger.get("on_pause") == "latest" and found:
                    self.place([seq for seq in found if seq != self.newest(found)], PASSED)
        self.unrouted.clear()

    def cut(self, trigger: dict[str, Any], names: list[str], number: int) -> list[int] | None:
        batch, until = trigger.get("batch", {}), "until" in trigger.get("batch", {})
        pending = {name: self.pending(name) for name in names}
        marked = {name: [seq for seq in found if self.events[seq][2]] for name, found in pending.items()}
        come = [len(pending[name]) >= batch.get("min", 1) and bool(marked[name] or not until) for name in names]
        if not (any(come) if isinstance(trigger["when"], dict) else all(come)):
            return None
        taken: list[int] = []
        for name, found in pending.items():
            if trigger.get("backlog") == "latest" and found:
                self.place(found, PASSED)
                taken.append(self.newest(found))
                continue
            upto = [seq for seq in found if seq <= marked[name][0]] if until and marked[name] else found
            taken += upto[: batch.get("max")]
        self.place(taken, number)
        return sorted(taken)


class Killed(Exception):
    """The program ends in the middle of a transaction."""


def machine(database: Database) -> type[RuleBasedStateMachine]:
    class EveryOrder(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.chosen, self.is_suspended, self.is_busy = Model(), 0, False, False
            self.queues = Queues(database=database, plan=PLANS[0])
            _empty(database)

        @property
        def trigger(self) -> dict[str, Any]:
            return TRIGGERS[self.chosen]

        @property
        def names(self) -> list[str]:
            when = self.trigger["when"]
            return list(when["any"]) if isinstance(when, dict) else list(when)

        @rule(feeds=st.lists(st.sampled_from(FEEDS), min_size=1, max_size=4), hour=st.integers(0, 3), end=st.booleans())
        def come(self, feeds: list[str], hour: int, end: bool) -> None:
            for feed in feeds:
                (seq,) = self.queues.come(feed, hour=hour, marking="DAILY_END" if end else "x")
                self.model.events[seq], self.model.places[seq] = (feed, hour, end), PENDING
                self.model.unrouted.add(seq)

        @rule()
        def tick(self) -> None:
            self.model.route(self.trigger, self.names, is_suspended=self.is_suspended)
            expected = None
            if not self.is_suspended and not self.is_busy:
                foreseen = self.queues.foresee("p")
                expected = self.model.cut(self.trigger, self.names, len(self.queues.ticks) + 1)
                assert (foreseen and foreseen[1]) == (None if expected is None else len(expected))
            assert self.queues.tick() == ([] if expected is None else [expected])
            self.is_busy |= expected is not None
            self.check()

        @rule()
        def tick_and_be_killed(self) -> None:
            self.model.route(self.trigger, self.names, is_suspended=self.is_suspended)

            def die(*arguments: Any) -> Any:
                apply_cuts(*arguments)
                raise Killed

            apply_cuts = cuts.apply_cuts
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(applying, "apply_cuts", die)
                with suppress(Killed):
                    self.queues.tick()
            self.check()

        @rule(status=st.sampled_from([ProcessInstanceStatus.SUCCEEDED, ProcessInstanceStatus.FAILED]))
        def end(self, status: ProcessInstanceStatus) -> None:
            self.queues.end(status)
            self.is_busy = False

        @rule()
        def pause_or_go_on(self) -> None:
            self.is_suspended = not self.is_suspended
            self.queues.suspend("p", ScheduleState.SUSPENDED if self.is_suspended else ScheduleState.SCHEDULED)

        @rule(chosen=st.integers(0, len(TRIGGERS) - 1))
        def change_definition(self, chosen: int) -> None:
            self.chosen = chosen
            self.queues.follow(PLANS[chosen])

        @precondition(lambda self: self.model.known)
        @rule(action=st.sampled_from(list(FROM)), choice=st.integers(0, 99))
        def decide_singly(self, action: QueueAction, choice: int) -> None:
            events = [seq for seq, (feed, _, _) in self.model.events.items() if feed in self.names]
            names = set(self.names) & self.model.known
            events = [seq for seq in events if self.model.events[seq][0] in names]
            if not events:
                return
            event = events[choice % len(events)]
            place = self.model.places[event]
            is_ahead = event in self.model.unrouted
            may = place in FROM[action] and not (is_ahead and place == BEFORE)
            record = self.queues.plan.processes["p", CLUSTER]
            assert record.trigger is not None
            each = next(each for each in record.trigger.inputs if each.name == self.model.events[event][0])
            with database.begin() as connection:
                change = (connection, record, each, event, action, "ann", "a test", self.queues.now)
                if not may:
                    with pytest.raises(QueueChangeError):
                        change_queue(*change)
                    return
                change_queue(*change)
            self.model.places[event] = TO[action]
            if action is QueueAction.ADD:
                self.model.added.add(event)  # a person's word outlives a pause

        def check(self) -> None:
            """Every event is where the model has it, and the record proves it."""
            assert self.queues.pending("p") == {name: self.model.pending(name) for name in self.names}
            with database.read() as connection:
                assert verify_queues(connection, self.queues.plan, CLUSTER, self.queues.now) == []

        def teardown(self) -> None:
            taken = [seq for batch in self.queues.instances("p") for seq in self.queues.events_of(batch.key)]
            assert sorted(taken) == [seq for seq, place in self.model.places.items() if isinstance(place, int)]

    return EveryOrder


def _empty(database: Database) -> None:
    from feed_assets.sql.tables import metadata

    with database.begin() as connection:
        for table in metadata.sorted_tables:
            connection.execute(table.delete())


EXAMPLES = settings(max_examples=300 if IS_DRILL else 12, stateful_step_count=40)


def test_each_event_is_in_one_place_in_every_order(tmp_path: Path) -> None:
    database = open_migrated(f"sqlite:///{tmp_path}/state.db")
    run_state_machine_as_test(machine(database), settings=EXAMPLES)
    database.close()


@pytest.mark.server
@pytest.mark.drill
def test_each_event_is_in_one_place_in_every_order_on_postgresql(postgres_url: str) -> None:
    database = open_migrated(create_schema(postgres_url))
    run_state_machine_as_test(machine(database), settings=settings(max_examples=40, stateful_step_count=40))
    database.close()
