"""Schedule the retention of feeds: at once when a feed is new or its policy changes, then by its cadence.

A policy that became stricter is scheduled after its grace period.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.entities.locations.overlaps import NO_OVERLAPS
from feed_assets.json_form import NominalTime
from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, Entry
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import Member
from feed_assets.log.definitions.schedules import ScheduleView
from feed_assets.log.definitions.store import Definitions
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord, Plan, RetentionRecord
from feed_assets.plan.retention import compile_retention, find_stricter
from feed_assets.releases.timeline import ReleaseTimeline, is_applied
from feed_assets.sql.database import Database
from feed_assets.timing.dates import NEVER
from feed_assets.timing.errors import TimingError

_VERSION = 1


def digest_policy(record: FeedRecord) -> str:
    """Return `sha256:<hex>` over the rules of eligibility and the locations; "" for a feed without retention.

    The cadence, the lifetime of the trash and the limits of a sweep are not included.
    """
    policy = record.retention
    return "" if policy is None else f"sha256:{hashlib.sha256(_render(record, policy).encode()).hexdigest()}"


def _render(record: FeedRecord, policy: RetentionRecord) -> str:
    sequence = record.sequence
    archive = None if policy.archive is None else [policy.archive[0].url, policy.archive[1].text]
    return json.dumps(
        {
            "version": _VERSION,
            "sequence": [sequence.start.isoformat(), str(sequence.frequency), sequence.timezone.key],
            "paths": record.template.zone.key,
            "limit": None if policy.limit is None else str(policy.limit),
            "action": policy.action.value,
            "keep_newest": policy.keep_newest,
            "max_instances": policy.max_instances,
            "max_bytes": policy.max_bytes,
            "until_read_by": policy.until_read_by,
            "until_replicated_to": policy.until_replicated_to,
            "stops_at": None if policy.stops_at is None else policy.stops_at.isoformat(),
            "archive": archive,
            "partition": None if policy.partition is None else policy.partition.text,
            "locations": [
                [each.kind.value, each.store.url, each.template.text, each.obstacle] for each in policy.locations
            ],
        }
    )


Replaced: TypeAlias = tuple[RetentionRecord | None, datetime]
"""A former retention, None if it kept everything, and the moment at which another one replaced it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grace:
    """A grace period: the schedule acts on the retention of a feed from `until` on, because `fields` are stricter."""

    until: NominalTime
    fields: tuple[str, ...]


def decide_grace(
    present: RetentionRecord | None, replaced: Iterable[Replaced], as_of: datetime, period: timedelta
) -> Grace | None:
    """Decide the grace period of a retention; None if it is over, or if it is no stricter than what it replaced."""
    found = [
        Grace(until=replaced_at + period, fields=fields)
        for former, replaced_at in replaced
        if replaced_at + period > as_of and (fields := find_stricter(former, present))
    ]
    return max(found, key=lambda grace: grace.until, default=None)


def find_graces(
    connection: Connection, timeline: ReleaseTimeline, records: Iterable[FeedRecord], as_of: datetime, period: timedelta
) -> dict[Key, Grace]:
    """Find the feeds in a grace period, by (feed, cluster). A definition that is not recorded yet counts as new."""
    records = list(records) if period else []
    is_recorded = not records or is_applied(connection, timeline)
    found: dict[Key, Grace] = {}
    for record in records:
        history = Definitions(connection).history(Kind.FEED, record.feed)
        ends = [(former.version, newer.recorded_at) for former, newer in pairwise(history)]
        ends += [] if is_recorded else [(newest.version, as_of) for newest in history[-1:]]
        recent = [(version, replaced_at) for version, replaced_at in ends if replaced_at + period > as_of]
        replaced = _iter_retained(connection, timeline, record, recent)
        grace = decide_grace(record.retention, replaced, as_of, period)
        if grace is not None:
            found[record.key] = grace
    return found


