"""The trash of stores without renames: moves in steps, each of which may fail, be overtaken, or meet other objects."""

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from feed_assets.errors import FeedAssetsError
from feed_assets.storage.errors import StorageError
from feed_assets.storage.object.store import ObjectStore
from feed_assets.storage.records import Availability, Outcome
from feed_assets.storage.registry import open_store
from tests.object_servers import BUCKET, s3_client
from tests.storage.harnesses import REPLACING, allow, content_names, publish
from tests.storage.trees import Died
from tests.storage.watched import CHANGES, LOOKS, WatchedClient
from tests.transfer.archives import archive, bring_back

HOUR = "weather/05"
BACKUP = "weather/05_backup"
SWEEP = "sweep-1"
FILES = {f"{HOUR}/part-0.csv": b"1", f"{HOUR}/s/part-1.csv": b"22", f"{HOUR}/_SUCCESS": b"", f"{HOUR}/.x": b"333"}


class At:
    """Does something once, at the n-th call of some names."""

    def __init__(self, number: int, names: tuple[str, ...], work: Callable[[], object]) -> None:
        self.left = number
        self._names = names
        self._work = work
        self._lock = threading.Lock()

    def __call__(self, name: str) -> None:
        with self._lock:
            if name not in self._names:
                return
            self.left -= 1
            if self.left != 0:
                return
        self._work()


@pytest.fixture
def fs() -> WatchedClient:
    fs = WatchedClient()
    land(fs)
    fs.put(f"{BACKUP}/part-0.csv", b"other")
    return fs


@pytest.fixture
def store(fs: WatchedClient, tmp_path: Path) -> ObjectStore:
    return open_on(fs, tmp_path)


def open_on(fs: WatchedClient, tmp_path: Path) -> ObjectStore:
    return ObjectStore(fs, root_url="memory://shop", scratch=tmp_path)


def land(fs: WatchedClient) -> None:
    for name, data in FILES.items():
        fs.put(f"{name}", data)


def content(fs: WatchedClient, prefix: str = "weather") -> dict[str, bytes]:
    return fs.content(prefix)


def instance(fs: WatchedClient) -> dict[str, bytes]:
    return {name: data for name, data in content(fs).items() if name.startswith(f"{HOUR}/")}


def require_whole(fs: WatchedClient, store: ObjectStore) -> None:
    """The instance is whole, at its place or in the trash; and no reader takes a part of it for an available one."""
    tree = f".feed-assets/trash/{SWEEP}/tree/"
    trashed = {name.removeprefix(tree): data for name, data in content(fs, f"{tree}").items()}
    assert FILES in (instance(fs), trashed)
    for flag in (None, "_SUCCESS"):
        (look,) = store.look([HOUR], flag)
        assert look.availability is not Availability.AVAILABLE or instance(fs) == FILES
    assert content(fs)[f"{BACKUP}/part-0.csv"] == b"other"


def failures(fs: WatchedClient, *, least: int = 8) -> Iterator[At]:
    """Lets the first call fail, then only the second one, and so on, by an error or by a death, until none fails."""
    for number in count(1):
        for error in (OSError("refused"), Died()):

            def fail(error: BaseException = error) -> None:
                raise error

            failing = At(number, (*CHANGES, *LOOKS), fail)
            yield failing
            fs.before = lambda _: None
            if failing.left > 0:
                assert number > least
                return


def attempt(fs: WatchedClient, failing: At, work: Callable[[], object]) -> None:
    fs.before = failing
    try:
        work()
    except (StorageError, Died):
        pass
    finally:
        fs.before = lambda _: None


@pytest.mark.parametrize("flag", [None, "_SUCCESS"])
def test_a_put_that_fails_anywhere_loses_nothing_and_its_repeat_converges(
    fs: WatchedClient, store: ObjectStore, flag: str | None
) -> None:
    trash = store.trash()
    for failing in failures(fs):
        attempt(fs, failing, lambda: trash.put(SWEEP, [HOUR], flag=flag))
        require_whole(fs, store)
        assert trash.put(SWEEP, [HOUR], flag=flag)[0].outcome in (Outcome.MOVED, Outcome.ALREADY)
        assert instance(fs) == {}
        assert list(trash.contents(SWEEP)) == [HOUR]
        assert trash.restore(SWEEP, [HOUR])[0].outcome is Outcome.MOVED
        assert instance(fs) == FILES


