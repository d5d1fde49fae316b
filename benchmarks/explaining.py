"""(f) `why` for a process instance with 30 inputs that are not there, each made by a process that waits as well."""

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from benchmarks.probes import say
from benchmarks.report import Figure, Part, within
from feed_assets.clock import TimeBudget
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.common import Kind
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.lifecycle.arrivals import apply_arrivals
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.readiness import apply_readiness
from feed_assets.lifecycle.redefinition import apply_plan
from feed_assets.lifecycle.stores import StorePool
from feed_assets.operations.explaining.explanations import explain
from feed_assets.operations.location import declare_location
from feed_assets.operations.recording import record_declared
from feed_assets.operations.scene import Scene
from feed_assets.state.database import open_database

INPUTS = 30
SECONDS = 0.020
START = datetime(2025, 1, 1, tzinfo=UTC)


def measure_explaining(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """One missing instance an input, and 24 an input of which some are followed."""
    repeats = 5 if quick else 31
    for window, name in (("now(0,0)", "one instance each"), ("now(-23,0)", "24 instances each")):
        say(f"why: {INPUTS} inputs, {name}")
        scene = _scene(folder / name.replace(" ", "-"), window)
        seconds = median(_seconds(scene) for _ in range(repeats))
        yield within(Part.EXPLAINING, f"why with {INPUTS} missing inputs, {name}", seconds, at_most=SECONDS)


def _seconds(scene: Scene) -> float:
    begun = time.perf_counter()
    (explanation,) = explain(scene, Kind.PROCESS, "all", scene.as_of - timedelta(hours=1)).items
    taken = time.perf_counter() - begun
    assert len(explanation.blockers) == INPUTS
    assert {root.status for root in explanation.root_causes()} == {"MISSING"}
    return taken


def _scene(folder: Path, window: str) -> Scene:
    """Nothing has arrived in two days, and a tick has been."""
    folder.mkdir()
    location = declare_location(_entities(folder, window), START)
    database = open_database(f"sqlite:///{folder / 'state.db'}")
    database.migrate()
    record_declared(database, location.declared or (), START)
    stores, governance, as_of = StorePool(), Governance(location.plan), START + timedelta(days=2)
    apply_plan(database, governance, as_of)
    apply_arrivals(database, stores, location.plan, "primary", as_of, TimeBudget(60.0))
    apply_readiness(database, governance, "primary", as_of, TimeBudget(60.0))
    return Scene(governance=governance, database=database, stores=stores, as_of=as_of, wall=as_of)


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