def _iter_retained(
    connection: Connection, timeline: ReleaseTimeline, record: FeedRecord, ends: Iterable[tuple[int, datetime]]
) -> Iterator[Replaced]:
    """Yield the retention of former versions of a feed on a cluster, each with the moment at which it ended."""
    for version, replaced_at in ends:
        on = Definitions(connection).find_newest(Kind.CLUSTER, record.cluster)
        if on is None:
            return
        members = (
            Member(kind=Kind.FEED, name=record.feed, version=version),
            Member(kind=on.kind, name=on.name, version=on.version),
        )
        bundle = timeline.load_recorded(connection, members).bundle
        feed, cluster = bundle.find_feed(record.feed), bundle.find_cluster(record.cluster)
        if feed is None or cluster is None or record.cluster not in feed.clusters:
            continue
        try:
            yield compile_retention(feed, cluster, NO_OVERLAPS), replaced_at
        except TimingError:  # it was never in force: its templates are wrong
            continue


FEEDS_A_RUN = 1_000
"""The number of feeds that one retention run handles."""

_DUE_AT_MOST = 20_000
_POLICY = "policy"
"""The digest of the policy for which an entry was made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A feed whose retention is due."""

    record: FeedRecord
    scheduled: Entry


def digest_schedule(record: FeedRecord) -> str:
    """Return a digest of everything that decides the due times and the effect of a feed's retention."""
    cadence = record.retention.cadence if record.retention else None
    return hashlib.sha256(f"{digest_policy(record)}|{cadence}".encode()).hexdigest()


def decide_next(policy: RetentionRecord, was_due_at: datetime, as_of: datetime) -> datetime:
    """Decide when retention is due next after a run at `as_of`; NEVER if there is none.

    It is due whole cadences after the previous due time, so it does not drift. If retention stops with the validity, it
    is due a last time at the end; a feed that had ended before also gets one run.

    Differs from Falcon: by default retention continues after the end, also for a feed with a lifecycle that has ended;
    and one run makes up for all missed ones.

    >>> from datetime import UTC
    >>> from feed_assets.timing.sequence import parse_frequency
    >>> policy = RetentionRecord(limit=None, cadence=parse_frequency("hours(6)"), trash=parse_frequency("days(7)"))
    >>> str(decide_next(policy, datetime(2013, 11, 1, tzinfo=UTC), datetime(2013, 11, 1, 13, tzinfo=UTC)))
    '2013-11-01 18:00:00+00:00'
    """
    cadence, end = policy.cadence.as_duration(), policy.stops_at or NEVER
    if as_of >= end:
        return NEVER
    last = as_of if as_of < was_due_at else as_of - (as_of - was_due_at) % cadence
    return min(last + cadence, end) if cadence < NEVER - last else end


def decide_retention_schedule(
    plan: Plan, cluster: str, known: Mapping[str, Entry], as_of: datetime
) -> tuple[list[Entry], list[AgendaKey]]:
    """Decide which entries to write and which to remove, so that the agenda matches the plan.

    A feed that is new or has another policy is due at once.
    """
    declared = {
        record.feed: record
        for record in plan.feeds.values()
        if record.cluster == cluster and record.retention is not None
    }
    changed = []
    for feed, record in declared.items():
        scheduled = known.get(feed)
        digest = digest_schedule(record)
        if scheduled is None or scheduled.state[_POLICY] != digest:
            changed.append(
                Entry(
                    *AgendaKey.of_entity(AgendaKind.RETENTION, feed, cluster),
                    due_at=as_of,
                    planned_at=as_of,
                    state={_POLICY: digest},
                )
            )
    return changed, [entry.key for feed, entry in known.items() if feed not in declared]