@pytest.mark.parametrize("flag", [None, "_SUCCESS"])
def test_a_put_that_fails_anywhere_can_be_undone_at_once(
    fs: WatchedClient, store: ObjectStore, flag: str | None
) -> None:
    trash = store.trash()
    for failing in failures(fs):
        attempt(fs, failing, lambda: trash.put(SWEEP, [HOUR], flag=flag))
        assert trash.restore(SWEEP, [HOUR])[0].outcome in (Outcome.MOVED, Outcome.LOST)
        assert instance(fs) == FILES
        assert trash.purge(SWEEP).is_complete
        assert trash.sweeps() == []


@pytest.mark.parametrize("flag", [None, "_SUCCESS"])
def test_a_restore_that_fails_anywhere_loses_nothing_and_its_repeat_converges(
    fs: WatchedClient, store: ObjectStore, flag: str | None
) -> None:
    trash = store.trash()
    for failing in failures(fs):
        trash.put(SWEEP, [HOUR], flag=flag)
        attempt(fs, failing, lambda: trash.restore(SWEEP, [HOUR]))
        require_whole(fs, store)
        assert trash.restore(SWEEP, [HOUR])[0].outcome in (Outcome.MOVED, Outcome.LOST)
        assert instance(fs) == FILES
        assert list(trash.contents(SWEEP)) == []


def test_a_restore_that_broke_off_is_neither_purged_nor_put_away_again(fs: WatchedClient, store: ObjectStore) -> None:
    trash = store.trash()
    kept = 0
    for failing in failures(fs):
        trash.put(SWEEP, [HOUR])
        attempt(fs, failing, lambda: trash.restore(SWEEP, [HOUR]))
        purged = trash.purge(SWEEP)
        if not purged.is_complete:
            kept += 1
            assert "restore" in (purged.obstacle or "")
            (moved,) = trash.put(SWEEP, [HOUR])
            assert (moved.outcome, "restore" in (moved.reason or "")) == (Outcome.REFUSED, True)
            require_whole(fs, store)
            assert trash.restore(SWEEP, [HOUR])[0].outcome is Outcome.MOVED
            assert trash.purge(SWEEP).is_complete
        assert instance(fs) in ({}, FILES)
        land(fs)
    assert kept > 3


def test_a_purge_that_fails_anywhere_leaves_all_or_nothing_to_be_restored(
    fs: WatchedClient, store: ObjectStore
) -> None:
    trash = store.trash()
    ends = set()
    for failing in failures(fs):
        trash.put(SWEEP, [HOUR])
        trash.describe(SWEEP, {})
        attempt(fs, failing, lambda: trash.purge(SWEEP))
        (restored,) = trash.restore(SWEEP, [HOUR])
        ends.add(restored.outcome)
        assert instance(fs) == (FILES if restored.outcome is Outcome.MOVED else {})
        assert trash.purge(SWEEP).is_complete
        assert trash.sweeps() == []
        land(fs)
    assert ends == {Outcome.MOVED, Outcome.LOST}


def test_a_purge_finishes_what_a_put_had_begun(fs: WatchedClient, store: ObjectStore) -> None:
    trash = store.trash()
    for failing in failures(fs):
        attempt(fs, failing, lambda: trash.put(SWEEP, [HOUR]))
        assert trash.purge(SWEEP).is_complete
        assert instance(fs) in ({}, FILES)
        assert trash.sweeps() == []
        land(fs)


def test_archiving_fails_anywhere_without_losing_anything_and_its_repeat_converges(
    fs: WatchedClient, store: ObjectStore
) -> None:
    trash = store.trash()
    for failing in failures(fs, least=30):
        attempt(fs, failing, lambda: archive(store, HOUR, store, "old/05", SWEEP, flag="_SUCCESS"))
        require_whole(fs, store)
        archived = {f"{HOUR}{name.removeprefix('old/05')}": data for name, data in content(fs, "old").items()}
        look = store.look(["old/05"], "_SUCCESS")[0].availability
        assert look is not Availability.AVAILABLE or archived == FILES
        assert archived == FILES or instance(fs) == FILES
        moved = archive(store, HOUR, store, "old/05", SWEEP, flag="_SUCCESS")
        assert moved.outcome in (Outcome.MOVED, Outcome.ALREADY)
        assert trash.purge(SWEEP).is_complete
        assert bring_back(store, HOUR, store, "old/05", SWEEP, flag="_SUCCESS").outcome is Outcome.MOVED
        assert instance(fs) == FILES
        assert fs.names(".feed-assets") == set()
        fs.inner.remove(sorted(fs.names("old")))


