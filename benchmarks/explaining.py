"""(f) `why` for a process instance with 30 missing inputs, each produced by a process that waits, too."""

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from benchmarks.probes import say
from benchmarks.report import Figure, Part, Scale, within
from feed_assets.clock import FrozenClock
from feed_assets.context.operation import OperationContext, resolve_subject
from feed_assets.context.tick import open_tick
from feed_assets.definitions.store import record_declared
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.explain.explanations import explain
from feed_assets.instances.arrival.polling import apply_arrivals
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.instances.gates.readiness import apply_readiness
from feed_assets.plan.location import declare_location
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import Settings
from feed_assets.sql.database import open_database
from feed_assets.storage.pool import StorePool

INPUTS = 30
SECONDS = 0.020
START = datetime(2025, 1, 1, tzinfo=UTC)


def measure_explaining(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure one missing instance for each input, and 24, of which some are followed."""
    repeats = scale.choose(31, 5, 1)
    for window, name in (("now(0,0)", "one instance each"), ("now(-23,0)", "24 instances each")):
        say(f"why: {INPUTS} inputs, {name}")
        context = _context(folder / name.replace(" ", "-"), window)
        seconds = median(_seconds(context) for _ in range(repeats))
        yield within(Part.EXPLAINING, f"why with {INPUTS} missing inputs, {name}", seconds, at_most=SECONDS)


def _seconds(context: OperationContext) -> float:
    begun = time.perf_counter()
    (explanation,) = explain(context, resolve_subject(context, "all", context.as_of - timedelta(hours=1))).items
    taken = time.perf_counter() - begun
    assert len(explanation.blockers) == INPUTS
    assert {root.status for root in explanation.root_causes()} == {"MISSING"}
    return taken


def _context(folder: Path, window: str) -> OperationContext:
    """Open the context of a location after one tick, two days without arrivals."""
    folder.mkdir()
    location = declare_location(_entities(folder, window))
    database = open_database(f"sqlite:///{folder / 'state.db'}")
    database.migrate()
    record_declared(database, location.declared or (), START, Settings())
    stores, timeline, as_of = StorePool(), ReleaseTimeline(location.plan), START + timedelta(days=2)
    apply_plan(database, timeline, as_of)
    clock = FrozenClock(as_of)
    context = OperationContext(
        timeline=timeline, database=database, stores=stores, clock=clock, real_clock=clock, as_of=as_of
    )
    tick = open_tick(context, "primary")
    apply_arrivals(tick)
    apply_readiness(tick)
    return context


def _entities(folder: Path, window: str) -> list[AnyEntity]:
    clusters = {"primary": {"validity": {"start": START}}}
    early = {"primary": {"validity": {"start": START - timedelta(days=1)}}}
    raw = [_feed(f"raw{number}", early) for number in range(INPUTS)]
    made = [_feed(f"made{number}", early) for number in range(INPUTS)]
    steps = [
        Process(
            name=f"step{number}",
            frequency="hours(1)",
            clusters=clusters,
            inputs={"raw": {"feed": f"raw{number}", "start": "now(0,0)", "end": "now(0,0)"}},
            outputs={"made": {"feed": f"made{number}", "instance": "now(0,0)"}},
            workflow={"path": "jobs:run"},
        )
        for number in range(INPUTS)
    ]
    last = Process(
        name="all",
        frequency="hours(1)",
        clusters=clusters,
        inputs={
            f"input{number}": {"feed": f"made{number}", "start": window, "end": "now(0,0)"} for number in range(INPUTS)
        },
        workflow={"path": "jobs:run"},
    )
    return [Cluster(name="primary", storage=f"file://{folder}/data"), *raw, *made, *steps, last]


def _feed(name: str, clusters: Mapping[str, object]) -> Feed:
    return Feed(
        name=name,
        frequency="hours(1)",
        format="csv",
        locations={"data": f"/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}-${{HOUR}}"},
        clusters=clusters,
    )
