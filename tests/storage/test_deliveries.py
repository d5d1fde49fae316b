"""The contract of `Deliveries`, on every storage of files: only what was read is removed, whatever comes meanwhile."""

import os
from http import HTTPStatus
from pathlib import Path

import obstore
import pytest

from feed_assets.storage import registry
from feed_assets.storage.checksums import checksum_of
from feed_assets.storage.deliveries import DeliveredFile, Deliveries
from feed_assets.storage.errors import InstanceChangingError, StorageError
from feed_assets.storage.local.store import LocalDeliveries, LocalStore
from feed_assets.storage.object import obstore_client as conditional_removal
from feed_assets.storage.object.obstore_client import ConditionalRemoval
from feed_assets.storage.registry import open_store
from tests.object_servers import ObjectServer
from tests.storage.harnesses import StoreHarness, local_harness, s3_harness

NAMES = ("a.json", "b c%20+#?é.json", "d..json")


def deliveries_of(harness: StoreHarness) -> Deliveries:
    return harness.store.deliveries("in/orders")


def read(harness: StoreHarness, content: bytes) -> list[DeliveredFile]:
    """The files, of which each was read with this content."""
    found = deliveries_of(harness).find()
    return [DeliveredFile(file.path, file.version, file.size, checksum_of([content])) for file in found]


def deliver(harness: StoreHarness, content: bytes = b"one") -> list[DeliveredFile]:
    harness.land("in/orders", dict.fromkeys(NAMES, content))
    return read(harness, content)


def test_only_files_directly_in_the_folder_are_found(file_harness: StoreHarness) -> None:
    assert deliveries_of(file_harness).find() == []
    file_harness.land("in/orders", {"b.json": b"two", "a.json": b"one", "below/c.json": b"three"})
    found = deliveries_of(file_harness).find()
    assert [(file.path, file.size) for file in found] == [("a.json", 3), ("b.json", 3)]
    assert all(file.version and file.modified is not None for file in found)


def test_files_that_were_read_are_removed_and_a_repeat_is_harmless(file_harness: StoreHarness) -> None:
    files = deliver(file_harness)
    assert [file.name for file in files] == sorted(NAMES)
    for _ in range(2):
        assert deliveries_of(file_harness).remove(files) == {}
        deliveries_of(file_harness).put_back()
        assert file_harness.names() == set()


def test_a_file_of_the_same_size_that_was_written_since_stays(file_harness: StoreHarness) -> None:
    files = deliver(file_harness)
    file_harness.land(
        "in/orders", {"a.json": b"two, which is longer" if "sftp" in file_harness.store.root_url else b"two"}
    )
    assert deliveries_of(file_harness).remove(files) == {}
    assert file_harness.names() == {"in/orders/a.json"}


@pytest.fixture
def s3(s3_server: ObjectServer, tmp_path: Path) -> StoreHarness:
    options = {**s3_server.options, "scratch": str(tmp_path / "scratch")}
    return s3_harness(open_store(f"{s3_server.url}/{tmp_path.name}", options), s3_server.options, tmp_path.name)


@pytest.mark.server
def test_a_key_that_obstore_refuses_keeps_no_other_from_being_found(s3: StoreHarness) -> None:
    """Only here: a listing of which somebody removes, or says that something is gone, is none then."""
    files = deliver(s3)
    s3.land("in/orders", {"below/c.json": b"three", "a.json/part": b"hides its name"})
    for name in ("/y.json", "/2026/y.json", "b\x01.json"):
        s3.put(f"in/orders/{name}", b"odd")
    found = {file.path: file.version for file in deliveries_of(s3).find()}
    known = {file.name: file.version for file in files if file.name != "a.json"}
    assert found.keys() - known.keys() == {"/y.json", "/2026/y.json", "b\x01.json"}
    assert {name: found[name] for name in known} == known
    with pytest.raises(StorageError, match="invalid path"):
        s3.store.look(["in/orders"], None)
    with pytest.raises(StorageError, match="invalid path"):
        list(s3.store.walk_folders("in/orders", 1, lambda _, names: names))
    assert deliveries_of(s3).remove([file for file in files if file.name in known]) == {}
    assert not s3.names() & {f"in/orders/{name}" for name in known}


