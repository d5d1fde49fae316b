"""Implement stagings on an object store: complete objects in the hidden folder, for publications and copies.

In addition to its staging, a staging has `journal/<generation>/…` with one object for each call of `record`. Each
generation of writers has its own prefix for files, so a writer that has not noticed a take-over replaces nothing. Of
several files with one name, the one of the latest generation counts.
"""

import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from feed_assets.storage.copy_port import Prepared, StagedFile, Staging
from feed_assets.storage.errors import InstanceNotFoundError, Refuse, StagingLostError, Translated
from feed_assets.storage.manifests import parse_json, render_json
from feed_assets.storage.object.client import each
from feed_assets.storage.object.staged_objects import HEADER, INTENT, Intent, StagedObjects, read_marker, recover
from feed_assets.storage.object.tree import read_object
from feed_assets.storage.records import Guard, StagingPlace

_DATA, _JOURNAL = "data", "journal"


class ObjectStaging(Staging):
    """A staging on an object store. `place` creates the scratch folder for `create` and returns its place."""

    def __init__(
        self, objects: StagedObjects, refuse: Refuse, place: Callable[[StagedObjects, bool], StagingPlace]
    ) -> None:
        self.path = objects.path
        self.token = objects.token
        self.objects = objects
        self._client = objects.client
        self._refuse = refuse
        self._numbers = itertools.count()
        self._place = place
        self.close()

    def create(self, *, is_again: bool = False) -> StagingPlace:
        with self._translated():
            if not is_again and read_marker(self._client, self.path) == self.token:
                recover(self.objects)
            self.objects.make(() if is_again else None)
            self._generation = 1
            return self._place(self.objects, is_again)

    def open(self) -> int:
        with self._translated():
            names = self.objects.list_names()
            if HEADER in names and recover(self.objects, if_possible=True):
                names = self.objects.list_names()
            generation = self.objects.take_over() if HEADER in names else None
            if generation is None:
                generation = 1
                self.objects.make(names)
        self._generation = generation
        return generation

    def seal(self, generation: int | None = None) -> None:
        with self._translated():
            taken = self.objects.take_over(generation)
        if taken is None:
            self.open()
        else:
            self._generation = taken
        self._is_sealed = True

    def join(self, generation: int) -> None:
        with self._translated():
            if self.objects.read_generation() != generation:
                raise StagingLostError(store=self.objects.store, path=self.path, token=self.token)
        self._generation = generation

    def close(self) -> None:
        self._generation = 0
        self._is_sealed = False
        self._adopted: set[str] = set()
        self._files: dict[str, int] = {}
        self._names: Mapping[str, int] | None = None
        self._intent: Intent | None = None
        self._is_published = False

    def put(
        self,
        file: str,
        size: int,
        chunks: Iterable[bytes | memoryview],
        block_size: int | None = None,
    ) -> None:
        with self._translated(file):
            self._put(f"{self.objects.data(self._generation)}/{file}", size, chunks, block_size)
        self._names = None
        self._adopted.discard(file)
        self._files[file] = self._generation

    def _put(self, key: str, size: int, chunks: Iterable[bytes | memoryview], block_size: int | None) -> None:  # noqa: ARG002
        self._client.put_chunks(key, size, chunks)

    def record(self, files: Sequence[StagedFile]) -> None:
        with self._translated():
            key = f"{self.objects.prefix}/{_JOURNAL}/{self._generation}/{next(self._numbers):08}-{uuid.uuid4().hex}"
            self._client.put(key, render_json([list(each) for each in files]))

    def recorded(self) -> list[StagedFile]:
        with self._translated():
            names = self.objects.list_names()
            sizes = self._find_files(names)
            found = {file.path: file for file in self._read_records(names)}
        return [file for file in found.values() if sizes.get(file.path, -1) == file.size]

    def chunks(self, file: str) -> Iterator[bytes | memoryview]:
        with self._translated(file):
            if file in self._adopted:
                key = f"{self.path}/{file}"
            else:
                if file not in self._files:
                    self._find_files(self._list_names())
                key = f"{self.objects.data(self._files.get(file, self._generation))}/{file}"
            try:
                yield from self._client.chunks(key)
            except FileNotFoundError:
                raise InstanceNotFoundError(store=self.objects.store, path=f"{self.path}/{file}") from None

    def drop(self, files: Collection[str]) -> None:
        self._adopted.difference_update(files)
        with self._translated():
            names = self.objects.list_names()
            journal = [name for name in names if name.startswith(f"{_JOURNAL}/")]
            records = self._read_records(names)
            if any(record.path in files for record in records):
                self.record([record for record in records if record.path not in files])
                self._client.remove([f"{self.objects.prefix}/{name}" for name in journal])
            data = [name for name in names if name.startswith(f"{_DATA}/") and name.split("/", 2)[2] in files]
            self._client.remove([f"{self.objects.prefix}/{name}" for name in data])
        self._names = None
        for file in files:
            self._files.pop(file, None)

    def adopt(self, files: Collection[str]) -> None:
        self._adopted.update(files)

    def prepare(self, prepared: Prepared) -> None:
        adopted = self._adopted - set(prepared.flags)
        with self._translated():
            there = self._find_files(self._list_names())
            if adopted:
                standing = self._client.list(self.path).files
                there = there | {name: standing[name].size for name in adopted if name in standing}
            prepared.require(there, self.objects.store, self.path)
            self._intent = Intent(
                manifest=prepared.manifest,
                flags=prepared.flags,
                files={path: self._files[path] for path in prepared.sizes if path not in adopted},
                kept=tuple(sorted(adopted)),
            )
            self.objects.write_intent(self._intent)

    def publish(self, guard: Guard) -> None:
        assert self._intent is not None
        with self._translated():
            names = [*self._list_names(), INTENT]
            if self._intent.manifest is None:
                self.objects.publish_exactly(self._intent, guard, names)
            else:
                self.objects.begin(guard)
                self.objects.roll_forward(self._intent, names)
        self._is_published = True

    def remove(self) -> None:
        if self._is_published:  # the publication has removed the staging
            return
        with self._translated():
            self.objects.remove()

    def _list_names(self) -> Mapping[str, int]:
        """List the objects of the staging; reuse the list while the staging is sealed and nothing is put."""
        names = self._names
        if names is None:
            names = self.objects.list_names()
            self._names = names if self._is_sealed else None
        return names

    def _find_files(self, names: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each staged file, and keep the generation that wrote it."""
        sizes: dict[str, int] = {}
        found: dict[str, int] = {}
        for name, size in names.items():
            if name.startswith(f"{_DATA}/"):
                _, generation, file = name.split("/", 2)
                if found.get(file, 0) <= int(generation) <= self._generation:
                    found[file], sizes[file] = int(generation), size
        own = {file: generation for file, generation in self._files.items() if generation == self._generation}
        self._files = found | own  # other threads may have put files meanwhile
        return sizes

    def _read_records(self, names: Iterable[str]) -> list[StagedFile]:
        """Read the journal in the order of generations, and for each writer in the order of its records."""
        journal = [name for name in names if name.startswith(f"{_JOURNAL}/")]
        journal.sort(key=lambda name: (int(name.split("/")[1]), name))
        texts = each(lambda name: read_object(self._client, f"{self.objects.prefix}/{name}"), journal)
        return [StagedFile(*fields) for text in texts for fields in parse_json(text or b"[]")]

    def _translated(self, file: str = "") -> Translated:
        return Translated(self._refuse, f"{self.path}/{file}".rstrip("/"))
