"""Running a task of a copy: from the source into the staging, with checksums on the way and notes of what is done."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from isal.isal_zlib import crc32

from feed_assets.errors import FeedAssetsError
from feed_assets.lifecycle.replication.tasks import CopyTask, Stretch, TaskCopy, open_assembly
from feed_assets.lifecycle.replication.throttle import Throttle
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.copy_options import OnError
from feed_assets.storage.checksums import Checksum, checksum_of_bytes
from feed_assets.storage.copy_port import Assembly, Reading, SourceFile, Written
from feed_assets.storage.errors import InstanceNotFoundError, StorageError

_NOTES = 32
_NOTE_BYTES = 1 << 20
_SPLICE = 8 << 20

_new_written = partial(tuple.__new__, Written)
"""A `Written` of a tuple of its fields, in half the time of its own way."""

OnBytes = Callable[[int, int], None]
"""Told of bytes and files that have been copied since it was told last; from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A file that could not be copied, and why. `is_change`: it is not there any more as it was listed."""

    file: str
    reason: str
    is_change: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """What a task did for the copy of this `key`. `error`: a storage refused, and nothing more was done for it.

    Of what it has `written`, `resumed` bytes were found in the staging.
    """

    key: int
    written: tuple[Written, ...] = ()
    resumed: int = 0
    failures: tuple[Failure, ...] = ()
    error: FeedAssetsError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What a task did."""

    number: int
    copies: tuple[CopyResult, ...]


class SourceMovedError(Exception):
    """A file of the source is not as it was listed."""

    def __init__(self, file: str, reason: str) -> None:
        self.file = file
        super().__init__(f"{file!r} {reason}")


class SourceUnreadableError(Exception):
    """A file of the source that cannot be read."""

    def __init__(self, file: str, error: StorageError) -> None:
        self.file = file
        self.error = error
        super().__init__(str(error))


class Held:
    """The bytes of small files as they were read at the source, by the key of their copy; for several threads.

    What is read back is compared with them: a second checksum takes many times as long. Beyond `limit` bytes no more
    are held.
    """

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._all: dict[int, dict[str, bytes]] = defaultdict(dict)
        self._mutex = Lock()

    def reserve(self, size: int) -> int:
        """How many of so many bytes may be held; they count as held from now on."""
        with self._mutex:
            granted = min(size, self._left)
            self._left -= granted
        return granted

    def hold(self, key: int, files: Mapping[str, bytes]) -> None:
        """Hold the bytes of files for which room was reserved."""
        with self._mutex:
            self._all[key].update(files)

    def release(self, key: int) -> Mapping[str, bytes]:
        """What is held of a copy, and is not any more."""
        return self._all.pop(key, {})


