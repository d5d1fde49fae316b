"""A feed whose path or zone of paths has changed: what is at the former place is told, and stays."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from feed_assets.state.feed_places import describe_staying
from feed_assets.storage.object.client import ObjectClient
from feed_assets.storage.object.obstore_client import ObstoreClient
from feed_assets.storage.object.store import ObjectStore
from feed_assets.storage.pool import StorePool
from feed_assets.storage.registry import open_store
from tests.lifecycle.harness import START, at
from tests.lifecycle.retention.harness import RetentionHarness, hourly, kept_feed, paths_of

EXPIRED = hourly(START, 24)
YOUNG = hourly(at("02"), 48)
MOVED = kept_feed(locations={"data": "/new/${YEAR}-${MONTH}-${DAY}/${HOUR}"})


@dataclass(slots=True)
class Storage:
    """Files below a folder, or objects of a client."""

    root: Path
    client: ObjectClient | None

    def land(self, path: str) -> None:
        if self.client is not None:
            self.client.put(f"{path}/part", b"data")
            return
        (self.root / path).mkdir(parents=True)
        (self.root / path / "part").write_bytes(b"data")

    def instances(self) -> set[str]:
        """The paths of the instances that are in their places."""
        if self.client is not None:
            names = list(self.client.list("").files)
        else:
            names = [path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file()]
        return {name.rpartition("/")[0] for name in names if not name.startswith(".feed-assets/")}


@pytest.fixture(params=["file", "memory", pytest.param("s3", marks=pytest.mark.server)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    match request.param:
        case "file":
            return Storage(tmp_path / "primary", None)
        case "memory":
            return Storage(tmp_path, ObstoreClient(MemoryStore()))
        case _:
            server = request.getfixturevalue("s3_server")
            store = open_store(f"{server.url}/former-{tmp_path.name}", server.options)
            assert isinstance(store, ObjectStore)
            return Storage(tmp_path, store.client)


@pytest.fixture
def harness(storage: Storage, tmp_path: Path, state_url: str) -> RetentionHarness:
    """Three days of clicks, of which two are kept."""
    harness, client = RetentionHarness.of(tmp_path, state=state_url), storage.client
    if client is not None:
        stores = StorePool(lambda url, _: ObjectStore(client, root_url=url, scratch=tmp_path / "scratch"))
        harness.lifecycle.stores = stores
    for path in paths_of([*EXPIRED, *YOUNG]):
        storage.land(path)
    harness.arrive(at("04"))
    return harness


def test_what_is_at_a_former_place_is_told_and_stays(harness: RetentionHarness, storage: Storage) -> None:
    before = storage.instances()
    harness.lifecycle.declare(MOVED)
    planned = harness.plan()
    assert planned.sweeps == ()
    (feed,) = planned.feeds
    assert feed.survey is not None
    (place,) = feed.survey.unswept
    assert place.template.text == "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}"
    assert place.obstacle == describe_staying(72)
    assert storage.instances() == before


def test_what_comes_at_the_new_place_is_removed_there(harness: RetentionHarness, storage: Storage) -> None:
    """The former place stays; so does what a later undo brings back to the new one."""
    before = storage.instances()
    harness.lifecycle.declare(MOVED)
    new = paths_of(hourly(at("04"), 3), "new")
    for path in new:
        storage.land(path)
    harness.arrive(at("04T03:00"))
    harness.wait(at("06T02:00"))
    done = harness.sweep_now()
    assert set(harness.results(done)) == new - {"new/2013-11-04/02"} - paths_of([at("04T03:00")], "new")
    assert storage.instances() == before | {"new/2013-11-04/02"}
    harness.undo(done)
    assert storage.instances() == before | new
    assert {harness.rows()[time].place for time in hourly(at("04"), 3)} == {harness.lifecycle.feed("clicks").place}


def test_a_path_is_of_the_instance_that_the_record_has_there(harness: RetentionHarness, storage: Storage) -> None:
    """Nine hours east, a path has the name of an instance nine hours earlier: none is removed under such a name."""
    before = storage.instances()
    harness.lifecycle.declare(kept_feed().model_copy(update={"path_timezone": "Asia/Tokyo"}))
    assert harness.plan().sweeps == ()
    assert storage.instances() == before


def test_what_somebody_has_moved_goes_from_its_new_place(tmp_path: Path) -> None:
    harness, storage = RetentionHarness.of(tmp_path), Storage(tmp_path / "primary", None)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    harness.lifecycle.declare(MOVED)
    (storage.root / "clicks").rename(storage.root / "new")
    done = harness.run(harness.planned())
    assert set(harness.results(done)) == paths_of(EXPIRED, "new")
