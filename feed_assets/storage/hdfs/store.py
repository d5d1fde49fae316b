"""Implement the store for HDFS: staged as on an object store, published and removed by renames.

HDFS renames a folder atomically and cannot exchange two. The old instance is renamed into the staging, then the staged
folder to the path of the instance. A marker in the hidden folder exists meanwhile, so whoever looks between the two
renames learns that a publication is under way, and `recover` can finish it. The first of the two renames happens once:
`old` in the staging is then there, also if there was nothing to rename. So a publisher that stood still, and whose
publication another process has finished, moves nothing.

A staging is taken over by renaming its folder of files to that of the next generation, which one process can do. What
the former writer wanted to publish is then no longer there.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

from feed_assets.storage.copy_port import Acl, Prepared, Reading, Traits
from feed_assets.storage.errors import (
    InstanceChangingError,
    PathRefusedError,
    PlaceOccupiedError,
    StorageError,
)
from feed_assets.storage.hdfs.client import PUBLISHING_FOLDER, HdfsClient
from feed_assets.storage.hdfs.trash import HdfsTrash
from feed_assets.storage.listing import Listing, View, nanoseconds
from feed_assets.storage.manifests import render_manifest
from feed_assets.storage.object.client import RootAwayError, RootRefusedError, UnusableKeyError, each
from feed_assets.storage.object.staged_objects import INTENT, STAGING_PREFIX, Intent, StagedObjects, read_marker
from feed_assets.storage.object.staging import ObjectStaging
from feed_assets.storage.object.store import ObjectReading, ObjectStore
from feed_assets.storage.paths import MANIFEST_NAME, SINGLE_FILE, parse_path
from feed_assets.storage.port import Trash
from feed_assets.storage.records import Guard, Manifest

_OLD = "old"


class HdfsFolders(StagedObjects):
    """The staging of a path and a token, whose files of the last generation become the instance by a rename."""

    __slots__ = ()

    client: HdfsClient

    def make(self, names: Collection[str] | None = None) -> None:
        super().make(names)
        self.client.make_folder(self.data(1))

    def take_over(self, generation: int | None = None) -> int | None:
        current, former = self.read_generation(), self._newest()
        if current is None or not former:
            return None
        if generation is not None and not generation == current == former:
            raise self._lost()
        ready, target = self._ready(former), self.data(former + 1)
        source = self.data(former) if self.client.status(ready) is None else ready
        try:
            self.client.move(source, target)
        except (FileNotFoundError, FileExistsError):
            raise self._take_over_conflict() from None
        if source == ready and read_marker(self.client, self.path) == self.token:  # its publication has begun meanwhile
            self.client.move(target, ready)
            raise self._take_over_conflict()
        self.write_header(former + 1)
        self.client.remove([f"{self.prefix}/{INTENT}"])
        return former + 1

    def _newest(self) -> int:
        """Return the number of the generation that has the files; 0 if there is none."""
        areas = (self.client.children(f"{self.prefix}/{area}").folders for area in ("data", "ready"))
        return max((int(name) for names in areas for name in names), default=0)

    def _ready(self, generation: int) -> str:
        return f"{self.prefix}/ready/{generation}"

    def content(self, intent: Intent) -> str:
        """Return the folder that becomes the instance; a staging that can be taken over has sealed it."""
        generation = max(intent.files.values(), default=0)
        return self._ready(generation) if generation > 1 else self.data(generation)

    def complete(self, intent: Intent) -> None:
        """Make a folder whose files are all staged the next content: nothing else in it, with manifest and flags.

        Raises `StagingLostError` if it has been taken over meanwhile.
        """
        data, ready, hdfs = self.data(max(intent.files.values(), default=0)), self.content(intent), self.client
        hdfs.make_folder(data)
        hdfs.remove([f"{data}/{name}" for name in hdfs.list(data).files.keys() - intent.files.keys()])
        hdfs.remove_empty_folders(data)
        for folder in {name.rpartition("/")[0] for name in intent.kept} - {""}:
            hdfs.make_folder(f"{data}/{folder}")
        closing: dict[str, bytes] = {}
        if intent.manifest is not None:
            closing = {MANIFEST_NAME: render_manifest(intent.manifest)} | dict.fromkeys(intent.flags, b"")
            for name, content in closing.items():
                hdfs.put(f"{data}/{name}", content)
            if (standing := hdfs.status(self.path)) is not None and standing.isdir:
                hdfs.dress(data, standing)
        if ready != data:
            hdfs.make_folder(ready.rpartition("/")[0])
            with suppress(FileNotFoundError, FileExistsError):
                hdfs.move(data, ready)
            if hdfs.list(ready).files.keys() != intent.files.keys() | closing.keys():
                raise self._lost()

    def publish_exactly(self, intent: Intent, guard: Guard, names: object) -> None:  # noqa: ARG002
        content = self.content(intent)
        guard()
        try:
            self._move_in(f"{content}/{SINGLE_FILE}" if SINGLE_FILE in intent.files else content, intent)
        except FileExistsError:
            raise PlaceOccupiedError(store=self.store, path=self.path) from None
        self.remove()

    def remove(self, names: object = None) -> None:
        if names == ():  # what is there stays
            return
        self.client.remove_whole(self.prefix)
        with suppress(OSError):  # other stagings of this token
            self.client.remove_folder(self.prefix.rpartition("/")[0])

    def keep(self, names: Mapping[str, str]) -> None:
        data = self.data(1)
        written = self.client.list(data).files
        each(lambda name: self.client.move(f"{data}/{name}", f"{data}/{names[name]}"), sorted(written.keys() & names))
        self.client.remove([f"{data}/{name}" for name in written.keys() - {*names, *names.values()}])

    def _replace(self, intent: Intent, manifest: Manifest) -> None:
        self._in_batches(lambda _: self._swap(intent), [manifest])

    def _swap(self, intent: Intent) -> None:
        """Rename the old instance away and the new one to its path, from any intermediate state."""
        content, old, hdfs = self.content(intent), f"{self.prefix}/{_OLD}", self.client
        if hdfs.status(content) is None:  # an earlier try has come so far
            self._require_own(intent)
            return
        try:
            hdfs.move(self.path, old)
        except FileExistsError:
            pass
        except FileNotFoundError:
            hdfs.make_folder(old, parents=False)  # fails if the staging is gone
        for name in intent.kept:
            with suppress(FileNotFoundError, FileExistsError):
                hdfs.move(f"{old}/{name}", f"{content}/{name}")
        try:
            self._move_in(content, intent)
        except FileExistsError:
            reason = "something else has come in its place while it was published"
            raise InstanceChangingError(store=self.store, path=self.path, reason=reason) from None

    def _move_in(self, key: str, intent: Intent) -> None:
        """Rename what is staged to the path of the instance; it is no error if another process has done so."""
        try:
            self.client.move(key, self.path)
        except FileNotFoundError:  # the parents, or it
            if self.client.status(key) is None:
                self._require_own(intent)
                return
            if parent := self.path.rpartition("/")[0]:
                self.client.make_folder(parent)
            self.client.move(key, self.path)

    def _require_own(self, intent: Intent) -> None:
        """Let the old instance come back and raise `StagingLostError` if the staging has been taken over."""
        if not intent.files or self._newest() <= max(intent.files.values()):
            return
        old = f"{self.prefix}/{_OLD}"
        if self.client.list(old).files:
            with suppress(FileExistsError, FileNotFoundError):
                self.client.move(old, self.path)
        if self.read_intent() is None:
            self.client.remove([self.client.marker(self.path)])
        raise self._lost()


class HdfsStaging(ObjectStaging):
    """A staging on HDFS; what it adopts moves to the new content while the old one is away, and is not copied."""

    objects: HdfsFolders

    def seal(self, generation: int | None = None) -> None:
        super().seal(generation)
        self._files, self._names = {}, None

    def prepare(self, prepared: Prepared) -> None:
        with self._translated():
            self._gather()
        super().prepare(prepared)
        assert self._intent is not None
        with self._translated():
            self.objects.complete(self._intent)
        self._names = None

    def dress(self, file: str, modified: int | None, mode: int | None) -> None:
        with self._translated(file):
            if mode is not None:
                self.objects.client.set_permission(self._key(file), mode)
            if modified is not None:
                self.objects.client.set_times(self._key(file), modified)

    def grant(self, file: str, traits: Traits, acl: Acl | None) -> None:
        with self._translated(file):
            self.objects.client.grant(self._key(file), traits, acl)

    def _key(self, file: str) -> str:
        return f"{self.objects.data(self._files.get(file, self._generation))}/{file}"

    def _put(self, key: str, size: int, chunks: Iterable[bytes | memoryview], block_size: int | None) -> None:
        self.objects.client.put_chunks(key, size, chunks, block_size)

    def _gather(self) -> None:
        """Move the files of earlier generations to those of this one."""
        self._find_files(self._list_names())
        for file, generation in self._files.items():
            if 0 < generation != self._generation:
                to = f"{self.objects.data(self._generation)}/{file}"
                self.objects.client.make_folder(to.rpartition("/")[0])
                self.objects.client.move(f"{self.objects.data(generation)}/{file}", to, overwrite=True)
                self._names = None


class HdfsReading(ObjectReading):
    """The files of an instance on HDFS."""

    _client: HdfsClient

    def acl(self, file: str) -> Acl | None:
        with self._store._translated(file):
            return self._client.acl(f"{self._key}/{file}")


class HdfsStore(ObjectStore):
    """The instances below a folder of HDFS; Spark reads and writes them by its own client."""

    client: HdfsClient
    _staged_objects = HdfsFolders

    def listings(
        self, paths: Sequence[str], view: View, names: Sequence[str] = (), *, manifest: int = 0
    ) -> Iterator[Listing]:
        if view is View.STANDING:
            for path in paths:
                with suppress(PathRefusedError):
                    self.recover(path)
        return super().listings(paths, view, names, manifest=manifest)

    @contextmanager
    def reading(self, path: str) -> Iterator[Reading]:
        yield HdfsReading(self, self.client, parse_path(self.root_url, path))

    def sweep_staging(self, older_than: datetime) -> int:
        number = super().sweep_staging(older_than)
        with self._translated(STAGING_PREFIX):
            self.client.remove_empty_folders(STAGING_PREFIX, nanoseconds(older_than))
        return number

    def trash(self) -> Trash:
        return HdfsTrash(self, self.client)

    def staging(self, path: str, token: str) -> HdfsStaging:
        return HdfsStaging(self._objects(path, token), self._refused, self._place)

    def _list_again(self, keys: Mapping[str, str], look: Callable[[str], Listing]) -> Mapping[str, Listing]:
        """A publication may be between its two renames, or have made them while others were listed."""
        marked = self.client.children(PUBLISHING_FOLDER).files
        found = dict[str, Listing]()
        for path, key in keys.items():
            if self.client.marker(key).rpartition("/")[2] in marked:
                found[path] = Listing(is_marked=True)
            elif self.client.status(key) is not None:
                found[path] = look(path)
        return found

    def _refused(self, path: str, exc: Exception) -> StorageError:
        if isinstance(exc, UnusableKeyError):
            return PathRefusedError(store=self.root_url, path=path, reason=f"HDFS refuses this name: {exc}")
        if isinstance(exc, RootRefusedError) and not isinstance(exc, RootAwayError):
            return StorageError(store=self.root_url, path="", reason=str(exc), next_step=exc.next_step)
        return super()._refused(path, exc)
