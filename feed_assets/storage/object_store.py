"""Instances on a filesystem without atomic renames, through fsspec: S3, Google Cloud Storage, Azure, memory."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO

from fsspec import AbstractFileSystem

from feed_assets.storage.copy_port import Copying
from feed_assets.storage.errors import (
    InstanceChangingError,
    InstanceNotFoundError,
    PathRefusedError,
    StagingLostError,
)
from feed_assets.storage.manifests import parse_manifest, read_entry
from feed_assets.storage.object_assembly import Hands
from feed_assets.storage.object_copying import ObjectCopying
from feed_assets.storage.object_looks import broken_off, look_at, measure_listing, scanned
from feed_assets.storage.object_present import find_present
from feed_assets.storage.object_slot import Intent, ObjectSlot, read_marker, staging_prefix
from feed_assets.storage.object_trash import ObjectTrash
from feed_assets.storage.object_tree import (
    ObjectFile,
    ObjectListing,
    each,
    list_objects,
    open_object,
    read_document,
    read_object,
    remove_objects,
)
from feed_assets.storage.object_walk import walk_keys
from feed_assets.storage.paths import (
    CONTROL_FOLDER,
    MANIFEST_NAME,
    PUBLISHING_NAME,
    is_content,
    parse_flag,
    parse_path,
    parse_token,
)
from feed_assets.storage.port import Choose, FolderNames, InstanceStore, Trash
from feed_assets.storage.records import (
    Availability,
    Guard,
    Look,
    Manifest,
    ManifestEntry,
    Measure,
    Scan,
    Staging,
    files_to_read,
    nothing_to_scan,
)
from feed_assets.storage.scratch import Scratch

_TRIES = 10
_SCANS = 3


class ObjectStore(InstanceStore):
    """Instances below a prefix.

    `root` is the prefix as `fs` spells it. `foreign` are the exceptions of the filesystem's libraries that are not
    `OSError`. With `has_containers` the root stands in a bucket that must exist. Writers without a connector for
    the store write below `Staging.local_path`, in `scratch`.
    """

    def __init__(
        self,
        fs: AbstractFileSystem,
        *,
        root: str,
        root_url: str,
        spark_scheme: str | None,
        scratch: Path | None = None,
        foreign: tuple[type[Exception], ...] = (),
        has_containers: bool = True,
    ) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self.root_url = root_url.rstrip("/")
        self.spark_scheme = spark_scheme
        self._scratch = Scratch.of(self.root_url, scratch)
        self._has_containers = has_containers
        self._foreign: tuple[type[Exception], ...] = (OSError, *foreign)

    def check_root(self) -> None:
        with self._translated(""):
            if self._has_containers:
                self._fs.info(self._root.strip("/").partition("/")[0])

    def look(self, paths: Sequence[str], flag: str | None) -> list[Look]:
        flag = parse_flag(self.root_url, flag)
        plain = [parse_path(self.root_url, path) for path in paths]
        with self._translated(paths[0] if len(paths) == 1 else ""):
            present = find_present(self._fs, self._root, plain)
            listings = dict(zip(present, each(self._list, list(present)), strict=True))
        return [look_at(path, listings.get(key), flag) for path, key in zip(paths, plain, strict=True)]

    def manifest(self, path: str, flag: str | None = None) -> Manifest:
        return Manifest.of(self._read_whole(path, parse_flag(self.root_url, flag), None))

    def scan(self, path: str, flag: str | None, earlier: Scan | None, now: datetime) -> Scan:
        key, flag = self._key(path), parse_flag(self.root_url, flag)
        with self._translated(path):
            for _ in range(_SCANS):
                listing = self._list(parse_path(self.root_url, path))
                look = look_at(path, listing, flag)
                if look.availability is not Availability.AVAILABLE:
                    return nothing_to_scan(look.availability)
                content = {name: file for name, file in listing.files.items() if is_content(name, flag)}
                settled, unread = files_to_read([scanned(file, now) for file in content.values()], earlier)
                try:
                    entries = each(partial(self._read, key, None), [content[file.path] for file in unread])
                except FileNotFoundError:
                    continue
                if unread and self._list(parse_path(self.root_url, path)).files != listing.files:
                    continue
                read = [replace(file, checksum=entry.checksum) for file, entry in zip(unread, entries, strict=True)]
                files = tuple(sorted([*settled, *read], key=lambda file: file.path))
                return Scan(availability=look.availability, files=files, read=len(read))
        raise InstanceChangingError(store=self.root_url, path=path, reason="it does not hold still")

    def published_manifest(self, path: str) -> Manifest | None:
        with self._translated(path):
            text = read_object(self._fs, f"{self._key(path)}/{MANIFEST_NAME}")
        return None if text is None else parse_manifest(text, store=self.root_url, path=path)

    def files(self, path: str, flag: str | None = None) -> tuple[str, ...]:
        with self._translated(path):
            return tuple(sorted(self._content(path, parse_flag(self.root_url, flag))))

    def open(self, path: str, file: str) -> BinaryIO:
        whole = f"{path}/{file}"
        key = self._key(whole)
        with self._translated(whole):
            try:
                info = self._fs.info(key)
            except FileNotFoundError:
                raise InstanceNotFoundError(store=self.root_url, path=whole) from None
            if info["type"] != "file":
                raise IsADirectoryError(key)
            return open_object(self._fs, key, int(info["size"]))

    def fetch(self, path: str, to: Path, flag: str | None = None) -> Manifest:
        with self._translated(path):
            to.mkdir(parents=True, exist_ok=True)
            if any(to.iterdir()):
                raise self._not_empty(path, to)
        return Manifest.of(self._read_whole(path, parse_flag(self.root_url, flag), to))

    def stage(self, path: str, token: str) -> Staging:
        slot = self._slot(path, token)
        with self._translated(path):
            if read_marker(self._fs, slot.target) == token:
                self._finish(slot.path)
            slot.make()
            local = self._scratch.make(token, slot.path)
        key = slot.data.removeprefix(self._root)
        url = (
            f"{self.spark_scheme}://{self.root_url.split('://', 1)[1]}{key}" if self.spark_scheme else f"file://{local}"
        )
        return Staging(path=slot.path, token=token, url=url, local_path=local)

    def publish(self, staging: Staging, *, flag: str | None, guard: Guard, extra: Mapping[str, str]) -> Manifest:
        flag = parse_flag(self.root_url, flag)
        slot = self._slot(staging.path, staging.token)
        with self._translated(slot.path):
            if not slot.exists():
                raise StagingLostError(store=self.root_url, path=slot.path, token=slot.token)
            intent = slot.read_intent()
            begun = intent is not None and read_marker(self._fs, slot.target) == slot.token
        if intent is None or not begun:
            with self._translated(slot.path):
                intent = self._prepare(slot, flag, extra)
            self._begin(slot, guard)
        with self._translated(slot.path):
            self._roll_forward(slot, intent)
        self._scratch.remove(slot.token, slot.path)
        return intent.manifest

    def discard(self, staging: Staging) -> None:
        slot = self._slot(staging.path, staging.token)
        with self._translated(slot.path):
            if read_marker(self._fs, slot.target) == slot.token:
                self._finish(slot.path)
            self._drop(slot)

    def recover(self, path: str) -> bool:
        path = parse_path(self.root_url, path)
        with self._translated(path):
            return self._finish(path)

    def sweep_staging(self, older_than: datetime) -> int:
        with self._translated(CONTROL_FOLDER):
            newest: dict[tuple[str, str], datetime | None] = {}
            for file in list_objects(self._fs, staging_prefix(self._root)).files.values():
                token, _, rest = file.path.partition("/")
                name = rest.partition("/")[0]
                newest[token, name] = max(filter(None, (newest.get((token, name)), file.modified_at)), default=None)
            old = [slot for slot, changed_at in newest.items() if changed_at is not None and changed_at < older_than]
            for token, name in old:
                self._sweep(token, name)
        self._scratch.sweep(older_than)
        return len(old)

    def walk_folders(self, base: str, depth: int, choose: Choose) -> Iterator[FolderNames]:
        plain = parse_path(self.root_url, base) if base.strip("/") else ""
        prefix = f"{plain}/" if plain else ""
        with self._translated(base):
            self.check_root()
            for found in walk_keys(self._fs, f"{self._root}/{plain}".rstrip("/"), depth, choose):
                yield found._replace(folder=prefix + found.folder)

    def measure(self, paths: Sequence[str]) -> list[Measure]:
        with self._translated(""):
            return each(self._measure, paths)

    def all_files(self, path: str) -> tuple[str, ...]:
        with self._translated(path):
            listing = self._list(parse_path(self.root_url, path))
        if not listing.files:
            raise InstanceNotFoundError(store=self.root_url, path=path)
        if (obstacle := measure_listing(path, listing).obstacle) is not None:
            raise PathRefusedError(store=self.root_url, path=path, reason=obstacle)
        return tuple(sorted(listing.files))

    def trash(self) -> Trash:
        return ObjectTrash(self, self._fs, self._root, partial(self._translated, ""))

    def copying(self) -> Copying:
        hands = Hands(
            translated=self._translated,
            slot=self._slot,
            recover=self._finish_what_is_whole,
            begin=partial(self._begin, keeps=True),
            roll_forward=self._roll_forward,
        )
        return ObjectCopying(self._fs, self._root, self.root_url, hands)

    def url(self, path: str) -> str:
        return f"{self.root_url}/{parse_path(self.root_url, path)}"

    def local_path(self, path: str) -> Path | None:
        parse_path(self.root_url, path)
        return None

    def _key(self, path: str) -> str:
        return f"{self._root}/{parse_path(self.root_url, path)}"

    def _slot(self, path: str, token: str) -> ObjectSlot:
        path = parse_path(self.root_url, path)
        token = parse_token(self.root_url, token)
        return ObjectSlot(fs=self._fs, store=self.root_url, root=self._root, path=path, token=token)

    def _measure(self, path: str) -> Measure:
        try:
            return measure_listing(path, self._list(parse_path(self.root_url, path)))
        except PathRefusedError as exc:
            return Measure(path=path, obstacle=exc.reason)

    def _list(self, path: str) -> ObjectListing:
        return list_objects(self._fs, f"{self._root}/{path}")

    def _content(self, path: str, flag: str | None) -> dict[str, ObjectFile]:
        """List the content files of an instance that stands still as far as one listing can tell."""
        listing = self._list(parse_path(self.root_url, path))
        if not listing.exists:
            raise InstanceNotFoundError(store=self.root_url, path=path)
        if PUBLISHING_NAME in listing.files:
            raise InstanceChangingError(store=self.root_url, path=path, reason="a publication of it is under way")
        if "" in listing.files:
            raise NotADirectoryError("it is a file, and an instance is a directory")
        return {name: file for name, file in listing.files.items() if is_content(name, flag)}

    def _read_whole(self, path: str, flag: str | None, to: Path | None) -> list[ManifestEntry]:
        """Read all content, into a directory if one is given; again if the instance changed meanwhile."""
        key = self._key(path)
        with self._translated(path):
            for _ in range(_TRIES):
                before = self._content(path, flag)
                if to is not None:
                    Scratch.clear(to)
                try:
                    entries = each(partial(self._read, key, to), list(before.values()))
                except FileNotFoundError:
                    continue
                if self._content(path, flag) == before:
                    return entries
        raise InstanceChangingError(store=self.root_url, path=path, reason="it does not hold still")

    def _read(self, key: str, to: Path | None, file: ObjectFile) -> ManifestEntry:
        with ExitStack() as stack:
            stream = stack.enter_context(open_object(self._fs, f"{key}/{file.path}".rstrip("/"), file.size))
            copy = None
            if to is not None:
                (to / file.path).parent.mkdir(parents=True, exist_ok=True)
                copy = stack.enter_context((to / file.path).open("wb"))
            return read_entry(file.path, stream, copy)

    def _prepare(self, slot: ObjectSlot, flag: str | None, extra: Mapping[str, str]) -> Intent:
        local = self._scratch.folder(slot.token, slot.path)
        uploaded = {}
        for entry in each(partial(self._upload, slot, local), self._scratch.files(local)):
            uploaded[entry.path] = entry
        staged = list_objects(self._fs, slot.data).files
        for entry in uploaded.values():
            if entry.path not in staged or staged[entry.path].size != entry.size:
                raise OSError(f"the storage does not hold {entry.path!r} under this name and size after the upload")
        names = tuple(sorted(name for name in staged if name not in {"", flag, MANIFEST_NAME, PUBLISHING_NAME}))
        remote = [staged[name] for name in names if is_content(name, flag) and name not in uploaded]
        entries = each(partial(self._read, slot.data, None), remote)
        entries += [uploaded[name] for name in names if is_content(name, flag) and name in uploaded]
        intent = Intent(manifest=Manifest.of(entries, extra), flag=flag, names=names)
        slot.write_intent(intent)
        return intent

    def _upload(self, slot: ObjectSlot, local: Path, name: str) -> ManifestEntry:
        self._fs.put_file(str(local / name), f"{slot.data}/{name}")
        with (local / name).open("rb") as stream:
            return read_entry(name, stream)

    def _begin(self, slot: ObjectSlot, guard: Guard, *, keeps: bool = False) -> None:
        """Let the guard decide, then put our marker; a publication that another left unfinished is finished before.

        A slot that `keeps` stays if the guard forbids.
        """
        for _ in range(_TRIES):
            take_over = False
            with self._translated(slot.path):
                token = read_marker(self._fs, slot.target)
                if token is not None and token != slot.token:
                    take_over = self._is_lost(slot.path, token)
                    if not take_over:
                        self._finish(slot.path)
            with ExitStack() as forbidden:
                if not keeps:
                    forbidden.callback(self._drop, slot)
                guard()
                forbidden.pop_all()
            with self._translated(slot.path):
                if slot.begin(take_over=take_over):
                    return
        raise InstanceChangingError(store=self.root_url, path=slot.path, reason="others keep publishing it")

    def _roll_forward(self, slot: ObjectSlot, intent: Intent, there: Collection[str] | None = None) -> None:
        """Roll forward; that another process has done so meanwhile for us is as good."""
        try:
            slot.roll_forward(intent, there)
        except (FileNotFoundError, InstanceChangingError):
            if read_marker(self._fs, slot.target) is not None or self.published_manifest(slot.path) != intent.manifest:
                raise

    def _is_lost(self, path: str, token: str) -> bool:
        """Whether a marker stands in an instance for which nothing is prepared, so that nobody can finish it."""
        slot = self._slot(path, token)
        return slot.read_intent() is None and read_marker(self._fs, slot.target) == token

    def _finish(self, path: str) -> bool:
        token = read_marker(self._fs, f"{self._root}/{path}")
        if token is None:
            return False
        slot = self._slot(path, token)
        if (intent := slot.read_intent()) is not None:
            self._roll_forward(slot, intent)
        elif self._is_lost(path, token):
            sign = slot.read_sign()
            if sign is not None and sign.is_in_place:  # it goes on, or is withdrawn with its staging
                return False
            raise broken_off(self.root_url, path, token)
        return True

    def _finish_what_is_whole(self, path: str) -> bool:
        """Finish a publication that broke off, unless its staging is gone: then only another one ends it."""
        token = read_marker(self._fs, f"{self._root}/{path}")
        return token is not None and not self._is_lost(path, token) and self._finish(path)

    def _drop(self, slot: ObjectSlot) -> None:
        slot.remove()
        self._scratch.remove(slot.token, slot.path)

    def _sweep(self, token: str, name: str) -> None:
        prefix = f"{staging_prefix(self._root)}/{token}/{name}"
        if (sign := read_document(self._fs, f"{prefix}/slot.json")) is not None:
            slot = self._slot(str(sign["path"]), token)
            if read_marker(self._fs, slot.target) == token:
                self._finish(slot.path)
            slot.remove()
        remove_objects(self._fs, [f"{prefix}/{path}" for path in list_objects(self._fs, prefix).files if path])

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        try:
            yield
        except self._foreign as exc:
            raise self._refused(path, exc) from exc
