"""What copies need of a store: documents of ours, how a source is told and read, how a copy of it is assembled.

A copy is assembled file by file in a staging. The staging survives the process that fills it: the next process
continues with the files that are there. Then it is published like any staging.
"""

import gzip
import hashlib
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from feed_assets.errors import describe_error
from feed_assets.storage.errors import ManifestError, StorageError, Translated
from feed_assets.storage.manifests import parse_manifest, render_manifest
from feed_assets.storage.paths import parse_token
from feed_assets.storage.records import Availability, Guard, Manifest, ManifestEntry, StagingPlace

SNAPSHOTS_FOLDER = "snapshots"


class Documents(ABC):
    """Small files of ours with one suffix in one hidden folder of a store. Names follow the rule of staging tokens.

    Every method raises `StorageError` if the storage refuses, and `translated` says so. `store` is its URL.
    """

    def __init__(self, store: str, folder: str, suffix: str, translated: Translated) -> None:
        self.translated = translated
        self._store = store
        self._folder = folder
        self._suffix = suffix

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all documents, sorted; none if the folder or the root of the store does not exist."""

    @abstractmethod
    def find(self, name: str) -> bytes | None:
        """Return the content of a document; None if it does not exist."""

    @abstractmethod
    def keep(self, name: str, content: bytes) -> None:
        """Save a document atomically, and replace one of the same name; it is on disk on return.

        Never creates the root: it may be an unmounted storage.
        """

    @abstractmethod
    def drop(self, name: str) -> None:
        """Remove a document, if it exists."""

    def _file(self, name: str) -> str:
        return f"{parse_token(self._store, name)}{self._suffix}"

    def _names_of(self, files: Iterable[str]) -> list[str]:
        return sorted(file.removesuffix(self._suffix) for file in files if file.endswith(self._suffix))


class Snapshots:
    """One list of snapshots of one directory, with one writer at a time: a manifest each.

    Every method raises `StorageError` if the filesystem refuses.
    """

    def __init__(self, documents: Documents, store: str, path: str) -> None:
        self._documents = documents
        self._store = store
        self._path = path

    def names(self) -> list[str]:
        """Return the names of all snapshots, sorted."""
        return self._documents.names()

    def find(self, name: str) -> Manifest | None:
        """Return the manifest of a snapshot; None if it does not exist. Raises `ManifestError` if it is unreadable."""
        data = self._documents.find(name)
        if data is None:
            return None
        try:
            text = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as exc:
            raise ManifestError(
                store=self._store, path=self._path, reason=f"it is damaged ({describe_error(exc)})"
            ) from exc
        return parse_manifest(text, store=self._store, path=self._path)

    def keep(self, name: str, manifest: Manifest, *, with_content: bool) -> None:  # noqa: ARG002 - needs hard links
        """Save a snapshot atomically, and replace one of the same name; it is on disk on return.

        `with_content` also keeps the content of the directory, if the storage supports hard links. Raises
        `InstanceChangingError` if the directory is not a publication with this manifest at that time.
        """
        self._documents.keep(name, gzip.compress(render_manifest(manifest), mtime=0))

    def content(self, name: str) -> str | None:  # noqa: ARG002 - there is none without hard links
        """Return the URL of the content; None if only the manifest is kept."""
        return None

    def drop(self, name: str) -> None:
        """Remove a snapshot, if it exists, and the remains of interrupted calls."""
        self._documents.drop(name)


CHUNK = 1 << 20
"""The number of bytes of a file that are in memory at a time."""


class Traits(NamedTuple):
    """What HDFS keeps of a file besides its bytes, times and permissions; "" and 0 are not to be changed."""

    owner: str
    group: str
    replicas: int
    block_size: int


Acl: TypeAlias = tuple[tuple[str, str, str, str | None], ...]
"""The entries of an access list: type, scope, permissions such as `r-x`, and name."""


class SourceFile(NamedTuple):
    """One file of a source. A tuple, because there are many.

    `version` (an ETag, or inode and times) changes when the file is written. If `is_settled`, every later write changes
    it. `checksum` is `blake3:<hex>` if the manifest of the publication has it and the file was not written since, else
    "". `modified` is in nanoseconds since 1970, `mode` has the permission bits; these and `traits` are None if the
    storage has none.
    """

    path: str
    size: int
    version: str
    is_settled: bool
    checksum: str = ""
    modified: int | None = None
    mode: int | None = None
    traits: Traits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All files of a source, ordered by path, without having read them. `mark` is `InstanceStore.mark` at that moment.

    `others` are the paths of pipes, sockets and devices, which cannot be copied. `description` is what readers of the
    partition of a table must know beside its files, as a text for the target; "" for a directory.
    """

    availability: Availability
    files: tuple[SourceFile, ...] = ()
    mark: str = ""
    others: tuple[str, ...] = ()
    description: str = ""

    def is_like(self, other: "Survey") -> bool:
        """Whether both surveys have the same files, and none was written between them."""
        if self.description != other.description:
            return False
        if self.files == other.files:
            return True
        return [file[:3] for file in self.files] == [file[:3] for file in other.files]  # path, size, version

    @property
    def fingerprint(self) -> str:
        """A digest of the state of the whole source."""
        text = "".join([f"{path}\0{size}\0{version}\n" for path, size, version, *_ in self.files])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    @property
    def described(self) -> dict[str, str]:
        """The digest of the description, for the manifest of a copy; nothing of a directory."""
        digest = hashlib.sha256(self.description.encode()).hexdigest()[:32]
        return {"description": digest} if self.description else {}


class Standing(NamedTuple):
    """The present content of a path: its `mark` (see `InstanceStore.mark`), and the sizes of all files, also of flags
    and hidden files. `is_unfinished`: a publication was interrupted there, and `InstanceStore.recover` may be needed.
    """

    mark: str
    files: Mapping[str, int]
    is_unfinished: bool