@pytest.mark.parametrize("flag", [None, "_SUCCESS"])
@pytest.mark.parametrize("direction", ["put", "restore"])
def test_a_publication_that_comes_between_any_two_steps_wins_and_is_whole(
    tmp_path: Path, flag: str | None, direction: str
) -> None:
    ends = set()
    for number in count(1):
        fs = WatchedClient()
        store = open_on(fs, tmp_path)
        land(fs)
        trash = store.trash()
        if direction == "restore":
            trash.put(SWEEP, [HOUR], flag=flag)

        def overtake(store: ObjectStore = store) -> None:
            publish(store, HOUR, {"new.csv": b"new"}, flag=flag, token="fast", clearing=REPLACING)

        between = At(number, CHANGES, overtake)
        fs.after = between
        work = trash.put if direction == "put" else trash.restore
        try:
            ends.add(work(SWEEP, [HOUR])[0].outcome)
        except StorageError:
            ends.add(None)
        fs.after = lambda _: None
        if between.left > 0:
            assert number > 10
            break
        files = instance(fs)
        published = f"{HOUR}/new.csv" in files
        if published:
            assert files[f"{HOUR}/new.csv"] == b"new"
            assert store.look([HOUR], flag)[0].availability is Availability.AVAILABLE
        else:  # it was published before the move looked, and was moved as a whole
            assert direction == "put"
        if direction == "restore" and Outcome.MOVED not in ends:
            assert list(trash.contents(SWEEP)) == [HOUR]
    assert len(ends) > 1


def test_an_object_that_comes_between_any_two_steps_is_never_deleted(tmp_path: Path) -> None:
    for number in count(1):
        fs = WatchedClient()
        store = open_on(fs, tmp_path)
        land(fs)

        def come(fs: WatchedClient = fs) -> None:
            fs.put(f"{HOUR}/late.csv", b"late")

        between = At(number, (*CHANGES, *LOOKS), come)
        fs.after = between
        (moved,) = store.trash().put(SWEEP, [HOUR], flag="_SUCCESS")
        fs.after = lambda _: None
        if between.left > 0:
            assert number > 10
            break
        trashed = content(fs, f".feed-assets/trash/{SWEEP}/tree")
        assert b"late" in (*instance(fs).values(), *trashed.values())
        if moved.outcome is not Outcome.MOVED:
            assert instance(fs)[f"{HOUR}/late.csv"] == b"late"
        store.trash().put(SWEEP, [HOUR], flag="_SUCCESS")
        everything = [*instance(fs).values(), *content(fs, f".feed-assets/trash/{SWEEP}/tree").values()]
        assert b"late" in everything
        assert set(FILES.values()) <= set(everything)


def test_an_instance_that_changes_while_it_is_copied_is_left_alone(fs: WatchedClient, store: ObjectStore) -> None:
    fs.after = At(2, ("copy",), lambda: fs.put(f"{HOUR}/part-0.csv", b"rewritten"))
    (moved,) = store.trash().put(SWEEP, [HOUR])
    assert (moved.outcome, bool(moved.reason)) == (Outcome.CHANGED, True)
    assert instance(fs) == {**FILES, f"{HOUR}/part-0.csv": b"rewritten"}
    assert store.trash().sweeps() == []
    assert store.look([HOUR], "_SUCCESS")[0].availability is Availability.AVAILABLE


def test_an_unfinished_publication_is_not_taken_away(fs: WatchedClient, store: ObjectStore) -> None:
    fs.put(f"{HOUR}/.feed-assets.publishing.json", b'{"version": 1, "token": "run-1"}')
    assert store.measure([HOUR])[0].obstacle
    assert store.trash().put(SWEEP, [HOUR])[0].outcome is Outcome.REFUSED
    with pytest.raises(StorageError, match=r"staging 'run-1' is gone"):
        store.recover(HOUR)


