"""Values of the state database: events, instances, watermarks and leases, with their enums."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Required, TypedDict, cast

from feed_assets.entities.common import LocationKind
from feed_assets.json_form import Hidden, NominalTime, shown
from feed_assets.masking import mask_values
from feed_assets.timing.dates import NEVER, parse_datetime


class Cause(StrEnum):
    """The cause of a process instance's last transition, or of an attempt at it.

    Decisions depend on the cause, never on its sentence.
    """

    INPUTS = "INPUTS"
    BY_HAND = "BY_HAND"
    REPAIR = "REPAIR"
    ELSEWHERE = "ELSEWHERE"
    COMMAND = "COMMAND"
    RETRY = "RETRY"
    LATE_DATA = "LATE_DATA"
    LATE_DATA_REFUSED = "LATE_DATA_REFUSED"
    UPDATED = "UPDATED"
    UPDATE_REFUSED = "UPDATE_REFUSED"
    SUPERSEDED = "SUPERSEDED"
    MISSED = "MISSED"
    OVERTAKEN = "OVERTAKEN"
    TIMED_OUT = "TIMED_OUT"
    INCOMPLETE = "INCOMPLETE"
    FAILURE = "FAILURE"
    OUTAGE = "OUTAGE"
    RETRIES_EXHAUSTED = "RETRIES_EXHAUSTED"
    INTERRUPTED = "INTERRUPTED"
    RUN_CANCELLED = "RUN_CANCELLED"
    RUN_LOST = "RUN_LOST"
    WORKERS_LOST = "WORKERS_LOST"
    UNDECLARED = "UNDECLARED"
    REMOVED = "REMOVED"
    REBUILT = "REBUILT"


_SENTENCES = {
    Cause.INPUTS: "its inputs are there",
    Cause.BY_HAND: "a run that was started by hand",
    Cause.SUPERSEDED: "a newer instance exists, and the order is LAST_ONLY",
    Cause.MISSED: "it was due while no sensor was running, and catch_up is none",
    Cause.OVERTAKEN: "it and a newer instance were due while no sensor was running, and catch_up is latest",
    Cause.TIMED_OUT: "its mandatory inputs did not all become available in time",
    Cause.INCOMPLETE: "its mandatory inputs did not all become available in time, and it runs with what is there",
    Cause.RUN_CANCELLED: "its run was cancelled",
    Cause.RUN_LOST: "its run ended without recording a result",
    Cause.UNDECLARED: "it is not declared any more",
    Cause.REBUILT: "its outputs on storage name it; the state was rebuilt from them",
}


def describe_cause(cause: Cause | None, detail: str | None) -> str | None:
    """Return the sentence for people: the detail if there is one; None if nothing is known.

    >>> describe_cause(Cause.RUN_CANCELLED, None)
    'its run was cancelled'
    >>> describe_cause(Cause.COMMAND, "killed by ann")
    'killed by ann'
    """
    if detail or cause is None:
        return detail or None
    return _SENTENCES.get(cause)


class FeedEventKind(StrEnum):
    """What happened to an instance of a feed on a cluster. One that is HELD has come by an inbox, or back by an undo,
    and is not available: nobody reads it before its rows are judged.
    """

    ARRIVED = "ARRIVED"
    HELD = "HELD"
    PRODUCED = "PRODUCED"
    REPLICATED = "REPLICATED"
    CHANGED = "CHANGED"
    EVICTED = "EVICTED"
    RESTORED = "RESTORED"
    VANISHED = "VANISHED"
    SIGNALLED = "SIGNALLED"


ARRIVING = frozenset(
    {
        FeedEventKind.ARRIVED,
        FeedEventKind.PRODUCED,
        FeedEventKind.REPLICATED,
        FeedEventKind.RESTORED,
        FeedEventKind.SIGNALLED,
    }
)
"""The events after which an instance is there."""

CONTENT = ARRIVING | {FeedEventKind.CHANGED}
"""The events after which an instance has other content, or content again."""


MESSAGE = "message"  # the key of an event's payload that has what its sender says
COLUMNS = "columns"  # that which names the set of what the columns were made of
PROCESS_TIME = "process_time"  # that with the nominal time of the process instance, if it is not that of the data


def render_payload(value: object) -> str:
    """Return a value of a payload for people: a text as it is, and JSON of what is none."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class FeedInstanceStatus(StrEnum):
    """The status of a feed instance on a cluster; an instance without a row is MISSING too."""

    MISSING = "MISSING"
    PARTIAL = "PARTIAL"
    EMPTY = "EMPTY"
    AVAILABLE = "AVAILABLE"
    EVICTED = "EVICTED"


class ProcessInstanceStatus(StrEnum):
    """The status of a process instance; the last five are final until a rerun."""

    WAITING = "WAITING"
    READY = "READY"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    TIMEDOUT = "TIMEDOUT"
    SKIPPED = "SKIPPED"


