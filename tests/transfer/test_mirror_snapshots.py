"""Mirrors with snapshots: every state that was mirrored has a name on both sides. Rows are features of Falcon."""

import gzip
import shutil
from itertools import count
from pathlib import Path

import pytest

from feed_assets.plan.copy_records import OnError, StoreAddress
from feed_assets.storage.errors import InstanceChangingError, ManifestError, StorageError
from feed_assets.storage.local import documents as local_documents
from feed_assets.storage.local.calls import LocalCalls
from feed_assets.storage.port import Manifest
from feed_assets.transfer.mirroring import Shelf
from tests.storage.harnesses import object_harness
from tests.storage.trees import memory_folder
from tests.transfer.faults import CHANGES, LOOKS, Fault, faulty_objects, make_faulty
from tests.transfer.mirrors import DIRECTORY, Mirrored, rules
from tests.transfer.sides import Pair, Place, local_place
from tests.transfer.test_faults import FAULTS, Errors, attempt
from tests.transfer.test_options import broken

FILES = {f"part-{number}.csv": b"x" * 1000 for number in range(6)} | {"_delta_log/0.json": b"{}", "sub/a.csv": b"a"}


def test_row_142_the_second_run_copies_only_the_difference(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair, snapshots=rules(3, 3))
    mirror.land(FILES)
    told = mirror.run()
    assert told["copied_files"] == len(FILES)
    first = told["snapshot"]
    mirror.land({"part-3.csv": b"changed", "new.csv": b"new"})
    mirror.remove("part-4.csv", "sub/a.csv")
    told = mirror.run()
    assert (told["copied_files"], told["copied_bytes"]) == (2, len(b"changed") + len(b"new"))
    assert told["removed_files"] == 2
    expected = {**FILES, "part-3.csv": b"changed", "new.csv": b"new"}
    del expected["part-4.csv"], expected["sub/a.csv"]
    assert mirror.there() == expected
    names = {shelf: [each.name for each in mirror.kept(shelf)] for shelf in Shelf}
    assert names[Shelf.SOURCE] == names[Shelf.TARGET] == [told["snapshot"], first]
    newest, older = mirror.kept(Shelf.TARGET)
    assert (newest.files, older.files) == (len(expected), len(FILES))
    assert older.bytes == sum(map(len, FILES.values()))
    assert str(first).startswith("models.20131101T0000Z.")


def test_row_142_of_each_side_the_newest_are_kept_and_of_the_others_those_that_are_young(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair, snapshots=rules(2, 4, age="days(3)"))
    told = []
    for number in range(6):
        mirror.land({"version": b"%d" % number})
        told.append(mirror.run())
    names = [str(each["snapshot"]) for each in told]
    assert [each.name for each in mirror.kept(Shelf.SOURCE)] == names[:1:-1]  # three days old, and not older
    assert [each.name for each in mirror.kept(Shelf.TARGET)] == names[:1:-1]
    mirror.now = mirror.now.replace(year=mirror.now.year + 1)
    mirror.land({"version": b"6"})
    last = mirror.run()
    assert [each.name for each in mirror.kept(Shelf.SOURCE)] == [last["snapshot"], names[5]]
    assert [each.name for each in mirror.kept(Shelf.TARGET)] == [last["snapshot"], *names[:2:-1]]
    assert f"source/{names[3]}" in str(last["pruned_snapshots"])


def test_a_run_that_finds_nothing_new_makes_no_new_snapshot(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair, snapshots=rules(1, 1))
    mirror.land(FILES)
    first = mirror.run()["snapshot"]
    assert mirror.run()["snapshot"] == first
    assert [each.name for each in mirror.kept(Shelf.TARGET)] == [first]


