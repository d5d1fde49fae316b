"""Whose retention comes when: at once where a feed is scheduled or its policy changes, then by its cadence."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.entities.common import Kind
from feed_assets.lifecycle.retention.cadence import decide_next_turn
from feed_assets.lifecycle.retention.policies import digest_policy
from feed_assets.lifecycle.schedules import ScheduleView
from feed_assets.plan.records import FeedRecord, Plan, RetentionRecord
from feed_assets.state.database import Database
from feed_assets.state.event_log import Cursors
from feed_assets.state.sweep_records import SweepTurn
from feed_assets.state.sweep_turns import SweepTurns
from feed_assets.timing.dates import NEVER

FEEDS_A_TURN = 1_000
"""How many feeds have their turn together."""

_DUE_AT_MOST = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A feed whose turn has come."""

    record: FeedRecord
    turn: SweepTurn


def digest_turn(record: FeedRecord) -> str:
    """Stands for all that decides when retention of a feed comes, and what it does then."""
    cadence = record.retention.cadence if record.retention else None
    return hashlib.sha256(f"{digest_policy(record)}|{cadence}".encode()).hexdigest()


def decide_next(policy: RetentionRecord, turn: SweepTurn, as_of: datetime) -> datetime:
    """When the next turn comes after one made at `as_of`: whole cadences after this one was due, so that it does
    not drift; NEVER if there is none.

    >>> from datetime import UTC
    >>> from feed_assets.timing.frequency import parse_frequency
    >>> policy = RetentionRecord(limit=None, cadence=parse_frequency("hours(6)"), trash=parse_frequency("days(7)"))
    >>> turn = SweepTurn("clicks", "primary", datetime(2013, 11, 1, tzinfo=UTC), None, "")
    >>> str(decide_next(policy, turn, datetime(2013, 11, 1, 13, tzinfo=UTC)))
    '2013-11-01 18:00:00+00:00'
    """
    cadence = policy.cadence.as_duration()
    has_ended = policy.stops_at is not None and as_of >= policy.stops_at
    last = as_of if has_ended or as_of < turn.next_at else as_of - (as_of - turn.next_at) % cadence
    return decide_next_turn(policy, last, as_of) or NEVER


def decide_turns(
    plan: Plan, cluster: str, known: Mapping[str, SweepTurn], as_of: datetime
) -> tuple[list[SweepTurn], list[str]]:
    """The turns to set, and the feeds whose turns to forget, so that they are those of what is declared.

    A feed that had none, or another policy, has its turn at once. One that has ended and stops then has one more.
    """
    declared = {
        record.feed: record
        for record in plan.feeds.values()
        if record.cluster == cluster and record.retention is not None
    }
    changed = []
    for feed, record in declared.items():
        turn = known.get(feed)
        digest = digest_turn(record)
        if turn is None or turn.policy_digest != digest:
            changed.append(SweepTurn(feed, cluster, as_of, turn.last_at if turn else None, digest))
    return changed, sorted(known.keys() - declared.keys())


def apply_turns(database: Database, plan: Plan, cluster: str, as_of: datetime) -> int:
    """Let the turns of a cluster be those of what is declared; costs one question where that has been done already.

    Returns how many feeds have their turn at once by it.
    """
    name = f"retention/turns/{cluster}"
    with database.read() as connection:
        if Cursors(connection).get(name) == plan.digest:
            return 0
    with database.begin() as connection:
        turns = SweepTurns(connection)
        changed, gone = decide_turns(plan, cluster, turns.of_cluster(cluster), as_of)
        turns.put(changed)
        turns.remove([(feed, cluster) for feed in gone])
        Cursors(connection).put(name, plan.digest)
    return len(changed)


def find_due(connection: Connection, plan: Plan, view: ScheduleView, cluster: str, as_of: datetime) -> list[Due]:
    """The scheduled feeds whose turn has come, the highest priority first, then the one that waits longest.

    What is suspended, or only submitted, keeps its turn, and has it at once when it is scheduled.
    """
    due = []
    for turn in SweepTurns(connection).due(cluster, as_of, _DUE_AT_MOST):
        record = plan.feeds.get((turn.feed, cluster))
        if record is not None and record.retention is not None and view.is_scheduled(Kind.FEED, turn.feed, cluster):
            due.append(Due(record=record, turn=turn))
    due.sort(key=lambda each: -(each.record.retention.priority if each.record.retention else 0))
    return due[:FEEDS_A_TURN]


def pass_turns(connection: Connection, due: Iterable[Due], as_of: datetime) -> None:
    """Note that feeds have had their turn at `as_of`, and when the next comes."""
    SweepTurns(connection).put(
        each.turn._replace(next_at=decide_next(each.record.retention, each.turn, as_of), last_at=as_of)
        for each in due
        if each.record.retention is not None
    )


def call_turns(connection: Connection, keys: Iterable[tuple[str, str]], as_of: datetime) -> None:
    """Give (feed, cluster) keys their turn now, those that have turns at all."""
    turns = SweepTurns(connection)
    turns.put(turn._replace(next_at=min(turn.next_at, as_of)) for turn in turns.find_many(list(keys)).values())
