"""Copies of an instance between storages without renames, interrupted at each request: the next attempt makes the
target equal, with manifest and flag, and leaves nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from feed_assets.log.records import FeedInstanceStatus, ProcessInstanceStatus
from feed_assets.storage.paths import MANIFEST_NAME
from feed_assets.storage.records import Availability
from tests.drills import sampled, sized
from tests.instances.harness import START, LifecycleHarness, at
from tests.instances.interruptions import LEASES_END, WHEN, DrilledStorage, interrupted, killed
from tests.object_servers import ObjectServer
from tests.replication.test_flows import FLOW, harness_of, replicated

CONTENT = {"part-0.csv": b"one", "s/part-1.csv": b"two", "part-2.csv": b"three"}
OLD = {"part-0.csv": b"old", "s/part-1.csv": b"two", "s/part-9.csv": b"gone by now"}
FLAG = "_DONE"
pytestmark = [pytest.mark.sample, pytest.mark.timeout(sized(900, 7200))]


@dataclass(slots=True)
class Bench:
    """A feed that is copied from one folder of an object storage to another, where an older copy stands."""

    lifecycle: LifecycleHarness
    storage: DrilledStorage

    @classmethod
    def of(cls, folder: Path, storage: DrilledStorage) -> "Bench":
        lifecycle = harness_of(folder, replicated(flag=FLAG, replication={"removed_files": "remove"}))
        lifecycle.stores = storage.pool(folder / "scratch", "primary", "backup")
        return cls(lifecycle=lifecycle, storage=storage)

    @classmethod
    def begun(cls, folder: Path, storage: DrilledStorage) -> "Bench":
        bench = cls.of(folder, storage)
        bench.land(OLD)
        bench.lifecycle.arrive(at("01T00:05"))
        (request,) = bench.lifecycle.tick(at("01T00:05"), "backup")
        bench.lifecycle.launch([request], at("01T00:05"))
        assert bench.storage.client("backup").content(bench.path).keys() > {f"{bench.path}/{name}" for name in OLD}
        bench.storage.client("primary").remove([f"{bench.path}/{name}" for name in OLD])
        bench.land(CONTENT)
        return bench

    @property
    def path(self) -> str:
        return self.lifecycle.feed("clicks").path(START)

    def land(self, files: Mapping[str, bytes]) -> None:
        for name, data in {**files, FLAG: b""}.items():
            self.storage.client("primary").put(f"{self.path}/{name}", data)

    def copy(self) -> None:
        self.lifecycle.copy(FLOW, [START], at("01T00:10"))

    def require_copied(self) -> None:
        """The next attempt ends it."""
        self.lifecycle.now = at("01T00:10") + LEASES_END
        ended = self.lifecycle.copy(FLOW, [START], self.lifecycle.now)
        assert not isinstance(ended[START], Exception), ended[START]
        source, target = (self.storage.client(name) for name in ("primary", "backup"))
        plain = {f"{self.path}/{name}": data for name, data in {**CONTENT, FLAG: b""}.items()}
        assert {name: data for name, data in source.content().items() if not name.startswith(".")} == plain
        manifest = self.lifecycle.store("backup").published_manifest(self.path)
        assert manifest is not None
        found = target.content()
        assert found.pop(f"{self.path}/{MANIFEST_NAME}")
        assert found == plain
        assert {entry.path: entry.size for entry in manifest.entries} == {n: len(data) for n, data in CONTENT.items()}
        (look,) = self.lifecycle.store("backup").look([self.path], FLAG)
        assert look.availability is Availability.AVAILABLE
        row = self.lifecycle.feed_instances("clicks", "backup")[START]
        assert (row.status, row.manifest_digest) == (FeedInstanceStatus.AVAILABLE, manifest.digest)
        assert self.lifecycle.statuses(FLOW, "backup") == {START: ProcessInstanceStatus.SUCCEEDED}


@pytest.mark.parametrize("when", sampled(WHEN, "since"))
def test_a_storage_that_is_away_at_any_request_leaves_a_copy_that_the_next_attempt_ends(
    tmp_path: Path, make_storage: Callable[[], DrilledStorage], when: str
) -> None:
    for bench in interrupted(tmp_path, make_storage, when, Bench.begun, Bench.copy):
        bench.require_copied()


def copy_elsewhere(folder: Path, storage: DrilledStorage) -> None:
    bench = Bench.of(folder, storage)
    bench.copy()


@pytest.mark.server
@pytest.mark.drill
def test_a_program_that_is_killed_at_any_request_leaves_a_copy_that_the_next_attempt_ends(
    tmp_path: Path, s3_server: ObjectServer
) -> None:
    for bench in killed(tmp_path, s3_server, Bench.begun, lambda _: copy_elsewhere):
        bench.require_copied()