def test_a_broken_off_move_is_not_recovered_as_a_publication_but_can_be_published_over(
    fs: WatchedClient, store: ObjectStore
) -> None:
    trash = store.trash()
    attempt(
        fs, At(2, ("remove",), lambda: _raise(OSError("refused"))), lambda: trash.put(SWEEP, [HOUR], flag="_SUCCESS")
    )
    assert store.look([HOUR], None)[0].availability is Availability.PARTIAL
    with pytest.raises(StorageError, match="move to the trash, or back, broke off"):
        store.recover(HOUR)
    publish(store, HOUR, {"new.csv": b"new"})
    assert trash.put(SWEEP, [HOUR], flag="_SUCCESS")[0].outcome is Outcome.CHANGED
    assert content_names(store, HOUR) == ("new.csv",)
    assert list(trash.contents(SWEEP)) == [HOUR]


def test_the_flag_goes_first_and_comes_last(fs: WatchedClient, store: ObjectStore) -> None:
    seen: list[Availability] = []

    def look(_: str) -> None:
        fs.after = lambda _: None
        parts = sum(name.endswith(".csv") for name in instance(fs))
        availability = "_SUCCESS" if f"{HOUR}/_SUCCESS" in instance(fs) else None
        assert availability is None or parts == 2
        seen.append(store.look([HOUR], "_SUCCESS")[0].availability)
        fs.after = look

    fs.after = look
    store.trash().put(SWEEP, [HOUR], flag="_SUCCESS")
    store.trash().restore(SWEEP, [HOUR])
    fs.after = allow_any
    order = [now for before, now in zip([None, *seen], seen, strict=False) if now is not before]
    assert order == [
        Availability.AVAILABLE,
        Availability.PARTIAL,
        Availability.MISSING,
        Availability.PARTIAL,
        Availability.AVAILABLE,
    ]


def allow_any(_: str) -> None:
    allow()


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("call", ["copy", "put_chunks"])
def test_a_copy_that_is_damaged_on_the_way_is_noticed_and_nothing_is_taken_away(
    fs: WatchedClient, store: ObjectStore, call: str
) -> None:
    def damage(name: str) -> None:
        if name == call:
            for area in (".feed-assets/trash", ".feed-assets/staging", "old"):
                for key in fs.names(area):
                    if key.endswith("part-1.csv"):
                        fs.inner.put(key, b"2X")

    fs.after = damage
    with pytest.raises(FeedAssetsError, match=r"part-1\.csv"):
        archive(store, HOUR, store, "old/05", SWEEP)
    fs.after = allow_any
    assert instance(fs) == FILES
    fs.remove(sorted(fs.names("old")))
    assert store.trash().put(SWEEP, [HOUR])[0].outcome is Outcome.MOVED


@pytest.mark.server
def test_an_object_that_cannot_be_removed_keeps_its_instance_and_no_other(s3_options: dict[str, object]) -> None:
    client, root = s3_client(s3_options), "unusable-key"
    for name in ("x//y", "part.csv"):
        client.put_object(Bucket=BUCKET, Key=f"{root}/weather/05/{name}", Body=b"1")
    client.put_object(Bucket=BUCKET, Key=f"{root}/weather/06/part.csv", Body=b"1")
    store = open_store(f"s3://{BUCKET}/{root}", s3_options)
    measured = store.measure(["weather/05", "weather/06"])
    assert [measure.exists for measure in measured] == [True, True]
    assert [measure.obstacle is None for measure in measured] == [False, True]
    kept, moved = store.trash().put(SWEEP, ["weather/05", "weather/06"])
    assert (kept.outcome, moved.outcome) == (Outcome.REFUSED, Outcome.MOVED)
    assert "an object of it cannot be removed" in str(kept.reason)
    assert "contained empty path segment" in str(kept.reason)
    left = client.list_objects_v2(Bucket=BUCKET, Prefix=f"{root}/weather/")["Contents"]
    assert [each["Key"] for each in left] == [f"{root}/weather/05/part.csv", f"{root}/weather/05/x//y"]
