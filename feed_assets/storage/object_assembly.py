"""Copies put together on an object store: staged objects, large ones in parts; what stays is not touched at all.

Beside what every slot has, there are `journal/…`, one object for each time that a writer notes something, and
`uploads/…` for the objects that come in parts. An object that has an ETag of its content needs no note to be known
again. Where nothing stands the objects are written in place, by requests that never replace an object unless the
staging is known to be ours still.
"""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

from feed_assets.clock import Stopwatch
from feed_assets.storage.copy_notes import parse_notes, render_notes
from feed_assets.storage.copy_port import Assembly, Prepared, Stored, Written
from feed_assets.storage.errors import InstanceNotFoundError, StagingLostError, StorageError
from feed_assets.storage.object_multipart import GRID, MultipartUploads, Upload, has_uploads, part_size
from feed_assets.storage.object_requests import put_object
from feed_assets.storage.object_slot import Intent, ObjectSlot, Sign, read_marker
from feed_assets.storage.object_tree import (
    ObjectFile,
    each,
    find_object,
    is_checksum_of,
    iter_ranges,
    list_below,
    prove_object,
    read_object,
    remove_objects,
)
from feed_assets.storage.paths import path_name
from feed_assets.storage.records import Guard

_BLOCK = 16 << 20
_SURE = 3.0
"""Seconds for which a writer takes it that the place of the instance is still its own, and another one lets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What copies ask of their store: to recover an instance, to begin a publication, to go on to its end.

    `slot` is that of a path and a token, which it checks.
    """

    translated: Callable[[str], AbstractContextManager[None]]
    slot: Callable[[str, str], ObjectSlot]
    recover: Callable[[str], bool]
    begin: Callable[[ObjectSlot, Guard], None]
    roll_forward: Callable[[ObjectSlot, Intent, Collection[str] | None], None]


