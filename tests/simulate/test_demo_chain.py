"""A rerun of the demo's days with what hangs on them: what its plan has said is what runs, on simulated days."""

import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.context.operation import resolve_subject
from feed_assets.definitions.store import record_location
from feed_assets.entities.common import Kind
from feed_assets.instances.lists.reruns import Downstream, RerunPlan, rerun_downstream
from feed_assets.plan.location import load_location
from feed_assets.settings import load_settings
from feed_assets.simulate.parts import Arrival, SimulatedEvent
from feed_assets.simulate.simulation import Simulation, SimulationSettings
from tests.documents.markdown import ROOT
from tests.instances.harness import at

HOUR = timedelta(hours=1)
BEGIN, END = at("01T04:00"), at("09T05:00")
DAYS = [at("01T04:00"), at("02T04:00"), at("03T04:00"), *(at(f"0{day}T05:00") for day in range(4, 8))]
RUNS = {SimulatedEvent.RUN, SimulatedEvent.LATE_RUN}


@pytest.fixture
def week(tmp_path: Path) -> Iterator[Simulation]:
    """A week of the demo has passed."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "feed_assets.yaml").write_text(
        "entities: examples/flights/entities\n"
        f"variables: {{DATA_ROOT: '{tmp_path}', S3_ENDPOINT: 'http://127.0.0.1:1'}}\n"
    )
    settings = load_settings(start=tmp_path)
    location = load_location(settings.model_copy(update={"strict": True}))
    hours = [BEGIN + number * HOUR for number in range(7 * 24 + 1)]
    arrivals = [
        Arrival(at=time + delay, feed=name, cluster="primary", nominal_time=time, content=f"{time}")
        for name, times, delay in (("flights", DAYS, 25 * HOUR), ("weather", hours, HOUR))
        for time in times
    ]
    simulation = Simulation(
        plan=location.plan,
        record=lambda database: record_location(database, settings, location, BEGIN),
        arrivals=arrivals,
        settings=SimulationSettings(start=BEGIN, end=END, every=6 * HOUR, root=settings.root),
    )
    assert {line.what for line in simulation.run()} >= RUNS - {SimulatedEvent.LATE_RUN}
    assert pass_time(simulation, END + 6 * HOUR) == []
    yield simulation
    simulation.close()


def pass_time(week: Simulation, now: datetime) -> list[tuple[str, str, datetime]]:
    """Let ten hours pass: what has run."""
    lines = [
        line
        for number in range(40)
        for step in (week._finish_runs, week._tick)
        for line in step(now + number * timedelta(minutes=15))
    ]
    return [(each.entity, each.cluster, each.nominal_time or now) for each in lines if each.what in RUNS]


def rerun(
    week: Simulation, now: datetime, *, even_unchanged: bool
) -> tuple[RerunPlan, list[tuple[str, str, datetime]]]:
    """Run two days again as a dry run has said, and let time pass: the plan, and what has run."""
    context = week._operation_context(now)
    subject = resolve_subject(context, "daily-delays", preferred=Kind.PROCESS)
    how = (subject, DAYS[1], DAYS[3], Downstream(even_unchanged=even_unchanged))
    plan = rerun_downstream(context.by("ann", dry_run=True), *how)
    rerun_downstream(context.by("ann"), *how, digest=plan.digest)
    return plan, pass_time(week, now)


def test_the_chain_of_the_demo_runs_as_its_plan_says_and_stops_at_unchanged_content(week: Simulation) -> None:
    for day in DAYS[1:3]:
        week.stores.write(week.plan.feeds["flights", "primary"], day, "corrected")
    plan, ran = rerun(week, END + 20 * HOUR, even_unchanged=False)
    planned = Counter({(*key[:2], key[2]): 1 for key in (*(row.key for row in plan.rows), *plan.hanging)})
    names = Counter({"daily-delays": 2, "daily-delays@primary": 2, "airline-report": 1})
    assert Counter(name for name, _, _ in ran) == names
    assert Counter(ran) == planned
    _, ran = rerun(week, END + 40 * HOUR, even_unchanged=False)
    assert Counter(name for name, _, _ in ran) == {"daily-delays": 2}
    _, ran = rerun(week, END + 60 * HOUR, even_unchanged=True)
    assert Counter(ran) == planned
