"""Implement the store for storage without atomic renames: S3, Google Cloud Storage, Azure, memory, sftp by fsspec."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ClassVar

from feed_assets.storage.checksums import Checksum
from feed_assets.storage.clearing import clearing_guard
from feed_assets.storage.copy_port import (
    CHUNK,
    Documents,
    Prepared,
    Reading,
)
from feed_assets.storage.deliveries import WRITTEN, DeliveredFile, Deliveries
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    PathRefusedError,
    StorageAwayError,
    StorageError,
    Translated,
)
from feed_assets.storage.listing import NOTHING, Entry, Listing, View, nanoseconds
from feed_assets.storage.manifests import read_entry, with_hidden
from feed_assets.storage.object.client import (
    ObjectClient,
    ObjectListing,
    RootAwayError,
    RootRefusedError,
    UnusableKeyError,
    each,
)
from feed_assets.storage.object.staged_objects import STAGING_PREFIX, StagedObjects, read_marker, recover, sweep_staging
from feed_assets.storage.object.staging import ObjectStaging
from feed_assets.storage.object.trash import ObjectTrash
from feed_assets.storage.object.tree import find_present, list_objects, read_object, walk_keys
from feed_assets.storage.paths import (
    CONTROL_FOLDER,
    MANIFEST_NAME,
    PUBLISHING_NAME,
    SINGLE_FILE,
    is_content,
    parse_flag,
    parse_path,
    parse_token,
)
from feed_assets.storage.port import Choose, FolderNames, InstanceStore, Trash
from feed_assets.storage.records import (
    Clearing,
    Extra,
    Guard,
    Manifest,
    ManifestEntry,
    StagingPlace,
)
from feed_assets.storage.scratch import Scratch, keep_files

_BATCH = 256
"""Places that are listed before the first of them is answered."""


class ObjectStore(InstanceStore):
    """A store of the instances below the root of a client.

    Writers without a connector for the store write below `StagingPlace.local_path`, in `scratch`.
    """

    _staged_objects: ClassVar[type[StagedObjects]] = StagedObjects

    def __init__(
        self, client: ObjectClient, *, root_url: str, spark_scheme: str | None = None, scratch: Path | None = None
    ) -> None:
        self.client = client
        self.root_url = root_url.rstrip("/")
        self.spark_scheme = spark_scheme
        self._scratch = Scratch.of(self.root_url, scratch)

    def check_root(self) -> None:
        try:
            self.client.check()
        except RootRefusedError as exc:
            kind = StorageAwayError if isinstance(exc, RootAwayError) else StorageError
            raise kind(store=self.root_url, path="", reason=str(exc), next_step=exc.next_step) from exc
        except OSError as exc:
            raise self._refused("", exc) from exc

    def listings(
        self, paths: Sequence[str], view: View, names: Sequence[str] = (), *, manifest: int = 0
    ) -> Iterator[Listing]:
        keys: dict[str, str] = {}
        found: dict[str, Listing] = {}
        for path in paths:
            try:
                keys[path] = parse_path(self.root_url, path)
            except PathRefusedError as exc:
                found[path] = Listing(exists=False, obstacle=exc)
        translated = self._translated(paths[0] if len(paths) == 1 else "")
        with translated:
            present = find_present(self.client, [*keys.values()]) if view is View.CONTENT else {*keys.values()}
        for start in range(0, len(paths), _BATCH):
            batch = paths[start : start + _BATCH]
            there = [path for path in dict.fromkeys(batch) if keys.get(path) in present]
            with translated:

                def look(path: str) -> Listing:
                    return self._listing(path, keys[path], view, names, manifest)

                known = found | dict(zip(there, each(look, there), strict=True))
                absent = {path: keys[path] for path in batch if path in keys and not known.get(path, NOTHING).exists}
                known |= self._list_again(absent, look) if absent else {}
            yield from [known.get(path, NOTHING) for path in batch]

    def _listing(self, path: str, key: str, view: View, names: Sequence[str], manifest: int) -> Listing:
        """List one instance; a store that forbids this one may allow others."""
        try:
            text = None
            if view is View.NAMED:
                text = read_object(self.client, f"{key}/{MANIFEST_NAME}") if manifest else None
                if manifest and text is None:
                    return Listing()
                found = zip(names, each(lambda name: self.client.find(f"{key}/{name}"), names), strict=True)
                files = {name: file._replace(path=name) for name, file in found if file is not None}
                listed = ObjectListing(exists=True, files=files)
            else:
                listed = self.client.list(key) if view is View.STANDING else list_objects(self.client, key)
            if not listed.exists:
                return NOTHING
            if manifest and view is not View.NAMED and MANIFEST_NAME in listed.files:
                text = read_object(self.client, f"{key}/{MANIFEST_NAME}")
                if text is None:
                    raise InstanceChangingError(store=self.root_url, path=path, reason="it does not hold still")
        except PermissionError as exc:
            if view is View.WHOLE:
                raise
            return Listing(obstacle=self._refused(path, exc))
        except UnusableKeyError as exc:
            if view is not View.WHOLE:
                raise
            return Listing(obstacle=PathRefusedError(store=self.root_url, path=path, reason=exc.obstacle))
        return Listing(
            entries=[*listed.files.values()],
            is_marked=PUBLISHING_NAME in listed.files,
            manifest=text,
        )

    def _list_again(self, keys: Mapping[str, str], look: Callable[[str], Listing]) -> Mapping[str, Listing]:  # noqa: ARG002
        """Return the listings of places where nothing was, and that are not empty after all; `keys` are by path."""
        return {}

    @contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        yield ObjectReading(self, self.client, parse_path(self.root_url, path))

    def staging_url(self, path: str, token: str) -> str:
        return f"{self.root_url}/{self.staging(path, token).objects.data(1)}"

    def staged_files(self, path: str, token: str) -> Mapping[str, int]:
        objects = self.staging(path, token).objects
        local = self._scratch.folder(objects.token, objects.path)
        with self._translated(objects.path):
            written = {name: file.size for name, file in self.client.list(objects.data(1)).files.items()}
            return {name: (local / name).stat().st_size for name in self._scratch.files(local)} | written

    def keep_staged(self, path: str, token: str, names: Mapping[str, str]) -> None:
        objects = self.staging(path, token).objects
        with self._translated(objects.path):
            keep_files(self._scratch.folder(objects.token, objects.path), names)
            objects.keep(names)

    def publish(
        self, staging: StagingPlace, *, flag: str | None, guard: Guard, extra: Extra, clearing: Clearing | None = None
    ) -> Manifest:
        flag = parse_flag(self.root_url, flag)
        staged = self.staging(staging.path, staging.token)
        objects = staged.objects
        staged.join(1)
        with self._translated(objects.path):
            intent = objects.read_intent()
            if (
                intent is not None
                and intent.manifest is not None
                and read_marker(self.client, objects.path) == objects.token
            ):
                objects.roll_forward(intent)
                self._scratch.remove(objects.token, objects.path)
                return intent.manifest
        manifest = self._prepare(staged, flag, extra)

        clear = clearing_guard(self, objects.path, objects.token, flag, guard, clearing)

        def decide() -> None:
            try:
                clear()
            except BaseException:
                self._scratch.remove(objects.token, objects.path)
                objects.remove()
                raise

        staged.publish(decide)
        self._scratch.remove(objects.token, objects.path)
        return manifest

    def discard(self, staging: StagingPlace) -> None:
        objects = self.staging(staging.path, staging.token).objects
        self._scratch.remove(objects.token, objects.path)
        with self._translated(objects.path):
            if read_marker(self.client, objects.path) == objects.token:
                recover(objects)
            objects.remove()

    def recover(self, path: str) -> bool:
        path = parse_path(self.root_url, path)
        with self._translated(path):
            return recover(self.staging(path, "recovery").objects)

    def sweep_staging(self, older_than: datetime) -> int:
        with self._translated(CONTROL_FOLDER):
            newest: dict[tuple[str, str], int | None] = {}
            for file in self.client.list(STAGING_PREFIX).files.values():
                token, _, rest = file.path.partition("/")
                name = rest.partition("/")[0]
                newest[token, name] = max(filter(None, (newest.get((token, name)), file.modified)), default=None)
            limit = nanoseconds(older_than)
            old = [staged for staged, changed in newest.items() if changed is not None and changed < limit]
        failures: list[StorageError] = []
        for token, name in old:
            try:
                with self._translated(f"{STAGING_PREFIX}/{token}/{name}"):
                    sweep_staging(self._objects, self.client, token, name)
            except StorageAwayError:
                raise
            except StorageError as exc:  # those of other instances are swept
                failures.append(exc)
        self._scratch.sweep(older_than)
        if failures:
            raise failures[0]
        return len(old)

    def walk_folders(self, base: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
        plain = parse_path(self.root_url, base) if base.strip("/") else ""
        prefix = f"{plain}/" if plain else ""
        with self._translated(base):
            self.check_root()
            for found in walk_keys(self.client, plain, depth, choose):
                yield found._replace(folder=prefix + found.folder)

    def trash(self) -> Trash:
        return ObjectTrash(self, self.client)

    def documents(self, folder: str, suffix: str, about: str = "") -> Documents:
        whole = f"{CONTROL_FOLDER}/{folder}"
        return ObjectDocuments(self.client, self.root_url, whole, suffix, self._translated(about or whole))

    def deliveries(self, folder: str) -> Deliveries:
        return ObjectDeliveries(self, self.client, parse_path(self.root_url, folder))

    def staging(self, path: str, token: str) -> ObjectStaging:
        return ObjectStaging(self._objects(path, token), self._refused, self._place)

    def _objects(self, path: str, token: str) -> StagedObjects:
        return self._staged_objects(
            client=self.client,
            store=self.root_url,
            path=parse_path(self.root_url, path),
            token=parse_token(self.root_url, token),
        )

    def _place(self, objects: StagedObjects, is_again: bool) -> StagingPlace:
        """Return the place for the writers of a staging, and create its local folder."""
        local = self._scratch.make(objects.token, objects.path, is_again=is_again)
        url = f"file://{local}"
        if self.spark_scheme:
            url = f"{self.spark_scheme}://{self.root_url.split('://', 1)[1]}/{objects.data(1)}"
        return StagingPlace(path=objects.path, token=objects.token, url=url, local_path=local)

    def _prepare(self, staged: ObjectStaging, flag: str | None, extra: Extra) -> Manifest:
        """Upload the locally written files, and read the files that were written into the store directly."""
        objects = staged.objects
        with self._translated(objects.path):
            local = self._scratch.folder(objects.token, objects.path)
            uploaded = {
                entry.path: entry for entry in each(partial(self._upload, staged, local), self._scratch.files(local))
            }
            listed = self.client.list(objects.data(1)).files
            names = {name: listed[name] for name in sorted(listed.keys() - {flag, MANIFEST_NAME, PUBLISHING_NAME})}
            remote = [name for name in names if is_content(name, flag) and name not in uploaded]
            key = objects.data(1)
            read = each(lambda name: read_entry(name, self.client.chunks(f"{key}/{name}")), remote)
            written = [*read, *(entry for name, entry in uploaded.items() if name in names)]
            entries = {entry.path: entry for entry in written}
            content = {name: entry for name, entry in entries.items() if is_content(name, flag)}
            hidden = [ManifestEntry(name, file.size, "") for name, file in names.items() if name not in content]
        missing = [ManifestEntry(name, entry.size, "") for name, entry in uploaded.items() if name not in listed]
        manifest = with_hidden(Manifest.of(content.values(), extra), hidden)
        staged.prepare(Prepared(manifest=manifest, flags=(flag,) if flag else (), hidden=(*hidden, *missing)))
        return manifest

    def _upload(self, staged: ObjectStaging, local: Path, name: str) -> ManifestEntry:
        with (local / name).open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            checksum = Checksum()

            def read() -> Iterator[bytes]:
                while chunk := stream.read(CHUNK):
                    checksum.update(chunk)
                    yield chunk

            staged.put(name, size, read())
        return ManifestEntry(path=name, size=size, checksum=checksum.render())

    def _refused(self, path: str, exc: Exception) -> StorageError:
        away = self.client.find_refusal(exc)
        if not isinstance(away, RootAwayError):
            return super()._refused(path, exc)
        return StorageAwayError(store=self.root_url, path="", reason=str(away), next_step=away.next_step)


class ObjectReading(Reading):
    """The objects below a key."""

    def __init__(self, store: InstanceStore, client: ObjectClient, key: str) -> None:
        self._store = store
        self._client = client
        self._key = key

    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        path = self._key if file == SINGLE_FILE else f"{self._key}/{file}"
        with self._store._translated(path):
            try:
                yield from self._client.chunks(path)
            except FileNotFoundError:
                raise InstanceNotFoundError(store=self._store.root_url, path=path) from None


class ObjectDocuments(Documents):
    """Documents of an object store, one object each below `folder`."""

    def __init__(self, client: ObjectClient, store: str, folder: str, suffix: str, translated: Translated) -> None:
        super().__init__(store, folder, suffix, translated)
        self._client = client

    def names(self) -> list[str]:
        with self.translated:
            return self._names_of(self._client.children(self._folder).files)

    def find(self, name: str) -> bytes | None:
        with self.translated:
            return read_object(self._client, self._key(name))

    def keep(self, name: str, content: bytes) -> None:
        with self.translated:
            self._client.check()
            self._client.put(self._key(name), content)

    def drop(self, name: str) -> None:
        with self.translated:
            self._client.remove([self._key(name)])

    def _key(self, name: str) -> str:
        return f"{self._folder}/{self._file(name)}"


class ObjectDeliveries(Deliveries):
    """The objects of a store directly below a key. Each is removed by the tag that it had when it was read."""

    def __init__(self, store: InstanceStore, client: ObjectClient, key: str) -> None:
        self._store = store
        self._client = client
        self._key = key

    def find(self) -> list[Entry]:
        self._store.check_root()
        with self._store._translated(self._key):
            found = self._client.all_children(self._key)
        folders = frozenset(found.folders)
        return [file for name, file in sorted(found.files.items()) if name not in folders]

    def chunks(self, name: str, version: str) -> Iterator[bytes | memoryview]:
        key = f"{self._key}/{name}"
        with self._store._translated(key):
            try:
                yield from self._client.chunks_of(key, version)
            except (FileExistsError, FileNotFoundError):
                raise InstanceChangingError(store=self._store.root_url, path=key, reason=WRITTEN) from None

    def remove(self, files: Sequence[DeliveredFile]) -> dict[str, str]:
        with self._store._translated(self._key):
            reasons = each(self._remove, files)
        return {file.name: reason for file, reason in zip(files, reasons, strict=True) if reason is not None}

    def _remove(self, file: DeliveredFile) -> str | None:
        key = f"{self._key}/{file.name}"
        try:
            self._client.remove_unchanged(key, file.size, file.version)
        except PermissionError as exc:
            return self._store._refused(key, exc).reason
        return None
