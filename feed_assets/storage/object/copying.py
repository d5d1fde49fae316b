"""Use an object store as the source and target of copies, and keep snapshots of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from feed_assets.storage.copy_port import (
    SNAPSHOTS_FOLDER,
    SNAPSHOTS_SUFFIX,
    Copying,
    Reading,
    Snapshots,
    Staging,
    Standing,
    Survey,
    pack_manifest,
    unpack_manifest,
)
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    ManifestError,
    PathRefusedError,
    Refuse,
    Translated,
)
from feed_assets.storage.listing import nanoseconds, source_files
from feed_assets.storage.manifests import Publication, hidden_entries, parse_head, parse_manifest
from feed_assets.storage.object.client import ObjectClient, ObjectFile, ObjectListing
from feed_assets.storage.object.listings import entry_of, look_into, measure_listing
from feed_assets.storage.object.staging import ObjectStaging
from feed_assets.storage.object.tree import list_objects, read_object
from feed_assets.storage.paths import (
    CONTROL_FOLDER,
    MANIFEST_NAME,
    PUBLISHING_NAME,
    SINGLE_FILE,
    is_content,
    parse_flag,
    parse_path,
    parse_token,
    path_name,
)
from feed_assets.storage.records import Availability, Manifest, ManifestEntry


class ObjectCopying(Copying):
    """Copies from and to instances below a prefix."""

    def __init__(
        self, client: ObjectClient, root_url: str, refuse: Refuse, open_staging: Callable[[str, str], ObjectStaging]
    ) -> None:
        self._client = client
        self._root_url = root_url
        self._refuse = refuse
        self._open_staging = open_staging

    def survey(self, path: str, flag: str | None, now: int, *, everything: bool = False) -> Survey:
        flag, key = parse_flag(self._root_url, flag), self._key(path)
        with Translated(self._refuse, path):
            listing = list_objects(self._client, key)
            look = look_into(path, listing, flag)
            if look.availability in (Availability.MISSING, Availability.PARTIAL):
                return Survey(availability=look.availability)
            if "" in listing.files:
                raise NotADirectoryError("it is a file, and an instance is a directory")
            known = self._published(path, key, listing)
            manifest = listing.files.get(MANIFEST_NAME) if known else None
            wanted = [
                entry_of(file)
                for name, file in listing.files.items()
                if (not _is_ours(name, flag) if everything else is_content(name, flag))
            ]
        published_at = 0 if manifest is None or manifest.modified_at is None else nanoseconds(manifest.modified_at)
        return Survey(
            availability=look.availability,
            files=source_files(wanted, known, published_at, now),
            mark=_mark(listing.files.get(MANIFEST_NAME)),
        )

    def survey_all(self, path: str, now: int) -> Survey:
        with Translated(self._refuse, path):
            listing = list_objects(self._client, self._key(path))
        if not listing.exists:
            return Survey(availability=Availability.MISSING)
        if (obstacle := measure_listing(path, listing).obstacle) is not None:
            raise PathRefusedError(store=self._root_url, path=path, reason=obstacle)
        found = [entry_of(file)._replace(path=name or SINGLE_FILE) for name, file in listing.files.items()]
        return Survey(availability=Availability.AVAILABLE, files=source_files(found, {}, 0, now))

    def mark(self, path: str) -> str:
        with Translated(self._refuse, path):
            found = self._client.find(f"{self._key(path)}/{MANIFEST_NAME}")
        return _mark(found)

    def standing(self, path: str) -> Standing:
        with Translated(self._refuse, path):
            files = self._client.list(self._key(path)).files
        manifest = files.pop(MANIFEST_NAME, None)
        is_unfinished = files.pop(PUBLISHING_NAME, None) is not None
        sizes = {name: file.size for name, file in files.items()}
        return Standing(_mark(manifest), sizes, is_unfinished)

    def find_publication(self, path: str, flags: Sequence[str]) -> Publication | None:
        key = self._key(path)
        with Translated(self._refuse, path):
            text = read_object(self._client, f"{key}/{MANIFEST_NAME}")
            head = None if text is None else parse_head(text)
            if head is None or read_object(self._client, f"{key}/{PUBLISHING_NAME}") is not None:
                return None
            there = all(read_object(self._client, f"{key}/{flag}") is not None for flag in flags)
        return head if there else None

    @contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        yield ObjectReading(self._client, self._key(path), self._root_url, self._refuse)

    def staging(self, path: str, token: str) -> Staging:
        return self._open_staging(path, token)

    def snapshots(self, path: str, shelf: str) -> Snapshots:
        plain = parse_path(self._root_url, path)
        return ObjectSnapshots(self._client, self._root_url, plain, shelf, self._refuse)

    def _key(self, path: str) -> str:
        return parse_path(self._root_url, path)

    def _published(self, path: str, key: str, listing: ObjectListing) -> dict[str, ManifestEntry]:
        if MANIFEST_NAME not in listing.files:
            return {}
        text = read_object(self._client, f"{key}/{MANIFEST_NAME}")
        if text is None:
            raise InstanceChangingError(store=self._root_url, path=path, reason="it does not hold still")
        with suppress(ManifestError):
            manifest = parse_manifest(text, store=self._root_url, path=path)
            return {entry.path: entry for entry in (*manifest.entries, *hidden_entries(manifest))}
        return {}


class ObjectReading(Reading):
    """The objects below a key."""

    def __init__(self, client: ObjectClient, key: str, root_url: str, refuse: Refuse) -> None:
        self._client = client
        self._key = key
        self._root_url = root_url
        self._refuse = refuse

    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        path = self._key if file == SINGLE_FILE else f"{self._key}/{file}"
        with Translated(self._refuse, path):
            try:
                yield from self._client.chunks(path)
            except FileNotFoundError:
                raise InstanceNotFoundError(store=self._root_url, path=path) from None


class ObjectSnapshots(Snapshots):
    """Snapshots below `.feed-assets/snapshots/`: only a manifest each, because object stores have no hard links."""

    def __init__(self, client: ObjectClient, root_url: str, path: str, shelf: str, refuse: Refuse) -> None:
        self._client = client
        self._root_url = root_url
        self._path = path
        self._prefix = f"{CONTROL_FOLDER}/{SNAPSHOTS_FOLDER}/{path_name(path)}/{parse_token(root_url, shelf)}"
        self._refuse = refuse

    def names(self) -> list[str]:
        with Translated(self._refuse, self._path):
            found = self._client.list(self._prefix).files
        return sorted(name.removesuffix(SNAPSHOTS_SUFFIX) for name in found if name.endswith(SNAPSHOTS_SUFFIX))

    def find(self, name: str) -> Manifest | None:
        with Translated(self._refuse, self._path):
            data = read_object(self._client, self._key(name))
        return None if data is None else unpack_manifest(data, store=self._root_url, path=self._path)

    def keep(self, name: str, manifest: Manifest, *, with_content: bool) -> None:  # noqa: ARG002 - it cannot be kept
        with Translated(self._refuse, self._path):
            self._client.put(self._key(name), pack_manifest(manifest))

    def content(self, name: str) -> str | None:  # noqa: ARG002 - there is none
        return None

    def drop(self, name: str) -> None:
        with Translated(self._refuse, self._path):
            self._client.remove([self._key(name)])

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{parse_token(self._root_url, name)}{SNAPSHOTS_SUFFIX}"


def _mark(manifest: ObjectFile | None) -> str:
    """Return the mark of a publication; "" if the storage reports only times, which two publications may share."""
    return "" if manifest is None or manifest.tag.startswith(" ") else manifest.tag


def _is_ours(name: str, flag: str | None) -> bool:
    """Return whether a file belongs to the publication, or to a store whose root is in the source."""
    return name in (flag, MANIFEST_NAME) or CONTROL_FOLDER in name.split("/")[:-1]