@dataclass(slots=True)
class _Open:
    """What an open assembly remembers."""

    adopted: set[str] = field(default_factory=set)
    uploads: dict[str, Upload] = field(default_factory=dict)
    intent: Intent | None = None
    sign: Sign = field(default_factory=Sign)
    looked: Stopwatch = field(default_factory=Stopwatch)
    left: Mapping[str, ObjectFile] | None = None
    told: dict[str, ObjectFile] | None = None
    """What was listed for its checksums, which tells the sizes, too."""
    there: tuple[str, ...] | None = None
    """What was in the place of the instance when its copy in place was found to be whole."""
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
        self._now = _Open()
        self._has_parts = has_uploads(slot.fs)
        self._journal = f"{slot.prefix}/journal"

    def open(self, files: Collection[str] = (), *, is_vacant: bool = False) -> int:
        slot = self._slot
        with self._translated():
            names = slot.list_names()
            former = slot.read_sign(names)
            if former is not None and self._hands.recover(slot.path):
                names = slot.list_names()
                former = slot.read_sign(names)
            if former is not None:
                self._take_over(former)
                self._go_on(files, is_vacant=is_vacant)
            else:
                self._now.sign = Sign(number=1, is_in_place=is_vacant)
                slot.make(self._now.sign, files, names)
                if is_vacant and not slot.occupy():
                    self._leave_place()
        return self._now.sign.number

    def seal(self) -> None:
        with self._translated():
            former = self._slot.read_sign()
            if former is not None:
                self._take_over(former)
        if former is None:
            self.open()

    def join(self, number: int) -> None:
        with self._translated():
            sign = self._slot.read_sign()
            if sign is None or sign.number != number:
                raise self._lost()
            self._now.sign = sign
            self._require_place()

    def close(self) -> None:
        self._now = _Open()

    def _take_over(self, former: Sign) -> None:
        """Give the slot the next number; the first one that took it over had nothing to publish yet."""
        if former.number != 1:
            self._slot.remove_intent()
        self._now.sign = replace(former, number=former.number + 1)
        self._slot.write_sign(self._now.sign)

    def _go_on(self, files: Collection[str], *, is_vacant: bool) -> None:
        """Go on with what was written in place, if that is ours still and the former writers have noticed."""
        slot = self._slot
        if not self._is_in_place:
            return
        if read_marker(self._fs, slot.target) != self.token and not (is_vacant and slot.occupy()):
            self._leave_place()
            return
        slot.write_places({*files, *slot.read_places()})
        time.sleep(_SURE)

    def _leave_place(self) -> None:
        """Stage the copy as if something stood in its place, because another publication is or was there."""
        self._now.sign = replace(self._now.sign, is_in_place=False)
        self._slot.write_sign(self._now.sign)
        self._slot.leave_place()

    def _require_ours(self) -> None:
        """Raises `StagingLostError` if another process has taken over what is written in place."""
        if self._is_in_place:
            self._require_sign()
            self._require_place()

    def _require_sign(self) -> None:
        if self._slot.read_sign() != self._now.sign:
            raise self._lost()

    def _require_place(self) -> None:
        if self._is_in_place and read_marker(self._fs, self._slot.target) != self.token:
            raise self._lost()
        self._now.looked = Stopwatch()

    def _lost(self) -> StagingLostError:
        return StagingLostError(store=self._slot.store, path=self.path, token=self.token)

    @property
    def _is_in_place(self) -> bool:
        return self._now.sign.is_in_place

    @property
    def _data(self) -> str:
        return self._slot.target if self._is_in_place else self._slot.data

    @property
    def _uploads(self) -> MultipartUploads:
        return MultipartUploads(self._fs, self._data, self._slot.uploads)

    def journal(self) -> list[Written]:
        with self._translated():
            texts = self._texts(self._noted())
            staged = {name: file.size for name, file in list_below(self._fs, self._data).files.items()}
            notes = (note for text in texts for note in parse_notes(text or b""))
            found = {(note.file, note.offset, note.sign): note for note in notes}
            parts: dict[str, dict[int, int]] = {}
            return [note for note in found.values() if self._is_there(note, staged, parts)]

    def note(self, written: Sequence[Written]) -> None:
        with self._translated():
            put_object(self._fs, f"{self._journal}/{uuid.uuid4().hex}", render_notes(written))

    def grain(self, size: int) -> int:
        return part_size(size) if self._has_parts and size > GRID else 0

    def put(self, file: str, data: bytes) -> Stored:
        with self._translated(file):
            if (left := self._find_left().get(file)) and is_checksum_of(left.checksum, data):
                return Stored(left.checksum, was_there=True)
            return Stored(prove_object(self._put(f"{self._data}/{file}", data), data))

    def _find_left(self) -> Mapping[str, ObjectFile]:
        """What an earlier try has left in the staging."""
        if self._now.left is None:
            self._now.left = list_below(self._fs, self._data).files if self._now.sign.number > 1 else {}
        return self._now.left

    def _put(self, key: str, data: bytes) -> str:
        if self._is_in_place:
            if self._now.looked.seconds > _SURE:
                self._require_ours()
            with suppress(FileExistsError):  # it was written by an earlier try, or the request has been repeated
                return put_object(self._fs, key, data, is_new=True, is_signed=False)
            self._require_ours()
        return put_object(self._fs, key, data, is_signed=False)

    def begin(self, file: str, size: int) -> None:
        if self.grain(size):
            with self._translated(file):
                if self._now.sign.number > 1 or file in self._now.uploads:
                    self._uploads.abort(file, path_name(file))
                    self._remove([file])
                self._now.uploads[file] = self._uploads.begin(file, path_name(file), size)

    def write(self, file: str, size: int, offset: int, chunks: Iterable[bytes | memoryview]) -> None:
        with self._translated(file):
            if self.grain(size):
                self._write_parts(file, offset, chunks)
                return
            self._require_ours()
            with self._fs.open(f"{self._data}/{file}", "wb", block_size=_BLOCK) as stream:
                for chunk in chunks:
                    stream.write(chunk)

    def complete(self, file: str, size: int) -> None:
        if self.grain(size):
            with self._translated(file):
                staged = find_object(self._fs, f"{self._data}/{file}")
                if staged is None or staged.size != size:
                    self._require_ours()
                    self._uploads.complete(file, path_name(file), size)

    def read(self, file: str, size: int) -> bytes:
        return b"".join(self.chunks(file, 0, size + 1))

    def chunks(self, file: str, offset: int, size: int) -> Iterator[bytes | memoryview]:
        place = self._slot.target if file in self._now.adopted else self._data
        with self._translated(file):
            try:
                yield from iter_ranges(self._fs, f"{place}/{file}", offset, size)
            except FileNotFoundError:
                raise InstanceNotFoundError(store=self._slot.store, path=f"{self.path}/{file}") from None

    def told(self) -> dict[str, str]:
        with self._translated():
            self._now.told = list_below(self._fs, self._data).files
        return {name: file.checksum for name, file in self._now.told.items() if file.checksum}

    def drop(self, files: Collection[str]) -> None:
        self._now.adopted.difference_update(files)
        self._now.told = self._now.left = None
        with self._translated():
            self._forget(files)
            for file in files:
                self._now.uploads.pop(file, None)
                if self._has_parts:
                    self._uploads.abort(file, path_name(file))
            self._remove(files)

    def adopt(self, files: Collection[str]) -> None:
        self._now.adopted.update(files)

    def dress(self, file: str, modified: int | None, mode: int | None) -> None:
        """Objects have neither."""

    def prepare(self, prepared: Prepared) -> None:
        meant = {entry.path: entry.size for entry in (*prepared.manifest.entries, *prepared.hidden)}
        adopted = self._now.adopted - set(prepared.flags)
        with self._translated():
            staged, self._now.told = self._now.told or list_below(self._fs, self._data).files, None
            standing = staged if self._is_in_place else self._slot.list_standing() if adopted else {}
            for path, size in meant.items():
                found = (standing if path in adopted else staged).get(path)
                there = None if found is None else found.size
                if there != size:
                    reason = f"the copy of {path!r} has {'no' if there is None else there} bytes instead of {size:,}"
                    raise StorageError(
                        store=self._slot.store, path=self.path, reason=reason, next_step="Copy the instance again."
                    )
            stay = {*meant, *adopted} if self._is_in_place else adopted
            self._now.intent = Intent(
                manifest=prepared.manifest,
                flag=prepared.flags[0] if prepared.flags else None,
                flags=prepared.flags[1:],
                names=tuple(sorted(meant.keys() - stay)),
                kept=tuple(sorted(stay)),
            )
            if self._is_in_place:
                self._now.there = tuple(staged)
            else:
                self._slot.write_intent(self._now.intent)

    def publish(self, guard: Guard) -> None:
        intent = self._now.intent
        assert intent is not None
        if self._is_in_place:
            guard()
            with self._translated():
                self._require_sign()
                self._slot.write_intent(intent)
        else:
            self._hands.begin(self._slot, guard)
        with self._translated():
            self._hands.roll_forward(self._slot, intent, self._now.there)
        self._now.is_published = True

    def remove(self) -> None:
        if self._now.is_published:  # the publication has removed it
            return
        with self._translated():
            self._slot.remove()

    def _remove(self, files: Collection[str]) -> None:
        self._require_ours()
        remove_objects(self._fs, [f"{self._data}/{file}" for file in files])

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
            raise FileNotFoundError(f"{self._data}/{file}")
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
