"""What is particular to the local store: links, exchanges, locks, and readers beside publishers."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feed_assets.storage.errors import (
    ForeignContentError,
    InstanceChangingError,
    PathRefusedError,
    StagingLostError,
    StorageError,
)
from feed_assets.storage.local import reader as local_reader
from feed_assets.storage.local import staging as local_staging
from feed_assets.storage.local import store as local_exchange
from feed_assets.storage.local.files import iter_files
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.records import Availability, Look, Manifest
from tests.storage.harnesses import REPLACING, FencedOut, allow, cannot_exchange, publish, read_all, read_file, stage

HOUR = "weather/05"
VERSIONS = {
    number: {f"v{number}-{part}": b"%d" % number * (number + part + 1) for part in range(number + 1)}
    for number in range(5)
}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.csv").write_bytes(b"secret")
    return folder


def test_a_root_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=f"Not a directory .{tmp_path}/file."):
        LocalStore(tmp_path / "file" / "root").check_root()


def assert_link_is_obstacle(store: LocalStore) -> None:
    (look,) = store.look([HOUR], None)
    assert look.obstacle is not None
    assert "symbolic link" in look.obstacle
    assert (look.availability, look.bytes) == (Availability.PARTIAL, 0)


def test_an_instance_that_is_a_link_out_of_the_root_is_refused(store: LocalStore, outside: Path) -> None:
    link = store.local_path(HOUR)
    assert link is not None
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    assert_link_is_obstacle(store)
    for ask in (
        lambda: store.manifest(HOUR),
        lambda: store.published_manifest(HOUR),
        lambda: read_file(store, HOUR, "secret.csv"),
    ):
        with pytest.raises(PathRefusedError, match="symbolic link"):
            ask()


def test_a_publication_through_a_link_out_of_the_root_is_refused(
    store: LocalStore, outside: Path, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "weather").symlink_to(outside)
    with pytest.raises(PathRefusedError, match="symbolic link"):
        publish(store, HOUR, {"x": b"1"})
    (outside / "05").mkdir()
    assert_link_is_obstacle(store)
    assert sorted(item.name for item in outside.iterdir()) == ["05", "secret.csv"]


def test_a_link_in_the_place_of_an_instance_is_not_replaced_whoever_decides_so(
    store: LocalStore, outside: Path
) -> None:
    link = store.local_path(HOUR)
    assert link is not None
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    for clearing in (None, REPLACING):
        with pytest.raises(StorageError, match="it is a symbolic link"):
            publish(store, HOUR, {"x": b"1"}, clearing=clearing)
    assert link.is_symlink()
    assert (outside / "secret.csv").read_bytes() == b"secret"


def test_a_file_that_is_a_link_out_of_the_root_is_not_seen_and_not_read(store: LocalStore, outside: Path) -> None:
    publish(store, HOUR, {"x": b"1"})
    folder = store.local_path(HOUR)
    assert folder is not None
    (folder / "link.csv").symlink_to(outside / "secret.csv")
    assert store.look([HOUR], None)[0].bytes == 1
    for ask in (lambda: store.manifest(HOUR), lambda: read_file(store, HOUR, "link.csv")):
        with pytest.raises(PathRefusedError, match=r"link\.csv"):
            ask()


def test_links_below_the_root_count_if_they_lead_to_files(store: LocalStore) -> None:
    publish(store, HOUR, {"x": b"123"})
    publish(store, "linked", {"y": b"1"})
    hour, linked = store.local_path(HOUR), store.local_path("linked")
    assert hour is not None
    assert linked is not None
    (linked / "z").symlink_to(hour / "x")
    (linked / "gone").symlink_to(hour / "nothing")
    assert store.look(["linked"], None)[0].bytes == 4
    (linked / "gone").unlink()
    assert read_all(store, "linked") == {"y": b"1", "z": b"123"}
    (linked / "folder").symlink_to(hour)
    assert store.look(["linked"], None)[0].bytes == 4
    with pytest.raises(PathRefusedError, match="link to a directory"):
        store.manifest("linked")


def test_a_root_that_is_a_link_itself_is_fine(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    store = LocalStore(tmp_path / "root")
    publish(store, HOUR, {"x": b"1"})
    assert store.look([HOUR], "_SUCCESS")[0].availability is Availability.AVAILABLE
    assert (tmp_path / "disk" / HOUR / "x").exists()


def test_a_publication_replaces_a_file_that_stands_at_its_path(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "root" / "weather").mkdir(parents=True)
    (tmp_path / "root" / HOUR).write_bytes(b"file")
    with pytest.raises(ForeignContentError, match="foreign content: 1 files that no record"):
        publish(store, HOUR, {"x": b"1"})
    assert (tmp_path / "root" / HOUR).read_bytes() == b"file"
    publish(store, HOUR, {"x": b"1"}, clearing=REPLACING)
    assert read_all(store, HOUR) == {"x": b"1"}
    assert list(store.trash().contents(REPLACING.sweep)) == [HOUR]


def test_a_file_in_the_way_of_the_parents_is_told(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "weather").write_bytes(b"file")
    with pytest.raises(StorageError, match=rf"{HOUR}.*File exists \(.*weather\)"):
        publish(store, HOUR, {"x": b"1"})


def test_two_renames_replace_an_instance_where_nothing_can_be_exchanged(store: LocalStore, tmp_path: Path) -> None:
    with patch.object(local_exchange, "exchange", cannot_exchange):
        publish(store, HOUR, {"old": b"1"})
        publish(store, HOUR, {"new": b"2"}, token="run-2")
    assert read_all(store, HOUR) == {"new": b"2"}
    hidden = [item for item in (tmp_path / "root" / ".feed-assets").rglob("*") if item.is_file()]
    assert all(item.parent.name == "locks" for item in hidden)


class Gone(Exception):
    """The machine is gone."""


def test_a_staging_whose_content_was_swapped_away_and_overtaken_is_lost(store: LocalStore) -> None:
    publish(store, HOUR, {"old": b"1"})
    staging = stage(store, HOUR, {"new": b"2"}, "run-2")
    with patch.object(local_staging.LocalStaging, "remove", side_effect=Gone), pytest.raises(Gone):
        store.publish(staging, flag="_SUCCESS", guard=allow, extra={})
    publish(store, HOUR, {"newest": b"3"}, token="run-3")
    with pytest.raises(StagingLostError):
        store.publish(staging, flag="_SUCCESS", guard=allow, extra={})
    assert read_all(store, HOUR) == {"newest": b"3"}


def test_a_half_removed_staging_is_never_published(store: LocalStore) -> None:
    publish(store, HOUR, {"old": b"1"})
    staging = stage(store, HOUR, {"new": b"2"}, "run-2")

    def remove_a_little(folder: str, ignore_errors: bool) -> None:
        assert not (Path(folder) / "staging.json").exists()
        raise Gone

    with patch("feed_assets.storage.local.staging.shutil.rmtree", remove_a_little), pytest.raises(Gone):
        store.publish(staging, flag="_SUCCESS", guard=allow, extra={})
    with pytest.raises(StagingLostError):
        store.publish(staging, flag="_SUCCESS", guard=allow, extra={})
    assert read_all(store, HOUR) == {"new": b"2"}


def test_asking_about_a_root_that_does_not_exist_makes_nothing(store: LocalStore, tmp_path: Path) -> None:
    store.look([HOUR], None)
    assert store.recover(HOUR) is False
    assert store.published_manifest(HOUR) is None
    assert not (tmp_path / "root").exists()


def test_a_thousand_looks_at_nothing_take_some_milliseconds(store: LocalStore) -> None:
    publish(store, HOUR, {"x": b"1"})
    paths = [f"weather/2013/11/{day:02}/{hour:02}" for day in range(1, 43) for hour in range(24)][:1000]

    def seconds() -> float:
        began = time.perf_counter()
        store.look(paths, "_SUCCESS")
        return time.perf_counter() - began

    assert min(seconds() for _ in range(5)) < 0.05


def test_publications_of_one_path_follow_one_another_from_guard_to_swap(store: LocalStore) -> None:
    one = stage(store, HOUR, {"one": b"1"}, "run-1")
    two = stage(store, HOUR, {"two": b"2"}, "run-2")
    order: list[str] = []
    second = threading.Thread(
        target=lambda: store.publish(two, flag=None, guard=lambda: order.append("second"), extra={})
    )

    def guard() -> None:
        second.start()
        second.join(0.3)
        order.append("first")

    store.publish(one, flag=None, guard=guard, extra={})
    second.join()
    assert order == ["first", "second"]
    assert read_all(store, HOUR) == {"two": b"2"}


def test_of_many_publishers_only_the_holder_of_the_lease_becomes_visible(store: LocalStore) -> None:
    leases: list[int] = []
    published: list[int] = []

    def work(number: int) -> None:
        staging = stage(store, HOUR, VERSIONS[number], f"run-{number}")
        leases.append(number)

        def guard() -> None:
            if max(leases) != number:
                raise FencedOut
            published.append(number)

        with suppress(FencedOut):
            store.publish(staging, flag="_SUCCESS", guard=guard, extra={"number": str(number)})

    threads = [threading.Thread(target=work, args=(number,)) for number in VERSIONS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert published[-1] == max(VERSIONS)
    assert published == sorted(published)
    assert read_all(store, HOUR) == VERSIONS[max(VERSIONS)]


def test_readers_beside_publishers_never_see_a_mix(store: LocalStore) -> None:
    whole = {Manifest.of(publish(store, HOUR, files).entries).digest: files for files in VERSIONS.values()}
    sizes = {(sum(map(len, files.values())), len(files)) for files in VERSIONS.values()}
    enough = threading.Event()

    def write(worker: int) -> None:
        number = 0
        while not enough.is_set():
            publish(store, HOUR, VERSIONS[(number + worker) % len(VERSIONS)], token=f"run-{worker}-{number}")
            number += 1

    with ThreadPoolExecutor(2) as writers:
        writing = [writers.submit(write, worker) for worker in range(2)]
        try:
            reads = 0
            while reads < 100:
                try:
                    (look,) = store.look([HOUR], "_SUCCESS")
                    manifest, published = store.manifest(HOUR), store.published_manifest(HOUR)
                except InstanceChangingError:  # said honestly, where publications never pause
                    continue
                reads += 1
                assert look.availability is Availability.AVAILABLE
                assert (look.bytes, look.files) in sizes
                assert manifest.digest in whole
                assert published is not None
                assert published.digest in whole
        finally:
            enough.set()
    for writer in writing:
        writer.result()


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.integers(min_value=0, max_value=12), min_size=1, max_size=4), first=st.sampled_from([3, 4]))
def test_a_reader_interrupted_anywhere_by_publications_sees_one_of_them(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], first: int
) -> None:
    store = LocalStore(tmp_path_factory.mktemp("root"))
    publish(store, HOUR, VERSIONS[first])
    waiting = sorted(steps)
    position = 0

    def interrupted(*args: object, **kwargs: object) -> Iterator[tuple[str, os.stat_result]]:
        nonlocal position
        files = iter_files(*args, **kwargs)  # type: ignore[arg-type]
        while True:
            while waiting and waiting[0] <= position:
                publish(store, HOUR, VERSIONS[waiting.pop(0) % len(VERSIONS)], token="other")
            position += 1
            file = next(files, None)
            if file is None:
                return
            yield file

    def versions_of(look: Look, manifest: Manifest) -> tuple[list[int], list[int]]:
        names = {entry.path for entry in manifest.entries}
        looked = [
            number
            for number, files in VERSIONS.items()
            if (sum(map(len, files.values())), len(files)) == (look.bytes, look.files)
        ]
        return looked, [number for number, files in VERSIONS.items() if set(files) == names]

    with patch.object(local_reader, "iter_files", interrupted):
        (look,) = store.look([HOUR], "_SUCCESS")
        manifest = store.manifest(HOUR)
    looked, read = versions_of(look, manifest)
    assert len(looked) == len(read) == 1
    assert read_all(store, HOUR) in VERSIONS.values()
    assert store.publish(stage(store, HOUR, {}), flag=None, guard=allow, extra={}).files == 0
