"""Mirrors between the places of the tests of copies, run as an attempt runs them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from feed_assets.clock import FrozenClock
from feed_assets.engines.port import Work
from feed_assets.entities.copies.mirror import MirrorSnapshots, RemovalLimits
from feed_assets.entities.copies.options import Existing, RemovedFiles
from feed_assets.errors import FeedAssetsError
from feed_assets.plan.copy_records import CopyOptions, Directory, MirrorRecord
from feed_assets.storage.records import Clearing
from feed_assets.timing.sequence import parse_frequency
from feed_assets.transfer.errors import APPROVAL
from feed_assets.transfer.mirroring import MirrorEngine, Shelf, Snapshot, SnapshotKeeper, plan_mirror
from feed_assets.transfer.plans import CopyPlan, Side
from tests.storage.harnesses import allow, read_file
from tests.transfer.sides import Pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIRECTORY = "models/current"
START = datetime(2013, 11, 1, tzinfo=UTC)
WEEK = parse_frequency("days(7)")


def no_session() -> "SparkSession":
    raise AssertionError("so little is copied without Spark")


def rules(source_keep: int, target_keep: int, age: str = "days(7)") -> MirrorSnapshots:
    lasting = parse_frequency(age)
    return MirrorSnapshots(source_keep=source_keep, source_age=lasting, target_keep=target_keep, target_age=lasting)


@dataclass(slots=True)
class Mirrored:
    """A mirror between two places, of which each run is a day later than the one before."""

    pair: Pair
    removes: bool = False
    snapshots: MirrorSnapshots | None = None
    limits: tuple[float, int] = (0.5, 10_000)
    allow_emptying: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ("",)
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0) + timedelta(days=1))
    _days: Iterator[int] = field(default_factory=lambda: iter(range(1000)))

    @property
    def record(self) -> MirrorRecord:
        removed = RemovedFiles.REMOVE if self.removes or self.snapshots else RemovedFiles.KEEP
        options = {"hidden": True, "allow_emptying": True, "removed_files": removed, **self.options}
        return MirrorRecord(
            directories=tuple(
                (
                    Directory(store=self.pair.source.address, path=f"{DIRECTORY}/{name}".rstrip("/")),
                    Directory(store=self.pair.target.address, path=f"{DIRECTORY}/{name}".rstrip("/")),
                )
                for name in self.names
            ),
            options=CopyOptions(**options),
            limits=RemovalLimits(share=self.limits[0], files=self.limits[1]),
            allow_emptying=self.allow_emptying,
            snapshots=self.snapshots,
        )

    def run(self, *, approved: int | None = None, guard: Callable[[], None] = allow) -> dict[str, Any]:
        """The next run: what it says of itself."""
        self.now += timedelta(days=1)
        work = Work(
            process="models",
            cluster="backup",
            nominal_time=START + timedelta(days=next(self._days)),
            timezone=ZoneInfo("UTC"),
            run_id="run-1",
            attempt=1,
            inputs=(),
            outputs=(),
            engine="directory-mirror",
            path="",
            root=Path(),
            properties={} if approved is None else {APPROVAL: str(approved)},
        )
        engine = MirrorEngine(
            mirror=self.record,
            stores=self.pair.stores,
            clock=FrozenClock(self.now),
            guard=guard,
            clearing_of=lambda _: Clearing(sweep=f"day-{self.now:%j}", existing=Existing.REPLACE, has_flags=False),
        )
        return dict(engine.run(work, no_session).details)

    def plan(self, approved: int | None = None) -> list[tuple[CopyPlan | None, FeedAssetsError | None]]:
        return list(plan_mirror(self.pair.stores, self.record, FrozenClock(self.now), approved))

    def land(self, files: dict[str, bytes], path: str = DIRECTORY) -> None:
        """Let somebody write files at the source, as programs do that know nothing of us."""
        self.pair.source.harness.land(path, files)

    def remove(self, *names: str) -> None:
        for name in names:
            self.pair.source.harness.remove(f"{DIRECTORY}/{name}")

    def there(self, path: str = DIRECTORY) -> dict[str, bytes]:
        """All that stands at the target, whoever wrote it, but for our manifest."""
        store, names = self.pair.target.store, self.pair.target.names(path)
        return {name: read_file(store, path, name) for name in names}

    def keeper(self) -> SnapshotKeeper:
        return SnapshotKeeper(self.pair.stores, Side(store=self.pair.target.address, path=DIRECTORY))

    def kept(self, shelf: Shelf) -> list[Snapshot]:
        """The snapshots of a side, the newest first."""
        return [each for each in self.keeper().find_all() if each.shelf is shelf]

    def with_pair(self, pair: Pair) -> "Mirrored":
        return replace(self, pair=pair)
