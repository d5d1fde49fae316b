"""The port to instance storage: everything the project may ask of one cluster's filesystem.

An instance is a directory known by its path below the store's root. The docstrings of `InstanceStore` are the
contract; every adapter passes one behaviour suite.
"""

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from feed_assets.errors import SystemFault, system_fault_of
from feed_assets.storage.copy_port import SNAPSHOTS_FOLDER, Documents, Reading, Snapshots, Staging, Standing, Survey
from feed_assets.storage.deliveries import Deliveries
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    ManifestError,
    PathRefusedError,
    StorageAwayError,
    StorageError,
    StorageFullError,
    Translated,
)
from feed_assets.storage.listing import (
    Entry,
    Listing,
    View,
    availability_of,
    find_uncopied,
    is_like,
    look_of,
    mark_of,
    measure_of,
    scan_listing,
    source_entries,
    source_files,
    standing_of,
)
from feed_assets.storage.manifests import Publication, hidden_entries, parse_head, parse_manifest, read_entry
from feed_assets.storage.paths import (
    MANIFEST_NAME,
    PUBLISHING_NAME,
    SINGLE_FILE,
    parents_below,
    parse_flag,
    parse_path,
    parse_token,
    path_name,
)
from feed_assets.storage.records import (
    Availability,
    Clearing,
    Extra,
    Guard,
    Look,
    Manifest,
    ManifestEntry,
    Measure,
    Moved,
    Purged,
    Scan,
    StagingPlace,
)

Choose: TypeAlias = Callable[[str, Sequence[str]], Iterable[str]]
"""Called with a folder, relative to the base of a walk ("" for the base), and the names in it; returns the names to
continue with."""

Kept: TypeAlias = tuple[Sequence[str], Callable[[str], Iterable[bytes | memoryview]]]
"""The names of all files of an instance in the trash, and what reads one by its name, in chunks."""

_TRIES = 10
_ALL = 1 << 62
_THREADS = 8
_DESCRIPTION = "sweep"
_KINDS = {SystemFault.AWAY: StorageAwayError, SystemFault.FULL: StorageFullError}


class FolderNames(NamedTuple):
    """The names that a walk chose in one folder. The folder is relative to the root: "", or with a trailing slash."""

    folder: str
    names: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePath:
    """A directory or file: its store and its path below the store's root."""

    store: "InstanceStore"
    path: str


