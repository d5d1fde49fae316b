"""The port to copying: what a store tells of an instance that is copied, and how the copy is put together on another.

A copy is put together in a staging (an `Assembly`) that outlives the process which fills it: whoever opens it again
goes on with what is there. It is published as any staging is.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from feed_assets.storage.errors import StorageError
from feed_assets.storage.manifests import Publication
from feed_assets.storage.records import Availability, Guard, Manifest, ManifestEntry
from feed_assets.storage.snapshots import Snapshots

CHUNK = 1 << 20
"""How many bytes pass through memory at once where a file is copied in order."""


class SourceFile(NamedTuple):
    """One file of a source; a tuple, there are many.

    `sign` changes when it is written; `is_settled` says that a second write would show, too.
    `checksum` is `blake3:<hex>` if the manifest of its publication has it and it was not written since, else "".
    `modified` are nanoseconds since 1970, `mode` the permission bits; None where the storage has no such thing.
    """

    path: str
    size: int
    sign: str
    is_settled: bool
    checksum: str = ""
    modified: int | None = None
    mode: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All files of a source in the order of their paths; none of them has been read.

    `mark` is that of `Copying.mark` at the same moment.
    """

    availability: Availability
    files: tuple[SourceFile, ...] = ()
    mark: str = ""

    def is_like(self, other: "Survey") -> bool:
        """Whether the same files are there, and none was written between the two surveys."""
        if self.files == other.files:
            return True
        return [file[:3] for file in self.files] == [file[:3] for file in other.files]  # path, size, sign

    @property
    def sign(self) -> str:
        """A short name for the state of the whole source."""
        text = "".join([f"{path}\0{size}\0{sign}\n" for path, size, sign, *_ in self.files])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


class Written(NamedTuple):
    """A stretch of a staged file that is written, as the journal of an assembly has it; a tuple, there are many.

    `checksum` is that of the bytes that were read from the source: `blake3:<hex>` of a whole file, `crc32:<hex>` of a
    stretch. `sign` and `is_settled` are those of the source file. `proof` is that of `Stored`.
    """

    file: str
    offset: int
    size: int
    checksum: str
    sign: str
    is_settled: bool
    proof: str = ""


class Stored(NamedTuple):
    """What became of a file that was put into a staging.

    `proof` is a checksum of the storage itself that proves that it has these bytes, as long as it `told` the same of
    the file (see `Assembly`); "" where it has none. `was_there`: an earlier try had left them, and none were sent.
    """

    proof: str = ""
    was_there: bool = False


