"""Run one copy task: copy file by file into the staging, within the bandwidth, and compute checksums on the way."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from feed_assets.errors import FeedAssetsError
from feed_assets.plan.copy_records import OnError
from feed_assets.storage.checksums import Checksum
from feed_assets.storage.copy_port import Reading, SourceFile, StagedFile, Staging
from feed_assets.storage.errors import InstanceNotFoundError, StorageError
from feed_assets.storage.pool import StorePool
from feed_assets.transfer.tasks import CopyTask, TaskCopy

_BURST = 4


class Throttle:
    """Limits the bytes per second of all threads that share it; bursts are limited to a quarter of a second.

    `monotonic` returns seconds; `sleep` waits for seconds.

    >>> slept = []
    >>> throttle = Throttle(100, monotonic=lambda: 0.0, sleep=slept.append)
    >>> throttle.take(25), throttle.take(100), slept
    (None, None, [1.0])
    """

    def __init__(
        self,
        rate: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = max(rate, 1)
        self._monotonic = monotonic
        self._sleep = sleep
        self._left = self._rate / _BURST
        self._at = monotonic()
        self._mutex = threading.Lock()

    def take(self, count: int) -> None:
        """Wait until this many bytes may pass."""
        with self._mutex:
            now = self._monotonic()
            self._left = min(self._rate / _BURST, self._left + (now - self._at) * self._rate) - count
            self._at = now
            pause = -self._left / self._rate
        if pause > 0:
            self._sleep(pause)


_RECORD_FILES = 32
_RECORD_BYTES = 1 << 20
"""The copied files are recorded in the staging after this many files or bytes."""

OnBytes = Callable[[int, int], None]
"""Called with the numbers of bytes and files copied since the last call; by any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A file that could not be copied, and why. `is_change`: it no longer exists as it was listed."""

    file: str
    reason: str
    is_change: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """The result of a task for the copy with this `key`. `error`: a storage refused, which ended the work for it."""

    key: int
    written: tuple[StagedFile, ...] = ()
    failures: tuple[Failure, ...] = ()
    error: FeedAssetsError | None = None


TaskResult: TypeAlias = tuple[CopyResult, ...]
"""The results of a task, one for each of its copies."""


class FileFailedError(Exception):
    """A file of the source no longer exists as it was listed; or cannot be read, because of an `error`."""

    def __init__(self, file: str, reason: str, error: StorageError | None = None) -> None:
        self.failure = Failure(file=file, reason=reason, is_change=error is None)
        self.error = error
        super().__init__(reason)


def run_task(
    task: CopyTask,
    stores: StorePool,
    *,
    throttle: Throttle | None = None,
    on_bytes: OnBytes | None = None,
    ended: set[int] | None = None,
) -> TaskResult:
    """Copy the files of a task. A failure ends the work for its own copy only and is part of the result.

    `throttle` is shared with the other tasks of this process. So is `ended`, the keys of failed copies that need no
    more work.
    """
    limits = [limit for limit in (throttle, Throttle(task.rate) if task.rate else None) if limit]
    over, tell = set[int]() if ended is None else ended, on_bytes or _ignore_progress
    return tuple(_Runner(stores, limits, tell, over, copy).run() for copy in task.copies)


def _ignore_progress(size: int, files: int) -> None:
    """Ignore the progress."""


@dataclass(slots=True)
class _Runner:
    """Copies the files of one copy; what it copies with is shared by all copies of a task."""

    stores: StorePool
    limits: Sequence[Throttle]
    on_bytes: OnBytes
    ended: set[int]
    copy: TaskCopy
    written: list[StagedFile] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    recorded: int = 0
    unrecorded_bytes: int = 0

    def run(self) -> CopyResult:
        key = self.copy.key
        try:
            if key not in self.ended:
                self._run()
        except FeedAssetsError as exc:
            self.ended.add(key)
            return CopyResult(key=key, error=exc)
        return CopyResult(key=key, written=tuple(self.written), failures=tuple(self.failures))

    def _run(self) -> None:
        with ExitStack() as stack:
            copy, stores = self.copy, self.stores
            staging = stack.enter_context(closing(stores.get(copy.target.store).staging(copy.target.path, copy.token)))
            staging.join(copy.generation)
            try:
                source = stores.get(copy.source.store)
                self._copy_all(stack.enter_context(source.reading(copy.source.path)), staging)
            except InstanceNotFoundError as exc:
                self.failures.append(Failure(file="", reason=str(exc), is_change=True))
            finally:
                with suppress(StorageError):
                    self._record(staging)

    def _copy_all(self, reading: Reading, staging: Staging) -> None:
        copy, ended = self.copy, self.ended
        for file in copy.files:
            if copy.key in ended:
                return
            try:
                self._copy_file(file, reading, staging)
            except FileFailedError as exc:
                if copy.on_error is OnError.STOP:
                    if exc.error is not None:
                        raise exc.error from exc
                    ended.add(copy.key)
                self.failures.append(exc.failure)

    def _copy_file(self, file: SourceFile, reading: Reading, staging: Staging) -> None:
        checksum = Checksum(file.checksum)
        block_size = None if file.traits is None else file.traits.block_size
        staging.put(file.path, file.size, self._checked_chunks(file, reading, checksum), block_size)
        self.on_bytes(0, 1)
        self.written.append(StagedFile(file.path, file.size, checksum.render(), file.version, file.is_settled))
        self.unrecorded_bytes += file.size
        if self.unrecorded_bytes >= _RECORD_BYTES or len(self.written) - self.recorded >= _RECORD_FILES:
            self._record(staging)

    def _checked_chunks(self, file: SourceFile, reading: Reading, checksum: Checksum) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a file and add them to its checksum."""
        path, size = file.path, 0
        chunks = reading.chunks(path)
        while True:
            try:
                chunk = next(chunks, None)
            except InstanceNotFoundError as exc:
                raise FileFailedError(path, f"{path!r} is gone") from exc
            except StorageError as exc:
                raise FileFailedError(path, str(exc), exc) from exc
            if chunk is None:
                break
            size += len(chunk)
            if size > file.size:
                raise FileFailedError(path, f"{path!r} has more than {file.size:,} bytes now")
            checksum.update(chunk)
            for limit in self.limits:
                limit.take(len(chunk))
            yield chunk
            self.on_bytes(len(chunk), 0)
        if size != file.size:
            raise FileFailedError(path, f"{path!r} has {size:,} bytes now instead of {file.size:,}")

    def _record(self, staging: Staging) -> None:
        """Record the files that are not yet recorded in the staging."""
        if self.recorded < len(self.written):
            staging.record(self.written[self.recorded :])
        self.recorded = len(self.written)
        self.unrecorded_bytes = 0