def apply_retention_schedule(
    database: Database, timeline: ReleaseTimeline, cluster: str, as_of: datetime, grace: timedelta
) -> None:
    """Make a cluster's schedule match the plan; costs one query if it does already.

    A feed whose retention became stricter is due after the grace period.
    """
    plan = timeline.plan
    name = f"retention/schedule/{cluster}"
    with database.read() as connection:
        if Cursors(connection).get(name) == plan.digest:
            return
    with database.begin() as connection:
        agenda: Agenda[Entry] = Agenda(connection)
        known = agenda.of_cluster(AgendaKind.RETENTION, cluster)
        changed, gone = decide_retention_schedule(plan, cluster, known, as_of)
        agenda.put(_after_graces(connection, timeline, changed, as_of, grace))
        agenda.remove(gone)
        Cursors(connection).put(name, plan.digest)


def _after_graces(
    connection: Connection,
    timeline: ReleaseTimeline,
    entries: Iterable[Entry],
    as_of: datetime,
    grace: timedelta,
) -> list[Entry]:
    """Return the entries, due at the earliest when their grace period is over."""
    entries = list(entries)
    records = [record for each in entries if (record := timeline.plan.feeds.get((each.name, each.cluster))) is not None]
    graces = find_graces(connection, timeline, records, as_of, grace)
    ends = {AgendaKey.of_entity(AgendaKind.RETENTION, *feed): found.until for feed, found in graces.items()}
    return [
        each._replace(due_at=max(each.due_at or as_of, ends[each.key])) if each.key in ends else each
        for each in entries
    ]


def find_due(connection: Connection, plan: Plan, view: ScheduleView, cluster: str, as_of: datetime) -> list[Due]:
    """Return the scheduled feeds whose retention is due, the highest priority first, then the longest waiting.

    A feed that is suspended or only submitted stays due until it is scheduled.
    """
    due = []
    agenda: Agenda[Entry] = Agenda(connection)
    for scheduled in agenda.due([AgendaKind.RETENTION], cluster, as_of, _DUE_AT_MOST):
        record = plan.feeds.get((scheduled.name, cluster))
        if (
            record is not None
            and record.retention is not None
            and view.is_scheduled(Kind.FEED, scheduled.name, cluster)
        ):
            due.append(Due(record=record, scheduled=scheduled))
    due.sort(key=lambda each: -(each.record.retention.priority if each.record.retention else 0))
    return due[:FEEDS_A_RUN]


def reschedule_retention(
    connection: Connection, due: Sequence[Due], as_of: datetime, pauses: Mapping[str, timedelta] = MappingProxyType({})
) -> None:
    """Record that retention of feeds ran at `as_of`, and when it is due next; not if the policy has changed since.

    `pauses` contains the feeds for which it failed, with the time until the next try: by the cadence, at the latest.
    """
    agenda: Agenda[Entry] = Agenda(connection)
    current = agenda.get_many([each.scheduled.key for each in due])
    rescheduled = []
    for each in due:
        entry = current.get(each.scheduled.key)
        if each.record.retention is None or entry is None or entry.state != each.scheduled.state:
            continue
        next_at = decide_next(each.record.retention, each.scheduled.due_at or as_of, as_of)
        pause = pauses.get(each.record.feed)
        due_at = next_at if pause is None else min(next_at, as_of + pause)
        rescheduled.append(entry._replace(due_at=due_at, planned_at=as_of))
    agenda.put(rescheduled)


def schedule_retention_now(
    connection: Connection, timeline: ReleaseTimeline, keys: Iterable[Key], as_of: datetime, grace: timedelta
) -> None:
    """Make (feed, cluster) keys due at `as_of` at the latest, or when their grace period is over.

    Keys without an entry are ignored.
    """
    agenda: Agenda[Entry] = Agenda(connection)
    found = agenda.get_many([AgendaKey.of_entity(AgendaKind.RETENTION, *each) for each in keys]).values()
    entries = [each._replace(due_at=min(each.due_at or as_of, as_of)) for each in found]
    agenda.put(_after_graces(connection, timeline, entries, as_of, grace))