class Standing(NamedTuple):
    """What stands at a path: its `mark` (see `Copying.mark`), and all files (flags and hidden ones, too) by size.

    `is_unfinished`: a publication has begun there, and `Copying.recover` may have something to do.
    """

    mark: str
    files: Mapping[str, int]
    is_unfinished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What an assembly shall become: its manifest, the availability flags, and the hidden files that belong to it.

    Files that are `checked` were read back just now, so that nobody needs to look how long they are.
    """

    manifest: Manifest
    flags: tuple[str, ...] = ()
    hidden: tuple[ManifestEntry, ...] = ()
    checked: frozenset[str] = frozenset()


class Reading(ABC):
    """The files of one instance, open for reading from several threads."""

    has_descriptors = False

    @abstractmethod
    def read(self, file: str, size: int) -> bytes:
        """Read a file of about this size whole. Raises `InstanceNotFoundError` when it is gone."""

    @abstractmethod
    def chunks(self, file: str, offset: int, size: int) -> Iterator[bytes | memoryview]:
        """Read a stretch of a file in order; less if the file is shorter. A chunk is valid until the next is taken."""

    def descriptor(self, file: str) -> int:
        """Open a file for the kernel to copy from, where it `has_descriptors`; the caller closes it."""
        raise NotImplementedError(file)


class Assembly(ABC):
    """One staging for a copy, safe to be filled from several threads and processes at once.

    Files are relative to the instance. What is written is journalled by the writer with `note`; what is not in the
    journal is read again by the next process, and written again unless the storage proves that it is there. Every
    method raises `StorageError` when the filesystem refuses.
    """

    path: str
    token: str
    can_splice = False
    least_note = 1
    """How many files are at least worth a note."""

    @abstractmethod
    def open(self, files: Collection[str] = (), *, is_vacant: bool = False) -> int:
        """Make the staging, or take it over with all that is in it; return its number, which `join` wants.

        That of a new staging is 1. Writers that an earlier process has left behind are waited for, and shut out from
        then on. `files` are all that will be written. Where the place of the instance `is_vacant`, a storage that
        cannot rename may have them written there at once; the instance is PARTIAL then until it is published or the
        staging is removed. Raises `InstanceChangingError` if writers do not end.
        """

    @abstractmethod
    def seal(self) -> None:
        """`open`, and keep all others out until `close`, where the storage knows locks."""

    @abstractmethod
    def join(self, number: int) -> None:
        """Become a writer until `close`. Raises `StagingLostError` if another process has taken the staging over."""

    @abstractmethod
    def close(self) -> None:
        """Give back what this process holds; the staging stays."""

    @abstractmethod
    def journal(self) -> list[Written]:
        """What was noted and is there still."""

    @abstractmethod
    def note(self, written: Sequence[Written]) -> None:
        """Remember what was written, beyond the end of this process."""

    @abstractmethod
    def grain(self, size: int) -> int:
        """Where stretches of a file of `size` bytes may begin: at multiples of this; 0 where it can only be written
        whole.
        """

    @abstractmethod
    def put(self, file: str, data: bytes) -> Stored:
        """Write a whole file."""

    @abstractmethod
    def begin(self, file: str, size: int) -> None:
        """Get ready for a file that will be written in stretches."""

    @abstractmethod
    def write(self, file: str, size: int, offset: int, chunks: Iterable[bytes | memoryview]) -> None:
        """Write one stretch (see `grain`) of a file of `size` bytes that was begun before, from `offset` on."""

    def splice(self, file: str, offset: int, length: int, descriptor: int) -> int:
        """Let the kernel copy a stretch from an open file, where it `can_splice`; how many bytes it did, 0 if none."""
        raise NotImplementedError(file)

    @abstractmethod
    def complete(self, file: str, size: int) -> None:
        """End a file that was written in stretches, all of which are there."""

    @abstractmethod
    def read(self, file: str, size: int) -> bytes:
        """Read back a small staged file. Raises `InstanceNotFoundError` if it is not there."""

    def find_unlike(self, files: Mapping[str, bytes]) -> set[str]:
        """Read back small staged files: those that do not have just these bytes, or could not be read."""
        unlike = set()
        for file, data in files.items():
            try:
                if self.read(file, len(data)) == data:
                    continue
            except StorageError:  # it is met with again where what is there is looked at
                pass
            unlike.add(file)
        return unlike

    @abstractmethod
    def chunks(self, file: str, offset: int, size: int) -> Iterator[bytes | memoryview]:
        """Read back a stretch of a staged file. Raises `InstanceNotFoundError` if the file is not there."""

    def told(self) -> Mapping[str, str]:
        """The checksums that the storage itself has of staged files now, found out without reading them."""
        return {}

    @abstractmethod
    def drop(self, files: Collection[str]) -> None:
        """Remove staged files and what the journal says of them."""

    @abstractmethod
    def adopt(self, files: Collection[str]) -> None:
        """Take files over from the instance that stands, without copying them where the storage can do so."""

    @abstractmethod
    def dress(self, file: str, modified: int | None, mode: int | None) -> None:
        """Give a staged file its time of modification (ns) and its permissions, where the storage has such."""

    @abstractmethod
    def prepare(self, prepared: Prepared) -> None:
        """Make the staging whole: nothing but what was written or adopted and is meant, the manifest and the flags."""

    @abstractmethod
    def publish(self, guard: Guard) -> None:
        """Let the guard decide, then make the content visible as `InstanceStore.publish` does.

        If the guard raises, the staging stays for whoever comes next. It has to be flushed before: see `Copying.flush`.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove the staging with all that it holds."""


class Copying(ABC):
    """One store as the source and target of copies."""

    @property
    @abstractmethod
    def is_remote(self) -> bool:
        """Whether requests wait for a network, so that many at once take hardly longer than one."""

    @abstractmethod
    def survey(self, path: str, flag: str | None, now: int, *, everything: bool = False) -> Survey:
        """List the content of a source, or with `everything` also its hidden files (no flag, nothing of ours).

        `now` are nanoseconds since 1970 by the wall clock. There are no files unless it is AVAILABLE or EMPTY.
        Raises `InstanceChangingError` when it does not hold still, `PathRefusedError` for a link out of the root or to
        a directory, and `StorageError` when the root itself is not there.
        """

    @abstractmethod
    def mark(self, path: str) -> str:
        """A sign of the publication that stands at a path, found out at once; "" if it was not published by us."""

    @abstractmethod
    def standing(self, path: str) -> Standing:
        """What stands at a path that a copy will replace; nothing of a copy that is being written in place."""

    @abstractmethod
    def recover(self, path: str) -> bool:
        """`InstanceStore.recover`; False, too, for a publication that only another one can bring to an end."""

    @abstractmethod
    def find_publication(self, path: str, flags: Sequence[str]) -> Publication | None:
        """The head of what was published at a path; None unless it is whole, with these flags, and of ours."""

    @abstractmethod
    def reading(self, path: str) -> AbstractContextManager[Reading]:
        """Open an instance for reading. Raises `InstanceNotFoundError`."""

    @abstractmethod
    def assembly(self, path: str, token: str) -> Assembly:
        """The staging of (path, token) for a copy; nothing is contacted before `open` or `join`."""

    @abstractmethod
    def find_obstacle(self, path: str) -> str | None:
        """Why what stands at a path must not be replaced, as a clause for a message: it is a link or a mount point, or
        something is mounted in it, which would be moved along. None if it may be. Found out at once.
        """

    @abstractmethod
    def snapshots(self, path: str, shelf: str) -> Snapshots:
        """The snapshots of a directory on one `shelf`, a plain name; nothing is contacted here."""

    @abstractmethod
    def flush(self, assemblies: Sequence[Assembly]) -> None:
        """Bring to disk what was written into these or published from these, all at once."""
