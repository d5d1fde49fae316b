"""(g) Retention: planning, moving to the trash and deleting, against `find`, `rm -rf` and Hadoop's FileSystem. The
trees are hourly instances, nine of ten expired, in one flat folder and in folders of years, months, days and hours.
Each deletion gets its own tree, made in the same way at the same place. Hadoop's times are taken inside Java.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from zoneinfo import ZoneInfo

from benchmarks.copying_peers import flush, seconds
from benchmarks.hadoop import run_hadoop
from benchmarks.probes import ProbeError, say
from benchmarks.report import Figure, Part, Scale, faster, within
from feed_assets.entities.common import LocationKind
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.records import RetainedLocation, RetentionRecord
from feed_assets.retention.rules.eligibility import (
    collect_candidates,
    decide_eligible,
    find_before,
    garbage_collection_paused,
)
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.port import Trash
from feed_assets.timing.sequence import InstanceSequence, parse_frequency
from feed_assets.timing.templates import parse_path_template

HOUR = timedelta(hours=1)
START = datetime(1902, 1, 1, tzinfo=UTC)
"""Early enough that a million hours end in the present."""
FLAT = "/${YEAR}-${MONTH}-${DAY}-${HOUR}"
DEEP = "/${YEAR}/${MONTH}/${DAY}/${HOUR}"
FILES = (*(f"part-{number}.parquet" for number in range(20)), "_SUCCESS", "_manifest.json")
"""The files of an instance written by a job of twenty partitions."""
SWEEP = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Hourly instances below a folder; `depth` levels of folders, the last of which are the instances."""

    root: Path
    layout: str
    count: int

    @property
    def depth(self) -> int:
        return self.layout.count("/")

    @property
    def expired(self) -> int:
        return self.count * 9 // 10

    @property
    def location(self) -> RetainedLocation:
        template = parse_path_template(self.layout)
        return RetainedLocation(
            kind=LocationKind.DATA, store=StoreAddress(url=f"file://{self.root}"), template=template, obstacle=None
        )

    @property
    def sequence(self) -> InstanceSequence:
        return InstanceSequence(start=START, frequency=parse_frequency("hours(1)"), timezone=ZoneInfo("UTC"), end=None)

    def path(self, index: int) -> str:
        """Return the path of an instance below the root."""
        return parse_path_template(self.layout).render(START + index * HOUR).lstrip("/")

    def make(self, files: Sequence[str] = ()) -> "Tree":
        """Make the folders, each with these files."""
        for index in range(self.count):
            folder = f"{self.root}/{self.path(index)}"
            os.makedirs(folder)  # noqa: PTH103 - a million of them
            for name in files:
                with open(f"{folder}/{name}", "w") as file:  # noqa: PTH123
                    file.write(name)
        return self