def run_task(
    task: CopyTask,
    stores: StorePool,
    *,
    throttle: Throttle | None = None,
    on_bytes: OnBytes | None = None,
    ended: set[int] | None = None,
    held: Held | None = None,
) -> TaskResult:
    """Copy what a task names; what fails ends the work for its copy only, and is told in the result.

    `throttle` limits it together with others of this process, with which it shares `ended`, the keys of copies that
    have failed and are not worth more work, and what is `held` of the bytes.
    """
    work = _Work(
        stores=stores,
        limits=[limit for limit in (throttle, Throttle(task.rate) if task.rate else None) if limit],
        on_bytes=on_bytes or _nobody,
        ended=set() if ended is None else ended,
        held=Held(0) if held is None else held,
        note_bytes=max(task.bytes // _NOTES, _NOTE_BYTES),
        note_files=sum(len(copy.files) for copy in task.copies) // _NOTES,
    )
    return TaskResult(number=task.number, copies=tuple(_Runner(work, copy).run() for copy in task.copies))


def _nobody(size: int, files: int) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What all copies of a task have in common."""

    stores: StorePool
    limits: Sequence[Throttle]
    on_bytes: OnBytes
    ended: set[int]
    held: Held
    note_bytes: int
    note_files: int


@dataclass(slots=True)
class _Runner:
    work: _Work
    copy: TaskCopy
    written: list[Written] = field(default_factory=list)
    resumed: int = 0
    failures: list[Failure] = field(default_factory=list)
    unnoted: list[Written] = field(default_factory=list)
    unnoted_bytes: int = 0
    note_files: int = 1
    is_near: bool = False
    held: dict[str, bytes] = field(default_factory=dict)
    held_room: int = 0

    def run(self) -> CopyResult:
        key = self.copy.key
        try:
            if key not in self.work.ended:
                self._run()
        except FeedAssetsError as exc:
            self.work.ended.add(key)
            return CopyResult(key=key, error=exc)
        return CopyResult(key=key, written=tuple(self.written), resumed=self.resumed, failures=tuple(self.failures))

    def _run(self) -> None:
        with ExitStack() as stack:
            assembly = open_assembly(self.work.stores, self.copy)
            stack.callback(assembly.close)
            self.note_files = max(self.work.note_files, assembly.least_note)
            source = self.work.stores.get(self.copy.source.store).copying()
            try:
                self.is_near = not source.is_remote
                reading = stack.enter_context(source.reading(self.copy.source.path))
                self._copy_all(reading, assembly)
            except InstanceNotFoundError as exc:
                self.failures.append(Failure(file="", reason=str(exc), is_change=True))
            finally:
                self.work.held.hold(self.copy.key, self.held)
                with suppress(StorageError):
                    self._note(assembly)

    def _copy_all(self, reading: Reading, assembly: Assembly) -> None:
        copy, ended = self.copy, self.work.ended
        self.held_room = self.work.held.reserve(sum([file.size for file in copy.files]))
        works: list[tuple[Callable[..., None], SourceFile | Stretch]] = [
            (self._copy_small if file.size <= _SPLICE else self._copy_file, file) for file in copy.files
        ]
        works += [(self._copy_stretch, stretch) for stretch in copy.stretches]
        for work, each in works:
            if copy.key in ended:
                return
            try:
                work(each, reading, assembly)
            except SourceMovedError as exc:
                self.failures.append(Failure(file=exc.file, reason=str(exc), is_change=True))
            except SourceUnreadableError as exc:
                if copy.on_error is OnError.STOP:
                    raise exc.error from exc
                self.failures.append(Failure(file=exc.file, reason=str(exc), is_change=False))
            else:
                continue
            if copy.on_error is OnError.STOP:
                ended.add(copy.key)

    def _copy_small(self, file: SourceFile, reading: Reading, assembly: Assembly) -> None:
        """Copy a file whole, through memory; of most files there are many, so this is short."""
        path, size, sign, is_settled, known, _, _ = file
        try:
            data = reading.read(path, size)
        except StorageError as exc:
            raise _source_error(file, exc) from exc
        if len(data) != size:
            raise SourceMovedError(path, f"has {len(data):,} bytes now instead of {size:,}")
        checksum = checksum_of_bytes(data, known)
        for limit in self.work.limits:
            limit.take(size)
        proof, was_there = assembly.put(path, data)
        if was_there:
            self.resumed += size
        if not proof and size <= self.held_room:
            self.held_room -= size
            self.held[path] = data
        self.work.on_bytes(size, 1)
        written = _new_written((path, 0, size, checksum, sign, is_settled, proof))
        if proof and self.is_near:
            self.written.append(written)  # without a note: to read it again costs little, and it is not sent again
        else:
            self._done(assembly, written)

    def _copy_file(self, file: SourceFile, reading: Reading, assembly: Assembly) -> None:
        """Copy a file whole, chunk by chunk."""
        whole = Checksum(file.checksum)
        assembly.write(file.path, file.size, 0, self._passing(file, 0, file.size, reading, whole, None))
        self.work.on_bytes(0, 1)
        self._done(assembly, _written(file, 0, file.size, whole.render()))

    def _copy_stretch(self, stretch: Stretch, reading: Reading, assembly: Assembly) -> None:
        """Copy a stretch segment by segment; by the kernel where the checksum of the file is known.

        Each segment has its own checksum. That of the file is taken on the way where the stretch is all of it.
        """
        file, end, offset = stretch.file, stretch.offset + stretch.size, stretch.offset
        if file.checksum and reading.has_descriptors and assembly.can_splice:
            offset = self._splice(stretch, reading, assembly)
        whole = Checksum(file.checksum) if offset == 0 and end == file.size else None
        while offset < end and self.copy.key not in self.work.ended:
            size = min(stretch.unit - offset % stretch.unit, end - offset)
            segment = _Crc()
            assembly.write(file.path, file.size, offset, self._passing(file, offset, size, reading, whole, segment))
            self._done(assembly, _written(file, offset, size, f"crc32:{segment.value:08x}"))
            offset += size
        if whole is not None and offset == file.size:
            self.written.append(_written(file, 0, offset, whole.render()))
        self.work.on_bytes(0, int(offset == file.size))

    def _splice(self, stretch: Stretch, reading: Reading, assembly: Assembly) -> int:
        """Let the kernel copy as far as it can; return how far that is."""
        file, end, offset = stretch.file, stretch.offset + stretch.size, stretch.offset
        step = min([stretch.unit, _SPLICE, *(max(limit.burst, 1 << 16) for limit in self.work.limits)])
        try:
            descriptor = reading.descriptor(file.path)
        except StorageError as exc:
            raise _source_error(file, exc) from exc
        try:
            while offset < end:
                size = min(step, end - offset)
                for limit in self.work.limits:
                    limit.take(size)
                count = assembly.splice(file.path, offset, size, descriptor)
                if count == 0:
                    break
                self._done(assembly, _written(file, offset, count, ""))
                self.work.on_bytes(count, 0)
                offset += count
        finally:
            os.close(descriptor)
        if offset < end and offset > stretch.offset:
            raise SourceMovedError(file.path, "has become shorter")
        return offset

    def _passing(
        self,
        file: SourceFile,
        offset: int,
        size: int,
        reading: Reading,
        whole: Checksum | None,
        segment: "_Crc | None",
    ) -> Iterator[bytes | memoryview]:
        """The bytes of a stretch, with their checksums taken on the way."""
        left = size
        chunks = reading.chunks(file.path, offset, size)
        while True:
            try:
                chunk = next(chunks, None)
            except StorageError as exc:
                raise _source_error(file, exc) from exc
            if chunk is None:
                break
            if whole is not None:
                whole.update(chunk)
            if segment is not None:
                segment.value = crc32(chunk, segment.value)
            for limit in self.work.limits:
                limit.take(len(chunk))
            yield chunk
            left -= len(chunk)
            self.work.on_bytes(len(chunk), 0)
        if left:
            raise SourceMovedError(file.path, "has become shorter")

    def _done(self, assembly: Assembly, done: Written) -> None:
        """Remember what is done, and note it when it is worth a note."""
        self.unnoted.append(done)
        self.unnoted_bytes += done.size
        self.written.append(done)
        if self.unnoted_bytes >= self.work.note_bytes or len(self.unnoted) >= self.note_files:
            self._note(assembly)

    def _note(self, assembly: Assembly) -> None:
        if self.unnoted:
            assembly.note(self.unnoted)
        self.unnoted = []
        self.unnoted_bytes = 0


def _written(file: SourceFile, offset: int, size: int, checksum: str) -> Written:
    return Written(file.path, offset, size, checksum, file.sign, file.is_settled)


def _source_error(file: SourceFile, error: StorageError) -> Exception:
    """A failure of the source, which is told from those of the target by this."""
    if isinstance(error, InstanceNotFoundError):
        return SourceMovedError(file.path, "is gone")
    return SourceUnreadableError(file.path, error)


@dataclass(slots=True)
class _Crc:
    value: int = 0
