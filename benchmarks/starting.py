"""(n) The time that a command takes to start and answer, in a small project, against importing what it stands on."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from statistics import median

from benchmarks.probes import ROOT, ProbeError, say
from benchmarks.report import Figure, Part, Scale, slower
from benchmarks.workload import START, pairs_of, write_entities
from feed_assets.context.operation import open_context
from feed_assets.context.tick import open_tick
from feed_assets.definitions.store import record_location
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.instances.gates.readiness import apply_readiness
from feed_assets.plan.location import find_plan_cache, load_location
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import load_settings
from feed_assets.sql.database import open_database

PEER = "import sqlalchemy, pydantic, click"
COMMANDS = (
    (("--help",), None),
    (("validate",), 1.6),
    (("entity", "list"), 2.5),
    (("instance", "list", "process", "process-0000"), 2.5),
    (("why", "process-0000", "2025-01-01T00:00Z"), 3.0),
)
"""Each with the most times that it may take longer, if that is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The time of a command: elapsed, and on the processor."""

    elapsed: float
    processor: float


def measure_starting(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure fresh processes, peers in turn, with byte code and plan cached: their time on the processor, which a busy
    machine changes less than the elapsed time.
    """
    repeats = scale.choose(15, 3, 1)
    environ = _project(folder)
    peer: list[Taken] = []
    ours: dict[tuple[str, ...], list[Taken]] = {words: [] for words, _ in COMMANDS}
    for number in range(scale.choose(-1, -1, 0), repeats):
        say(f"commands, round {number + 1} of {repeats}" if number >= 0 else "commands, to compile them")
        for words, taken in [(None, peer), *ours.items()]:
            code = ("-c", PEER) if words is None else ("-m", "feed_assets", *words)
            measured = run_code(code, folder, environ)
            if number >= 0:
                taken.append(measured)
    theirs = median(each.processor for each in peer)
    elapsed = median(each.elapsed for each in peer)
    for words, at_most in COMMANDS:
        longer = median(each.elapsed for each in ours[words]) / elapsed
        yield slower(
            Part.STARTING,
            f"`feed-assets {' '.join(words)}`",
            median(each.processor for each in ours[words]),
            f"python -c '{PEER}'",
            theirs,
            at_most=at_most,
            note=f"seconds of the processor, user and system; elapsed: {longer:.2f}x",
        )


def run_code(code: tuple[str, ...], folder: Path, environ: dict[str, str]) -> Taken:
    """Run Python in a process of its own. Raises ProbeError if it ends with another code than 0."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *code], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    elapsed, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise ProbeError(f"{' '.join(code)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return Taken(elapsed=elapsed, processor=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _project(folder: Path) -> dict[str, str]:
    """Make a project as it stands after its first tick. Returns the environment of its commands."""
    home = folder / "home"
    home.mkdir()
    write_entities(folder / "entities", pairs_of(3), folder / "data")
    (folder / "feed_assets.yaml").write_text(f"state: sqlite:///{folder}/state.db\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    environ |= {"DAGSTER_HOME": str(home), "PYTHONPATH": str(ROOT)}
    settings, as_of = load_settings(environ={}, start=folder), START + timedelta(hours=1)
    location = load_location(settings, find_plan_cache(environ))
    database = open_database(f"sqlite:///{folder}/state.db")
    database.migrate()
    record_location(database, settings, location, as_of)
    timeline = ReleaseTimeline(location.plan)
    apply_plan(database, timeline, as_of)
    context = replace(open_context(settings, database, timeline), as_of=as_of)
    apply_readiness(open_tick(context, "primary"))
    database.close()
    return environ
