import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from feed_assets.context.errors import BundleRefusedError
from feed_assets.definitions.bundles import archive
from feed_assets.definitions.bundles.archive import BundleArchive, BundledEntity, read_archive, render_archive
from feed_assets.entities.common import Kind

UID = UUID("69c93081-9f28-4af2-8cc2-b2adc60d4e88")
CLICKS = BundledEntity(kind=Kind.FEED, name="clicks", uid=UID, file="entities/feed/clicks.yaml")
BUNDLE = BundleArchive(
    entities=(CLICKS,), texts={CLICKS.file: b"kind: feed\n"}, files={"sql/count.sql": b"select 1"}, metadata=b"{}"
)
Parts = dict[str, bytes]


def parts_of(content: bytes) -> Parts:
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def read(path: Path) -> BundleArchive:
    return read_archive(path.read_bytes(), str(path))


def test_a_bundle_is_read_as_it_was_written_and_its_bytes_are_the_same(tmp_path: Path) -> None:
    content = render_archive(BUNDLE)
    (tmp_path / "a.zip").write_bytes(content)
    assert read(tmp_path / "a.zip") == BUNDLE
    assert render_archive(BUNDLE) == content
    assert b"kind: feed\n" in content, "its texts can be read without unpacking it"


def indexed(**changed: object) -> Callable[[Parts], Parts]:
    def change(parts: Parts) -> Parts:
        index = json.loads(parts["bundle.json"])
        index["entities"][0] |= changed
        return {**parts, "bundle.json": json.dumps(index).encode()}

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda parts: {**parts, "files/../evil.sql": b""}, "does not belong to it: 'files/../evil.sql'"),
        (lambda parts: {**parts, "files//etc/evil.sql": b""}, "does not belong to it: 'files//etc/evil.sql'"),
        (lambda parts: {**parts, "files/a\\..\\b.sql": b""}, "does not belong to it"),
        (lambda parts: {**parts, "files/.env": b""}, "does not belong to it: 'files/.env'"),
        (lambda parts: {**parts, "files/C:/evil.sql": b""}, "does not belong to it"),
        (lambda parts: {**parts, "other.txt": b""}, "does not belong to it: 'other.txt'"),
        (lambda parts: {**parts, "bundle.json": b'{"version": 2}'}, "it has version 2, and this program reads 1"),
        (lambda parts: {**parts, "bundle.json": b"[]"}, "it has version None, and this program reads 1"),
        (lambda parts: {**parts, "bundle.json": b"{"}, "its bundle.json cannot be read"),
        (lambda parts: {name: parts[name] for name in parts if name != "bundle.json"}, "it has no bundle.json"),
        (lambda parts: {name: parts[name] for name in parts if name != "metadata.json"}, "a part of it is missing"),
        (lambda parts: {name: parts[name] for name in parts if name != CLICKS.file}, "a part of it is missing"),
        (indexed(file="entities/feed/../a.yaml"), "the definition of feed 'clicks' is in another place"),
        (indexed(name="../a"), "its bundle.json cannot be read"),
        (indexed(uid="1"), "its bundle.json cannot be read"),
        (indexed(more=1), "its bundle.json cannot be read"),
    ],
)
def test_what_no_export_has_written_is_refused(tmp_path: Path, change: Callable[[Parts], Parts], reason: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for name, part in change(parts_of(render_archive(BUNDLE))).items():
            file.writestr(name, part)
    with pytest.raises(BundleRefusedError) as caught:
        read(tmp_path / "a.zip")
    assert reason in str(caught.value)


def test_a_file_that_is_no_zip_or_is_too_big_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.zip").write_bytes(b"kind: feed")
    with pytest.raises(BundleRefusedError, match="it is no bundle: File is not a zip file"):
        read(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("files/a.sql", bytes(10_000))
    monkeypatch.setattr(archive, "MOST_BYTES", 5_000)
    assert (tmp_path / "bomb.zip").stat().st_size < archive.MOST_BYTES
    with pytest.raises(BundleRefusedError, match="it has more than 20,000 files or"):
        read(tmp_path / "bomb.zip")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_part_that_stands_in_it_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("bundle.json", "{}")
        file.writestr("bundle.json", "[]")
    with pytest.raises(BundleRefusedError, match="a part stands in it twice"):
        read(tmp_path / "a.zip")
