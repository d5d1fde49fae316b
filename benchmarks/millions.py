"""(p) What grows with instances: a quiet tick, and each command that reads the state or shows what it would do, with a
million instances on SQLite and five million in 10,000 feeds on PostgreSQL.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median

from benchmarks.lived_state import LivedSize, fill_lived_state
from benchmarks.probes import ROOT, say
from benchmarks.report import Figure, Part, Scale, slower, within
from benchmarks.searching_probe import open_state
from benchmarks.starting import run_code
from benchmarks.tick_harness import HALF_HOUR, open_location
from benchmarks.workload import HOUR, START, pairs_of, write_entities
from feed_assets.timing.dates import render_datetime

SECONDS = 1.5
FLATNESS = 1.5
QUIET = 10
COMMANDS: dict[str, tuple[str, ...]] = {
    "admin audit show": ("",),
    "admin cleanup": ("--dry-run",),
    "admin users": ("",),
    "admin messages": ("", "--topic instance --limit 100"),
    "bundle export": ("process-0001 --to {folder}/exported.zip",),
    "batch list": ("",),
    "entity blame": ("process process-0001",),
    "entity definition": ("process process-0001",),
    "entity delete": ("process process-0001 --dry-run",),
    "entity dependency": ("feed source-0001",),
    "entity governing": ("process-0001 {time}",),
    "entity history": ("process process-0001",),
    "entity list": ("", "--fields status,tags,clusters"),
    "entity lookup": ("/source-0001/2025/01/01/00",),
    "entity status": ("process process-0001",),
    "entity summary": ("process --cluster primary", "feed --cluster primary --start {old}"),
    "entity suspend": ("process process-0001 --dry-run",),
    "entity touch": ("process process-0001 --dry-run",),
    "entity unseen": ("",),
    "entity verify-store": ("",),
    "facts history": ("process-0001",),
    "feed events": ("source-0001",),
    "feed files": ("source-0001 --start {time}",),
    "hold add": ("held --feed source-0001 --reason benchmark --dry-run",),
    "hold list": ("",),
    "instance asset": ("feed source-0001 {time}", "process process-0001 {time}"),
    "instance calendar": ("process process-0001 --year 2025", "feed source-0001 --year 2025"),
    "instance dependency": ("process process-0001 {time}",),
    "instance kill": ("process process-0001 --instance {time} --dry-run",),
    "instance list": (
        "process process-0001",
        "process process-0001 --start {old} --offset 100 --num-results 100",
        "process process-0001 --filter-by STATUS:FAILED --start {old}",
        "process process-0001 --order-by endTime --sort-order desc --start {old}",
        "feed source-0001",
        "feed source-0001 --filter-by STATUS:MISSING --start {old}",
        "feed result-0001 --lifecycle eviction",
    ),
    "instance listing": ("source-0001", "source-0001 --start {old}"),
    "instance logs": ("process process-0001",),
    "instance params": ("process process-0001 {time}",),
    "instance rerun": ("process process-0001 --instance {time} --dry-run",),
    "instance resume": ("process process-0001 --instance {time} --dry-run",),
    "instance running": ("process process-0001",),
    "instance search": (
        "",
        "--status FAILED",
        "--start {old} --end {time}",
        "--order-by status --start {old}",
        "--status EVICTED --start {old}",
    ),
    "instance status": ("process process-0001",),
    "instance steps": ("process-0001 {time}",),
    "instance summary": ("process process-0001 --start {old}", "feed source-0001 --start {old}"),
    "instance suspend": ("process process-0001 --instance {time} --dry-run",),
    "instance triage": ("process process-0001 {time}",),
    "keys list": ("",),
    "keys show": ("owner",),
    "lineage column": ("result-0001 id",),
    "lineage group": ("owner ops",),
    "lineage show": ("result-0001 {time} --up", "source-0001 {time} --down", "source-0001 --start {time}"),
    "metadata export": ("",),
    "metadata get": ("process/process-0001",),
    "metadata history": ("process/process-0001",),
    "notify list": ("",),
    "notify retry": ("--dry-run",),
    "notify send": ("--dry-run",),
    "plan": ("",),
    "quality history": ("result-0001",),
    "queue consumers": ("source-0001",),
    "queue list": ("",),
    "queue verify": ("",),
    "retention list": ("",),
    "retention plan": ("--dry-run", "--feed source-0001 --dry-run"),
    "retention purge": ("--dry-run",),
    "search": ("source",),
    "sla alerts": ("", "--start {old}"),
    "sla backlog": ("",),
    "sla forecast": ("", "--name process-0001"),
    "sla history": ("--start {old}",),
    "why": ("process-0001 {time}", "source-0001 {time}", "process-0001", "source-0001"),
}
"""What is measured of each operation."""
_SLA = "{should_start_in: hours(1), should_end_in: hours(3)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """A project with a state, half an hour after its last instances."""

    folder: Path
    size: LivedSize
    url: str

    @property
    def at(self) -> datetime:
        return self.size.end - HALF_HOUR


def measure_millions(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure both databases, each beside a state in which everything has lived one hour."""
    few, hours = scale.choose((500, 667), (20, 48), (2, 3))
    yield from _measure(
        folder, "sqlite", LivedSize(pairs=few, periods=hours, period=HOUR, is_evicting=False), few, scale
    )
    if scale is Scale.FULL:
        large = LivedSize(pairs=5_000, periods=334, period=HOUR, is_evicting=False)
        yield from _measure(folder, "postgresql", large, few, scale)


