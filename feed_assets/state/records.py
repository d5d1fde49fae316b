"""What the state database holds, as values: events, instances, frontiers and leases, with the closed sets they use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Required, TypedDict


class FeedEventKind(StrEnum):
    """What happened to an instance of a feed on a cluster."""

    ARRIVED = "ARRIVED"
    PRODUCED = "PRODUCED"
    REPLICATED = "REPLICATED"
    CHANGED = "CHANGED"
    EVICTED = "EVICTED"
    RESTORED = "RESTORED"
    VANISHED = "VANISHED"


class FeedInstanceStatus(StrEnum):
    """How an instance of a feed stands on a cluster; an instance without a row is MISSING too."""

    MISSING = "MISSING"
    PARTIAL = "PARTIAL"
    EMPTY = "EMPTY"
    AVAILABLE = "AVAILABLE"
    EVICTED = "EVICTED"


class ProcessInstanceStatus(StrEnum):
    """How an instance of a process stands; the last five are ends, which a rerun leaves again."""

    WAITING = "WAITING"
    READY = "READY"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    TIMEDOUT = "TIMEDOUT"
    SKIPPED = "SKIPPED"


class FrontierKind(StrEnum):
    """Whose instances a frontier walks along."""

    FEED = "feed"
    PROCESS = "process"


class FeedKey(NamedTuple):
    """One instance of a feed on a cluster."""

    feed: str
    cluster: str
    nominal_time: datetime


class ProcessKey(NamedTuple):
    """One instance of a process on a cluster."""

    process: str
    cluster: str
    nominal_time: datetime


class EntityKey(NamedTuple):
    """A feed or process on a cluster."""

    entity: str
    cluster: str


class FeedSpan(NamedTuple):
    """A stretch of a feed on a cluster, both ends inclusive."""

    feed: str
    cluster: str
    first: datetime
    last: datetime


class PlannedLook(NamedTuple):
    """When to look at an instance of a feed again, and a sign of what the last look found (empty: unknown)."""

    feed: str
    cluster: str
    nominal_time: datetime
    found: str
    looked_at: datetime
    next_look_at: datetime

    @property
    def key(self) -> FeedKey:
        """The instance."""
        return FeedKey(self.feed, self.cluster, self.nominal_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFeedEvent:
    """A row on its way into the event log.

    `origin` says who saw or did it (a sensor, a run id, a person). `payload` holds JSON values only.
    `idempotency_key`, where given, makes a repeat of the same append a no-op.
    """

    feed: str
    cluster: str
    nominal_time: datetime
    kind: FeedEventKind
    origin: str
    recorded_at: datetime
    manifest_digest: str | None = None
    bytes: int | None = None
    files: int | None = None
    payload: Mapping[str, object] = field(default_factory=dict)
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEvent(NewFeedEvent):
    """A row of the event log; `seq` grows by one from row to row, in the order of the commits."""

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedInstance:
    """Where an instance of a feed stands on a cluster.

    `event_seq` is the event that brought it there, `fence` the token of the lease under which it was last written
    (0: none).
    """

    feed: str
    cluster: str
    nominal_time: datetime
    status: FeedInstanceStatus
    updated_at: datetime
    manifest_digest: str | None = None
    bytes: int | None = None
    files: int | None = None
    available_at: datetime | None = None
    event_seq: int | None = None
    fence: int = 0

    @property
    def key(self) -> FeedKey:
        """The instance without its state."""
        return FeedKey(self.feed, self.cluster, self.nominal_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenInput:
    """The instances one input had when the process instance was launched.

    `digests` has one entry for each nominal time; None where the instance had no manifest.
    """

    name: str
    feed: str
    nominal_times: tuple[datetime, ...]
    digests: tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInstance:
    """Where an instance of a process stands on a cluster, with the attempt and run that brought it there.

    `definition_digest` is of the process's definition, `release` the number of the release that governs it. `retries`
    counts automatic attempts since the first, or since a person ran it; `retry_at` is when the next begins, NEVER if
    there is none, None until that is decided. `overrides` are properties that a person has given for the next runs.
    `tell_at` is when people are told why it is not done, if it is not; `told` is a digest of what they were told last.
    """

    process: str
    cluster: str
    nominal_time: datetime
    status: ProcessInstanceStatus
    updated_at: datetime
    attempt: int = 0
    run_id: str | None = None
    request_key: str | None = None
    requested_at: datetime | None = None
    inputs: tuple[FrozenInput, ...] = ()
    materialized_at: datetime | None = None
    ready_at: datetime | None = None
    deadline_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    definition_digest: str | None = None
    release: int | None = None
    retries: int = 0
    retry_at: datetime | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    tell_at: datetime | None = None
    told: str | None = None

    @property
    def key(self) -> ProcessKey:
        """The instance without its state."""
        return ProcessKey(self.process, self.cluster, self.nominal_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a process instance. `trigger` says what began it, in a few words (empty: unknown); `ended_at` is
    None while it runs.
    """

    process: str
    cluster: str
    nominal_time: datetime
    attempt: int
    run_id: str | None
    status: ProcessInstanceStatus
    started_at: datetime
    ended_at: datetime | None = None
    reason: str | None = None
    trigger: str = ""
    release: int | None = None

    @property
    def key(self) -> ProcessKey:
        """The instance."""
        return ProcessKey(self.process, self.cluster, self.nominal_time)


class ProcessChanges(TypedDict, total=False):
    """What a transition may change; what is left out stays, and None clears."""

    updated_at: Required[datetime]
    status: ProcessInstanceStatus
    attempt: int
    run_id: str | None
    request_key: str | None
    requested_at: datetime | None
    inputs: tuple[FrozenInput, ...]
    materialized_at: datetime | None
    ready_at: datetime | None
    deadline_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    reason: str | None
    definition_digest: str | None
    release: int | None
    retries: int
    retry_at: datetime | None
    overrides: Mapping[str, object]
    tell_at: datetime | None
    told: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """How far the instances of an entity on a cluster have been created.

    `next_index` is the first instance that has no row yet and `next_time` its nominal time; None means there is none
    (the validity has ended). It comes into being `delay` after its nominal time.
    """

    kind: FrontierKind
    entity: str
    cluster: str
    next_index: int
    next_time: datetime | None
    delay: timedelta = timedelta(0)

    @property
    def key(self) -> EntityKey:
        """The entity without its position."""
        return EntityKey(self.entity, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to write one instance until `expires_at`; `token` never repeats or falls for the same instance."""

    entity: str
    cluster: str
    nominal_time: datetime
    token: int
    holder: str
    expires_at: datetime