class WatermarkKind(StrEnum):
    """What a watermark counts: instances of feeds or processes, or those whose deadlines have been looked at."""

    FEED = "feed"
    PROCESS = "process"
    FEED_LOW = "sla/feed/low"
    FEED_HIGH = "sla/feed/high"
    PROCESS_LOW = "sla/process/low"
    PROCESS_HIGH = "sla/process/high"
    FEED_RISK = "sla/feed/risk"
    PROCESS_RISK = "sla/process/risk"


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
    """A span of nominal times of a feed on a cluster, both ends inclusive."""

    feed: str
    cluster: str
    first: datetime
    last: datetime


class ArrivalPoll(NamedTuple):
    """The next poll of storage for a feed instance, and a summary of the last result (empty: unknown).

    `obstacle` is why the last poll could not tell whether the instance is there; None if it could.
    """

    feed: str
    cluster: str
    nominal_time: datetime
    found: str
    polled_at: datetime
    next_poll_at: datetime
    obstacle: str | None = None

    @property
    def key(self) -> FeedKey:
        """The instance."""
        return FeedKey(self.feed, self.cluster, self.nominal_time)


class ObstructedFeed(NamedTuple):
    """A feed with instances that could not be polled: how many, the oldest one, and one of the obstacles."""

    feed: str
    cluster: str
    instances: int
    oldest: datetime
    obstacle: str