def test_a_mirror_that_begins_to_make_snapshots_begins_with_what_stands(any_pair: Pair) -> None:
    mirror = Mirrored(any_pair)
    mirror.land(FILES)
    mirror.run()
    mirror.snapshots = rules(2, 2)
    told = mirror.run()
    assert told["copy"] == "unchanged"
    for shelf in Shelf:
        assert [each.name for each in mirror.kept(shelf)] == [told["snapshot"]]


def test_an_older_state_can_be_read_where_the_target_is_a_local_directory(pair: Pair) -> None:
    mirror = Mirrored(pair, snapshots=rules(3, 3))
    mirror.land(FILES)
    mirror.run()
    mirror.land({"part-3.csv": b"changed"})
    mirror.remove("sub/a.csv")
    mirror.run()
    newest, older = mirror.kept(Shelf.TARGET)
    assert older.content is not None
    folder = Path(older.content.removeprefix("file://"))
    found = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert {name: data for name, data in found.items() if not name.startswith(".feed-assets")} == FILES
    assert pair.target.root is not None
    assert (folder / "part-5.csv").samefile(pair.target.root / DIRECTORY / "part-5.csv")
    assert (pair.target.root / ".feed-assets/snapshots").stat().st_mode & 0o777 == 0o700
    assert all(each.content is None for each in mirror.kept(Shelf.SOURCE))
    assert newest.content is not None
    mirror.snapshots = rules(1, 1, age="minutes(1)")
    mirror.run()
    assert not folder.exists()
    assert Path(newest.content.removeprefix("file://")).exists()


def test_nothing_is_written_at_the_source(pair: Pair) -> None:
    assert pair.source.root is not None
    mirror = Mirrored(pair, snapshots=rules(3, 3))
    mirror.land(FILES)
    before = sorted(pair.source.root.rglob("*"))
    mirror.run()
    assert sorted(pair.source.root.rglob("*")) == before


def test_a_state_that_is_not_whole_gets_no_snapshot(pair: Pair) -> None:
    mirror = Mirrored(pair, snapshots=rules(3, 3), options={"on_error": OnError.PUBLISH})
    mirror.land(FILES)
    trouble = broken(pair, "part-3.csv")
    told = mirror.run()
    assert (told["copy"], told["snapshot"]) == ("incomplete", "")
    assert mirror.kept(Shelf.TARGET) == []
    trouble.files.clear()
    assert mirror.run()["snapshot"]
    assert len(mirror.kept(Shelf.TARGET)) == 1


