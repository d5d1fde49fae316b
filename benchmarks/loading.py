"""(a) The time in which a run's worker loads a code location: declared in YAML, against hand-written for Dagster."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.hand_written import write_hand_written
from benchmarks.probes import ROOT, run_probe, say
from benchmarks.report import Figure, Part, Scale, slower
from benchmarks.workload import CLUSTER, pairs_of, write_entities

AT_MOST = 1.3


def measure_loading(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure cold (nothing compiled yet) and warm (the plan of these files is cached), peers in turn."""
    pairs = pairs_of(scale.choose(1_000, 200, 3))
    repeats = scale.choose(7, 3, 1)
    write_entities(folder / "entities", pairs, folder / "data")
    write_hand_written(folder / "by_hand", pairs)
    home = folder / "home"
    home.mkdir()
    environ = {"DAGSTER_HOME": str(home), "FEED_ASSETS_ENTITIES": str(folder / "entities")}
    key = f"{CLUSTER}/{pairs[0].result}"
    run_probe("load_probe", folder / "by_hand", key)  # compiles the module
    cold, warm, by_hand = [], [], []
    for number in range(repeats):
        say(f"loading {2 * len(pairs):,} assets, round {number + 1} of {repeats}")
        shutil.rmtree(home / "feed_assets", ignore_errors=True)
        cold.append(run_probe("load_probe", ROOT, key, environ=environ))
        warm.append(run_probe("load_probe", ROOT, key, environ=environ))
        by_hand.append(run_probe("load_probe", folder / "by_hand", key))
    size = f"{len(pairs):,} feeds from outside, {len(pairs):,} processes with a feed each"
    assert warm[0]["assets"] == by_hand[0]["assets"] + 1, "the two locations differ"

    def times(probes: list[dict[str, float]], part: str) -> float:
        return median(probe[part] for probe in probes)

    peer = "assets written by hand"
    for name, probes, limit in (("warm", warm, AT_MOST), ("cold", cold, None)):
        yield slower(
            Part.LOADING,
            f"load a location, {name} plan cache",
            times(probes, "total"),
            peer,
            times(by_hand, "total"),
            at_most=limit,
            note=f"whole worker start: import dagster, location, repository, job of one asset; {size}",
        )
    yield slower(
        Part.LOADING,
        "load a location, warm plan cache, without `import dagster`",
        times(warm, "location"),
        peer,
        times(by_hand, "location"),
    )