def measure_retention(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Yield the figures of part (g)."""
    repeats, turns = scale.choose((5, 3), (5, 3), (1, 1))
    for count in scale.choose((100_000, 1_000_000), (2_000,), (1_000,)):
        yield from _planning(folder / f"plan-{count}", count, repeats)
    yield from _removing(folder / "remove", scale.choose(100_000, 2_000, 100), turns)


def _planning(folder: Path, count: int, repeats: int) -> Iterator[Figure]:
    say(f"planning over {count:,} instances")
    for name, layout in (("flat", FLAT), ("deep", DEEP)):
        tree = Tree(root=folder / name, layout=layout, count=count).make()
        flush(folder)
        ours, finds = _by_turns(repeats, partial(_eligible, tree, tree.expired), partial(_find, tree))
        of = f"what has expired, 90 % of {count:,} instances, {name}"
        target = 1.0 if layout is FLAT else None
        yield faster(Part.RETENTION, of, ours, "find", finds, at_least=target, note="walk, exact paths, decision")
        globbed = run_hadoop("HadoopEviction", "glob", f"{tree.root}/{'/'.join(['*'] * tree.depth)}", expected=count)
        yield faster(Part.RETENTION, of, ours, "Hadoop's globStatus", globbed, at_least=10.0)
        if layout is DEEP:
            few = 24 * 31
            ours, finds = _by_turns(repeats, partial(_eligible, tree, few), partial(_find, tree))
            of = f"what has expired, one month of {count:,} instances, deep"
            yield faster(Part.RETENTION, of, ours, "find", finds, at_least=10.0 if count > few * 100 else None)
        shutil.rmtree(tree.root)


@garbage_collection_paused()
def _eligible(tree: Tree, expired: int) -> None:
    policy = RetentionRecord(
        limit=parse_frequency("hours(1)"), cadence=parse_frequency("days(1)"), trash=parse_frequency("days(7)")
    )
    as_of = START + (expired + 1) * HOUR
    before = find_before(policy, as_of)
    found = collect_candidates(LocalStore(tree.root), tree.location, tree.sequence, before)
    eligible = decide_eligible(policy, {LocationKind.DATA: found}, found.times, as_of)
    decided = sum(len(each.candidates.paths) for each in eligible)
    if decided != expired:
        raise ProbeError(f"{decided} of {expired} expired instances were found")


def _find(tree: Tree) -> None:
    level = str(tree.depth)
    command = ["find", str(tree.root), "-mindepth", level, "-maxdepth", level, "-type", "d"]
    found = subprocess.run(command, capture_output=True, check=True).stdout.count(b"\n")
    if found != tree.count:
        raise ProbeError(f"find has found {found} of {tree.count}")


def _removing(folder: Path, count: int, repeats: int) -> Iterator[Figure]:
    paths = [Tree(root=folder, layout=DEEP, count=count).path(index) for index in range(count * 9 // 10)]
    name = f"{len(paths):,} instances of {len(FILES)} files"
    say(f"removing {name} {repeats} times by us, by rm and by Hadoop")
    turns = [
        (*_remove(folder, count, paths), _remove_by_rm(folder, count, paths), _remove_by_hadoop(folder, count, paths))
        for _ in range(repeats)
    ]
    moved, emptied, removed, by_hadoop = (median(times) for times in zip(*turns, strict=True))
    yield faster(Part.RETENTION, f"{name} deleted for good", emptied, "rm -rf of a list", removed, at_least=0.9)
    yield faster(Part.RETENTION, f"{name} deleted for good", emptied, "a loop through Hadoop", by_hadoop, at_least=3.0)
    yield faster(Part.RETENTION, f"{name} to the trash", moved, "deleting them ourselves", emptied, at_least=5.0)
    yield within(Part.RETENTION, f"{name} to the trash and deleted", moved + emptied)


def _remove(folder: Path, count: int, paths: Sequence[str]) -> tuple[float, float]:
    """Return the seconds of moving to the trash, and of emptying it."""
    with _filled(folder, count) as tree:
        trash = LocalStore(tree.root).trash()
        moved = seconds(lambda: _put(trash, paths))
        flush(folder)
        return moved, seconds(lambda: trash.purge(SWEEP))


def _remove_by_rm(folder: Path, count: int, paths: Sequence[str]) -> float:
    with _filled(folder, count) as tree:
        oracle = _write_list(folder, tree, paths)
        return seconds(lambda: _rm(oracle))


def _remove_by_hadoop(folder: Path, count: int, paths: Sequence[str]) -> float:
    with _filled(folder, count) as tree:
        oracle = _write_list(folder, tree, paths)
        return run_hadoop("HadoopEviction", "evict", str(oracle), str(tree.root), expected=len(paths))


def _write_list(folder: Path, tree: Tree, paths: Sequence[str]) -> Path:
    oracle = folder / "oracle"
    oracle.write_text("".join(f"{tree.root}/{path}\n" for path in paths))
    return oracle


@contextmanager
def _filled(folder: Path, count: int) -> Iterator[Tree]:
    """Yield a tree with files, flushed to disk, always at the same place."""
    tree = Tree(root=folder / "tree", layout=DEEP, count=count).make(FILES)
    flush(folder)
    yield tree
    shutil.rmtree(tree.root)


def _put(trash: Trash, paths: Sequence[str]) -> None:
    for start in range(0, len(paths), 1_000):
        trash.put(SWEEP, paths[start : start + 1_000])


def _rm(oracle: Path) -> None:
    with oracle.open("rb") as paths:
        subprocess.run(["xargs", "-d", "\\n", "rm", "-rf"], stdin=paths, check=True)


def _by_turns(repeats: int, ours: Callable[[], None], theirs: Callable[[], None]) -> tuple[float, float]:
    """Return the medians of both, measured in turn."""
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(repeats)]
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
