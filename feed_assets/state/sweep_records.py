"""What the state database holds about retention, as values: sweeps with their chunks and items, holds, and the turns
that feeds have.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import NamedTuple, Required, TypedDict

CHUNK_ITEMS = 1000


class SweepState(StrEnum):
    """How far a sweep has come. ASKING has exceeded a limit and waits for a person; the last four are ends, apart from
    DONE and UNDONE, whose trash is purged later.
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


OPEN_STATES = frozenset({SweepState.PLANNED, SweepState.ASKING, SweepState.RUNNING, SweepState.UNDOING})


class ChunkState(IntEnum):
    """How far a chunk of a sweep has come."""

    OPEN = 0
    DONE = 1
    UNDONE = 2


class ItemOutcome(StrEnum):
    """What became of an item when its chunk was run, or undone."""

    EVICTED = "EVICTED"
    KEPT = "KEPT"
    CHANGED = "CHANGED"
    VANISHED = "VANISHED"
    REFUSED = "REFUSED"
    RESTORED = "RESTORED"
    OCCUPIED = "OCCUPIED"
    LOST = "LOST"


class SweepItem(NamedTuple):
    """One path that a sweep takes, relative to the root of its store; `bytes` and `files` are None where not measured.

    `rule` and `reason` say what made it eligible, by a name and in a sentence. `sign` is what storage tells a later
    change by (empty: unknown).
    """

    path: str
    nominal_time: datetime
    bytes: int | None
    files: int | None
    rule: str
    reason: str
    sign: str = ""


class ItemResult(NamedTuple):
    """What became of an item, why if it was not evicted or restored, and what it really held."""

    outcome: ItemOutcome
    reason: str | None = None
    bytes: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkHead:
    """A chunk without its items: the paths of one feed and one kind of location, `first` to `last` nominal time.

    `digest` is of the items as they were planned. `holder` works on it until `held_until`; both are None where nobody
    does. Numbers begin at 0.
    """

    sweep_id: str
    number: int
    feed: str
    kind: str
    first: datetime
    last: datetime
    count: int
    digest: str
    state: ChunkState = ChunkState.OPEN
    holder: str | None = None
    held_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepChunk(ChunkHead):
    """A chunk with its items. `results` has one for each item, or none at all before it was run."""

    items: tuple[SweepItem, ...]
    results: tuple[ItemResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepObstacle:
    """Why a sweep does not run before a person has approved it: a code and a sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedCount:
    """What a sweep takes of one feed: instances (paths of data), paths of all kinds, bytes and files where measured.

    `evicted`, `kept` and `failed` count paths after the run: gone to the trash or archive, left because something
    protects them or they have changed, refused by storage. `policy` is a digest of the retention that it was planned
    by, `protected` how many eligible paths the plan leaves out, and `keepers` how many of them each kind of protection.
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
    keepers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One planned removal of expired instances on one cluster.

    `digest` is of all that it takes, so two plans with the same digest take the same. `as_of` is the time that ages are
    counted to, `created_at` when it was planned. `log_seq` was the newest event when it was planned: an instance with a
    later one has changed since. `chunks` is how many there are. `note` is a person's or the system's word on its end.
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
        """Whether something is still to come of it by itself or by a person, other than its purge or undo."""
        return self.state in OPEN_STATES


class SweepChanges(TypedDict, total=False):
    """What a transition of a sweep may change; what is left out stays, and None clears."""

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


class SweepTurn(NamedTuple):
    """When retention of a feed on a cluster comes next, when it came last, and a digest of the policy that said so."""

    feed: str
    cluster: str
    next_at: datetime
    last_at: datetime | None
    policy_digest: str

    @property
    def key(self) -> tuple[str, str]:
        """(feed, cluster)."""
        return (self.feed, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A named protection of the instances of a feed from `first` to `last`, both inclusive; None means without end, and
    a cluster of None means on every cluster. A feed of None stands for every feed.

    Several may have one name: it is released as a whole. `number` tells them apart (0: not stored yet). One that
    cannot be read (`is_readable` false) holds everything.
    """

    name: str
    feed: str | None
    cluster: str | None = None
    first: datetime | None = None
    last: datetime | None = None
    reason: str
    author: str
    created_at: datetime
    expires_at: datetime | None = None
    released_at: datetime | None = None
    released_by: str | None = None
    number: int = 0
    is_readable: bool = True

    def is_active(self, as_of: datetime) -> bool:
        """Whether it protects at `as_of`: neither released nor expired."""
        return self.released_at is None and (self.expires_at is None or self.expires_at > as_of)

    def covers(self, feed: str, cluster: str, nominal_time: datetime) -> bool:
        """Whether an instance is among those it protects while it is active."""
        return (
            self.feed in (None, feed)
            and self.cluster in (None, cluster)
            and (self.first is None or self.first <= nominal_time)
            and (self.last is None or nominal_time <= self.last)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """A message for somebody outside. `payload` holds JSON values only; a repeat with the same key is not added."""

    topic: str
    recorded_at: datetime
    payload: Mapping[str, object] = field(default_factory=dict)
    idempotency_key: str
    seq: int = 0
    sent_at: datetime | None = None
