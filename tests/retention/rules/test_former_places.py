"""A feed whose path or zone of paths has changed: retention removes what the record has at the former place, unless
that may be something else by now. At the same location a path may mean two instances: it goes when both may go.
"""

import shutil
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from obstore.store import MemoryStore

from feed_assets.entities.feed import Feed
from feed_assets.instances.late.contents import record_contents, scan_contents
from feed_assets.instances.leasing import TTL
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.leases import Leases
from feed_assets.log.records import FeedEventKind, FeedInstanceStatus, FeedKey
from feed_assets.log.removals import chunks as sweep_chunks
from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import ItemOutcome, SweepState
from feed_assets.retention.rules.locations import store_addresses
from feed_assets.retention.rules.protections import ProtectionKind
from feed_assets.retention.sweeps import sweeping
from feed_assets.retention.sweeps.purging import find_purgeable, purge_sweeps
from feed_assets.storage.errors import StorageAwayError
from feed_assets.storage.object.client import ObjectClient
from feed_assets.storage.object.obstore_client import ObstoreClient
from feed_assets.storage.object.store import ObjectStore
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.registry import open_store
from tests.drills import drill
from tests.instances.harness import START, at, validity
from tests.retention.harness import RetentionHarness, hourly, kept_feed, paths_of

EXPIRED = hourly(START, 24)
YOUNG = hourly(at("02"), 48)
MOVED = kept_feed(locations={"data": "/new/${YEAR}-${MONTH}-${DAY}/${HOUR}"})
EAST = kept_feed().model_copy(update={"path_timezone": "Asia/Tokyo"})
"""Each path means, at the same location, the instance nine hours before."""
WEST = kept_feed().model_copy(update={"path_timezone": "Etc/GMT+5"})
"""The instance five hours after."""


TAKEN = Feed(
    name="taken",
    instances="as-they-come",
    frequency="seconds(1)",
    inbox={"directory": "/clicks", "pattern": "*.json"},
    format="json",
    locations={"data": "/taken/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"},
    clusters={"primary": validity(START, None)},
)
NOT_REMOTE = pytest.mark.parametrize("storage", ["file", "memory"], indirect=True)
ON_FILES = pytest.mark.parametrize("storage", ["file"], indirect=True)


@dataclass(slots=True)
class Storage:
    """Files below a folder, or objects of a client."""

    root: Path
    client: ObjectClient | None

    def land(self, path: str, content: bytes = b"data") -> None:
        if self.client is not None:
            self.client.put(f"{path}/part", content)
            return
        (self.root / path).mkdir(parents=True, exist_ok=True)
        (self.root / path / "part").write_bytes(content)

    def remove(self, path: str) -> None:
        if self.client is not None:
            self.client.remove([f"{path}/part"])
            return
        shutil.rmtree(self.root / path)

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


@pytest.mark.parametrize("moved", [pytest.param(MOVED, id="another location"), drill(EAST, id="another zone")])
def test_what_expires_at_a_former_place_is_removed_there(
    harness: RetentionHarness, storage: Storage, moved: Feed
) -> None:
    """It is recorded, told, restored and purged where it is; what is not old enough stays, and nothing is told."""
    before, there = storage.instances(), harness.lifecycle.feed("clicks")
    harness.lifecycle.declare(moved)
    planned = harness.plan()
    (feed,) = planned.feeds
    assert feed.survey is not None
    assert (feed.survey.unswept, feed.survey.protected, feed.obstacles) == ((), (), ())
    assert (feed.survey.instances, feed.survey.present, feed.survey.stay) == (24, 72, 48)
    assert storage.instances() == before
    (sweep,) = planned.sweeps
    done = harness.run(sweep)
    assert set(harness.results(done)) == paths_of(EXPIRED)
    assert harness.outcomes(done) == {ItemOutcome.EVICTED: 24}
    assert storage.instances() == paths_of(YOUNG)
    rows = harness.rows()
    assert {rows[time].status for time in EXPIRED} == {FeedInstanceStatus.EVICTED}
    assert {row.place for row in rows.values()} == {there.place}
    assert {event.payload["store"] for event in harness.events(FeedEventKind.EVICTED)} == {there.store.url}
    harness.undo(done)
    assert storage.instances() == before
    assert {event.payload["store"] for event in harness.events(FeedEventKind.RESTORED)} == {there.store.url}
    rows = harness.rows()
    assert {(rows[time].status, rows[time].place) for time in EXPIRED} == {(FeedInstanceStatus.AVAILABLE, there.place)}


