"""(h) Replication: instances copied, verified and published, against cp, rsync, rclone and Hadoop's FileUtil.

Ours is one call with the default options, so every transferred file is read back. The peers verify nothing, or by
`--checksum`. All times include the flush of the filesystem. The trees have no manifests unless a figure says that they
are published. A peer's target is empty, or as the peer left it.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.copied_trees import CopiedTree, Files, count_files
from benchmarks.copying_peers import (
    BUCKET,
    KEYS,
    Copy,
    by_cp,
    by_hadoop,
    by_rclone,
    by_rclone_each,
    by_rclone_to,
    by_rsync,
    flush,
    s3_server,
    seconds,
)
from benchmarks.probes import ROOT, ProbeError, say
from benchmarks.report import Figure, Part, Scale, faster, slower
from feed_assets.clock import SystemClock
from feed_assets.engines.spark.sessions import session_conf
from feed_assets.entities.maps import FrozenMap
from feed_assets.plan.copy_records import CopyOptions, StoreAddress
from feed_assets.storage.pool import StorePool
from feed_assets.transfer.copying import RunTasks, copy_many
from feed_assets.transfer.executors import run_on_executors
from feed_assets.transfer.plans import Side
from feed_assets.transfer.requests import CopyRequest, CopyStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20
OURS, SPARK = "ours", "ours through Spark executors"
CP, RSYNC, RCLONE, HADOOP = "cp -r", "rsync -a", "rclone copy --checksum", "Hadoop's FileUtil.copy"
LARGE = 1 << 30
FLAG = "_SUCCESS"
"""The availability flag of replicas on S3; every replica of a feed has one."""
SETTLING = 3.0
"""Seconds after which a later change is sure to have another modification time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The trees, and the number of rounds for each."""

    large: tuple[int, Files]
    small: tuple[int, Files]
    mixed: tuple[Files, Files]
    tiny: tuple[int, Files]
    remote: Mapping[str, tuple[int, Files]]
    repeats: int = 5


FULL = Sizes(
    large=(1, Files(count=8, size=512 * MIB)),
    small=(2_000, Files(count=100, size=4096)),
    mixed=(Files(count=1, size=2048 * MIB), Files(count=10_000, size=65_536)),
    tiny=(1_000, Files(count=2, size=1024)),
    remote={"large files": (1, Files(count=64, size=8 * MIB)), "small files": (20, Files(count=50, size=65_536))},
)
QUICK = Sizes(
    large=(1, Files(count=8, size=8 * MIB)),
    small=(40, Files(count=50, size=4096)),
    mixed=(Files(count=1, size=32 * MIB), Files(count=200, size=65_536)),
    tiny=(40, Files(count=2, size=1024)),
    remote={"large files": (1, Files(count=4, size=8 * MIB)), "small files": (4, Files(count=20, size=65_536))},
    repeats=1,
)
TINY = Sizes(
    large=(1, Files(count=2, size=MIB)),
    small=(2, Files(count=3, size=4096)),
    mixed=(Files(count=1, size=MIB), Files(count=3, size=65_536)),
    tiny=(2, Files(count=2, size=1024)),
    remote={"files": (1, Files(count=2, size=65_536))},
    repeats=1,
)


def measure_replication(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Yield the figures of part (h)."""
    sizes = scale.choose(FULL, QUICK, TINY)
    with _spark(folder) as session:
        yield from _large(folder / "large", sizes, session)
        yield from _small(folder / "small", sizes, session)
    yield from _mixed(folder / "mixed", sizes)
    yield from _tiny(folder / "tiny", sizes)
    for name, (instances, files) in sizes.remote.items():
        yield from _remote(folder / "remote", name, instances, files, sizes.repeats)


def _large(folder: Path, sizes: Sizes, session: "SparkSession") -> Iterator[Figure]:
    instances, files = sizes.large
    tree = CopiedTree(root=folder / "tree", instances=instances, kinds=(files,))
    name = f"{files.count} files of {files.size // MIB} MiB"
    _make(tree)
    copies = {
        OURS: _by_us(),
        CP: by_cp,
        RSYNC: by_rsync,
        RCLONE: by_rclone,
        SPARK: _by_us(run_tasks=run_on_executors(session)),
    }
    found = _race(name, tree, copies, folder, sizes.repeats) | _race(name, tree, {HADOOP: by_hadoop}, folder, 1)
    yield from _against(name, found, {CP: 0.8, RSYNC: None, RCLONE: None, HADOOP: None})
    yield slower(Part.REPLICATION, f"{name}, through Spark executors", found[SPARK], OURS, found[OURS])
    tree.publish()
    published = _race(name, tree, {OURS: _by_us()}, folder, sizes.repeats)
    yield slower(Part.REPLICATION, f"{name}, published", published[OURS], "the same, not published", found[OURS])
    shutil.rmtree(folder)