class LackingFeed(NamedTuple):
    """A feed with instances that were polled and not found: how many, and the oldest one."""

    feed: str
    cluster: str
    instances: int
    oldest: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OfFeedInstance:
    """What is recorded of one instance of a feed on a cluster."""

    feed: str
    cluster: str
    nominal_time: NominalTime

    @property
    def key(self) -> FeedKey:
        """The instance."""
        return FeedKey(self.feed, self.cluster, self.nominal_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfProcessInstance:
    """What is recorded of one instance of a process on a cluster."""

    process: str
    cluster: str
    nominal_time: NominalTime

    @property
    def key(self) -> ProcessKey:
        """The instance."""
        return ProcessKey(self.process, self.cluster, self.nominal_time)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFeedEvent(OfFeedInstance):
    """An event that is not in the log yet.

    `origin` names who observed or caused it (a sensor, a run id, a person). `payload` holds JSON values only. `marking`
    is a word for those who consume events in batches. With an `idempotency_key`, repeating the append has no effect.
    """

    kind: FeedEventKind
    origin: str
    recorded_at: datetime
    manifest_digest: str | None = None
    bytes: int | None = None
    files: int | None = None
    payload: Mapping[str, object] = field(default_factory=dict)
    marking: str | None = None
    idempotency_key: str | None = None

    def row(
        self, status: FeedInstanceStatus, seq: int | None = None, *, fence: int = 0, place: int | None = None
    ) -> "FeedInstance":
        """Return the instance as it is since the event, which has brought its content."""
        return FeedInstance(
            **self.key._asdict(),
            status=status,
            updated_at=self.recorded_at,
            manifest_digest=self.manifest_digest,
            bytes=self.bytes,
            files=self.files,
            available_at=self.recorded_at,
            event_seq=seq,
            fence=fence,
            place=place,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedEvent(NewFeedEvent):
    """A row of the event log; `seq` grows by one from row to row, in the order of the commits."""

    seq: int

    @property
    def is_of_data(self) -> bool:
        """Whether it concerns the instance itself, not for example its stats."""
        return self.payload.get("kind", LocationKind.DATA) == LocationKind.DATA

    @property
    def maker(self) -> ProcessKey | None:
        """The process instance that has made the data; None if none has, as far as it tells."""
        if not (process := self.payload.get("process")):
            return None
        told = self.payload.get(PROCESS_TIME)
        time = self.nominal_time if told is None else parse_datetime(str(told), seconds=True)
        return ProcessKey(str(process), self.cluster, time)

    @property
    def by(self) -> str:
        """Who has recorded it, for people: the process that has made the data, too, if one has."""
        process = self.payload.get("process")
        return f"{process}, {self.origin}" if process else self.origin

    @property
    def message(self) -> Mapping[str, object]:
        """The payload that its sender gave it."""
        return cast("Mapping[str, object]", self.payload.get(MESSAGE) or {})

    @property
    def said(self) -> str:
        """That payload for people, without secrets."""
        return ", ".join(f"{name}={render_payload(value)}" for name, value in mask_values(self.message).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedInstance(OfFeedInstance):
    """A feed instance on a cluster.

    `event_seq` is the event of its last change, `fence` the token of the lease under which it was last written (0:
    none). `place` is where its data are (see `FeedPlaces`).
    """

    status: FeedInstanceStatus
    updated_at: datetime
    manifest_digest: str | None = None
    bytes: int | None = None
    files: int | None = None
    available_at: datetime | None = None
    event_seq: int | None = None
    fence: int = 0
    place: int | None = None


@dataclass(frozen=True, slots=True)
class ReadInstance:
    """An instance that an attempt has read, with the digest that its content had then; None if that was not known."""

    nominal_time: NominalTime
    digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenInput:
    """The instances that one input had when the process instance was launched.

    `digests` has one entry for each nominal time; None if the instance had no manifest.
    """

    name: str
    feed: str
    nominal_times: Hidden[tuple[datetime, ...]]
    digests: Hidden[tuple[str | None, ...]]

    @shown
    def instances(self) -> tuple[ReadInstance, ...]:
        """The instances with their digests."""
        return tuple(map(ReadInstance, self.nominal_times, self.digests))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInstance(OfProcessInstance):
    """A process instance on a cluster, with its current attempt and run.

    `definition_digest` is that of the process's record, `release` the number of the release that governs the instance.
    `retries` counts automatic attempts since the first one, or since a person ran it, `deaths` the workers in a row
    that died with it. `retry_at` is when the next attempt begins: NEVER if there is none, None until that is decided.
    `overrides` are properties that a person gave for the following runs. `notice_at` is when people are notified that
    it is not done; `notice_digest` is of the last notice. `cause` is the cause of its last transition, `cause_detail`
    an additional sentence. `inputs` are those of the newest attempt that has come so far.
    """

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
    cause: Cause | None = None
    cause_detail: str | None = None
    definition_digest: str | None = None
    release: int | None = None
    retries: int = 0
    deaths: int = 0
    retry_at: datetime | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    notice_at: datetime | None = None
    notice_digest: str | None = None

    @property
    def is_again(self) -> bool:
        """Whether it has run before, for example without success; not if its worker died, as it may kill another."""
        return self.attempt > 0 and self.cause is not Cause.RUN_LOST

    @property
    def reason(self) -> str | None:
        """The sentence for people about its last transition."""
        return describe_cause(self.cause, self.cause_detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(OfProcessInstance):
    """One attempt at a process instance.

    `cause` is what triggered it (None: unknown), `cause_detail` an additional sentence; `reason` says how it ended.
    `ended_at` is None while it runs. `inputs` is what it read, `outputs` the numbers of its events. `metadata_seq` is
    the number of the last change of metadata when it began; None if that was not recorded.
    """

    attempt: int
    run_id: str | None
    status: ProcessInstanceStatus
    started_at: datetime
    ended_at: datetime | None = None
    reason: str | None = None
    cause: Cause | None = None
    cause_detail: str = ""
    release: int | None = None
    inputs: tuple[FrozenInput, ...] = ()
    outputs: tuple[int, ...] = ()
    metadata_seq: int | None = None

    @property
    def trigger(self) -> str | None:
        """The sentence for people about what triggered it."""
        return describe_cause(self.cause, self.cause_detail)


class ProcessChanges(TypedDict, total=False):
    """The columns that a transition may change; columns left out stay, and None clears."""

    updated_at: Required[datetime]
    status: ProcessInstanceStatus
    attempt: int
    run_id: str | None
    request_key: str | None
    requested_at: datetime | None
    materialized_at: datetime | None
    ready_at: datetime | None
    deadline_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    cause: Cause | None
    cause_detail: str | None
    definition_digest: str | None
    release: int | None
    retries: int
    deaths: int
    retry_at: datetime | None
    overrides: Mapping[str, object]
    notice_at: datetime | None
    notice_digest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How far the instances of an entity on a cluster have been created.

    `next_index` is the first instance that has no row yet and `next_time` its nominal time; None means that there is
    none (the validity has ended). It is created `delay` after its nominal time.

    Of a long past the newest instances come first. The others are those from `past_time` to before `past_until` as long
    as they have no row; `past_time` is None without them.
    """

    kind: WatermarkKind
    entity: str
    cluster: str
    next_index: int
    next_time: datetime | None
    delay: timedelta = timedelta(0)
    past_time: datetime | None = None
    past_until: datetime | None = None

    @property
    def key(self) -> EntityKey:
        """The entity without its position."""
        return EntityKey(self.entity, self.cluster)

    @property
    def ahead(self) -> tuple[tuple[datetime, datetime], ...]:
        """From when to before when no instance has a row: the past, and what comes from the next instance on."""
        past = ((self.past_time, self.past_until),) if self.past_time and self.past_until else ()
        return (*past, (self.next_time, NEVER)) if self.next_time else past

    def is_ahead(self, nominal_time: datetime) -> bool:
        """Return whether an instance is still to be created."""
        return any(first <= nominal_time < until for first, until in self.ahead)

    def next_towards(self, nominal_time: datetime) -> datetime | None:
        """Return the next instance that ticks create on the way to one; None if they create no more."""
        return next((first for first, until in self.ahead if nominal_time < until), None)

    def past_towards(self, nominal_time: datetime) -> datetime | None:
        """Return that instance if it is of the past."""
        return self.past_time if self.past_until and nominal_time < self.past_until else None

    def rejoined(self) -> "Watermark":
        """Return it in front of its past, as if that had not been parted. What has a row there keeps it."""
        first = self.ahead[0][0] if self.ahead else None
        return replace(self, next_time=first, past_time=None, past_until=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to write one instance until `expires_at`; the `token` of an instance only grows."""

    entity: str
    cluster: str
    nominal_time: datetime
    token: int
    holder: str
    expires_at: datetime

    @property
    def key(self) -> tuple[str, str, datetime]:
        """What it is on."""
        return self.entity, self.cluster, self.nominal_time
