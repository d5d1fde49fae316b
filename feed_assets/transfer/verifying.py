"""Verify copies: read back the written files and compare them with the bytes read at the source."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from feed_assets.entities.copies.options import Verification
from feed_assets.storage.checksums import Checksum
from feed_assets.storage.copy_port import SourceFile, StagedFile, Staging
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.paths import is_content
from feed_assets.transfer.plans import Kept
from feed_assets.transfer.tasks import LARGE

_BLOCK = 64


class _Unread(NamedTuple):
    """A file to read back; `checksum` is the expected one, "" if unknown."""

    path: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of a check of staged files: their `checksums` by path, and the `damaged` ones."""

    checksums: Mapping[str, str]
    damaged: tuple[str, ...]


def check_copy(
    mode: Verification,
    staging: Staging,
    transfers: Sequence[SourceFile],
    copied: Mapping[str, StagedFile],
    resumed: Collection[str],
    kept_files: Sequence[Kept],
    pool: Executor | None,
) -> Checked:
    """Return the checksums of all staged files of a copy; read back the files that `mode` demands.

    `resumed` files of an earlier try are read back in every mode, because the machine may have stopped meanwhile.
    `pool` reads several files at a time, if given.
    """
    checksums: dict[str, str] = {}
    damaged: list[str] = []
    unread: list[_Unread] = []
    for file in transfers:
        read = copied[file.path].checksum
        checksums[file.path] = read
        if file.checksum and file.checksum != read:  # the bytes read differ from the manifest of the source
            damaged.append(file.path)
        elif mode is not Verification.NONE or file.path in resumed:
            unread.append(_Unread(file.path, file.size, read))
    for kept in kept_files:
        known = kept.entry.checksum if kept.entry else ""
        if known and mode is not Verification.WHOLE:
            checksums[kept.path] = known
        elif known or is_content(kept.path, None):
            unread.append(_Unread(kept.path, kept.size, known))
    for file_read, checksum in _read_back(staging, unread, pool):
        checksums[file_read.path] = checksum
        if not checksum or (file_read.checksum and checksum != file_read.checksum):
            damaged.append(file_read.path)
    return Checked(checksums=checksums, damaged=tuple(damaged))


def _read_back(staging: Staging, files: Sequence[_Unread], pool: Executor | None) -> list[tuple[_Unread, str]]:
    """Read back large files in parallel and small ones in blocks; return each with its checksum."""
    large = [[file] for file in files if file.size >= LARGE]
    small = [file for file in files if file.size < LARGE]
    blocks = large + [small[start : start + _BLOCK] for start in range(0, len(small), _BLOCK)]

    def read(block: Sequence[_Unread]) -> list[tuple[_Unread, str]]:
        return [(file, _read(staging, file)) for file in block]

    return list(chain.from_iterable(map(read, blocks) if pool is None else pool.map(read, blocks)))


def _read(staging: Staging, file: _Unread) -> str:
    """Return the checksum of a staged file; "" if it does not exist with its expected size."""
    checksum, size = Checksum(file.checksum), 0
    try:
        for chunk in staging.chunks(file.path):
            checksum.update(chunk)
            size += len(chunk)
    except InstanceNotFoundError:
        return ""
    return checksum.render() if size == file.size else ""
