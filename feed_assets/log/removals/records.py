"""Values of the state database about retention: sweeps with their chunks and items, holds, and the schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Required, TypedDict

from feed_assets.json_form import Hidden, NominalTime
from feed_assets.log.records import FeedEventKind
from feed_assets.masking import encodable

CHUNK_ITEMS = 1000
WAS = "was"
"""The key in the payload of an eviction for the status that its instance had."""
VERSION = "version"
"""The kind of the path of a sweep that has a former version of a current instance, and the key in the payload of its
eviction for the number of the event that brought it."""
WHILE_A_VERSION = datetime(9000, 1, 1, tzinfo=UTC)
"""When the trash of a version is purged that is one of those that its feed keeps."""


class SweepState(StrEnum):
    """The state of a sweep. An ASKING sweep has exceeded a limit and waits for approval.

    DONE, UNDONE, PURGED, CANCELLED and SUPERSEDED are final, but the trash of DONE and UNDONE sweeps is purged later.
    """

    PLANNED = "PLANNED"
    ASKING = "ASKING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    UNDOING = "UNDOING"
    UNDONE = "UNDONE"
    PURGED = "PURGED"
    CANCELLED = "CANCELLED"
    SUPERSEDED = "SUPERSEDED"


AT_WORK = frozenset({SweepState.RUNNING, SweepState.UNDOING})
OPEN_STATES = frozenset({SweepState.PLANNED, SweepState.ASKING}) | AT_WORK


class ChunkState(StrEnum):
    """The state of a chunk of a sweep."""

    OPEN = "OPEN"
    DONE = "DONE"
    UNDONE = "UNDONE"


class ItemOutcome(StrEnum):
    """The result of running or undoing a chunk for one item."""

    EVICTED = "EVICTED"
    KEPT = "KEPT"
    CHANGED = "CHANGED"
    VANISHED = "VANISHED"
    REFUSED = "REFUSED"
    RESTORED = "RESTORED"
    OCCUPIED = "OCCUPIED"
    LOST = "LOST"


class SweepItem(NamedTuple):
    """One path that a sweep removes, relative to the root of its store; `bytes` and `files` are None if not measured.

    `rule` and `reason` say why it is eligible, as a name and a sentence. `fingerprint` is that of
    `Measure` when the sweep was planned (empty: unknown).
    """

    path: str
    nominal_time: NominalTime
    bytes: int | None
    files: int | None
    rule: str
    reason: str
    fingerprint: str = ""


class ItemResult(NamedTuple):
    """The outcome of an item, the reason unless it was evicted or restored, and its actual size."""

    outcome: ItemOutcome
    reason: str | None = None
    bytes: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkHead:
    """A chunk without its items: paths of one feed and one kind of location, with nominal times from `first` to `last`.

    `place` is the number of the former place of the feed at which they are; None for the present one. `digest` covers
    the planned items. `holder` has a claim until `held_until`; both are None without a claim. Numbers begin at 0.
    """

    sweep_id: str
    number: int
    feed: str
    kind: str
    first: datetime
    last: datetime
    count: int
    digest: str
    place: int | None = None
    state: ChunkState = ChunkState.OPEN
    holder: str | None = None
    held_until: datetime | None = None

    def event_key(self, kind: FeedEventKind, path: str) -> str:
        """Return the idempotency key of the event and the message about a path of the chunk."""
        at = self.kind if self.place is None else f"{self.kind}@{self.place}"
        return f"sweep/{self.sweep_id}/{kind.value.lower()}/{at}/{encodable(path)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepChunk(ChunkHead):
    """A chunk with its different items. `results` has one for each item; it is empty before the chunk was run."""

    items: tuple[SweepItem, ...]
    results: Mapping[SweepItem, ItemResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepObstacle:
    """Why a sweep needs approval before it runs: a code and a sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedCount:
    """The counts of a sweep for one feed: instances (paths of data), paths of all kinds, bytes and files as far as
    measured.

    After the run, `evicted` counts paths moved to the trash or archive, `kept` paths that were protected or have
    changed, and `failed` paths that storage refused. `policy` is the digest of the retention at planning. `protected`
    counts the eligible paths that the plan leaves out, and `protected_by` counts them by kind of protection.
    `is_archived` says that the data go to an archive.
    """

    feed: str
    instances: int = 0
    paths: int = 0
    bytes: int = 0
    files: int = 0
    evicted: int = 0
    kept: int = 0
    failed: int = 0
    policy: str = ""
    protected: int = 0
    protected_by: Mapping[str, int] = field(default_factory=dict)
    is_archived: Hidden[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One planned removal of expired instances on one cluster.

    `digest` covers everything that it removes, so two plans with the same digest remove the same. `as_of` is the time
    to which ages count, `created_at` when it was planned. `log_seq` was the newest event at planning: an instance with
    a later event has changed since. `chunks` is the number of chunks. `note` is a remark of a person or the system
    about its end.
    """

    sweep_id: str
    cluster: str
    state: SweepState
    as_of: datetime
    created_at: datetime
    author: str
    origin: str
    digest: str
    log_seq: int = 0
    instances: int = 0
    paths: int = 0
    bytes: int = 0
    files: int = 0
    chunks: int = 0
    obstacles: tuple[SweepObstacle, ...] = ()
    counts: tuple[FeedCount, ...] = ()
    approved_by: str | None = None
    approved_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    purge_at: datetime | None = None
    purged_at: datetime | None = None
    undone_at: datetime | None = None
    note: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the sweep can still run or be approved; purge and undo do not count."""
        return self.state in OPEN_STATES

    @property
    def has_trash(self) -> bool:
        """Whether it has moved something into the trash that was not purged yet."""
        return self.purge_at is not None and self.purged_at is None

    def at(self, moment: datetime) -> "Sweep":
        """Return it as it was at a moment after it had ended: neither undone nor purged later."""
        if max(filter(None, (self.undone_at, self.purged_at)), default=moment) <= moment:
            return self
        undone_at = self.undone_at if self.undone_at is not None and self.undone_at <= moment else None
        state = SweepState.UNDONE if undone_at else SweepState.DONE
        return replace(self, state=state, undone_at=undone_at, purged_at=None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why it asks, until it is approved, and the remark about its end."""
        asked = () if self.approved_by else (obstacle.sentence for obstacle in self.obstacles)
        return tuple(f"{self.sweep_id}: {each}" for each in (*asked, self.note) if each)


class SweepChanges(TypedDict, total=False):
    """The columns that a transition of a sweep may change; columns left out stay, and None clears."""

    state: Required[SweepState]
    obstacles: tuple[SweepObstacle, ...]
    counts: tuple[FeedCount, ...]
    approved_by: str | None
    approved_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    purge_at: datetime | None
    purged_at: datetime | None
    undone_at: datetime | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A named protection of a feed's instances from `first` to `last`, both inclusive; None means no limit.

    A feed of None stands for every feed, a cluster of None for every cluster. Several holds may share a name; they are
    released together. `number` identifies one (0: not stored yet). An unreadable hold (`is_readable` false) covers
    everything.
    """

    name: str
    feed: str | None
    cluster: str | None = None
    first: NominalTime | None = None
    last: NominalTime | None = None
    reason: str
    author: str
    created_at: datetime
    expires_at: datetime | None = None
    released_at: datetime | None = None
    released_by: str | None = None
    number: int = 0
    is_readable: bool = True

    @property
    def end(self) -> datetime | None:
        """The exclusive end: the written one, or the moment behind the last instance."""
        if self.last is None:
            return None
        unit = "microseconds" if self.last.microsecond else "seconds" if self.last.second else "minutes"
        return self.last + timedelta(**{unit: 1})

    def as_placed(self) -> "Hold":
        """Return the hold as it was placed: without number and release. Two records of the same hold are equal."""
        return replace(self, number=0, released_at=None, released_by=None)

    def is_active(self, as_of: datetime) -> bool:
        """Return whether it protects at `as_of`: neither released nor expired."""
        return self.released_at is None and (self.expires_at is None or self.expires_at > as_of)

    def covers(self, feed: str, cluster: str, first: datetime, last: datetime | None = None) -> bool:
        """Return whether it covers an instance, or one of those from `first` to `last`, while it is active."""
        return (
            self.feed in (None, feed)
            and self.cluster in (None, cluster)
            and (self.first is None or self.first <= (last or first))
            and (self.last is None or first <= self.last)
        )