def size_error(store: str, path: str, file: str, found: int | None, size: int) -> StorageError:
    """Build the error for a staged file that has not its size, or is not there."""
    there = "no" if found is None else f"{found:,}"
    reason = f"the copy of {file!r} has {there} bytes instead of {size:,}"
    return StorageError(store=store, path=path, reason=reason, next_step="Copy the instance again.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The final content of a staging: its manifest, the availability flags, and the hidden files that belong to it.

    Without a manifest it is an exact copy of the files in `hidden`: nothing is added to them, they go only to a place
    where nothing is, and those that are `flags` appear last. `description`: see `Survey`.
    """

    manifest: Manifest | None
    flags: tuple[str, ...] = ()
    hidden: tuple[ManifestEntry, ...] = ()
    description: str = ""

    def require(self, there: Mapping[str, int], store: str, path: str) -> None:
        """Raise `StorageError` unless all files are there with their sizes."""
        for file, size in self.sizes.items():
            if there.get(file) != size:
                raise size_error(store, path, file, there.get(file), size)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of all files that must be staged."""
        content = self.manifest.entries if self.manifest else ()
        return {entry.path: entry.size for entry in (*content, *self.hidden)}


class Reading(ABC):
    """The files of one instance, open for reading from several threads."""

    @abstractmethod
    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        """Read a file from start to end. A chunk is valid until the next one is requested.

        Raises `InstanceNotFoundError` if the file is gone.
        """

    def acl(self, file: str) -> Acl | None:  # noqa: ARG002 - only HDFS has any that can be copied
        """Return the access list of a file; None if the storage has none."""
        return None


class StagedFile(NamedTuple):
    """One complete file in the partial manifest of a staging. A tuple, because there are many.

    `checksum` is that of the bytes read from the source; `version` and `is_settled` are those of the source file.
    """

    path: str
    size: int
    checksum: str
    version: str
    is_settled: bool


class Staging(ABC):
    """A hidden folder for the next content of one instance. Several threads and processes may fill it at once.

    File names are relative to the instance. A file gets its name in the staging only when it is complete. The staging
    survives the process that fills it: the next process continues with the recorded files. Every method raises
    `StorageError` if the filesystem refuses. Nothing is contacted before `create`, `open`, `seal` or `join`.
    """

    path: str
    token: str
    copies_adopted: bool = False
    """Whether `adopt` writes files anew, so that they are read back as those of the source are."""

    @abstractmethod
    def create(self, *, is_again: bool = False) -> StagingPlace:
        """Create the staging, empty, for a writer that writes its files there itself; return the place. If it may have
        been created for the same writer, `is_again`, what is there already is kept.
        """

    @abstractmethod
    def open(self) -> int:
        """Create the staging, or take it over with its recorded files; return its generation for `join`.

        A new staging has generation 1. Waits for writers of earlier generations, and locks them out from then on.
        Raises `InstanceChangingError` if writers do not end.
        """

    @abstractmethod
    def seal(self, generation: int | None = None) -> None:
        """Do the same as `open`, and lock out all other writers until `close`, if the storage has locks. Without locks,
        raise `StagingLostError` if the staging is no longer that of `generation`.
        """

    @abstractmethod
    def join(self, generation: int) -> None:
        """Become a writer until `close`. Raises `StagingLostError` if another process has taken the staging over."""

    @abstractmethod
    def close(self) -> None:
        """Release what this process holds; the staging stays."""

    @abstractmethod
    def put(self, file: str, size: int, chunks: Iterable[bytes | memoryview], block_size: int | None = None) -> None:
        """Write one complete file; replace an existing one. A chunk is valid until the next one is requested.

        On HDFS its blocks have `block_size`, if that is given.

        Raises `StorageError` if the chunks do not have `size` bytes in total. An interrupted write, also by an
        exception of `chunks`, creates no file of this name.
        """

    @abstractmethod
    def record(self, files: Sequence[StagedFile]) -> None:
        """Add complete files to the partial manifest, which survives this process. The last record of a file counts."""

    @abstractmethod
    def recorded(self) -> list[StagedFile]:
        """Return the partial manifest: one record for each file that is still there with its recorded size."""

    @abstractmethod
    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        """Read back a file that was put or adopted. A chunk is valid until the next one is requested.

        Raises `InstanceNotFoundError` if the file is not there.
        """

    @abstractmethod
    def drop(self, files: Collection[str]) -> None:
        """Remove files and their records."""

    @abstractmethod
    def adopt(self, files: Collection[str]) -> None:
        """Add files of the present instance to the staging, without copying them if the storage can do that.

        An adopted file is not recorded.
        """

    def dress(self, file: str, modified: int | None, mode: int | None) -> None:  # noqa: B027 - objects have neither
        """Set the modification time (ns) and the permissions of a file, if the storage has them."""

    def grant(self, file: str, traits: Traits, acl: Acl | None) -> None:  # noqa: B027 - only HDFS has them
        """Give a file its owner, group and number of replicas, and its access list, if the storage has them."""

    @abstractmethod
    def prepare(self, prepared: Prepared) -> None:
        """Complete the staging: drop unexpected files, then write the manifest and the availability flags.

        Raises `StorageError` if an expected file is missing or has another size.
        """

    @abstractmethod
    def publish(self, guard: Guard) -> None:
        """Call the guard, then make the content visible as `InstanceStore.publish` does.

        If the guard raises, the staging stays for the next process. Flush the staging before, by `InstanceStore.flush`.
        Raises `PlaceOccupiedError` if something is in the place of an exact copy.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove the staging and its content, if it exists."""