def _small(folder: Path, sizes: Sizes, session: "SparkSession") -> Iterator[Figure]:
    instances, files = sizes.small
    tree = CopiedTree(root=folder / "tree", instances=instances, kinds=(files,))
    name = f"{instances:,} instances of {files.count} files of {files.size >> 10} KiB"
    _make(tree)
    copies = {OURS: _by_us(), CP: by_cp, RSYNC: by_rsync, RCLONE: by_rclone}
    found = _race(name, tree, copies, folder, sizes.repeats)
    found |= _race(name, tree, {SPARK: _by_us(run_tasks=run_on_executors(session))}, folder, 1)
    yield from _against(name, found, {CP: None, RSYNC: 0.6, RCLONE: 2.0})
    yield slower(Part.REPLICATION, f"{name}, through Spark executors", found[SPARK], OURS, found[OURS])
    part = CopiedTree(root=folder / "part", instances=max(instances // 100, 1), kinds=(files,))
    _make(part)
    found = _race(f"{part.instances} of them", part, {OURS: _by_us(), HADOOP: by_hadoop}, folder, 1)
    yield from _against(f"{part.instances} of these instances", found, {HADOOP: None})
    yield from _again(name, tree, folder, sizes.repeats)
    shutil.rmtree(folder)


def _again(name: str, tree: CopiedTree, folder: Path, repeats: int) -> Iterator[Figure]:
    """Yield the figures of copies whose target is up to date, wholly or except for one percent."""
    kept: dict[str, Path] = {}
    _race(name, tree, {OURS: _by_us(), RSYNC: by_rsync, RCLONE: by_rclone}, folder, 1, kept)
    name = f"{name}, again"
    nothing = {OURS: _by_us(status=CopyStatus.UNCHANGED), RSYNC: by_rsync}
    found = _race(f"{name}, nothing new", tree, nothing, folder, repeats, kept)
    yield from _against(f"{name}, nothing new", found, {RSYNC: None})
    tree.publish()
    kept[OURS] = folder / "published"
    _race(f"{name}, published", tree, {OURS: _by_us()}, folder, 1, kept)
    found = _race(f"{name}, nothing new", tree, nothing, folder, repeats, kept)
    found |= _race(f"{name}, nothing new", tree, {RCLONE: by_rclone}, folder, 1, kept)
    yield from _against(f"{name}, published, nothing new", found, {RSYNC: 10.0, RCLONE: None})
    few, one = tree.paths[:: min(len(tree.paths), 100)], max(tree.kinds[0].count // 100, 1)
    for what, paths, count in (("1 % of instances new", few, None), ("1 % of each instance new", tree.paths, one)):
        tree.change(paths, count, what)
        tree.publish(paths)
        time.sleep(SETTLING)
        found = _race(f"{name}, {what}", tree, {OURS: _by_us(status=None), RSYNC: by_rsync}, folder, 1, kept)
        yield from _against(f"{name}, published, {what}", found, {RSYNC: None})


def _mixed(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    one, many = sizes.mixed
    tree = CopiedTree(root=folder / "tree", instances=1, kinds=sizes.mixed)
    name = f"a file of {one.size // MIB} MiB with {many.count:,} of {many.size >> 10} KiB"
    _make(tree)
    copies = {OURS: _by_us(), CP: by_cp, RSYNC: by_rsync, RCLONE: by_rclone}
    found = _race(name, tree, copies, folder, sizes.repeats) | _race(name, tree, {HADOOP: by_hadoop}, folder, 1)
    yield from _against(name, found, {CP: None, RSYNC: None, RCLONE: None, HADOOP: None})
    shutil.rmtree(folder)


def _tiny(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    instances, files = sizes.tiny
    tree = CopiedTree(root=folder / "tree", instances=instances, kinds=(files,))
    name = f"{instances:,} instances of {files.count} files of {files.size >> 10} KiB"
    _make(tree)
    found = _race(name, tree, {OURS: _by_us(), CP: by_cp}, folder, sizes.repeats)
    each = _race(name, tree, {"an rclone process each": by_rclone_each}, folder, 1)
    yield from _against(name, found | each, {CP: None, "an rclone process each": 10.0})
    shutil.rmtree(folder)


def _remote(folder: Path, what: str, instances: int, files: Files, repeats: int) -> Iterator[Figure]:
    """Yield the figures of copies from here to S3. Each copy has a new server, because the server keeps all data in
    memory.
    """
    tree = CopiedTree(root=folder / "tree", instances=instances, kinds=(files,))
    _make(tree)
    name = f"{instances * files.count:,} {what} of {files.size >> 10:,} KiB to S3"
    copies: dict[str, Callable[[str], Copy]] = {OURS: _by_us_to, RCLONE: by_rclone_to}
    times: dict[str, list[float]] = {peer: [] for peer in copies}
    for turn in range(repeats):
        for peer, copy in copies.items():
            with s3_server() as address:
                times[peer].append(copy(address)(tree, folder / f"copy-{turn}"))
                say(f"{name}: {peer}: {times[peer][-1]:.2f} s")
    yield from _against(name, {peer: median(all_times) for peer, all_times in times.items()}, {RCLONE: None})
    shutil.rmtree(folder)


def _make(tree: CopiedTree) -> None:
    """Make a tree, and wait until its modification times are settled."""
    tree.make()
    time.sleep(SETTLING)


def _race(
    name: str,
    tree: CopiedTree,
    copies: Mapping[str, Copy],
    folder: Path,
    repeats: int,
    kept: dict[str, Path] | None = None,
) -> dict[str, float]:
    """Return the median seconds of all copies, measured in turn; each has a new target, or the one in `kept`. Targets
    with many files are removed at the end: ext4 searches long for a free inode if many were freed just before.
    """
    times: dict[str, list[float]] = {peer: [] for peer in copies}
    for _ in range(repeats):
        for peer, copy in copies.items():
            fresh = folder / f"target-{len(list(folder.iterdir()))}"
            target = fresh if kept is None else kept.setdefault(peer, fresh)
            target.mkdir(exist_ok=True)
            flush(folder)
            times[peer].append(copy(tree, target))
            say(f"{name}: {peer}: {times[peer][-1]:.2f} s")
            if (there := count_files(target)) != tree.files:
                raise ProbeError(f"{peer} has copied {there:,} of {tree.files:,} files")
            if tree.bytes > LARGE and kept is None:
                shutil.rmtree(target)
    return {peer: median(all_times) for peer, all_times in times.items()}


def _against(name: str, found: Mapping[str, float], targets: Mapping[str, float | None]) -> Iterator[Figure]:
    for peer, at_least in targets.items():
        yield faster(Part.REPLICATION, name, found[OURS], peer, found[peer], at_least=at_least)


def _by_us(*, run_tasks: RunTasks | None = None, status: CopyStatus | None = CopyStatus.COPIED) -> Copy:
    """Return our copy; each instance must end with this status, if one is given."""

    def copy(tree: CopiedTree, target: Path) -> float:
        there = StoreAddress(url=f"file://{target}")
        return seconds(partial(_copy, tree, there, run_tasks, status))

    return copy


def _by_us_to(address: str) -> Copy:
    options = {**KEYS, "endpoint_url": address, "client_kwargs": {"region_name": "us-east-1"}}

    def copy(tree: CopiedTree, target: Path) -> float:
        there = StoreAddress(url=f"s3://{BUCKET}/{target.name}", options=FrozenMap(options))
        return seconds(partial(_copy, tree, there, None, CopyStatus.COPIED, flag=FLAG))

    return copy


def _copy(
    tree: CopiedTree,
    target: StoreAddress,
    run_tasks: RunTasks | None,
    status: CopyStatus | None,
    flag: str | None = None,
) -> None:
    source = StoreAddress(url=f"file://{tree.root}")
    requests = [
        CopyRequest(
            source=Side(store=source, path=path),
            target=Side(store=target, path=path, flag=flag),
            guard=lambda: None,
        )
        for path in tree.paths
    ]
    options = CopyOptions()
    for outcome in copy_many(StorePool(), requests, options, SystemClock(), run_tasks=run_tasks):
        if isinstance(outcome, Exception):
            raise ProbeError(f"a copy of ours has failed: {outcome}") from outcome
        if status is not None and outcome.status is not status:
            raise ProbeError(f"a copy of ours is {outcome.status} instead of {status}")


@contextmanager
def _spark(folder: Path) -> "Iterator[SparkSession]":
    """Yield a session whose executors have already run something. An existing session is used, and not stopped."""
    from pyspark.sql import SparkSession

    is_own = SparkSession.getActiveSession() is None
    builder = SparkSession.builder
    conf = {"spark.sql.warehouse.dir": (folder / "warehouse").as_uri()}
    for name, value in session_conf(master="local[2]", conf=conf, root=ROOT).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        session.sparkContext.parallelize(range(2), 2).map(str).collect()
        yield session
    finally:
        if is_own:
            session.stop()
