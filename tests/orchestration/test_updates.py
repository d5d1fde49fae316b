"""A rerun of a producer as the arrival sensor sees it: it requests runs of what has read its output, and no others."""

import itertools
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance, RunRequest

from feed_assets.context.operation import AttemptContext, OperationContext, resolve_subject
from feed_assets.context.safe_mode import set_safe_mode
from feed_assets.explain.explanations import explain
from feed_assets.explain.records import ReasonCode
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.instances.gates.actions import InstanceAction
from feed_assets.instances.lists.control import control_instances
from feed_assets.log.instances.attempts import Attempts
from feed_assets.log.records import ProcessKey
from feed_assets.orchestration.location.reloading import build_context
from tests.context.contexts import about
from tests.instances.harness import FileEngine, no_session
from tests.orchestration.dagster_home import Home
from tests.orchestration.hand_ticked import NOON, LocationHarness
from tests.orchestration.small import ENTITIES, START, key, land

HOUR = timedelta(hours=1)
READERS = (
    ENTITIES
    + """
    ---
    kind: process
    name: telling
    frequency: hours(1)
    trigger: {on_update: rerun}
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
    inputs: {sums: {feed: sums, start: "now(0,0)", end: "now(0,0)"}}
    workflow: {engine: python, path: "jobs_of_test:summing"}
    ---
    kind: process
    name: rolling
    frequency: hours(2)
    trigger: {on_update: hold}
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
    inputs: {sums: {feed: sums, start: "now(0,0)", end: "now(1,0)"}}
    workflow: {engine: python, path: "jobs_of_test:summing"}
    ---
    kind: process
    name: deaf
    frequency: hours(1)
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
    inputs: {sums: {feed: sums, start: "now(0,0)", end: "now(0,0)"}}
    workflow: {engine: python, path: "jobs_of_test:summing"}
"""
)


class Readers(LocationHarness):
    """Two hours of numbers have come and have been summed, and all that reads the sums has run. `made` is what
    `summing` makes now.
    """

    made = "1"
    numbers = itertools.count()

    def work(self) -> Counter[tuple[str, str]]:
        """Tick and do what is requested, until nothing is: how often each partition of a process was requested."""
        asked: Counter[tuple[str, str]] = Counter()
        while requests := self.tick().run_requests:
            for request in requests:
                asked.update(self.run(request))
        return asked

    def run(self, request: RunRequest) -> list[tuple[str, str]]:
        """Do what a run does, without Dagster and Spark: the partitions of its process."""
        process = self.runtime.plan.processes[request.tags["feed_assets/process"], "here"]
        grid = self.layout.process_grid(process)
        first = request.partition_key or request.tags["dagster/asset_partition_range_start"]
        last = request.partition_key or request.tags["dagster/asset_partition_range_end"]
        runner = InstanceRunner(
            context=AttemptContext(
                database=self.runtime.database(self.instance),
                stores=self.runtime.stores,
                plan=self.runtime.plan,
                clock=self.runtime.clock,
                real_clock=self.runtime.real_clock,
                run_id=f"run-{next(self.numbers)}",
            ),
            root=self.runtime.root,
            session=no_session,
            engines=lambda _: FileEngine(lambda work: {target.name: self.made for target in work.outputs}),
        )
        times = list(process.sequence.between(grid.nominal_time(first), grid.nominal_time(last) + HOUR))
        for time in times:
            runner.run(process, time, lambda _: None)
        return [(process.process, grid.key(time)) for time in times]

    def context(self) -> OperationContext:
        timeline = self.runtime.timeline(self.location)
        return build_context(self.runtime, timeline, self.runtime.database(self.instance), self.runtime.clock.now())

    def rerun(self, first: datetime, last: datetime | None = None) -> None:
        """`feed-assets instance rerun summing`."""
        end = (last or first) + HOUR
        control_instances(
            self.context().by("ann"), InstanceAction.RERUN, resolve_subject(self.context(), "summing"), first, end
        )


@pytest.fixture
def harness(tmp_path: Path, instance: DagsterInstance) -> Readers:
    harness = Readers(Home(folder=tmp_path), instance, READERS)
    for hour in range(2):
        land(harness.home.data, hour, hour)
    asked = harness.work()
    assert asked == {
        **{(name, key(hour)): 1 for name in ("summing", "telling", "deaf") for hour in range(2)},
        ("rolling", key(0)): 1,
    }
    return harness


def test_af_61_a_rerun_of_one_hour_requests_its_readers_once_and_nothing_else(harness: Readers) -> None:
    harness.made = "2"
    harness.rerun(START + HOUR)
    assert harness.work() == {("summing", key(1)): 1, ("telling", key(1)): 1, ("rolling", key(0)): 1}
    harness.at(NOON + HOUR)
    assert harness.work() == {}
    with harness.runtime.database(harness.instance).read() as connection:
        *_, last = Attempts(connection).of(ProcessKey("telling", "here", START + HOUR))
    assert (last.attempt, last.trigger) == (2, "updated: sums 2026-01-01T01:00Z changed")
    harness.rerun(START + HOUR)  # and makes the same content
    assert harness.work() == {("summing", key(1)): 1}


def test_af_55_a_rerun_of_a_whole_window_requests_what_rolls_it_up_once(harness: Readers) -> None:
    harness.made = "2"
    harness.rerun(START, START + HOUR)
    asked = harness.work()
    harness.at(NOON + timedelta(seconds=2))
    asked += harness.work()
    assert asked == {
        **{(name, key(hour)): 1 for name in ("summing", "telling") for hour in range(2)},
        ("rolling", key(0)): 1,
    }


def test_in_safe_mode_updates_wait(harness: Readers) -> None:
    harness.made = "2"
    harness.rerun(START)
    (request,) = harness.tick().run_requests or ()
    harness.run(request)
    database = harness.runtime.database(harness.instance)
    set_safe_mode(database, is_on=True, author="ann", now=NOON)
    assert harness.work() == {}
    (why,) = about(explain, harness.context(), "telling", START).items
    assert [each.facts["updated_at"] for each in why.reasons if each.code is ReasonCode.UPDATE] == [f"{NOON:%FT%TZ}"]
    set_safe_mode(database, is_on=False, author="ann", now=NOON)
    harness.at(NOON + timedelta(seconds=2))
    assert harness.work() == {("telling", key(0)): 1, ("rolling", key(0)): 1}
