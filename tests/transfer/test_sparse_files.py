"""Holes of sparse files stay holes in local copies, and cost neither blocks nor time; the checksum is of all bytes."""

import os
from pathlib import Path

import pytest

from feed_assets.storage.copy_port import CHUNK
from feed_assets.storage.local.files import read_chunks, write_chunks
from feed_assets.storage.records import Outcome
from tests.storage.harnesses import publish
from tests.transfer.archives import receive
from tests.transfer.sides import FLAG, PATH, Pair, local_place

GiB = 1 << 30
EXTENTS = {0: b"first", 300 << 20: b"x" * 5_000_000, (700 << 20) + 123: b"odd"}


def make(path: Path, extents: dict[int, bytes], size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for place, data in extents.items():
            file.seek(place)
            file.write(data)
        file.truncate(size)
        os.fsync(file.fileno())


def blocks(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.fixture(autouse=True)
def _needs_holes(tmp_path: Path) -> None:
    make(tmp_path / "probe", {}, 64 << 20)
    if blocks(tmp_path / "probe"):
        pytest.skip("the filesystem of this test has no holes")


def test_a_sparse_file_of_a_gibibyte_is_copied_archived_and_read_back_with_its_holes(tmp_path: Path) -> None:
    pair = Pair(local_place(tmp_path / "source"), local_place(tmp_path / "target"))
    whole = tmp_path / "source" / PATH / "sparse.bin"
    make(whole, EXTENTS, GiB)
    (tmp_path / "source" / PATH / FLAG).touch()

    assert pair.copy().bytes == GiB
    assert receive(pair.target.store, pair.source.store, PATH, "old").outcome is Outcome.MOVED

    for copy in (tmp_path / "target" / PATH / "sparse.bin", tmp_path / "target/old/sparse.bin"):
        assert copy.stat().st_size == GiB
        assert blocks(copy) <= blocks(whole) < 6 << 20
        with copy.open("rb") as file:
            for place, data in EXTENTS.items():
                file.seek(place)
                assert file.read(len(data) + 1) == data + b"\0"


@pytest.mark.parametrize("extents", [{}, {8192: b"x"}, {0: b"x" * 8192}, {8192: b"", 3 * CHUNK: b"y" * 4096}])
@pytest.mark.parametrize("size", [3 * CHUNK + 4096, 4 * CHUNK + 1])
def test_what_is_read_of_a_sparse_file_is_what_any_program_reads(
    tmp_path: Path, extents: dict[int, bytes], size: int
) -> None:
    make(tmp_path / "one", extents, size)
    expected = (tmp_path / "one").read_bytes()
    one, other = os.open(tmp_path / "one", os.O_RDONLY), os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)
    try:
        assert b"".join(map(bytes, read_chunks(one))) == expected
        os.lseek(one, 0, os.SEEK_SET)
        assert write_chunks(other, read_chunks(one)) == size
    finally:
        os.close(one)
        os.close(other)
    assert (tmp_path / "other").read_bytes() == expected
    assert blocks(tmp_path / "other") <= blocks(tmp_path / "one") < size


def test_zeros_that_are_written_stay_written(tmp_path: Path) -> None:
    pair = Pair(local_place(tmp_path / "source"), local_place(tmp_path / "target"))
    publish(pair.source.store, PATH, {"zeros": bytes(4 * CHUNK)}, flag=FLAG)
    pair.copy()
    assert blocks(tmp_path / "target" / PATH / "zeros") >= 4 * CHUNK
