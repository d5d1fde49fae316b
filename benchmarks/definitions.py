"""(e) The waiting time when definitions change: validating a thousand entities, planning a change of one."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.probes import ROOT, ProbeError, run_probe, say
from benchmarks.report import Figure, Part, Scale, within
from benchmarks.workload import pairs_of, write_entities

VALIDATE_AT_MOST = 2.0
PLAN_AT_MOST = 0.5
_COMMAND = "from feed_assets.cli.main import main; main()"


def measure_definitions(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure in a process with loaded imports, and the whole commands including their start."""
    entities, count = folder / "entities", scale.choose(1_000, 100, 9)
    pairs = pairs_of(count // 3)
    write_entities(entities, pairs, folder / "data")
    changed = folder / "changed.yaml"
    (_, _, process) = pairs[len(pairs) // 2].render().split("---\n")
    changed.write_text(process.replace("timeout: hours(12)", "timeout: hours(13)"))
    size = f"{3 * len(pairs) + 1:,} entities: a cluster, feeds, processes"
    probes, repeats = [], scale.choose(3, 3, 1)
    for number in range(scale.choose(5, 1, 1)):
        say(f"definitions, round {number + 1}")
        state = folder / f"state-{number}.db"
        probes.append(run_probe("definitions_probe", entities, changed, state))

    def times(part: str) -> float:
        return float(median(probe[part] for probe in probes))

    yield within(Part.DEFINITIONS, "validate all entities", times("validate"), at_most=VALIDATE_AT_MOST, note=size)
    yield within(
        Part.DEFINITIONS,
        "plan a change of one entity, once the definitions are loaded",
        times("plan"),
        at_most=PLAN_AT_MOST,
        note="validated with what depends on it, releases and instances decided, digest; SQLite",
    )
    yield within(Part.DEFINITIONS, "load the definitions from the folder and the record", times("load"))
    yield within(Part.DEFINITIONS, "plan one edited file against the record, files read anew", times("plan_folder"))
    environ = {"FEED_ASSETS_ENTITIES": str(entities), "FEED_ASSETS_STATE": f"sqlite:///{folder / 'state-0.db'}"}
    yield within(Part.DEFINITIONS, "`feed-assets validate`, from start to end", _time(["validate"], environ, repeats))
    yield within(
        Part.DEFINITIONS, "`feed-assets plan FILE`, from start to end", _time(["plan", str(changed)], environ, repeats)
    )


def _time(arguments: Sequence[str], environ: dict[str, str], repeats: int) -> float:
    """Return the median duration of a command in seconds."""
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", _COMMAND, *arguments],
            cwd=ROOT,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
        )
        seconds.append(time.perf_counter() - begun)
        if done.returncode != 0:
            raise ProbeError(f"feed-assets {arguments[0]} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return median(seconds)