def test_a_snapshot_that_cannot_be_linked_has_its_manifest(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(local_documents, "copy_tree", refuse)
    mirror = Mirrored(pair, snapshots=rules(3, 3))
    mirror.land(FILES)
    mirror.run()
    (found,) = mirror.kept(Shelf.TARGET)
    assert (found.files, found.content) == (len(FILES), None)


def test_a_snapshot_that_is_damaged_is_named(pair: Pair) -> None:
    mirror = Mirrored(pair, snapshots=rules(3, 3))
    mirror.land(FILES)
    mirror.run()
    assert pair.target.root is not None
    (file,) = (pair.target.root / ".feed-assets/snapshots").rglob("source/*.json.gz")
    file.write_bytes(gzip.compress(b"x")[:-4])
    with pytest.raises(ManifestError, match="it is damaged"):
        mirror.kept(Shelf.SOURCE)


def test_content_is_kept_of_that_publication_only(pair: Pair) -> None:
    mirror = Mirrored(pair)
    mirror.land(FILES)
    mirror.run()
    snapshots = pair.target.store.snapshots(DIRECTORY, "target")
    with pytest.raises(InstanceChangingError, match="not what was published"):
        snapshots.keep("models.1", Manifest.of([]), with_content=True)
    assert snapshots.names() == []


def require_settled(mirror: Mirrored, files: dict[str, bytes]) -> None:
    """The target is what it should be, and so are its snapshots."""
    assert mirror.there() == files
    source, target = ([each.name for each in mirror.kept(shelf)] for shelf in Shelf)
    assert source == target
    newest = mirror.kept(Shelf.TARGET)[0]
    assert newest.files == len(files)
    if newest.content is not None:
        assert sum(1 for file in Path(newest.content[7:]).rglob("*") if file.is_file()) == len(files) + 1


SMALL = {"a.csv": b"a", "sub/b.csv": b"b", ".hidden": b"h"}
LATER = {"a.csv": b"later", "c.csv": b"c", ".hidden": b"h"}


@pytest.mark.parametrize(("error", "looks", "forever", "step"), FAULTS)
def test_a_run_that_fails_at_any_system_call_is_made_good_by_the_next(
    monkeypatch: pytest.MonkeyPatch, error: Errors, looks: bool, forever: bool, step: int
) -> None:
    fault = Fault()
    make_faulty(monkeypatch, fault)
    with memory_folder() as folder:
        source = local_place(folder / "source")
        for number in count(1, step):
            mirror = Mirrored(Pair(source, local_place(folder / f"target-{number}")), snapshots=rules(2, 2))
            begin(mirror)
            with fault.armed(number, error, (*LOOKS, *CHANGES) if looks else CHANGES, forever=forever):
                attempt(mirror.run)
            assert mirror.there() in (SMALL, LATER), number
            mirror.run()
            require_settled(mirror, LATER)
            assert len(mirror.kept(Shelf.TARGET)) == 2
            clear(source)
            if not fault.struck:
                assert number > 50
                break


@pytest.mark.parametrize(("error", "looks", "forever", "step"), FAULTS)
def test_a_run_to_objects_that_fails_at_any_request_is_made_good_by_the_next(
    error: Errors, looks: bool, forever: bool, step: int
) -> None:
    fault = Fault()
    operations = ("get", "chunks", "list", "children", "find", "put", "put_chunks", "copy", "remove")
    with memory_folder() as folder:
        source = local_place(folder / "source")
        for number in count(1, step):
            url = f"memory://objects-{number}"
            stores = faulty_objects(fault, url)
            address = StoreAddress(url=url)
            target = Place(address=address, harness=object_harness(stores.get(address)))
            mirror = Mirrored(Pair(source, target, stores), snapshots=rules(2, 2))
            begin(mirror)
            with fault.armed(number, error, operations if looks else operations[5:], forever=forever):
                attempt(mirror.run)
            mirror.run()
            require_settled(mirror, LATER)
            clear(source)
            if not fault.struck:
                assert number > 10
                break


def begin(mirror: Mirrored) -> None:
    """A first state that is mirrored, and a second one at the source."""
    mirror.land(SMALL)
    mirror.run()
    mirror.remove("sub/b.csv")
    mirror.land(LATER)


def clear(source: Place) -> None:
    assert source.root is not None
    shutil.rmtree(source.root / DIRECTORY)


def test_what_a_broken_off_snapshot_left_is_removed_by_the_next(pair: Pair) -> None:
    assert pair.target.root is not None
    mirror = Mirrored(pair, snapshots=rules(1, 1))
    mirror.land(SMALL)
    mirror.run()
    (folder,) = (pair.target.root / ".feed-assets/snapshots").glob("*/target")
    (folder / ".draft").mkdir()
    (folder / "models.20131101T0000Z.1").mkdir()
    mirror.land(LATER)
    mirror.run()
    assert not (folder / ".draft").exists()
    assert not (folder / "models.20131101T0000Z.1").exists()


def test_a_storage_that_refuses_snapshots_fails_the_run_and_the_next_makes_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = Mirrored(pair, snapshots=rules(1, 1))
    mirror.land(SMALL)
    with monkeypatch.context() as patch:

        def full(calls: LocalCalls, folder: int, name: str, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(LocalCalls, "write_file", full)
        with pytest.raises(StorageError, match="No space left"):
            mirror.run()
    assert mirror.there() == SMALL
    told = mirror.run()
    assert told["copy"] == "unchanged"
    require_settled(mirror, SMALL)
