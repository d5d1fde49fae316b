"""States of entities and of process instances against Falcon's state machines.

What Falcon refuses in a state changes nothing here; most commands say so without failing.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from feed_assets.context.operation import resolve_subject
from feed_assets.definitions.lists.reading import find_status
from feed_assets.definitions.verbs.changes import delete, submit
from feed_assets.definitions.verbs.schedules import apply_schedules, change_work, decide_schedules
from feed_assets.definitions.verbs.states import EntityState
from feed_assets.definitions.verbs.verb_results import EntityVerb
from feed_assets.entities.common import Kind
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.errors import FeedAssetsError
from feed_assets.instances.attempts.attempts import begin_attempt, end_attempt
from feed_assets.instances.gates.actions import InstanceAction
from feed_assets.instances.lists.control import control_instances
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import load_schedules
from feed_assets.log.records import ProcessInstanceStatus, ProcessKey
from tests.context.contexts import context_of
from tests.definitions.verbs.harness import ALL, EntityHarness, file_of
from tests.instances.harness import START, LifecycleHarness, feed, process

Case = dict[str, Any]
TABLE = "states.json"
TIMEOUT = timedelta(hours=6)
_FALCONS = {ProcessInstanceStatus.TIMEDOUT: "TIMED_OUT"}


@dataclass(frozen=True, slots=True)
class Life:
    """Instances of a process that reads clicks every hour, and what happens to each."""

    lifecycle: LifecycleHarness

    def state(self, time: datetime = START) -> str | None:
        """The state in Falcon's words."""
        status = self.lifecycle.statuses("p").get(time)
        return None if status is None else _FALCONS.get(status, status.value)

    def trigger(self, time: datetime = START) -> None:
        self.lifecycle.ready(time + timedelta(minutes=1))

    def meet_conditions(self, time: datetime = START) -> None:
        self.lifecycle.land("clicks", time)
        self.lifecycle.arrive(time + timedelta(minutes=1))
        self.lifecycle.ready(time + timedelta(minutes=1))

    def time_out(self, time: datetime = START) -> None:
        self.lifecycle.ready(time + timedelta(minutes=1) + TIMEOUT)

    def start(self, time: datetime = START) -> None:
        """Begin the runs that are asked for."""
        now, record = time + timedelta(minutes=1), self.lifecycle.process("p")
        for request in self.lifecycle.request(now):
            with self.lifecycle.database.begin() as connection:
                for nominal_time in request.nominal_times:
                    begin_attempt(connection, record, nominal_time, self.lifecycle.run_id(), now)

    def end(self, status: ProcessInstanceStatus, time: datetime = START) -> None:
        """What a worker records at its end."""
        with self.lifecycle.database.begin() as connection:
            end_attempt(connection, ProcessKey("p", "primary", time), status, None, time + timedelta(minutes=1))

    def act(self, action: InstanceAction, time: datetime = START) -> bool:
        """What a person does to the instance; whether it had an effect."""
        context, end = context_of(self.lifecycle, time + timedelta(minutes=1)), time + timedelta(hours=1)
        return bool(control_instances(context.by("ann"), action, resolve_subject(context, "p"), time, end).changed)

    def act_on_each(self, action: InstanceAction, times: Sequence[datetime]) -> None:
        for time in times:
            self.act(action, time)

    def set_process(self, state: ScheduleState, now: datetime) -> None:
        """Suspend or resume the process."""
        with self.lifecycle.database.begin() as connection:
            view = load_schedules(connection)
            rows = decide_schedules(view, Kind.PROCESS, "p", ["primary"], state, author="ann", now=now)
            apply_schedules(connection, view, rows, now)

    def resume(self, *following: Callable[[], None]) -> None:
        if self.act(InstanceAction.RESUME):
            for follow in following:
                follow()

    def reach(self, state: str | None, time: datetime = START) -> None:
        """Lead an instance to a state, in the way that instances go."""
        if state is None:
            return
        self.trigger(time)
        if state in ("READY", "RUNNING", "SUCCEEDED", "FAILED"):
            self.meet_conditions(time)
        match state:
            case "RUNNING":
                self.start(time)
            case "SUCCEEDED" | "FAILED":
                self.start(time)
                self.end(ProcessInstanceStatus(state), time)
            case "SUSPENDED":
                self.act(InstanceAction.SUSPEND, time)
            case "KILLED":
                self.act(InstanceAction.KILL, time)
            case "TIMED_OUT":
                self.time_out(time)
        assert self.state(time) == state


@contextmanager
def life(inputs: Mapping[str, str] = {"clicks": "now(0,0)"}) -> Iterator[Life]:
    with tempfile.TemporaryDirectory() as root:
        reader = process("p", inputs=inputs, timeout="hours(6)", parallel=10)
        made = LifecycleHarness.of(Path(root), feed("clicks"), reader)
        yield Life(made)
        made.database.close()


