"""Takes from an inbox on storage without renames, interrupted at each request: what was delivered is in one instance
that is whole with its flag, or still in the inbox; looks later, it is in an instance, and nothing else is left.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.instances.inbox.store import ListedVersions
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.storage.paths import MANIFEST_NAME, PUBLISHING_NAME
from feed_assets.storage.records import Availability
from tests.drills import sampled, sized
from tests.instances.harness import LifecycleHarness
from tests.instances.inbox.test_inboxes import FIRST, MINUTE, look, orders, taken
from tests.instances.interruptions import WHEN, DrilledStorage, interrupted, killed, memory_storage
from tests.object_servers import ObjectServer

FLAG = "_DONE"
TWO = {"1.json": b"one", "2.json": b"two"}
LATER = {"3.json": b"three"}
pytestmark = [pytest.mark.sample, pytest.mark.timeout(sized(900, 7200))]


@dataclass(slots=True)
class Bench:
    """An inbox with two files on an object storage."""

    lifecycle: LifecycleHarness
    storage: DrilledStorage
    minutes: int = 0

    @classmethod
    def of(cls, folder: Path, storage: DrilledStorage) -> "Bench":
        feed = orders(settle="seconds(1)").model_copy(update={"availability_flag": FLAG})
        lifecycle = LifecycleHarness.of(folder, feed)
        lifecycle.stores = storage.pool(folder / "scratch")
        return cls(lifecycle=lifecycle, storage=storage)

    @classmethod
    def filled(cls, folder: Path, storage: DrilledStorage) -> "Bench":
        bench = cls.of(folder, storage)
        bench.deliver(TWO)
        return bench

    def deliver(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            self.storage.client().inner.put(f"in/orders/{name}", data)

    def look(self) -> None:
        minutes, self.minutes = self.minutes, self.minutes + 1
        look(self.lifecycle, FIRST + minutes * MINUTE, datetime.now(UTC) + timedelta(hours=1))

    def instances(self) -> dict[str, Mapping[str, bytes]]:
        """What readers see of the instances, by path."""
        client, record = self.storage.client(), self.lifecycle.feed("orders")
        rows = self.lifecycle.feed_instances("orders")
        assert {row.status for row in rows.values()} <= {FeedInstanceStatus.AVAILABLE}
        paths = [record.path(time) for time in rows]
        looks = self.lifecycle.store().look(paths, FLAG)
        assert {found.availability for found in looks} <= {Availability.AVAILABLE}
        return {
            path: {name.rpartition("/")[2]: client.inner.get(name) for name in client.names(path)} for path in paths
        }

    def require_nothing_lost(self, delivered: Mapping[str, bytes]) -> None:
        """Each file is in a whole instance, or in the inbox."""
        waiting = {name.rpartition("/")[2] for name in self.storage.client().names("in/orders")}
        there = [found for found in self.instances().values() if FLAG in found]
        for name, data in delivered.items():
            assert name in waiting or [found[name] for found in there if name in found] == [data]

    def require_taken(self) -> None:
        """Each file is in one instance, and gone from the inbox; nothing else is left of the takes."""
        client, instances = self.storage.client(), self.instances()
        names = {name for name in client.names() if not name.startswith(".feed-assets/")}
        assert names == {f"{path}/{name}" for path, found in instances.items() for name in found}
        assert not [name for name in client.names() if name.endswith(PUBLISHING_NAME)]
        assert client.names(".feed-assets/staging") == set()
        contents = [item for found in instances.values() for item in found.items()]
        assert sorted(item for item in contents if item[0] not in (FLAG, MANIFEST_NAME)) == sorted(
            (TWO | LATER).items()
        )
        assert all({FLAG, MANIFEST_NAME} < found.keys() for found in instances.values())
        assert sorted(file.name for file in taken(self.lifecycle)) == sorted(TWO | LATER)
        rows = self.lifecycle.feed_instances("orders")
        for event in self.lifecycle.events("orders"):
            manifest = self.lifecycle.store().published_manifest(self.lifecycle.feed("orders").path(event.nominal_time))
            assert manifest is not None
            assert rows[event.nominal_time].manifest_digest == event.manifest_digest == manifest.digest

    def go_on(self) -> None:
        """Look a few times more, as ticks do; a file has come meanwhile."""
        self.minutes += 1
        self.require_nothing_lost(TWO)
        self.deliver(LATER)
        for _ in range(3):
            self.look()
            self.require_nothing_lost(TWO | LATER)
        self.require_taken()


@pytest.mark.parametrize("when", sampled(WHEN, "since"))
def test_a_storage_that_is_away_at_any_request_loses_nothing_that_was_delivered(
    tmp_path: Path, make_storage: Callable[[], DrilledStorage], when: str
) -> None:
    step = 1 if make_storage is memory_storage else None
    for bench in interrupted(tmp_path, make_storage, when, Bench.filled, Bench.look, step):
        bench.go_on()


def look_elsewhere(folder: Path, storage: DrilledStorage) -> None:
    Bench.of(folder, storage).look()


@pytest.mark.server
def test_a_program_that_is_killed_at_any_request_loses_nothing_that_was_delivered(
    tmp_path: Path, s3_server: ObjectServer
) -> None:
    for bench in killed(tmp_path, s3_server, Bench.filled, lambda _: look_elsewhere):
        bench.go_on()


@dataclass(slots=True)
class LeftBench(Bench):
    """An inbox that leaves its files, on an object storage."""

    @classmethod
    def of(cls, folder: Path, storage: DrilledStorage) -> "LeftBench":
        feed = orders(settle="seconds(1)", leave=True).model_copy(update={"availability_flag": FLAG})
        lifecycle = LifecycleHarness.of(folder, feed)
        lifecycle.stores = storage.pool(folder / "scratch")
        return cls(lifecycle=lifecycle, storage=storage)

    def go_on(self) -> None:
        """Look a few times more; a file has come meanwhile, and one was overwritten."""
        self.minutes += 1
        known = self.listed()
        new = {**LATER, "1.json": b"new"}
        self.deliver(new)
        for _ in range(3):
            self.look()
        with self.lifecycle.database.read() as connection:
            missed = ListedVersions(connection, "orders", "primary").missed(0, 1 << 62)
        assert [each.name for each in missed] in ([], ["1.json"])
        found = Counter(item for each in self.instances().values() for item in each.items() if "json" in item[0])
        found = Counter({item: count for item, count in found.items() if item[0] != MANIFEST_NAME})
        expected = Counter((TWO | new).items())
        is_taken = ("1.json", b"one") in found
        assert found == expected + Counter([("1.json", b"one")] if is_taken else [])
        assert bool(missed) == ("1.json" in known and not is_taken)
        client = self.storage.client()
        assert {name: client.inner.get(f"in/orders/{name}") for name in (TWO | LATER)} == TWO | new
        assert client.names("in/orders") == {f"in/orders/{name}" for name in (TWO | LATER)}
        assert client.names(".feed-assets/staging") == set()
        assert self.listed() == TWO.keys() | LATER.keys()

    def listed(self) -> set[str]:
        with self.lifecycle.database.read() as connection:
            return {each.name for each in ListedVersions(connection, "orders", "primary").known()}


@pytest.mark.parametrize("when", sampled(WHEN, "since"))
def test_a_storage_that_is_away_at_any_request_takes_each_listed_version_once_or_reports_it(
    tmp_path: Path, when: str
) -> None:
    for bench in interrupted(tmp_path, memory_storage, when, LeftBench.filled, Bench.look, sized(4, 1)):
        bench.go_on()


def look_elsewhere_and_leave(folder: Path, storage: DrilledStorage) -> None:
    LeftBench.of(folder, storage).look()


@pytest.mark.server
@pytest.mark.drill
def test_a_program_that_is_killed_at_any_request_takes_each_listed_version_once_or_reports_it(
    tmp_path: Path, s3_server: ObjectServer
) -> None:
    for bench in killed(tmp_path, s3_server, LeftBench.filled, lambda _: look_elsewhere_and_leave):
        bench.go_on()
