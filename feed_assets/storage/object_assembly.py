"""Copies put together on an object store: staged objects, large ones in parts; what stays is not touched at all.

Beside what every slot has, there are `journal/…`, one object for each time that a writer notes something, and
`uploads/…` for the objects that come in parts.
"""

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from feed_assets.storage.copy_notes import parse_notes, render_notes
from feed_assets.storage.copy_port import Assembly, Prepared, Written
from feed_assets.storage.errors import InstanceNotFoundError, StagingLostError, StorageError
from feed_assets.storage.object_multipart import GRID, MultipartUploads, Upload, has_uploads, part_size
from feed_assets.storage.object_slot import Intent, ObjectSlot
from feed_assets.storage.object_tree import (
    each,
    find_object,
    iter_ranges,
    list_below,
    list_objects,
    read_object,
    remove_objects,
)
from feed_assets.storage.paths import MANIFEST_NAME, PUBLISHING_NAME, path_name
from feed_assets.storage.records import Guard

_BLOCK = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What copies ask of their store: to recover an instance, to begin a publication, to go on to its end."""

    translated: Callable[[str], AbstractContextManager[None]]
    recover: Callable[[str], bool]
    begin: Callable[[ObjectSlot, Guard], None]
    roll_forward: Callable[[ObjectSlot, Intent], None]


@dataclass(slots=True)
class _Open:
    """What an open assembly remembers."""

    adopted: set[str] = field(default_factory=set)
    uploads: dict[str, Upload] = field(default_factory=dict)
    intent: Intent | None = None
    is_new: bool = False
    is_published: bool = False


class ObjectAssembly(Assembly):
    """A slot of an object store."""

    least_note = 8

    def __init__(self, slot: ObjectSlot, hands: Hands) -> None:
        self.path = slot.path
        self.token = slot.token
        self._slot = slot
        self._hands = hands
        self._fs = slot.fs
        self._uploads = MultipartUploads(slot.fs, slot.data, f"{slot.prefix}/uploads")
        self._now = _Open()
        self._has_parts = has_uploads(slot.fs)
        self._journal = f"{slot.prefix}/journal"

    def open(self) -> int:
        slot = self._slot
        with self._translated():
            self._hands.recover(slot.path)
            text = read_object(self._fs, f"{slot.prefix}/slot.json")
            if text is None:
                slot.make(number=1)
                self._now.is_new = True
                return 1
            return self._take_over(text)

    def seal(self) -> None:
        with self._translated():
            text = read_object(self._fs, f"{self._slot.prefix}/slot.json")
            if text is not None:
                self._take_over(text)
        if text is None:
            self.open()

    def join(self, number: int) -> None:
        with self._translated():
            text = read_object(self._fs, f"{self._slot.prefix}/slot.json")
        if text is None or json.loads(text).get("number") != number:
            raise StagingLostError(store=self._slot.store, path=self.path, token=self.token)

    def close(self) -> None:
        self._now = _Open()

    def _take_over(self, sign: bytes) -> int:
        """Give the slot the next number; the first one that took it over had nothing to publish yet."""
        former = int(json.loads(sign).get("number", 0))
        if former != 1:
            remove_objects(self._fs, [f"{self._slot.prefix}/intent.json"])
        document = {"version": 1, "path": self.path, "number": former + 1}
        self._fs.pipe_file(f"{self._slot.prefix}/slot.json", json.dumps(document).encode())
        return former + 1

    def journal(self) -> list[Written]:
        with self._translated():
            texts = self._texts(self._noted())
            staged = {name: file.size for name, file in list_below(self._fs, self._slot.data).files.items()}
            notes = (note for text in texts for note in parse_notes(text or b""))
            found = {(note.file, note.offset, note.sign): note for note in notes}
            parts: dict[str, dict[int, int]] = {}
            return [note for note in found.values() if self._is_there(note, staged, parts)]

    def note(self, written: Sequence[Written]) -> None:
        with self._translated():
            self._fs.pipe_file(f"{self._journal}/{uuid.uuid4().hex}", render_notes(written).encode())

    def grain(self, size: int) -> int:
        return part_size(size) if self._has_parts and size > GRID else 0

    def put(self, file: str, data: bytes) -> None:
        with self._translated(file):
            self._fs.pipe_file(f"{self._slot.data}/{file}", data)

    def begin(self, file: str, size: int) -> None:
        if self.grain(size):
            with self._translated(file):
                if not self._now.is_new or file in self._now.uploads:
                    self._uploads.abort(file, path_name(file))
                    remove_objects(self._fs, [f"{self._slot.data}/{file}"])
                self._now.uploads[file] = self._uploads.begin(file, path_name(file), size)

    def write(self, file: str, size: int, offset: int, chunks: Iterable[bytes | memoryview]) -> None:
        with self._translated(file):
            if self.grain(size):
                self._write_parts(file, offset, chunks)
                return
            with self._fs.open(f"{self._slot.data}/{file}", "wb", block_size=_BLOCK) as stream:
                for chunk in chunks:
                    stream.write(chunk)

    def complete(self, file: str, size: int) -> None:
        if self.grain(size):
            with self._translated(file):
                staged = find_object(self._fs, f"{self._slot.data}/{file}")
                if staged is None or staged.size != size:
                    self._uploads.complete(file, path_name(file), size)

    def read(self, file: str, size: int) -> bytes:
        return b"".join(self.chunks(file, 0, size + 1))

    def chunks(self, file: str, offset: int, size: int) -> Iterator[bytes | memoryview]:
        place = self._slot.target if file in self._now.adopted else self._slot.data
        with self._translated(file):
            try:
                yield from iter_ranges(self._fs, f"{place}/{file}", offset, size)
            except FileNotFoundError:
                raise InstanceNotFoundError(store=self._slot.store, path=f"{self.path}/{file}") from None

    def drop(self, files: Collection[str]) -> None:
        self._now.adopted.difference_update(files)
        with self._translated():
            self._forget(files)
            for file in files:
                self._now.uploads.pop(file, None)
                if self._has_parts:
                    self._uploads.abort(file, path_name(file))
            remove_objects(self._fs, [f"{self._slot.data}/{file}" for file in files])

    def standing(self) -> dict[str, int]:
        with self._translated():
            files = list_objects(self._fs, self._slot.target).files
        own = (MANIFEST_NAME, PUBLISHING_NAME, "")
        return {name: file.size for name, file in files.items() if name not in own}

    def adopt(self, files: Collection[str]) -> None:
        self._now.adopted.update(files)

    def dress(self, file: str, modified: int | None, mode: int | None) -> None:
        """Objects have neither."""

    def prepare(self, prepared: Prepared) -> None:
        meant = {entry.path: entry.size for entry in (*prepared.manifest.entries, *prepared.hidden)}
        adopted = self._now.adopted - set(prepared.flags)
        with self._translated():
            staged = {name: file.size for name, file in list_below(self._fs, self._slot.data).files.items() if name}
            standing = self.standing() if adopted else {}
            for path, size in meant.items():
                there = (standing if path in adopted else staged).get(path)
                if there != size:
                    reason = f"the copy of {path!r} has {'no' if there is None else there} bytes instead of {size:,}"
                    raise StorageError(
                        store=self._slot.store, path=self.path, reason=reason, next_step="Copy the instance again."
                    )
            self._now.intent = Intent(
                manifest=prepared.manifest,
                flag=prepared.flags[0] if prepared.flags else None,
                flags=prepared.flags[1:],
                names=tuple(sorted(name for name in meant if name not in adopted)),
                kept=tuple(sorted(adopted)),
            )
            self._slot.write_intent(self._now.intent)

    def publish(self, guard: Guard) -> None:
        assert self._now.intent is not None
        self._hands.begin(self._slot, guard)
        with self._translated():
            self._hands.roll_forward(self._slot, self._now.intent)
        self._now.is_published = True

    def remove(self) -> None:
        if self._now.is_published:  # the publication has removed it
            return
        with self._translated():
            self._slot.remove()

    def _noted(self) -> list[str]:
        names = list_below(self._fs, self._journal).files
        return [f"{self._journal}/{name}" for name in sorted(names) if name]

    def _texts(self, keys: Sequence[str]) -> list[bytes | None]:
        return each(lambda key: read_object(self._fs, key), keys)

    def _forget(self, files: Collection[str]) -> None:
        """Write the journal anew without some files; a crash in between leaves more than is wanted, not less."""
        former = self._noted()
        notes = [note for text in self._texts(former) for note in parse_notes(text or b"")]
        self.note([note for note in notes if note.file not in files])
        remove_objects(self._fs, former)

    def _is_there(self, note: Written, staged: dict[str, int], parts: dict[str, dict[int, int]]) -> bool:
        """Whether what was noted is in the staging still, as an object or as parts of one."""
        if staged.get(note.file, -1) >= note.offset + note.size:
            return True
        if not self._has_parts or note.file in staged:
            return False
        upload = self._upload(note.file)
        if upload is None or note.offset % upload.part:
            return False
        if note.file not in parts:
            found = self._uploads.parts(note.file, upload)
            parts[note.file] = {number: size for number, (size, _) in found.items()}
        first, last = note.offset // upload.part, -(-(note.offset + note.size) // upload.part)
        return sum(parts[note.file].get(number + 1, 0) for number in range(first, last)) == note.size

    def _upload(self, file: str) -> Upload | None:
        upload = self._now.uploads.get(file) or self._uploads.find(path_name(file))
        if upload is not None:
            self._now.uploads[file] = upload
        return upload

    def _write_parts(self, file: str, offset: int, chunks: Iterable[bytes | memoryview]) -> None:
        upload = self._upload(file)
        if upload is None:
            raise FileNotFoundError(f"{self._slot.data}/{file}")
        data = bytearray()
        for chunk in chunks:
            data += chunk
            while len(data) >= upload.part:
                self._uploads.put(file, upload, offset, bytes(data[: upload.part]))
                offset += upload.part
                del data[: upload.part]
        if data:
            self._uploads.put(file, upload, offset, bytes(data))

    def _translated(self, file: str = "") -> AbstractContextManager[None]:
        return self._hands.translated(f"{self.path}/{file}".rstrip("/"))