def _measure(folder: Path, system: str, size: LivedSize, few: int, scale: Scale) -> Iterator[Figure]:
    with ExitStack() as stack:

        def fill(name: str, size: LivedSize) -> _State:
            place = folder / f"{system}-{name}"
            _write_entities(place, size.pairs)
            database = stack.enter_context(open_state(place, system))
            say(f"millions: {system}, {3 * size.pairs * size.periods:,} instances")
            fill_lived_state(database, place, size)
            return _State(folder=place, size=size, url=database._engine.url.render_as_string(hide_password=False))

        young, old = fill("young", replace(size, periods=1)), fill("old", size)
        small = young if few == size.pairs else fill("small", replace(size, pairs=few, periods=1))
        what = f"{3 * size.pairs * size.periods:,} instances on {system}"
        ticks = scale.choose(31, 9, 1)
        yield slower(
            Part.MILLIONS,
            f"quiet tick; {what}",
            _quiet_tick(old, ticks),
            f"the same with {2 * few:,} feeds of one hour",
            _quiet_tick(small, ticks),
            at_most=FLATNESS,
        )
        words = [f"{name} {given}".strip() for name, each in COMMANDS.items() for given in each]
        for each in words[:: scale.choose(1, 1, 12)]:
            yield _measure_command(each, (young, old), what, scale.choose(3, 2, 1))


def _write_entities(folder: Path, pairs: int) -> None:
    """Write the entities, with deadlines, and a file, as an empty storage is taken for one that is away."""
    write_entities(folder / "entities", pairs_of(pairs), folder / "data")
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "any").touch()
    for file in (folder / "entities").glob("process-*.yaml"):
        file.write_text(file.read_text().replace("retry:", f"sla: {_SLA}\nretry:"))


def _quiet_tick(state: _State, repeats: int) -> float:
    with open_location(state.folder, state.at, state=state.url) as location:
        taken = []
        for _ in range(QUIET + repeats):
            location.pass_over_reports()  # Dagster has none of the runs: what is behind would be told again
            taken.append(location.tick()[0])
        return median(taken[QUIET:])


def _measure_command(words: str, states: tuple[_State, _State], what: str, repeats: int) -> Figure:
    """Measure a command in both states: once if that is short enough, else at most so often; the shortest times count,
    which a busy machine changes least.
    """
    environs = [_prepare(state) for state in states]
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for state, environ, each in zip(states, environs, taken, strict=True):
            times = {"time": render_datetime(state.at - HALF_HOUR), "old": render_datetime(START)}
            code = ("-m", "feed_assets", *words.format(folder=state.folder, **times).split())
            each.append(run_code(code, state.folder, environ).elapsed)
        start, ours = map(min, taken)
        if ours - start <= SECONDS:
            break
    return within(
        Part.MILLIONS,
        f"`{words}` beside start-up; {what}",
        max(0.0, ours - start),
        at_most=SECONDS,
        note=f"start-up, the same with one hour of instances: {start:.2f} s",
    )


def _prepare(state: _State) -> dict[str, str]:
    """Write the settings of a project, with its clock, and make its home. Returns the environment of its commands."""
    (state.folder / "home").mkdir(exist_ok=True)
    at = state.at.isoformat()
    clock = f"{{origin: '{at}', real_start: '{START.isoformat()}', until: '{at}'}}"
    (state.folder / "feed_assets.yaml").write_text(f"state: '{state.url}'\ndemo: {{replay: {clock}}}\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FEED_ASSETS_")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ | {"DAGSTER_HOME": str(state.folder / "home"), "PYTHONPATH": str(ROOT)}
