"""Define requests for copies and their results, and report their progress."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import add
from threading import Lock
from typing import NamedTuple

from feed_assets.entities.copies.options import Verification
from feed_assets.storage.manifests import Publication
from feed_assets.storage.records import Clearing, Displaced, Guard
from feed_assets.transfer.plans import CopyPlan, Side
from feed_assets.transfer.running import Failure
from feed_assets.transfer.tasks import OpenCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """A request for one copy.

    `check` gets each plan before anything is written and raises to forbid it. `guard` is called right before the
    publication and raises to forbid it. `extra` goes into the manifest. `distrusted` are files that a repair found to
    be lost, rotten or extra at the target; they are transferred regardless of its manifest. `clearing` has the rules
    for what stands at the target (see `clear_place`); without it the caller answers for the removal. The
    staging of one that `is_repeated` is removed even if nothing is to be copied.
    """

    source: Side
    target: Side
    guard: Guard
    extra: Mapping[str, str] = field(default_factory=dict)
    distrusted: frozenset[str] = frozenset()
    check: Callable[[CopyPlan], None] | None = None
    clearing: Clearing | None = None
    is_repeated: bool = False


class Progress(NamedTuple):
    """The progress of copies: `bytes` and `files` are done, of the `all_bytes` and `all_files` known so far."""

    bytes: int = 0
    files: int = 0
    all_bytes: int = 0
    all_files: int = 0


OnProgress = Callable[[Progress], None]


class Meter:
    """Adds up the progress of all threads and reports it."""

    def __init__(self, tell: OnProgress | None) -> None:
        self._tell = tell
        self._done = Progress()
        self._mutex = Lock()

    def expect(self, copies: Iterable[OpenCopy]) -> None:
        """Add the work of these copies to the totals."""
        for copy in copies if self._tell is not None else ():
            self._merge(Progress(all_bytes=copy.missing_bytes, all_files=len(copy.missing)))

    def add(self, size: int, files: int) -> None:
        """Add copied bytes and files."""
        self._merge(Progress(bytes=size, files=files))

    def _merge(self, progress: Progress) -> None:
        if self._tell is None:
            return
        with self._mutex:
            self._done = Progress(*map(add, self._done, progress))
            self._tell(self._done)


class CopyStatus(StrEnum):
    """The status of a finished copy."""

    COPIED = "copied"
    UNCHANGED = "unchanged"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The result of a copy.

    `bytes` and `files` count the transferred content; an earlier try had transferred `resumed` of these bytes.
    `source_digest` is the digest of the copied content. `publication` describes the whole instance at the target.
    `displaced` went from the target to the trash. `failures` are the files that could not be copied (INCOMPLETE, see
    `OnError`). `skipped` are pipes, sockets and devices of the source, which are not copied. `seconds` is the time from
    the plan to the publication.
    """

    status: CopyStatus
    source_url: str
    target_url: str
    bytes: int = 0
    files: int = 0
    resumed: int = 0
    kept: int = 0
    removed: tuple[str, ...] = ()
    displaced: Displaced | None = None
    source_digest: str = ""
    verification: Verification
    failures: tuple[Failure, ...] = ()
    skipped: tuple[str, ...] = ()
    tries: int = 1
    seconds: float = 0.0
    publication: Publication | None = field(default=None, repr=False)

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0
