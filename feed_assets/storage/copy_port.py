"""The port to copying: what a store tells of an instance that is copied, and how the copy is put together on another.

A copy is put together, file by file, in a staging that outlives the process which fills it: whoever opens it again goes
on with the files that are there. It is published as any staging is.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from feed_assets.storage.manifests import Publication
from feed_assets.storage.records import Availability, Guard, Manifest, ManifestEntry, StagingPlace
from feed_assets.storage.snapshots import Snapshots

CHUNK = 1 << 20
"""How many bytes pass through memory at once where a file is copied in order."""


class SourceFile(NamedTuple):
    """One file of a source; a tuple, there are many.

    `version` changes when it is written (an ETag, or inode and times); `is_settled` says that a second write shows,
    too.
    `checksum` is `blake3:<hex>` if the manifest of its publication has it and it was not written since, else "".
    `modified` are nanoseconds since 1970, `mode` the permission bits; None where the storage has no such thing.
    """

    path: str
    size: int
    version: str
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
        return [file[:3] for file in self.files] == [file[:3] for file in other.files]  # path, size, version

    @property
    def fingerprint(self) -> str:
        """A short name for the state of the whole source."""
        text = "".join([f"{path}\0{size}\0{version}\n" for path, size, version, *_ in self.files])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


class Standing(NamedTuple):
    """What stands at a path: its `mark` (see `Copying.mark`), and all files (flags and hidden ones, too) by size.

    `is_unfinished`: a publication has begun there, and `InstanceStore.recover` may have something to do.
    """

    mark: str
    files: Mapping[str, int]
    is_unfinished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What a staging shall become: its manifest, the availability flags, and the hidden files that belong to it."""

    manifest: Manifest
    flags: tuple[str, ...] = ()
    hidden: tuple[ManifestEntry, ...] = ()


class Reading(ABC):
    """The files of one instance, open for reading from several threads."""

    @abstractmethod
    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        """Read a file from its beginning to its end. Raises `InstanceNotFoundError` when it is gone.

        A chunk is valid until the next is taken.
        """


class StagedFile(NamedTuple):
    """One whole file of a staging, as the partial manifest of that staging has it. A tuple, because there are many.

    `checksum` is that of the bytes that were read from the source. `version` and `is_settled` are those of the source
    file.
    """

    path: str
    size: int
    checksum: str
    version: str
    is_settled: bool


class Staging(ABC):
    """A hidden place for the next content of one instance, safe to be filled by several threads and processes at once.

    Files are named relative to the instance. A file has its name in the staging only when it is whole. The staging
    outlives the process that fills it: whoever opens it again goes on with the files that were recorded. Every method
    raises `StorageError` when the filesystem refuses. Nothing is contacted before `create`, `open`, `seal` or `join`.
    """

    path: str
    token: str

    @abstractmethod
    def create(self) -> StagingPlace:
        """Make the staging anew and empty, for a writer that puts its files there by itself; return where."""

    @abstractmethod
    def open(self) -> int:
        """Make the staging, or take it over with all that was recorded; return its generation, which `join` wants.

        The generation of a new staging is 1. Writers of former generations are waited for, and shut out from then on.
        Raises `InstanceChangingError` if writers do not end.
        """

    @abstractmethod
    def seal(self) -> None:
        """Do as `open`, and keep all others out until `close`, where the storage knows locks."""

    @abstractmethod
    def join(self, generation: int) -> None:
        """Become a writer until `close`. Raises `StagingLostError` if another process has taken the staging over."""

    @abstractmethod
    def close(self) -> None:
        """Give back what this process holds; the staging stays."""

    @abstractmethod
    def put(self, file: str, size: int, chunks: Iterable[bytes | memoryview]) -> None:
        """Write one whole file, in place of one that is there. A chunk is valid until the next is taken.

        Raises `StorageError` if another size than `size` came. What is broken off, by an exception of `chunks` too,
        leaves no file of this name that was not there before.
        """

    @abstractmethod
    def record(self, files: Sequence[StagedFile]) -> None:
        """Add whole files to the partial manifest, which outlives this process. The latest record of a file counts."""

    @abstractmethod
    def recorded(self) -> list[StagedFile]:
        """Return the partial manifest: one record for each file that is still there, with its size, as it was put."""

    @abstractmethod
    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        """Read back a file that was put or adopted. Raises `InstanceNotFoundError` if it is not there.

        A chunk is valid until the next is taken.
        """

    @abstractmethod
    def drop(self, files: Collection[str]) -> None:
        """Remove files, and what was recorded of them."""

    @abstractmethod
    def adopt(self, files: Collection[str]) -> None:
        """Take files over from the instance that stands, without copying them where the storage can do so.

        An adopted file is not recorded.
        """

    def dress(self, file: str, modified: int | None, mode: int | None) -> None:  # noqa: B027 - objects have neither
        """Give a file its time of modification (ns) and its permissions, where the storage has such."""

    @abstractmethod
    def prepare(self, prepared: Prepared) -> None:
        """Make the staging whole: nothing but what was put or adopted and is meant, the manifest and the flags.

        Raises `StorageError` if a file that is meant is missing or has another size.
        """

    @abstractmethod
    def publish(self, guard: Guard) -> None:
        """Let the guard decide, then make the content visible as `InstanceStore.publish` does.

        If the guard raises, the staging stays for whoever comes next. Flush it before: see `Copying.flush`.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove the staging with all that it holds, if it exists."""


class Copying(ABC):
    """One store as the source and target of copies."""

    @property
    def is_remote(self) -> bool:
        """Whether requests wait for a network, so that many at once take hardly longer than one."""
        return True

    @abstractmethod
    def survey(self, path: str, flag: str | None, now: int, *, everything: bool = False) -> Survey:
        """List the content of a source, or with `everything` also its hidden files (no flag, nothing of ours).

        `now` are nanoseconds since 1970 by the wall clock. There are no files unless it is AVAILABLE or EMPTY.
        Raises `InstanceChangingError` when it does not hold still, `PathRefusedError` for a link out of the root or to
        a directory, and `StorageError` when the root itself is not there.
        """

    @abstractmethod
    def mark(self, path: str) -> str:
        """A mark of the publication that stands at a path, found out at once; "" if it was not published by us."""

    @abstractmethod
    def standing(self, path: str) -> Standing:
        """What stands at a path that a copy will replace."""

    @abstractmethod
    def find_publication(self, path: str, flags: Sequence[str]) -> Publication | None:
        """The head of what was published at a path; None unless it is whole, with these flags, and of ours."""

    @abstractmethod
    def reading(self, path: str) -> AbstractContextManager[Reading]:
        """Open an instance for reading. Raises `InstanceNotFoundError`."""

    @abstractmethod
    def staging(self, path: str, token: str) -> Staging:
        """Return the staging of (path, token); a publication of the path that broke off is finished before."""

    def find_obstacle(self, path: str) -> str | None:  # noqa: ARG002 - without links and mounts there is none
        """Why what stands at a path must not be replaced, as a clause for a message: it is a link or a mount point, or
        something is mounted in it, which would be moved along. None if it may be. Found out at once.
        """
        return None

    @abstractmethod
    def snapshots(self, path: str, shelf: str) -> Snapshots:
        """The snapshots of a directory on one `shelf`, a plain name; nothing is contacted here."""

    def flush(self, stagings: Sequence[Staging]) -> None:  # noqa: B027 - objects are on disk when they are written
        """Bring to disk what was written into these or published from these, all at once."""