@pytest.mark.server
def test_without_boto3_such_a_key_is_an_error_that_names_it(
    s3: StoreHarness, s3_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("in/orders//y.json", b"odd")
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    with pytest.raises(StorageError, match='/in/orders//"'):
        open_store(s3.store.root_url, s3_server.options).deliveries("in/orders").find()


@pytest.mark.server
@pytest.mark.parametrize("status", [0, HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.FORBIDDEN])
def test_what_refuses_conditions_is_compared_before(
    s3: StoreHarness, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(ConditionalRemoval, "_request", lambda *_: status)
    files = deliver(s3)
    s3.put("in/orders/a.json", b"two")
    assert deliveries_of(s3).remove(files) == {}
    assert s3.names() == {"in/orders/a.json"}


@pytest.mark.server
def test_what_ignores_conditions_is_found_out_by_an_object_of_our_own(
    s3: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = conditional_removal.Request
    monkeypatch.setattr(conditional_removal, "Request", lambda url, method, **_: request(url, method=method))
    files = deliver(s3)
    s3.put("in/orders/a.json", b"two")
    assert deliveries_of(s3).remove(files) == {}
    assert s3.names() == {"in/orders/a.json"}


@pytest.mark.server
def test_a_new_version_that_comes_behind_every_comparison_stays(
    s3: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, ask = deliver(s3), ConditionalRemoval._request

    def ask_late(removal: ConditionalRemoval, key: str, etag: str) -> int:
        if key.endswith("a.json"):
            s3.put("in/orders/a.json", b"two")
        return ask(removal, key, etag)

    monkeypatch.setattr(ConditionalRemoval, "_request", ask_late)
    deliveries_of(s3).remove(files)
    assert s3.names() == {"in/orders/a.json"}


@pytest.fixture
def local(tmp_path: Path) -> tuple[StoreHarness, Path]:
    return local_harness(LocalStore(tmp_path), tmp_path), tmp_path / "in" / "orders"


def rename_over(folder: Path, name: str, content: str) -> None:
    """Replace a file as careful producers do, and give it the times of the former one."""
    times = (folder / name).stat()
    (folder / ".new").write_text(content)
    os.utime(folder / ".new", ns=(times.st_atime_ns, times.st_mtime_ns))
    (folder / ".new").rename(folder / name)


def test_a_version_that_was_renamed_over_a_file_goes_back(
    local: tuple[StoreHarness, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, folder = local
    files, remove = deliver(harness), LocalDeliveries._remove

    def remove_late(deliveries: LocalDeliveries, opened: int, file: DeliveredFile, aside: str) -> str | None:
        rename_over(folder, file.name, "new")
        return remove(deliveries, opened, file, aside)

    monkeypatch.setattr(LocalDeliveries, "_remove", remove_late)
    assert deliveries_of(harness).remove(files) == {}
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(NAMES, "new")


def test_what_cannot_go_back_waits_until_its_name_is_free(
    local: tuple[StoreHarness, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, folder = local
    files = deliver(harness)
    rename_over(folder, "a.json", "new")

    def compare_late(_: object, _folder: int, file: DeliveredFile, _aside: str) -> bool:
        (folder / file.name).write_text("newest")
        return False

    with monkeypatch.context() as patch:
        patch.setattr(LocalDeliveries, "_is_same", compare_late)
        deliveries_of(harness).remove([file for file in files if file.name == "a.json"])
    deliveries_of(harness).put_back()
    assert (folder / "a.json").read_text() == "newest"
    (folder / "a.json").unlink()
    deliveries_of(harness).put_back()
    assert (folder / "a.json").read_text() == "new"
    assert {path.name for path in folder.iterdir()} == set(NAMES)


def test_what_an_interrupted_removal_has_moved_goes_back(
    local: tuple[StoreHarness, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, folder = local
    files = deliver(harness)

    def end(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalDeliveries, "_is_same", end)
        with pytest.raises(KeyboardInterrupt):
            deliveries_of(harness).remove(files)
    (folder / NAMES[1]).write_text("new")
    deliveries_of(harness).put_back()
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        **dict.fromkeys(NAMES, "one"),
        NAMES[1]: "new",
    }


def test_a_folder_in_the_place_of_a_file_goes_back(local: tuple[StoreHarness, Path]) -> None:
    harness, folder = local
    files = deliver(harness)
    (folder / "a.json").unlink()
    (folder / "a.json" / "below").mkdir(parents=True)
    deliveries_of(harness).remove(files)
    assert [path.name for path in folder.iterdir()] == ["a.json"]


def test_the_version_that_was_listed_is_read_or_none(file_harness: StoreHarness) -> None:
    deliveries, (file, other, gone) = deliveries_of(file_harness), deliver(file_harness)
    assert b"".join(deliveries.chunks(file.name, file.version)) == b"one"
    file_harness.land("in/orders", {other.name: b"two, which is longer"})
    deliveries.remove([gone])
    for each in (other, gone):
        with pytest.raises(InstanceChangingError, match="another version was written over what was listed"):
            list(deliveries.chunks(each.name, each.version))


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_file_that_changes_while_it_is_read_is_not_the_one_that_was_listed(
    local: tuple[StoreHarness, Path], is_renamed: bool
) -> None:
    harness, folder = local
    (file, *_) = deliver(harness)
    chunks = deliveries_of(harness).chunks(file.name, file.version)
    assert next(chunks) == b"one"
    if is_renamed:
        rename_over(folder, file.name, "two")
    else:
        with (folder / file.name).open("a") as more:
            more.write("two")
    with pytest.raises(InstanceChangingError):
        list(chunks)


@pytest.mark.server
def test_what_ignores_the_condition_of_a_read_is_found_out_by_its_answer(
    s3: StoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file, *_) = deliver(s3)
    get = obstore.get
    monkeypatch.setattr(obstore, "get", lambda store, key, **_: get(store, key))
    assert b"".join(deliveries_of(s3).chunks(file.name, file.version)) == b"one"
    s3.put(f"in/orders/{file.name}", b"two")
    with pytest.raises(InstanceChangingError):
        list(deliveries_of(s3).chunks(file.name, file.version))
