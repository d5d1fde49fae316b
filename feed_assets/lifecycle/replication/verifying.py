"""Reading back what a copy has written, and whether it is what was read at the source."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeAlias

from isal.isal_zlib import crc32

from feed_assets.entities.copying import Verification
from feed_assets.lifecycle.replication.plans import CopyPlan, Kept
from feed_assets.lifecycle.replication.tasks import SMALL
from feed_assets.storage.checksums import Checksum, checksum_of_bytes, is_of_content
from feed_assets.storage.copy_port import Assembly, SourceFile, Written
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.paths import is_content

_BLOCK = 64
_CRC = "crc32:"
_Work: TypeAlias = tuple[str, int, str, Sequence[Written]]
"""A file to be read back: path, size, its checksum as far as it is known, its stretches."""
_Found: TypeAlias = tuple[str, str, bool]
"""What was read back: path, checksum, and whether it is as it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What is known of the staged files: `checksums` by path, which were `read` back, and which are `damaged`."""

    checksums: Mapping[str, str]
    read: frozenset[str]
    damaged: tuple[str, ...]


def evidence_of(plan: CopyPlan, written: Iterable[Written]) -> tuple[dict[str, list[Written]], tuple[str, ...]]:
    """What is known of each file that was transferred, stretch by stretch in order, and the files that have gaps."""
    found: dict[str, list[Written]] = defaultdict(list)
    for each in written:
        found[each.file].append(each)
    incomplete = []
    for file in plan.transfers:
        stretches = found[file.path]
        if len(stretches) == 1 and stretches[0].size == file.size:
            continue
        stretches.sort(key=lambda each: (each.offset, -each.size))
        end = 0
        for each in stretches:
            if each.offset > end:
                break
            end = max(end, each.offset + each.size)
        if end < file.size or not stretches:
            incomplete.append(file.path)
    return found, tuple(incomplete)


def check_copy(
    mode: Verification,
    assembly: Assembly,
    transfers: Sequence[SourceFile],
    evidence: Mapping[str, Sequence[Written]],
    kept_files: Sequence[Kept],
    held: Mapping[str, bytes],
    pool: Executor,
) -> Checked:
    """Find out the checksums of all staged files of a copy, and read back what `mode` says.

    What was split or taken over from an earlier try is read back in every mode: only then its checksum is known. A file
    of which the storage still tells the checksum that proves its bytes is read back in the mode WHOLE alone. What is
    `held` of files are their bytes as they were read at the source: what is equal to them is not hashed once more.
    """
    told = assembly.told() if mode is Verification.TRANSFERRED and _has_proofs(evidence) else {}
    works: list[_Work] = []
    checksums: dict[str, str] = {}
    equal = _find_equal(assembly, held, pool)
    damaged: list[str] = []
    for path, size, _, _, expected, _, _ in transfers:
        stretches = evidence[path]
        read = _whole(size, stretches)
        known = expected or read
        if read and known != read:  # what was read is not what the manifest of the source says
            checksums[path] = read
            damaged.append(path)
        elif mode is Verification.NONE and known and (read or len(stretches) == 1):
            checksums[path] = known
        elif told and read and _is_proven(read, stretches, told.get(path)):
            checksums[path] = read
        elif path in equal:
            checksums[path] = known
        else:
            works.append((path, size, known, stretches))
    for kept in kept_files:
        known = kept.entry.checksum if kept.entry else ""
        if known and mode is not Verification.WHOLE:
            checksums[kept.path] = known
        elif known or is_content(kept.path, None):
            works.append((kept.path, kept.size, known, ()))
    for path, checksum, is_good in _each(assembly, works, pool):
        checksums[path] = checksum
        if not is_good:
            damaged.append(path)
    return Checked(checksums=checksums, read=equal.union([work[0] for work in works]), damaged=tuple(damaged))


def _whole(size: int, stretches: Sequence[Written]) -> str:
    """The checksum of a file of `size` bytes that was read in one go."""
    for each in stretches:
        if each.size == size and each.offset == 0 and is_of_content(each.checksum):
            return each.checksum
    return ""


def _has_proofs(evidence: Mapping[str, Sequence[Written]]) -> bool:
    return any(each.proof for stretches in evidence.values() for each in stretches)


def _is_proven(checksum: str, stretches: Sequence[Written], told: str | None) -> bool:
    """Whether what a storage tells of a file is what it told of the bytes with this checksum."""
    return bool(told) and any(each.proof == told and each.checksum == checksum for each in stretches)


def _find_equal(assembly: Assembly, held: Mapping[str, bytes], pool: Executor) -> frozenset[str]:
    """The files that have the bytes which are held of them."""
    files = list(held.items())
    blocks = [dict(files[start : start + _BLOCK]) for start in range(0, len(files), _BLOCK)]
    return frozenset(held.keys() - set().union(*pool.map(assembly.find_unlike, blocks)))


def _check(assembly: Assembly, work: _Work) -> _Found:
    """Read a staged file back: its checksum, and whether that, or those of its stretches, are as they should be.

    A file that was read in one go and of which every stretch has a checksum is not hashed a second time.
    """
    path, size, known, stretches = work
    if size <= SMALL:
        try:
            data = assembly.read(path, size)
        except InstanceNotFoundError:
            return path, "", False
        checksum = checksum_of_bytes(data, known)
        return path, checksum, len(data) == size and (not known or checksum == known)
    parts = _cover([each for each in stretches if each.checksum.startswith(_CRC)], size)
    is_told = all(expected for _, _, expected in parts) and known == _whole(size, stretches)
    if known and not is_told:
        parts = _cover((), size)
    whole = None if known and is_told else Checksum(known)
    is_good, end = True, 0
    try:
        for start, length, expected in parts:
            crc = 0
            for chunk in assembly.chunks(path, start, length):
                if whole is not None:
                    whole.update(chunk)
                if expected:
                    crc = crc32(chunk, crc)
                end += len(chunk)
            is_good = is_good and (not expected or f"{_CRC}{crc:08x}" == expected)
    except InstanceNotFoundError:
        return path, "", False
    checksum = known if whole is None else whole.render()
    return path, checksum, is_good and end == size and (not known or checksum == known)


def _cover(stretches: Sequence[Written], size: int) -> list[tuple[int, int, str]]:
    """A file from its beginning to its end: offset, length and, where one is known, the checksum of each part."""
    found: list[tuple[int, int, str]] = []
    end = 0
    for each in stretches:
        if each.offset < end:
            continue
        if each.offset > end:
            found.append((end, each.offset - end, ""))
        found.append((each.offset, each.size, each.checksum))
        end = each.offset + each.size
    if end < size or not found:
        found.append((end, size - end, ""))
    return found


def _each(assembly: Assembly, works: Sequence[_Work], pool: Executor) -> list[_Found]:
    """Do many checks, large files side by side and small ones in blocks."""
    large = [[work] for work in works if work[1] > SMALL]
    small = [work for work in works if work[1] <= SMALL]
    blocks = large + [small[start : start + _BLOCK] for start in range(0, len(small), _BLOCK)]
    return [
        found for block in pool.map(lambda block: [_check(assembly, work) for work in block], blocks) for found in block
    ]
