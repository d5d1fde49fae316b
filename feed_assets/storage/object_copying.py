"""An object store as the source and target of copies."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from fsspec import AbstractFileSystem

from feed_assets.storage.checksums import is_of_content
from feed_assets.storage.copy_port import Assembly, Copying, Reading, SourceFile, Standing, Survey
from feed_assets.storage.errors import InstanceChangingError, InstanceNotFoundError, ManifestError
from feed_assets.storage.manifests import Publication, hidden_entries, parse_head, parse_manifest
from feed_assets.storage.object_assembly import Hands, ObjectAssembly
from feed_assets.storage.object_looks import look_at
from feed_assets.storage.object_snapshots import ObjectSnapshots
from feed_assets.storage.object_tree import (
    ObjectFile,
    ObjectListing,
    find_object,
    iter_ranges,
    list_objects,
    read_object,
)
from feed_assets.storage.paths import (
    CONTROL_FOLDER,
    MANIFEST_NAME,
    PUBLISHING_NAME,
    is_content,
    parse_flag,
    parse_path,
)
from feed_assets.storage.records import Availability, ManifestEntry
from feed_assets.storage.snapshots import Snapshots

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SETTLING = timedelta(seconds=2)


class ObjectCopying(Copying):
    """Copies from and to instances below a prefix."""

    def __init__(self, fs: AbstractFileSystem, root: str, root_url: str, hands: Hands) -> None:
        self._fs = fs
        self._root = root
        self._root_url = root_url
        self._hands = hands

    @property
    def is_remote(self) -> bool:
        return True

    def survey(self, path: str, flag: str | None, now: int, *, everything: bool = False) -> Survey:
        flag, key = parse_flag(self._root_url, flag), self._key(path)
        settled = _EPOCH + timedelta(microseconds=now // 1000) - _SETTLING
        with self._hands.translated(path):
            listing = list_objects(self._fs, key)
            look = look_at(path, listing, flag)
            if look.availability in (Availability.MISSING, Availability.PARTIAL):
                return Survey(availability=look.availability)
            if "" in listing.files:
                raise NotADirectoryError("it is a file, and an instance is a directory")
            known = self._published(path, key, listing)
            files = tuple(
                _source_file(file, settled, known.get(name), listing.files[MANIFEST_NAME] if known else None)
                for name, file in sorted(listing.files.items())
                if (is_content(name, flag) if everything is False else not _is_ours(name, flag))
            )
        manifest = listing.files.get(MANIFEST_NAME)
        mark = manifest.tag if manifest else ""
        return Survey(availability=look.availability, files=files, mark=mark)

    def mark(self, path: str) -> str:
        with self._hands.translated(path):
            found = find_object(self._fs, f"{self._key(path)}/{MANIFEST_NAME}")
        return "" if found is None else found.tag

    def standing(self, path: str) -> Standing:
        with self._hands.translated(path):
            files = self._hands.slot(path, "look").list_standing()
        manifest = files.pop(MANIFEST_NAME, None)
        is_unfinished = files.pop(PUBLISHING_NAME, None) is not None
        sizes = {name: file.size for name, file in files.items()}
        return Standing("" if manifest is None else manifest.tag, sizes, is_unfinished)

    def recover(self, path: str) -> bool:
        with self._hands.translated(path):
            return self._hands.recover(parse_path(self._root_url, path))

    def find_publication(self, path: str, flags: Sequence[str]) -> Publication | None:
        key = self._key(path)
        with self._hands.translated(path):
            text = read_object(self._fs, f"{key}/{MANIFEST_NAME}")
            head = None if text is None else parse_head(text)
            if head is None or read_object(self._fs, f"{key}/{PUBLISHING_NAME}") is not None:
                return None
            there = all(read_object(self._fs, f"{key}/{flag}") is not None for flag in flags)
        return head if there else None

    @contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        yield ObjectReading(self._fs, self._key(path), path, self._root_url, self._hands)

    def assembly(self, path: str, token: str) -> Assembly:
        return ObjectAssembly(self._hands.slot(path, token), self._hands)

    def find_obstacle(self, path: str) -> str | None:
        """There are neither links nor mounts."""
        parse_path(self._root_url, path)
        return None

    def snapshots(self, path: str, shelf: str) -> Snapshots:
        plain = parse_path(self._root_url, path)
        return ObjectSnapshots(self._fs, self._root, self._root_url, plain, shelf, self._hands.translated)

    def flush(self, assemblies: Sequence[Assembly]) -> None:
        """Objects are on disk when they are written."""

    def _key(self, path: str) -> str:
        return f"{self._root}/{parse_path(self._root_url, path)}"

    def _published(self, path: str, key: str, listing: ObjectListing) -> dict[str, ManifestEntry]:
        if MANIFEST_NAME not in listing.files:
            return {}
        text = read_object(self._fs, f"{key}/{MANIFEST_NAME}")
        if text is None:
            raise InstanceChangingError(store=self._root_url, path=path, reason="it does not hold still")
        with suppress(ManifestError):
            manifest = parse_manifest(text, store=self._root_url, path=path)
            return {entry.path: entry for entry in (*manifest.entries, *hidden_entries(manifest))}
        return {}


class ObjectReading(Reading):
    """The objects below a key."""

    def __init__(self, fs: AbstractFileSystem, key: str, path: str, root_url: str, hands: Hands) -> None:
        self._fs = fs
        self._key = key
        self._path = path
        self._root_url = root_url
        self._hands = hands

    def read(self, file: str, size: int) -> bytes:
        return b"".join(self.chunks(file, 0, size + 1))

    def chunks(self, file: str, offset: int, size: int) -> Iterator[bytes | memoryview]:
        path = f"{self._path}/{file}"
        with self._hands.translated(path):
            try:
                yield from iter_ranges(self._fs, f"{self._key}/{file}", offset, size)
            except FileNotFoundError:
                raise InstanceNotFoundError(store=self._root_url, path=path) from None


def _is_ours(name: str, flag: str | None) -> bool:
    """Whether a file belongs to the publication, or to a store whose root is in the source."""
    return name in (flag, MANIFEST_NAME) or CONTROL_FOLDER in name.split("/")[:-1]


def _source_file(
    file: ObjectFile, settled: datetime, entry: ManifestEntry | None, manifest: ObjectFile | None
) -> SourceFile:
    is_known = (
        entry is not None
        and manifest is not None
        and entry.size == file.size
        and is_of_content(entry.checksum)
        and (file.modified_at or _EPOCH) <= (manifest.modified_at or _EPOCH)
    )
    modified = None if file.modified_at is None else int((file.modified_at - _EPOCH) / timedelta(microseconds=1)) * 1000
    return SourceFile(
        path=file.path,
        size=file.size,
        sign=file.tag,
        is_settled=bool(file.sign(settled)),
        checksum=entry.checksum if entry is not None and is_known else "",
        modified=modified,
    )