@NOT_REMOTE
def test_a_former_place_is_swept_until_it_is_empty(harness: RetentionHarness, storage: Storage) -> None:
    harness.lifecycle.declare(MOVED)
    new = hourly(at("04"), 49)
    for path in paths_of(new, "new"):
        storage.land(path)
    harness.arrive(at("06"))
    harness.wait(at("06"))
    done = harness.sweep_now()
    assert set(harness.results(done)) == paths_of([*EXPIRED, *YOUNG])
    assert storage.instances() == paths_of(new, "new")
    (feed,) = harness.plan().feeds
    assert feed.survey is not None
    assert (feed.survey.unswept, feed.survey.protected, feed.survey.paths) == ((), (), 0)


def test_a_sweep_of_a_former_place_goes_on_after_a_death(
    harness: RetentionHarness, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies between the trash and the record of its second chunk."""
    before = storage.instances()
    harness.lifecycle.declare(MOVED)
    monkeypatch.setattr(sweep_chunks, "CHUNK_ITEMS", 10)
    sweep, record = harness.planned(), sweeping.record_evicted
    done = count(1)

    def die(*arguments: Any) -> None:
        if next(done) == 2:
            raise KeyboardInterrupt
        record(*arguments)

    monkeypatch.setattr(sweeping, "record_evicted", die)
    with pytest.raises(KeyboardInterrupt):
        harness.run(sweep)
    assert storage.instances() == paths_of([*EXPIRED[20:], *YOUNG])
    harness.lag += 2 * TTL
    assert harness.run(sweep).state is SweepState.DONE
    assert storage.instances() == paths_of(YOUNG)
    assert len(harness.events(FeedEventKind.EVICTED)) == len(EXPIRED)
    harness.undo(sweep)
    assert storage.instances() == before


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (kept_feed("other", "days(1)", locations={"data": "/clicks/${YEAR}-${MONTH}-${DAY}"}), "data of feed 'other'"),
        (kept_feed("other", "months(1)", locations={"data": "/clicks/2013-11-02/03/${YEAR}${MONTH}"}), "data"),
        (kept_feed("other", locations={"data": "/o/${YEAR}${MONTH}${DAY}${HOUR}", "stats": "/clicks"}), "stats"),
        (TAKEN, "inbox of feed 'taken'"),
    ],
)
def test_where_something_else_can_be_by_now_all_stays(tmp_path: Path, state_url: str, other: Feed, told: str) -> None:
    """Also what was planned before: a feed around or inside, stats or an inbox above."""
    harness, storage = RetentionHarness.of(tmp_path, state=state_url), Storage(tmp_path / "primary", None)
    for path in paths_of([*EXPIRED, *YOUNG]):
        storage.land(path)
    harness.arrive(at("04"))
    before = storage.instances()
    harness.lifecycle.declare(MOVED)
    sweep = harness.planned()
    harness.lifecycle.declare(MOVED, other)
    assert harness.outcomes(harness.run(sweep)) == {ItemOutcome.KEPT: 24}
    planned = harness.plan("clicks")
    assert planned.sweeps == ()
    assert planned.feeds[0].survey is not None
    (place,) = planned.feeds[0].survey.unswept
    assert place.obstacle is not None
    assert place.obstacle.startswith("72 instances at the former place file://")
    assert f" stay: the {told} " in place.obstacle
    assert storage.instances() == before


@NOT_REMOTE
def test_a_path_that_means_two_instances_goes_when_both_are_old_enough(
    harness: RetentionHarness, storage: Storage
) -> None:
    harness.lifecycle.declare(WEST)
    done = harness.sweep_now()
    assert set(harness.results(done)) == paths_of(EXPIRED[:-5])
    assert storage.instances() == paths_of([*EXPIRED[-5:], *YOUNG])


def test_a_path_that_means_two_instances_stays_for_each_of_them(tmp_path: Path, state_url: str) -> None:
    """For a hold, a lease, and a second one on record, when it is planned and when it is run; and other content."""
    harness, storage = RetentionHarness.of(tmp_path, state=state_url), Storage(tmp_path / "primary", None)
    for path in paths_of([*EXPIRED, *YOUNG]):
        storage.land(path)
    harness.arrive(at("04"))
    lifecycle = harness.lifecycle
    lifecycle.declare(WEST)
    meant = {EXPIRED[n]: EXPIRED[n + 5] for n in range(4)}
    held, leased, second, changed = meant
    planned = harness.planned()
    paths = dict(zip(meant, sorted(paths_of(meant)), strict=True))
    harness.hold("one", first=meant[held], last=meant[held])
    Leases(lifecycle.database).acquire("feed/clicks", "primary", meant[leased], "writer", harness.now, TTL)
    with lifecycle.database.begin() as connection:
        row = replace(lifecycle.feed_instances("clicks")[meant[second]], place=lifecycle.feed("clicks").place)
        FeedInstances(connection).put([row])
    storage.land(paths[changed], b"other data")
    (feed,) = harness.plan(dry_run=True).feeds
    assert feed.survey is not None
    told = {each.path: (each.kept[0].kind, each.kept[0].reason) for each in feed.survey.protected}
    whose = "its path is now that of instance 2013-11-01T05:00Z, which stays: hold 'one' of bob: an audit"
    assert told[paths[held]] == (ProtectionKind.HOLD, whose)
    assert told[paths[leased]][0] is ProtectionKind.LEASE
    assert told[paths[second]] == (ProtectionKind.PLACE, "instance 2013-11-01T07:00Z is recorded at its path, too")
    assert told[paths[changed]] == (ProtectionKind.PLACE, "what is there is not what the record says")
    done = harness.run(planned)
    stay = paths_of([*meant, *(meant[time] for time in (held, leased, second))])
    results = {path for path, result in harness.results(done).items() if result.outcome is not ItemOutcome.EVICTED}
    assert results == stay
    assert storage.instances() == stay | paths_of([*EXPIRED[-5:], *YOUNG])


def test_a_path_that_means_two_instances_is_counted_once(tmp_path: Path, state_url: str) -> None:
    """All of it would go: it asks, also after all of the storage has been walked."""
    harness, storage = RetentionHarness.of(tmp_path, state=state_url), Storage(tmp_path / "primary", None)
    for path in paths_of([*EXPIRED, *YOUNG]):
        storage.land(path)
    harness.arrive(at("04"))
    harness.lifecycle.declare(EAST)
    harness.wait(at("06"))
    (feed,) = harness.plan(dry_run=True).feeds
    assert feed.survey is not None
    assert (feed.survey.instances, feed.survey.present, feed.survey.stay) == (72, 72, 0)
    assert feed.obstacles


@NOT_REMOTE
def test_one_sweep_removes_at_all_places(harness: RetentionHarness, storage: Storage) -> None:
    """An undo brings all back to where it was."""
    before = storage.instances()
    harness.lifecycle.declare(MOVED)
    new = paths_of(hourly(at("04"), 3), "new")
    for path in new:
        storage.land(path)
    harness.arrive(at("04T03:00"))
    harness.wait(at("06T02:00"))
    done = harness.sweep_now()
    assert set(harness.results(done)) == before | new - {"new/2013-11-04/02"}
    assert storage.instances() == {"new/2013-11-04/02"}
    harness.undo(done)
    assert storage.instances() == before | new
    assert {harness.rows()[time].place for time in hourly(at("04"), 3)} == {harness.lifecycle.feed("clicks").place}


@NOT_REMOTE
def test_what_is_not_as_recorded_stays_and_is_told(harness: RetentionHarness, storage: Storage) -> None:
    """Other content before it is planned, and before it is run; a hold; and nothing at all."""
    harness.lifecycle.declare(MOVED)
    first, second, third, fourth = sorted(paths_of(EXPIRED[:4]))
    storage.land(first, b"other data")
    storage.remove(second)
    harness.hold("audit", first=EXPIRED[2], last=EXPIRED[2])
    (feed,) = harness.plan(dry_run=True).feeds
    assert feed.survey is not None
    told = {each.path: (each.kept[0].kind, each.kept[0].reason) for each in feed.survey.protected}
    assert told.pop(third)[0] is ProtectionKind.HOLD
    assert told == {
        first: (ProtectionKind.PLACE, "what is there is not what the record says"),
        second: (ProtectionKind.PLACE, "nothing is there"),
    }
    sweep = harness.planned()
    storage.land(fourth, b"other data")
    done = harness.run(sweep)
    assert harness.outcomes(done) == {ItemOutcome.CHANGED: 1, ItemOutcome.EVICTED: 20}
    assert storage.instances() == {first, third, fourth, *paths_of(YOUNG)}


@ON_FILES
def test_other_content_of_the_same_size_stays(harness: RetentionHarness, storage: Storage) -> None:
    lifecycle, paths = harness.lifecycle, sorted(paths_of(EXPIRED[:2]))
    for content in (b"data", b"late"):
        sleep(0.01)  # so that the filesystem can tell the moments
        for path in paths:
            storage.land(path, content)
        wanted = {FeedKey("clicks", "primary", time): lifecycle.feed("clicks") for time in EXPIRED[:2]}
        contents = scan_contents(lifecycle.context(at("04")), wanted).values()
        with lifecycle.database.begin() as connection:
            record_contents(connection, contents, at("04"))
    lifecycle.declare(MOVED)
    sleep(0.01)
    storage.land(paths[0], b"gone")
    assert harness.outcomes(harness.run(harness.planned())) == {ItemOutcome.EVICTED: 23}
    assert storage.instances() == {paths[0], *paths_of(YOUNG)}


def test_the_trash_of_a_store_that_no_feed_has_any_more_is_purged(tmp_path: Path, state_url: str) -> None:
    """The cluster has another storage: what is at the former one is removed, restored and purged there."""
    harness, storage = RetentionHarness.of(tmp_path, state=state_url), Storage(tmp_path / "primary", None)
    for path in paths_of([*EXPIRED, *YOUNG]):
        storage.land(path)
    harness.arrive(at("04"))
    before, there = storage.instances(), harness.lifecycle.feed("clicks")
    harness.lifecycle.root = tmp_path / "moved"
    harness.lifecycle.declare(kept_feed())
    assert harness.lifecycle.feed("clicks").store != there.store
    done = harness.sweep_now()
    assert storage.instances() == paths_of(YOUNG)
    harness.undo(done)
    assert storage.instances() == before
    harness.wait(at("05"))
    with harness.lifecycle.database.begin() as connection:
        Holds(connection).release(f"undo-{done.sweep_id}", at("05"), "ann")
    done = harness.sweep_now()
    context = harness.context()
    (purged, *_) = purge_sweeps(
        context, "primary", find_purgeable(context, "primary", at("05"), only=[done.sweep_id], at_once=True)
    )
    assert (purged.obstacle, purged.files) == (None, 48 + 1), "with its description"
    assert not (storage.root / ".feed-assets/trash" / done.sweep_id).exists()
    assert there.store in store_addresses(context, "primary")
    context = harness.context(at("15"))
    assert there.store in store_addresses(context, "primary"), "the first sweep has a trash"
    purge_sweeps(context, "primary", find_purgeable(context, "primary", at("15"), at_once=True))
    context = harness.context(at("23"))
    assert there.store not in store_addresses(context, "primary")


@ON_FILES
def test_a_former_store_that_is_away_stops_nothing_else(harness: RetentionHarness, storage: Storage) -> None:
    there = harness.lifecycle.feed("clicks").store
    harness.lifecycle.root /= "moved"
    harness.lifecycle.declare(kept_feed(), kept_feed("other"))

    def open_here(url: str, options: dict[str, object]) -> InstanceStore:
        if url == there.url:
            raise StorageAwayError(store=url, path="", reason="it is gone", next_step="Mount it.")
        return open_store(url, options)

    harness.lifecycle.stores = StorePool(open_here)
    harness.lifecycle.land("clicks", at("01"), at("03T05:00"))
    done = harness.sweep_now()
    assert harness.results(done).keys() == paths_of([at("01")])
    (place,) = (each for feed in harness.plan().feeds if feed.survey for each in feed.survey.unswept)
    assert place.obstacle is not None
    assert place.obstacle.startswith(f"71 instances at the former place {there.url} stay: ")
    assert "it is gone" in place.obstacle


def test_what_somebody_has_moved_goes_from_its_new_place(tmp_path: Path) -> None:
    harness, storage = RetentionHarness.of(tmp_path), Storage(tmp_path / "primary", None)
    harness.land("clicks", *EXPIRED, *YOUNG)
    harness.arrive(at("04"))
    harness.lifecycle.declare(MOVED)
    (storage.root / "clicks").rename(storage.root / "new")
    done = harness.run(harness.planned())
    assert set(harness.results(done)) == paths_of(EXPIRED, "new")
