import os
from pathlib import Path

import pytest

from feed_assets.definitions.errors import DefinitionStoreError, FileRefusedError
from feed_assets.definitions.folder import DefinitionFolder, open_folder
from feed_assets.loading.errors import LocationUnreadableError


def _contents(folder: DefinitionFolder) -> dict[str, bytes]:
    return {folder.name_of(file.name): file.content for file in folder.read()}


def test_what_is_written_is_read(folder: DefinitionFolder) -> None:
    folder.write("feed/clicks.yaml", b"one")
    folder.write("daily.yml", b"two")
    assert _contents(folder) == {"daily.yml": b"two", "feed/clicks.yaml": b"one"}
    assert folder.read_file("feed/clicks.yaml") == b"one"


def test_a_file_is_written_in_the_place_of_what_it_was(folder: DefinitionFolder) -> None:
    folder.write("feed/clicks.yaml", b"a long text")
    folder.write("feed/clicks.yaml", b"short")
    assert _contents(folder) == {"feed/clicks.yaml": b"short"}


def test_a_file_is_removed_once_and_again(folder: DefinitionFolder) -> None:
    folder.write("feed/clicks.yaml", b"one")
    folder.write("feed/orders.yaml", b"two")
    folder.remove("feed/clicks.yaml")
    folder.remove("feed/clicks.yaml")
    assert _contents(folder) == {"feed/orders.yaml": b"two"}
    assert folder.read_file("feed/clicks.yaml") is None


def test_a_place_comes_into_being_with_its_first_file(folder: DefinitionFolder) -> None:
    assert not folder.exists()
    with pytest.raises(LocationUnreadableError, match="no such file or folder"):
        folder.read()
    assert folder.read_file("feed/clicks.yaml") is None
    folder.write("feed/clicks.yaml", b"one")
    assert folder.exists()


def test_names_for_messages_lead_back_to_files(folder: DefinitionFolder) -> None:
    folder.write("feed/clicks.yaml", b"one")
    (file,) = folder.read()
    assert folder.shown("feed/clicks.yaml") == file.name
    assert folder.name_of(file.name) == "feed/clicks.yaml"


@pytest.mark.parametrize(
    "name",
    [
        "../clicks.yaml",
        "feed/../../clicks.yaml",
        "/etc/clicks.yaml",
        "feed//clicks.yaml",
        "./clicks.yaml",
        "feed/.hidden.yaml",
        ".git/clicks.yaml",
        "feed\\clicks.yaml",
        "feed/clicks.yaml\0",
        "feed/clicks.txt",
        "feed",
        "",
    ],
)
def test_a_name_that_leaves_the_folder_or_is_none_is_refused(folder: DefinitionFolder, name: str) -> None:
    for act in (folder.read_file, folder.remove, lambda file: folder.write(file, b"x")):
        with pytest.raises(FileRefusedError, match="refused"):
            act(name)


def test_a_single_file_is_the_only_one(tmp_path: Path) -> None:
    folder = open_folder(tmp_path / "all.yaml")
    folder.write("all.yaml", b"one")
    assert (folder.only_file, _contents(folder)) == ("all.yaml", {"all.yaml": b"one"})
    with pytest.raises(FileRefusedError, match="single file"):
        folder.write("other.yaml", b"two")


def test_a_single_object_is_the_only_one() -> None:
    folder = open_folder(f"memory://single-{os.getpid()}/all.yaml")
    folder.write("all.yaml", b"one")
    assert (folder.only_file, _contents(folder)) == ("all.yaml", {"all.yaml": b"one"})


def test_a_filesystem_without_whole_objects_gets_a_file_by_renaming(tmp_path: Path) -> None:
    folder = open_folder(f"file://{tmp_path}/entities")
    folder.write("feed/clicks.yaml", b"one")
    folder.write("feed/clicks.yaml", b"two")
    assert _contents(folder) == {"feed/clicks.yaml": b"two"}
    assert [path.name for path in (tmp_path / "entities/feed").iterdir()] == ["clicks.yaml"]


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "entities"
    root.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.yaml").write_bytes(b"theirs")
    (root / "feed").symlink_to(tmp_path / "outside")
    (root / "b.yaml").symlink_to(tmp_path / "outside/a.yaml")
    for name in ("feed/a.yaml", "b.yaml"):
        with pytest.raises(FileRefusedError, match="link"):
            open_folder(root).write(name, b"ours")
    assert (tmp_path / "outside/a.yaml").read_bytes() == b"theirs"


def test_a_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.write("a.yaml", b"one")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "a.yaml")
    folder.write("b.yaml", b"two")
    assert (tmp_path / "b.yaml").is_symlink()
    assert (tmp_path / "a.yaml").read_bytes() == b"two"


def test_a_file_keeps_its_rights(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.write("a.yaml", b"one")
    (tmp_path / "a.yaml").chmod(0o640)
    folder.write("a.yaml", b"two")
    assert (tmp_path / "a.yaml").stat().st_mode & 0o777 == 0o640


def test_what_a_broken_off_write_leaves_is_not_read_and_is_overwritten(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    folder.write("a.yaml", b"one")
    (tmp_path / ".a.yaml.feed-assets-tmp").write_bytes(b"half")
    assert _contents(folder) == {"a.yaml": b"one"}
    folder.write("a.yaml", b"two")
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


def test_a_place_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "entities").write_bytes(b"this is a file")
    with pytest.raises(DefinitionStoreError, match=r"feed/a\.yaml"):
        open_folder(tmp_path / "entities").write("feed/a.yaml", b"x")
