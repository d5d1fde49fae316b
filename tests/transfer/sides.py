"""What the tests of copies share: places with files in them, copies between two of them, and what came of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from feed_assets.clock import Clock, FrozenClock
from feed_assets.entities.maps import FrozenMap
from feed_assets.plan.copy_records import CopyOptions, StoreAddress
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Availability, Guard, Manifest
from feed_assets.storage.registry import open_store
from feed_assets.transfer.copying import copy_many
from feed_assets.transfer.plans import CopyPlan, Side, plan_copy
from feed_assets.transfer.requests import Copied, CopyRequest
from tests.object_servers import BUCKET
from tests.storage.harnesses import (
    Files,
    StoreHarness,
    allow,
    local_harness,
    object_harness,
    publish,
    read_all,
    s3_harness,
)

PATH = "clicks/2013-11-01/05"
FLAG = "_SUCCESS"
LATER = FrozenClock(datetime.now(UTC) + timedelta(days=1))
"""A real-time clock by which every file of these tests was written long ago."""
SOON = FrozenClock(datetime.now(UTC))
"""A real-time clock by which every file was written just now."""
SMALL = {"part-0.csv": b"zero" * 100, "region=eu/part-1.csv": b"one", "region=us/site=1/part-2.csv": b"", "x.csv": b"x"}


_SQUARES = bytes(number * number % 251 for number in range(4099))


def pattern(size: int, seed: int = 1) -> bytes:
    """Bytes of which no two parts are the same."""
    block = _SQUARES.translate(bytes((seed * 31 + square) % 251 for square in range(256)))
    return b"".join(block + number.to_bytes(4, "big") for number in range(size // 4103 + 1))[:size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One storage: its address, and the outside of it."""

    address: StoreAddress
    harness: StoreHarness
    root: Path | None = None

    @property
    def store(self) -> InstanceStore:
        return self.harness.store

    def side(self, path: str = PATH, flag: str | None = FLAG) -> Side:
        return Side(store=self.address, path=path, flag=flag)

    def land(self, files: Files, path: str = PATH, flag: str | None = FLAG) -> None:
        """Let somebody else write files; the availability flag is the last."""
        self.harness.land(path, files)
        if flag:
            self.harness.put(f"{path}/{flag}", b"")

    def publish(self, files: Files, path: str = PATH, flag: str | None = FLAG, token: str = "run-1") -> Manifest:
        """Let a process of ours publish an instance."""
        return publish(self.store, path, files, flag=flag, token=token)

    def availability(self, path: str = PATH, flag: str | None = FLAG) -> Availability:
        return self.store.look([path], flag)[0].availability

    def has_instance(self, path: str = PATH, flag: str | None = FLAG) -> bool:
        """Whether a reader finds anything."""
        return self.availability(path, flag) is not Availability.MISSING

    def read(self, path: str = PATH) -> dict[str, bytes]:
        return read_all(self.store, path)

    def names(self, path: str = PATH) -> set[str]:
        """All names below an instance that are not of ours."""
        found = {name.removeprefix(f"{path}/") for name in self.harness.names() if name.startswith(f"{path}/")}
        return {name for name in found if not name.startswith(".feed-assets")}


def local_place(root: Path) -> Place:
    root.mkdir(parents=True, exist_ok=True)
    url = f"file://{root}"
    return Place(address=StoreAddress(url=url), harness=local_harness(open_store(url, {}), root), root=root)


def memory_place(name: str) -> Place:
    url = f"memory://{name}"
    return Place(address=StoreAddress(url=url), harness=object_harness(open_store(url, {})))


def s3_place(options: Mapping[str, object], name: str) -> Place:
    url = f"s3://{BUCKET}/{name}"
    harness = s3_harness(open_store(url, dict(options)), options, name)
    return Place(address=StoreAddress(url=url, options=FrozenMap(options)), harness=harness)


def copy_instance(
    stores: StorePool,
    source: Side,
    target: Side,
    options: CopyOptions,
    guard: Guard = allow,
    *,
    extra: Mapping[str, str] | None = None,
    clock: Clock = LATER,
    **how: Any,
) -> Copied:
    """Copy one instance, and raise what is wrong with it."""
    request = CopyRequest(source=source, target=target, guard=guard, extra=extra or {})
    (outcome,) = copy_many(stores, [request], options, clock, **how)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@dataclass(slots=True)
class Pair:
    """A source and a target, and copies from the one to the other."""

    source: Place
    target: Place
    stores: StorePool = field(default_factory=StorePool)
    clock: Clock = LATER

    def request(self, path: str = PATH, **more: Any) -> CopyRequest:
        sides = {"source": self.source.side(path), "target": self.target.side(path)}
        return CopyRequest(**{**sides, "guard": allow, **more})

    def plan(self, path: str = PATH, *, flag: str | None = FLAG, **options: Any) -> CopyPlan:
        sides = self.source.side(path, flag), self.target.side(path, flag)
        return plan_copy(self.stores, *sides, CopyOptions(**options), self.clock)

    def copy(
        self,
        path: str = PATH,
        *,
        flag: str | None = FLAG,
        guard: Callable[[], None] = allow,
        extra: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Copied:
        sides = self.source.side(path, flag), self.target.side(path, flag)
        return copy_instance(self.stores, *sides, CopyOptions(**options), guard, extra=extra, clock=self.clock)

    def copy_many(self, requests: list[CopyRequest], **options: Any) -> list[Any]:
        return list(copy_many(self.stores, requests, CopyOptions(**options), self.clock))

    def require_equal(self, path: str = PATH, flag: str | None = FLAG) -> None:
        """Both sides have the same content, and what the target's manifest says is what lies there."""
        there = self.target.store.manifest(path, flag)
        assert there.digest == self.source.store.manifest(path, flag).digest
        published = self.target.store.published_manifest(path)
        assert published is not None
        assert published.digest == there.digest
        assert tuple(entry._replace(unknown={}) for entry in published.entries) == there.entries

    def staged(self) -> list[str]:
        """What is left in stagings of a local target."""
        assert self.target.root is not None
        staging = self.target.root / ".feed-assets/staging"
        return sorted(item.relative_to(staging).as_posix() for item in staging.rglob("*") if item.is_file())