def events_of(found: Life) -> dict[str, Callable[[], object]]:
    """What Falcon's events are here."""
    return {
        "TRIGGER": found.trigger,
        "CONDITIONS_MET": found.meet_conditions,
        "TIME_OUT": found.time_out,
        "SCHEDULE": found.start,
        "SUSPEND": lambda: found.act(InstanceAction.SUSPEND),
        "RESUME_WAITING": found.resume,
        "RESUME_READY": lambda: found.resume(found.meet_conditions),
        "RESUME_RUNNING": lambda: found.resume(found.meet_conditions, found.start),
        "KILL": lambda: found.act(InstanceAction.KILL),
        "SUCCEED": lambda: found.end(ProcessInstanceStatus.SUCCEEDED),
        "FAIL": lambda: found.end(ProcessInstanceStatus.FAILED),
        "EXTERNAL_TRIGGER": lambda: found.act(InstanceAction.RERUN),
    }


def run_instance_transition(case: Case) -> None:
    with life() as found:
        found.reach(case.get("state"))
        events_of(found)[case["event"]]()
        expected = case.get("state") if case["expected"] == "error" else case["expected"]
        assert found.state() == expected


ENTITY_STATES = {EntityState.RUNNING: "SCHEDULED"}


def run_entity_transition(case: Case) -> None:
    kind = Kind(case.get("entity", "process"))
    name = {Kind.PROCESS: "counting", Kind.CLUSTER: "primary"}[kind]
    with tempfile.TemporaryDirectory() as root:
        harness = EntityHarness.at(Path(root))
        verbs: dict[str, Callable[[], object]] = {
            "SUBMIT": lambda: submit(harness.context(), [file_of(*ALL)]),
            "SCHEDULE": lambda: change_work(harness.context(), EntityVerb.SCHEDULE, kind, [name]),
            "SUSPEND": lambda: change_work(harness.context(), EntityVerb.SUSPEND, kind, [name]),
            "RESUME": lambda: change_work(harness.context(), EntityVerb.RESUME, kind, [name]),
            "KILL": lambda: delete(harness.context(), kind, [name]),
        }
        ways = {
            None: (),
            "SUBMITTED": ("SUBMIT",),
            "SCHEDULED": ("SUBMIT", "SCHEDULE"),
            "SUSPENDED": ("SUBMIT", "SCHEDULE", "SUSPEND"),
            "KILLED": ("SUBMIT", "SCHEDULE", "KILL"),
        }

        def state() -> str | None:
            try:
                found = find_status(harness.context(), kind, name).state
            except EntityNotFoundError:
                return None
            return ENTITY_STATES.get(found, found.value)

        for verb in ways[case.get("state")]:
            verbs[verb]()
        before = state()
        assert before == (None if case.get("state") == "KILLED" else case.get("state"))
        with suppress(FeedAssetsError):
            verbs[case["event"]]()
        if case["expected"] == "error":
            assert state() == before
        else:
            assert state() == (None if case["expected"] == "KILLED" else case["expected"])
        harness.database.close()


def run_native_flow(case: Case) -> None:
    """Follow the steps of a flow; `start` are the states of the instances at its begin, one an hour."""
    is_free = case.get("start") == ["process without inputs"]
    states = [] if is_free else case.get("start", [])
    times = [START + timedelta(hours=n) for n in range(len(states) or 1)]
    with life({} if is_free else {"clicks": "now(0,0)"}) as found:
        for state, time in zip(states, times, strict=False):
            found.reach(state, time)
        steps: dict[str, Callable[[], object]] = {
            "schedule process": lambda: None,  # automatic
            "time event": found.trigger,
            "data available": found.meet_conditions,
            "data unavailable after timeout": found.time_out,
            "job started": found.start,
            "job succeeded": lambda: found.end(ProcessInstanceStatus.SUCCEEDED),
            "suspend process": lambda: found.set_process(ScheduleState.SUSPENDED, times[-1]),
            "resume process": lambda: found.set_process(ScheduleState.SCHEDULED, times[-1]),
        }
        steps |= {f"{action} each instance": partial(found.act_on_each, action, times) for action in InstanceAction}
        seen = []
        for step in case["steps"]:
            assert step in steps, f"there is no such step here: {step}"
            steps[step]()
            if step == "resume each instance":
                found.trigger(times[-1])
            seen.append(found.state() if len(times) == 1 else [found.state(time) for time in times])
        expected = [None if state == "SCHEDULED" else state for state in case["expected"]]
        assert seen == expected


def run_native_update(case: Case) -> None:
    """An update goes on after the last instance that has come into being."""
    assert case["expected"].startswith("new alarm starts after the last materialised instance")
    with life() as found:
        found.trigger(START + timedelta(hours=2))
        before = found.lifecycle.instances("p")
        assert len(before) == 3
        updated = process("p", inputs={"clicks": "now(0,0)"}, timeout="hours(6)", properties={"a": "b"})
        found.lifecycle.declare(feed("clicks"), updated)
        found.trigger(START + timedelta(hours=4))
        after = found.lifecycle.instances("p")
        assert list(after) == [START + timedelta(hours=n) for n in range(5)]
        assert {time: after[time] for time in before} == before


RUNNERS = {
    "instance_transition": run_instance_transition,
    "entity_transition": run_entity_transition,
    "native_flow": run_native_flow,
    "native_update": run_native_update,
}


def test_each_case_of_the_table_holds_or_is_listed_with_a_reason(case: Case, judge: Callable[[Case], None]) -> None:
    judge(case)


def test_the_list_of_differences_names_only_what_is_in_the_table(unknown_differences: set[str]) -> None:
    assert unknown_differences == set()