class InstanceStore(ABC):
    """Instances on one cluster's storage, safe to use from several threads and processes.

    A `path` is relative to `root_url`; leading, trailing and doubled slashes are ignored. Every method raises
    `PathRefusedError` for a path that is empty, contains `.` or `..`, names the store's hidden folder, or leads out of
    the root through a symbolic link; and `StorageError` (its base) if the filesystem refuses.
    A `flag` is the name of the availability flag inside an instance; None or "" if none is configured.
    """

    root_url: str
    spark_scheme: str | None
    """The URL scheme by which this Spark's own connector opens the storage (`file`, `s3a`, …); None if it has none."""

    @abstractmethod
    def check_root(self) -> None:
        """Contact the storage, writing nothing. Raises `StorageError` unless the root exists or can be created."""

    @abstractmethod
    def listings(
        self, paths: Sequence[str], view: View, names: Sequence[str] = (), *, manifest: int = 0
    ) -> Iterator[Listing]:
        """List places: one listing per path, in the same order, one by one and never from a cache.

        `names` are the files that a listing must show beyond its view. With `manifest` it also has the text of the
        published manifest of the same moment, or at least so many bytes of it; a NAMED one without it may show nothing.
        What concerns one path only is the `obstacle` of its listing; raises what concerns the whole store. All
        questions below are answered from listings.
        """

    def look(self, paths: Sequence[str], flag: str | None) -> list[Look]:
        """Return the availability of many instances: one result per path, in the same order; never cached.

        MISSING: nothing is there. With a flag: AVAILABLE if the instance contains it, else PARTIAL. Without a flag:
        AVAILABLE if the content has bytes, else EMPTY. PARTIAL also during a publication in place. Stagings do not
        count. A file in place of the directory counts as one file without a flag. What keeps the store from looking
        into one path (a link out of the root, missing rights, an invalid path) is the `obstacle` of its result; it
        raises only what concerns the whole store.
        """
        flag = parse_flag(self.root_url, flag)
        listings = self.listings(paths, View.CONTENT, _named(flag))
        return [look_of(path, listing, flag) for path, listing in zip(paths, listings, strict=True)]

    def manifest(self, path: str, flag: str | None = None) -> Manifest:
        """Compute the manifest of an instance by reading all of it; never a mix of two publications.

        Raises `InstanceNotFoundError`; `InstanceChangingError` if the instance keeps changing or is being published;
        `PathRefusedError` if a symbolic link inside leads out of the root or to a directory.
        """
        return self._read_content(path, flag, None)

    def scan(self, path: str, flag: str | None, earlier: Scan | None, now: datetime) -> Scan:
        """Scan the content of an instance; read only the files that `earlier`, a scan of the same path, does not cover.

        Availability is that of `look`; only an AVAILABLE instance is read. A rewritten file with other content has
        another checksum, even with its old size and time. If the storage reports changes only by times, a file that
        changed less than two seconds before `now` (real time) has no version, so it is read again. If the storage's
        own checksums depend on more than content (S3 with SSE-KMS), a file rewritten with the same content counts as
        changed. Raises `InstanceChangingError` if the instance keeps changing.
        """
        flag = parse_flag(self.root_url, flag)
        for _ in range(_TRIES):
            listing = self._list_to_scan(path, flag)
            with suppress(InstanceNotFoundError):
                scan = scan_listing(listing, flag, earlier, now, partial(self._read_files, path))
                if not scan.read or is_like(listing, self._list(path, View.CONTENT, flag), flag):
                    return scan
        raise InstanceChangingError(store=self.root_url, path=path, reason="it does not hold still")

    def published_manifest(self, path: str) -> Manifest | None:
        """Return the manifest written at publication; None if the instance is missing or was not published by us.

        Raises `ManifestError` if it cannot be read.
        """
        text = self._list(path, View.NAMED, manifest=_ALL).manifest
        return None if text is None else parse_manifest(text, store=self.root_url, path=path)

    def find_publication(self, path: str, flags: Sequence[str]) -> Publication | None:
        """Return the head of the publication at a path; None unless it is ours, complete, and has these flags."""
        for most in (1, _ALL):
            listing = self._list(path, View.NAMED, PUBLISHING_NAME, *flags, manifest=most)
            if listing.manifest is None or listing.is_marked or any(listing.find(flag) is None for flag in flags):
                return None
            if (head := parse_head(listing.manifest)) is not None:
                return head
        return None

    def mark(self, path: str) -> str:
        """Return a mark that changes with each publication at a path; "" without a publication of ours. Cheap."""
        return mark_of(self._list(path, View.NAMED, MANIFEST_NAME))

    def survey(self, path: str, flag: str | None, now: int, *, everything: bool = False) -> Survey:
        """List the content of a source; with `everything` also hidden files, but neither the flag nor our own files.

        `now` is the real time in nanoseconds since 1970. Only an AVAILABLE or EMPTY source has files.
        Raises `InstanceChangingError` if the source keeps changing, `PathRefusedError` for a link to a directory or out
        of the root.
        """
        flag, view = parse_flag(self.root_url, flag), View.SOURCE if everything else View.CONTENT
        listing = self._list(path, view, flag, MANIFEST_NAME, manifest=_ALL)
        availability = availability_of(listing, flag)
        if availability in (Availability.MISSING, Availability.PARTIAL):
            return Survey(availability=availability)
        found = self._source(path, listing, flag, everything=everything)
        known, published = dict[str, ManifestEntry](), listing.find(MANIFEST_NAME)
        if listing.manifest is not None:
            with suppress(ManifestError):
                manifest = parse_manifest(listing.manifest, store=self.root_url, path=path)
                known = {entry.path: entry for entry in (*manifest.entries, *hidden_entries(manifest))}
        published_at = 0 if published is None else published.modified or 0
        files = source_files(found, known, published_at, now)
        return Survey(availability=availability, files=files, mark=mark_of(listing), others=listing.others)

    def survey_all(self, path: str, now: int) -> Survey:
        """List all files of an instance in any state, for an exact copy: flag, manifest and hidden files, too.

        It is AVAILABLE if it exists; a single file in place of the directory is named `SINGLE_FILE`. Raises
        `PathRefusedError` if it must not be moved (see `Measure.obstacle`), or if not all of it can be copied.
        """
        listing = self._list_whole(path)
        if not listing.exists:
            return Survey(availability=Availability.MISSING)
        if (obstacle := measure_of(path, listing).obstacle) is not None:
            raise PathRefusedError(store=self.root_url, path=path, reason=obstacle)
        return Survey(availability=Availability.AVAILABLE, files=source_files(listing.entries, {}, 0, now))

    def standing(self, path: str) -> Standing:
        """Return the present content of a path that a copy will replace."""
        return standing_of(self._list(path, View.STANDING))

    def fetch(self, path: str, to: Path, flag: str | None = None) -> Manifest:
        """Copy the content into the local directory `to`, created if needed; return the manifest of the copy.

        Never a mix of two publications. Raises the errors of `manifest`, and `StorageError` if `to` is not empty.
        """
        with self._translated(path):
            to.mkdir(parents=True, exist_ok=True)
            if any(to.iterdir()):
                raise StorageError(
                    store=self.root_url,
                    path=path,
                    reason=f"{to} holds something already",
                    next_step="Fetch into a directory that is empty or does not exist.",
                )
            return self._read_content(path, flag, to)

    def stage(self, path: str, token: str, *, is_again: bool = False) -> StagingPlace:
        """Create an empty staging for (path, token); replace an earlier one of the same name, or keep it if `is_again`.

        `token` is a file name (letters, digits, `.`, `_`, `-`), such as the id of a run and an attempt. Concurrent
        stagings of one path need different tokens.
        """
        return self.staging(path, token).create(is_again=is_again)

    @abstractmethod
    def staging_url(self, path: str, token: str) -> str:
        """Return the URL below which programs put files of a staging of `stage`; its scheme is that of the storage."""

    @abstractmethod
    def staged_files(self, path: str, token: str) -> Mapping[str, int]:
        """Return the sizes of the files in a staging of `stage`; none if there is no such staging."""

    @abstractmethod
    def keep_staged(self, path: str, token: str, names: Mapping[str, str]) -> None:
        """Give staged files other names, in no folder, by their present ones, and remove all other files of a staging.

        After a crash in its midst the staging is of no use.
        """

    @abstractmethod
    def publish(
        self, staging: StagingPlace, *, flag: str | None, guard: Guard, extra: Extra, clearing: Clearing | None = None
    ) -> Manifest:
        """Replace the instance by the staged content, and return its manifest.

        Everything is prepared and flushed first: manifest, flag, parents. Then `guard()` runs. Then the content
        becomes visible: at once if directories can be exchanged; else objects first, then the manifest, then the flag,
        and PARTIAL until then. If `guard` raises, nothing visible has changed, the staging is discarded, and the
        exception propagates. After a crash at any point the instance is the old one or the new one (on an object
        store: or PARTIAL until `recover`). `recover`, a repeated `publish` of a staging that still exists, and a repeat
        of stage, write and publish all converge. After success the staging is gone. Publications of one path on one
        machine are serialized; on an object store an overtaken publisher stops with `InstanceChangingError`.
        After the guard and before anything becomes visible, what the last manifest in the place does not name goes to
        the trash, by the rules of `clearing` (see `clear_place`). Without it, foreign content is refused.
        Raises `StagingLostError` if the staging does not exist, and `ForeignContentError`.
        """

    @abstractmethod
    def discard(self, staging: StagingPlace) -> None:
        """Remove a staging and its content, if it exists; finish a publication that has begun before."""

    @abstractmethod
    def recover(self, path: str) -> bool:
        """Finish or undo an interrupted publication of `path`; return whether there was one. Harmless at any time."""

    @abstractmethod
    def sweep_staging(self, older_than: datetime) -> int:
        """Remove stagings in which nothing changed since `older_than` (aware); return their number.

        An interrupted publication is recovered first, so the only copy of an instance is never removed.
        """

    def walk(self, base: str, depth: int, choose: Choose) -> Iterator[str]:
        """Yield the paths of `walk_folders` one by one."""
        return (found.folder + name for found in self.walk_folders(base, depth, choose) for name in found.names)

    @abstractmethod
    def walk_folders(self, base: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
        """Find the paths `depth` (1 or more) levels below the folder `base` that `choose` picks at every level.

        Yields one folder at a time, some without names, in no order. `base` may be "", the root. Paths are relative to
        the root. They are real directories; at the last level also regular files. No symbolic link is followed, not
        even one that replaces a directory during the walk; no other filesystem is entered, and the hidden folder is not
        shown. `choose` is called once per folder, always from this thread; other names than the given ones are ignored.
        A missing base has no paths. Raises `PathRefusedError` for a base with a symbolic link or a mount point in it.
        """

    def measure(self, paths: Sequence[str]) -> list[Measure]:
        """Measure many paths: one result per path, in the same order; no symbolic link is followed."""
        return [measure_of(path, found) for path, found in zip(paths, self.listings(paths, View.WHOLE), strict=True)]

    def all_files(self, path: str) -> tuple[str, ...]:
        """Return the relative paths of ALL files of an instance, ordered; ("",) if it is a file itself.

        Raises `InstanceNotFoundError`, and `PathRefusedError` as `survey_all` does.
        """
        survey = self.survey_all(path, 0)
        if survey.availability is Availability.MISSING:
            raise InstanceNotFoundError(store=self.root_url, path=path)
        return tuple("" if file.path == SINGLE_FILE else file.path for file in survey.files)

    def standing_files(self, path: str) -> tuple[str, ...]:
        """Return what `all_files` returns, also during a publication; empty if nothing is there."""
        return tuple(sorted(entry.path for entry in self._list_whole(path).entries))

    @abstractmethod
    def trash(self) -> "Trash":
        """Return the trash, the only object that can remove instances from this store."""

    @abstractmethod
    def documents(self, folder: str, suffix: str, about: str = "") -> Documents:
        """Return the documents in a folder of the hidden folder, beside the data of a table; nothing is contacted.

        Errors name the path that they are `about`, by default the folder.
        """

    def traces(self) -> Documents:
        """Return the traces of holds on the data of this store."""
        return self.documents("holds", ".json")

    @property
    def is_remote(self) -> bool:
        """Whether requests wait for a network, so that many concurrent ones take hardly longer than one."""
        return True

    def require_root(self) -> None:  # noqa: B027 - storage without mount points has none
        """Raise `StorageError` if the root is not there, as that of an unmounted storage: nothing is then missing."""

    @abstractmethod
    def reading(self, path: str) -> AbstractContextManager[Reading]:
        """Open an instance for reading. Raises `InstanceNotFoundError`."""

    @abstractmethod
    def staging(self, path: str, token: str) -> Staging:
        """Return the staging of (path, token) for copies; finish an interrupted publication of the path before."""

    def receive_from(self, source: "InstanceStore") -> None:  # noqa: B027 - directories take any files
        """Make what copies of instances of another store need here, a table that is not there; nothing of an instance.

        Raises `StorageError` if copies from there cannot be kept here, as those of a table with other columns.
        """

    def find_obstacle(self, path: str) -> str | None:  # noqa: ARG002 - without links and mounts there is none
        """Return why the content of a path must not be replaced, as a clause for a message; None if it may be.

        A link or a mount point must not, nor a directory in which something is mounted, which would be moved along.
        """
        return None

    def snapshots(self, path: str, shelf: str) -> Snapshots:
        """Return the snapshots of a directory on one `shelf`, a plain name; nothing is contacted."""
        return Snapshots(self._shelf(path, shelf), self.root_url, path)

    def flush(self, stagings: Sequence[Staging]) -> None:  # noqa: B027 - objects are on disk when they are written
        """Flush to disk what was written into these stagings or published from them, all at once."""

    def deliveries(self, folder: str) -> Deliveries:
        """Return a folder into which others put files. Tables have none."""
        raise NotImplementedError(f"{self.root_url} has no folder {folder}")

    def place(self, path: str) -> "StorePath":
        """Return where the files of an instance are: at the path in this store, except those of a table's partition.

        Raises `InstanceNotFoundError` for a partition that does not exist.
        """
        return StorePath(store=self, path=path)

    def url(self, path: str) -> str:
        """Return the URL of an instance: the root's own scheme, the path as it is (nothing percent-encoded)."""
        return f"{self.root_url}/{parse_path(self.root_url, path)}"

    def local_path(self, path: str) -> Path | None:
        """Return the path of an instance on this machine's filesystem; None if it has none."""
        parse_path(self.root_url, path)
        return None

    def spark_url(self, path: str) -> str | None:
        """Return the URL by which Spark's own connector opens an instance; None if Spark has no such connector."""
        return None if self.spark_scheme is None else f"{self.spark_scheme}://{self.url(path).split('://', 1)[1]}"

    def _shelf(self, path: str, shelf: str) -> Documents:
        folder = f"{SNAPSHOTS_FOLDER}/{path_name(parse_path(self.root_url, path))}/{parse_token(self.root_url, shelf)}"
        return self.documents(folder, ".json.gz", path)

    def _list(self, path: str, view: View, *names: str | None, manifest: int = 0) -> Listing:
        """Return the listing of one place; raise its obstacle."""
        (listing,) = self.listings([path], view, _named(*names), manifest=manifest)
        if listing.obstacle is not None:
            raise listing.obstacle
        return listing

    def _list_to_scan(self, path: str, flag: str | None) -> Listing:
        """Return the listing of one place with all checksums that need no reading of its files."""
        return self._list(path, View.CONTENT, flag)

    def _list_whole(self, path: str) -> Listing:
        """List all files. Raises `PathRefusedError` if not all of them can be copied."""
        listing = self._list(path, View.WHOLE)
        if (reason := find_uncopied(listing)) is not None:
            raise PathRefusedError(store=self.root_url, path=path, reason=reason)
        return listing

    def _source(self, path: str, listing: Listing, flag: str | None, *, everything: bool = False) -> list[Entry]:
        if listing.is_file:
            raise self._refused(path, NotADirectoryError("it is a file, and an instance is a directory"))
        return source_entries(listing, flag, everything=everything)

    def _read_content(self, path: str, flag: str | None, to: Path | None) -> Manifest:
        """Read all content, into a directory if given; repeat if the instance changed meanwhile."""
        flag = parse_flag(self.root_url, flag)
        for _ in range(_TRIES):
            before = self._list(path, View.CONTENT)
            availability = availability_of(before, None)
            if availability is Availability.MISSING:
                raise InstanceNotFoundError(store=self.root_url, path=path)
            if availability is Availability.PARTIAL:
                raise InstanceChangingError(store=self.root_url, path=path, reason="a publication of it is under way")
            files = [entry.path for entry in self._source(path, before, None) if entry.path != flag]
            if to is not None and any(to.iterdir()):
                shutil.rmtree(to)
                to.mkdir()
            with suppress(InstanceNotFoundError):
                entries = self._read_files(path, files, to)
                if is_like(self._list(path, View.CONTENT), before):
                    return Manifest.of(entries)
        raise InstanceChangingError(store=self.root_url, path=path, reason="it does not hold still")

    def _read_files(self, path: str, files: Sequence[str], to: Path | None = None) -> list[ManifestEntry]:
        """Read files of one publication, into a directory if given. Raises `InstanceNotFoundError` if one is gone."""
        if not files:
            return []
        with self.reading(path) as reading:
            if len(files) == 1:
                return [_read_file(reading, to, files[0])]
            with ThreadPoolExecutor(min(_THREADS, len(files))) as pool:
                return list(pool.map(partial(_read_file, reading, to), files))

    def _translated(self, path: str) -> Translated:
        return Translated(self._refused, path)

    def _refused(self, path: str, exc: Exception) -> StorageError:
        """Translate an exception of a filesystem."""
        reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        if filename := getattr(exc, "filename", None):
            reason += f" ({filename})"
        fault = system_fault_of(exc) if isinstance(exc, OSError) else SystemFault.OTHER
        kind = _KINDS.get(fault, StorageError)
        return kind(
            store=self.root_url,
            path=path,
            reason=f"the filesystem refused: {reason}",
            next_step="Check that the storage is reachable, that it has space and that this user may use the path.",
        )


def _named(*names: str | None) -> tuple[str, ...]:
    return tuple(name for name in names if name is not None)


def _read_file(reading: Reading, to: Path | None, file: str) -> ManifestEntry:
    if to is None:
        return read_entry(file, reading.chunks(file or SINGLE_FILE))
    (to / file).parent.mkdir(parents=True, exist_ok=True)
    with (to / file).open("wb") as copy:
        return read_entry(file, reading.chunks(file), copy)


class Trash(ABC):
    """The trash of one store, safe to use from several threads and processes on different paths.

    A `sweep` is the id of a removal: a name of at most 200 letters, digits, `.`, `_`, `-`. What it removed stays in
    the store's hidden folder, below `.feed-assets/trash/<sweep>/`, until it is purged.
    A path outside the store gets the result REFUSED. Every method raises `StorageError` if the whole filesystem
    refuses; a repeat of the same call then finishes the work. At any time, also after a crash, each instance is whole
    at its path or in the trash (on an object store possibly whole in the trash and PARTIAL at its path, until the
    repeat). No symbolic link is followed, no other filesystem is entered.
    `flag` is the availability flag of the instances. On a store without renames it is removed first and restored last,
    so that no reader sees a part of an available instance.
    """

    store: InstanceStore
    takes_files: bool = True
    """Whether a single file of an instance can be put and restored; else only the instance as a whole."""

    def describe(self, sweep: str, document: Mapping[str, object]) -> None:
        """Write a JSON document about the sweep into its trash, flushed to disk. Call it before `put`.

        It explains the trash to people who have no state database. A later document replaces an earlier one.
        """
        self._documents(sweep).keep(_DESCRIPTION, json.dumps(document, indent=1).encode())

    def find_description(self, sweep: str) -> Mapping[str, object] | None:
        """Return the document of `describe`; None if there is none or it cannot be read."""
        text = self._documents(sweep).find(_DESCRIPTION)
        try:
            found = None if text is None else json.loads(text)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def _documents(self, sweep: str) -> Documents:
        return self.store.documents(f"trash/{parse_token(self.store.root_url, sweep)}", ".json")

    @abstractmethod
    def put(self, sweep: str, paths: Sequence[str], *, flag: str | None = None) -> list[Moved]:
        """Move instances to the trash: one result per path, in the same order. Flushed to disk once, at the end.

        MOVED, ALREADY (moved before, and nothing is there now), VANISHED, REFUSED, or CHANGED (moved before and
        produced again since, or changed during the move). One large call is cheaper than many.
        """

    @abstractmethod
    def keep(self, sweep: str, path: str, *, flag: str | None = None) -> Moved:
        """Copy an instance to the trash, whole or not at all, and leave it where it is; cheaper than reading it.

        MOVED, ALREADY (this sweep has one of this path, perhaps another), VANISHED or REFUSED, or CHANGED (during the
        copy). Only what is replaced as a whole and never written to may be kept so.
        """

    @abstractmethod
    def reading(self, sweep: str, path: str) -> AbstractContextManager[Kept]:
        """Open an instance in the trash for reading. Raises `InstanceNotFoundError`."""

    @abstractmethod
    def restore(self, sweep: str, paths: Sequence[str]) -> list[Moved]:
        """Restore instances byte for byte: one result per path, in the same order. Flushed like `put`.

        MOVED, OCCUPIED (the path is in use: both contents stay where they are), LOST or REFUSED.
        Removed parents are created again with their former permissions.
        """

    @abstractmethod
    def purge(self, sweep: str) -> Purged:
        """Delete the trash of a sweep for good. From the start of the purge on nothing of it can be restored.

        Links are deleted, not their targets. An instance whose restore was interrupted is kept and named as `obstacle`;
        restore it first. The purge of a sweep that is not in the trash is complete. A root that is not there, as of an
        unmounted storage, is an `obstacle`, too.
        """

    def remove_empty_parents(self, base: str, paths: Sequence[str]) -> list[str]:
        """Remove the empty parents of `paths` strictly below `base`; return the removed ones, deepest first.

        `base` may be "", the root. Paths that are not below `base` are ignored. Only empty directories are removed; a
        link or mount point on the way ends the removal. A store without directories removes none.
        """
        removed, occupied = list[str](), set[str]()
        for parent in parents_below(self.store.root_url, base, paths):
            is_removed = parent not in occupied and self._remove_empty(parent)
            if is_removed:
                removed.append(parent)
            elif is_removed is False:
                occupied.add(parent.rpartition("/")[0])
        return removed

    def _remove_empty(self, folder: str) -> bool | None:  # noqa: ARG002 - there are no directories
        """Remove a directory if it is empty; return False if it stays, None if there is none."""
        return None

    @abstractmethod
    def sweeps(self) -> list[str]:
        """Return the ids of all sweeps with something in the trash, ordered; interrupted purges included."""

    def settle(self, sweep: str, paths: Sequence[str]) -> frozenset[str]:
        """Finish what interrupted calls have left half done; return those of the paths that the sweep has removed.

        Each of the paths is afterwards whole in one place. Call it before a repeat decides anything by what is there.
        """
        return frozenset(path for path in paths if self.holds(sweep, path))

    @abstractmethod
    def contents(self, sweep: str) -> Iterator[str]:
        """Yield the paths that can be restored, in no order; none after an interrupted purge."""

    def receive(self, path: str, copy: "Callable[[StorePath], Moved]") -> Moved:
        """Let `copy` copy an instance to the place where its files belong; the result is that of `copy`."""
        return copy(StorePath(store=self.store, path=path))

    @abstractmethod
    def holds(self, sweep: str, path: str) -> bool:
        """Return whether this sweep has moved an instance to the trash, or has begun to."""
