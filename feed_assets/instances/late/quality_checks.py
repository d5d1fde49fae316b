"""Hold instances from outside back until a run has judged their rows: what is to be judged, and what was found.

An instance that is whole is PARTIAL until its content has passed, or somebody accepts it. What was found is of one
content by some rules: other content, or other rules, are judged again.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.tick import Tick, tick_step
from feed_assets.entities.content.quality import OnFail, Quality
from feed_assets.instances.late.lateness import decide_feed_check
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, AgendaRows, Planned, agenda
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEventKind, FeedInstance, FeedInstanceStatus, FeedKey, NewFeedEvent
from feed_assets.plan.records import FeedRecord
from feed_assets.registration.registering import Registrations
from feed_assets.timing.dates import render_datetime

_T = agenda.c

PATIENCE = timedelta(minutes=1)
"""How long after its request a run is looked for, if it has judged nothing yet."""
LONGEST_PAUSE = timedelta(hours=1)
CHECKS_A_TICK = 200
_GONE = (FeedInstanceStatus.MISSING, FeedInstanceStatus.EMPTY)
INSTANCES_A_RUN = 50

QUALITY = "quality"  # the key of an event's payload that has what was found about its rows
ACCEPTED = "accepted"  # that with why somebody has taken the content as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityCheck(Planned):
    """What is judged of one instance: its `content` by `rules`, both digests; `event` is recorded once it has passed.

    A run is asked for when the check is due; `request` is the key of the last one, `tries` how many there were, and
    `error` why it could not judge. `facts` are the figures, `summary` them in a clause, once it is judged.
    """

    content: str
    rules: str
    event: Mapping[str, Any]
    request: str | None = None
    tries: int = 0
    error: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    summary: str | None = None
    has_passed: bool = False
    accepted: str | None = None
    kind: AgendaKind = AgendaKind.QUALITY

    def is_of(self, quality: Quality, row: FeedInstance) -> bool:
        """Return whether it is of the content that a row tells of, and of these rules."""
        return (self.content, self.rules) == (row.manifest_digest or "", digest_rules(quality))

    def has_let_in(self, quality: Quality) -> bool:
        """Return whether the content has passed by its rules, was let in with a warning, or accepted by somebody."""
        is_warned = self.summary is not None and quality.on_fail is OnFail.WARN
        return self.has_passed or is_warned or self.accepted is not None

    @property
    def sentence(self) -> str:
        """What keeps the instance back, or what was found, as a clause."""
        if self.summary is not None:
            found = self.summary if self.has_passed else f"its rows are not good enough: {self.summary}"
            return found if self.accepted is None else f"{found}; accepted by {self.accepted}"
        if self.accepted is not None:
            return f"its rows were not judged; accepted by {self.accepted}"
        if self.error is not None:
            again = "" if self.due_at is None else f"; a run tries it again at {render_datetime(self.due_at)}"
            return f"its quality could not be checked: {self.error.rstrip('.')}{again}"
        asked = "the next tick asks for a run" if self.request is None else f"a run was asked for, try {self.tries}"
        return f"its quality is checked: {asked}"


class QualityChecks(Agenda[QualityCheck]):
    """The checks as one transaction sees them. One that has ended stays, and is never due."""

    rows = AgendaRows(
        QualityCheck,
        content=str,
        rules=str,
        event=dict,
        request=lambda each: each,
        tries=int,
        error=lambda each: each,
        facts=dict,
        summary=lambda each: each,
        has_passed=bool,
        accepted=lambda each: each,
    )

    def of_instances(self, keys: Iterable[FeedKey]) -> dict[FeedKey, QualityCheck]:
        """Return the checks of instances; those without one are left out."""
        found = self.get_many([AgendaKey(AgendaKind.QUALITY, *key) for key in keys])
        return {each.feed_key: each for each in found.values()}

    def newest(self, feed: str, cluster: str, limit: int) -> list[QualityCheck]:
        """Return the checks of the newest instances of a feed, newest first."""
        is_it = (_T.kind == AgendaKind.QUALITY, _T.name == feed, _T.cluster == cluster)
        statement = self.rows.select.where(*is_it).order_by(_T.nominal_time.desc()).limit(limit)
        return self.rows.find(self._connection, statement)


def digest_rules(quality: Quality) -> str:
    """Return the digest of what a feed demands."""
    return hashlib.sha256(quality.model_dump_json().encode()).hexdigest()[:16]


def hold_back(
    connection: Connection, arriving: Collection[tuple[FeedRecord, FeedInstance, NewFeedEvent]]
) -> dict[FeedKey, FeedInstance]:
    """Plan the checks of instances that are whole, and return the rows of those that are not available yet, by key.

    Content that is being judged goes on being so; what has passed or was accepted before is not judged again.
    """
    judged = [each for each in arriving if each[0].is_judged]
    if not judged:
        return {}
    checks = QualityChecks(connection)
    known = checks.of_instances([row.key for _, row, _ in judged])
    standing = FeedInstances(connection).get_many([row.key for _, row, _ in judged])
    held: dict[FeedKey, FeedInstance] = {}
    new: list[QualityCheck] = []
    for record, row, event in judged:
        assert record.quality is not None
        before = standing.get(row.key)
        if before is not None and before.status is FeedInstanceStatus.PARTIAL and before.available_at is not None:
            row = replace(row, available_at=before.available_at)
            event = replace(event, kind=FeedEventKind.CHANGED)
        check = known.get(row.key)
        if check is None or not check.is_of(record.quality, row):
            new.append(_check_of(row, event, digest_rules(record.quality)))
        elif check.has_let_in(record.quality):
            continue
        held[row.key] = _held(row, event)
        if record.registration is not None:  # it is no partition of its table until it is available again
            Registrations(connection).plan([row.key], event.recorded_at)
    checks.put(new)
    return held


def is_to_judge(connection: Connection, record: FeedRecord, row: FeedInstance) -> bool:
    """Return whether the content that a row tells of is held back until its rows are judged."""
    check = QualityChecks(connection).of_instances([row.key]).get(row.key)
    quality = record.quality if record.is_judged else None
    return quality is not None and not (check is not None and check.is_of(quality, row) and check.has_let_in(quality))


def count_held(connection: Connection, record: FeedRecord) -> int:
    """Return how many of the newest 100 instances that were to be judged are held back."""
    checks = QualityChecks(connection).newest(*record.key, 100) if record.is_judged else []
    rows = FeedInstances(connection).get_many([each.feed_key for each in checks])
    return sum(row.status is FeedInstanceStatus.PARTIAL for row in rows.values())


def find_refusal(connection: Connection, record: FeedRecord, row: FeedInstance) -> QualityCheck | None:
    """Return the check by which an instance is held back for good, with the content that a row tells of; else None."""
    check = QualityChecks(connection).of_instances([row.key]).get(row.key)
    if check is None or record.quality is None or check.due_at is not None or not check.is_of(record.quality, row):
        return None
    now = FeedInstances(connection).get(*row.key)
    return check if now is not None and now.status is FeedInstanceStatus.PARTIAL else None


def _held(row: FeedInstance, event: NewFeedEvent) -> FeedInstance:
    """Return the row of an instance that is held back; what was available before keeps the time of that."""
    before = None if row.available_at == event.recorded_at else row.available_at
    return replace(row, status=FeedInstanceStatus.PARTIAL, available_at=before)


def _check_of(row: FeedInstance, event: NewFeedEvent, rules: str) -> QualityCheck:
    told = {
        "kind": event.kind.value,
        "origin": event.origin,
        "bytes": event.bytes,
        "files": event.files,
        "payload": dict(event.payload),
        "marking": event.marking,
        "idempotency_key": event.idempotency_key,
    }
    return QualityCheck(
        name=row.feed,
        cluster=row.cluster,
        nominal_time=row.nominal_time,
        planned_at=event.recorded_at,
        due_at=event.recorded_at,
        content=row.manifest_digest or "",
        rules=rules,
        event=told,
    )


def hold_refused(connection: Connection, refused: Iterable[tuple[FeedInstance, NewFeedEvent, str]]) -> None:
    """Hold back instances that checks of others have refused, with the reason of each, until they are announced anew
    or somebody accepts them.
    """
    for row, event, reason in refused:
        QualityChecks(connection).put([replace(_check_of(row, event, ""), due_at=None, summary=reason)])
        FeedInstances(connection).put([_held(row, event)])


def let_in(
    connection: Connection, record: FeedRecord, row: FeedInstance, check: QualityCheck, as_of: datetime, **said: object
) -> None:
    """Record that an instance which was held back is available, by the event that has brought it, and end its check.

    Takes the lock of the log.
    """
    told = dict(check.event)
    figures = {QUALITY: dict(check.facts)} if check.facts else {}
    event = NewFeedEvent(
        **row.key._asdict(),
        **{**told, "kind": FeedEventKind(told["kind"]), "payload": {**told["payload"], **figures, **said}},
        manifest_digest=row.manifest_digest,
        recorded_at=as_of,
    )
    (seq,) = EventLog(connection).append([event])
    status = FeedInstanceStatus.AVAILABLE
    came_at = as_of if record.is_current else row.available_at or as_of
    available = replace(row, status=status, event_seq=seq, updated_at=as_of, available_at=came_at)
    FeedInstances(connection).put([available])
    late = decide_feed_check(record, row.nominal_time, as_of)
    LateChecks(connection).add([late] if late is not None else [])
    QualityChecks(connection).put([replace(check, due_at=None)])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """A request for a run that judges instances of one feed; `key` is unique for ever."""

    record: FeedRecord
    nominal_times: tuple[datetime, ...]
    key: str


@tick_step(TickStep.QUALITY, otherwise=())
def apply_quality_requests(
    tick: Tick, find_alive: Callable[[Collection[str]], Collection[str]]
) -> Sequence[CheckRequest]:
    """Decide which runs are to judge instances, and mark these. `find_alive` tells which requests still have a run.

    While a run is under way none is asked for again; one that has ended without a result is, later each time. None is
    for an instance that has gone away, or was evicted.
    """
    with tick.database.read() as connection:
        due = QualityChecks(connection).due([AgendaKind.QUALITY], tick.cluster, tick.as_of, CHECKS_A_TICK)
        rows = FeedInstances(connection).get_many([each.feed_key for each in due]) if due else {}
    if not due:
        return []
    held = {key for key, row in rows.items() if row.status is FeedInstanceStatus.PARTIAL}
    gone = [each.key for each in due if each.feed_key not in rows or rows[each.feed_key].status in _GONE]
    alive = find_alive({each.request for each in due if each.request is not None})
    span = tick.clock.span
    planned, wanted = list[QualityCheck](), dict[str, list[QualityCheck]]()
    for each in due:
        record = tick.plan.feeds.get((each.name, tick.cluster))
        if record is None or not record.is_judged or each.feed_key not in held:
            planned.append(replace(each, planned_at=tick.as_of, due_at=tick.as_of + span(LONGEST_PAUSE)))
        elif each.request in alive:
            planned.append(replace(each, planned_at=tick.as_of, due_at=tick.as_of + span(PATIENCE)))
        else:
            wanted.setdefault(each.name, []).append(each)
    requests: list[CheckRequest] = []
    for name, checks in wanted.items():
        for start in range(0, len(checks), INSTANCES_A_RUN):
            part = checks[start : start + INSTANCES_A_RUN]
            times = tuple(sorted(each.nominal_time for each in part))
            what = f"{name}@{tick.cluster}|{render_datetime(times[0])}+{len(times)}"
            key = f"quality {what}|{tick.real_now.timestamp():.3f}"
            requests.append(CheckRequest(record=tick.plan.feeds[name, tick.cluster], nominal_times=times, key=key))
            planned += [_asked(each, key, tick.as_of, span) for each in part]
    with tick.database.begin() as connection:
        store = QualityChecks(connection)
        now = store.lock_many([each.key for each in due])
        before = {each.key: each for each in due}
        store.put(each for each in planned if now.get(each.key) == before[each.key])
        store.remove(key for key in gone if now.get(key) == before[key])
    return requests


def _asked(check: QualityCheck, key: str, as_of: datetime, span: Callable[[timedelta], timedelta]) -> QualityCheck:
    pause = min(PATIENCE * 2 ** min(check.tries, 10), LONGEST_PAUSE)
    return replace(check, request=key, tries=check.tries + 1, planned_at=as_of, due_at=as_of + span(pause))
