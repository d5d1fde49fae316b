"""Copies that are asked for, and how far they have come."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from feed_assets.lifecycle.replication.plans import CopyPlan, Side
from feed_assets.lifecycle.replication.tasks import OpenCopy
from feed_assets.storage.records import Guard


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """One copy that is asked for.

    `check` sees each plan before anything is written, and raises to forbid it; `guard` has the last word before it
    becomes visible; `extra` goes into its manifest. What a repair has found to be lost, rotten or too much at the
    target is `distrusted`: there every file is compared anew.
    """

    source: Side
    target: Side
    guard: Guard
    extra: Mapping[str, str] = field(default_factory=dict)
    distrusted: frozenset[str] = frozenset()
    check: Callable[[CopyPlan], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far copies have come: what is done of what is known to be done."""

    bytes: int = 0
    files: int = 0
    all_bytes: int = 0
    all_files: int = 0

    def plus(self, other: "Progress") -> "Progress":
        """Both together."""
        return Progress(
            bytes=self.bytes + other.bytes,
            files=self.files + other.files,
            all_bytes=self.all_bytes + other.all_bytes,
            all_files=self.all_files + other.all_files,
        )

    def since(self, earlier: "Progress") -> "Progress":
        """What has been added to an earlier one."""
        return Progress(
            bytes=self.bytes - earlier.bytes,
            files=self.files - earlier.files,
            all_bytes=self.all_bytes - earlier.all_bytes,
            all_files=self.all_files - earlier.all_files,
        )


OnProgress = Callable[[Progress], None]


class Meter:
    """Adds up the progress of threads, and tells it."""

    def __init__(self, tell: OnProgress | None) -> None:
        self._tell = tell
        self._done = Progress()
        self._mutex = Lock()

    @property
    def is_watched(self) -> bool:
        """Whether anybody is told."""
        return self._tell is not None

    def expect(self, copies: Iterable[OpenCopy]) -> None:
        """These copies are to be made, too."""
        for copy in copies if self.is_watched else ():
            self.merge(Progress(all_bytes=copy.missing_bytes, all_files=len(copy.missing)))

    def add(self, size: int, files: int) -> None:
        """So much has been copied."""
        if self._tell is not None:
            self.merge(Progress(bytes=size, files=files))

    def merge(self, progress: Progress) -> None:
        """Add what has been done, and become known, elsewhere."""
        if self._tell is None:
            return
        with self._mutex:
            self._done = self._done.plus(progress)
            self._tell(self._done)
