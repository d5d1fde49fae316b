"""Planning sweeps: what may go is found, judged and stored, and nothing is touched.

Feeds that exceed no limit are planned as one sweep that may run; each feed that exceeds one as a sweep of its own that
asks, so that it keeps no other from going on.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.lifecycle.errors import SweepRefusedError
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.retention.clock_witness import load_clock_seen, note_clock
from feed_assets.lifecycle.retention.keepers import Asked
from feed_assets.lifecycle.retention.limits import ClockSeen, ObstacleCode, Taking, decide_clock, decide_limits
from feed_assets.lifecycle.retention.movers import DriverMeasurer, Measurer
from feed_assets.lifecycle.retention.policies import digest_policy
from feed_assets.lifecycle.retention.surveying import Survey, count_present, survey_feed
from feed_assets.lifecycle.retention.turns import call_turns
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import FeedRecord
from feed_assets.state.database import Database
from feed_assets.state.event_log import EventLog
from feed_assets.state.sweep_content import NewChunk, SweepDraft
from feed_assets.state.sweep_records import FeedCount, Sweep, SweepObstacle, SweepState
from feed_assets.state.sweeps import Sweeps
from feed_assets.storage.errors import StorageError

_UNBEGUN = frozenset({SweepState.PLANNED, SweepState.ASKING})
_AT_WORK = frozenset({SweepState.RUNNING, SweepState.UNDOING})
_OF_SHARES = frozenset({ObstacleCode.SHARE.value, ObstacleCode.EVERYTHING.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Who plans, and for when: `as_of` is the moment that ages are counted to, `now` what the clock of the data says,
    `wall` what that of leases says. An `automatic` plan leaves feeds alone of which a sweep asks.
    """

    as_of: datetime
    now: datetime
    wall: datetime
    author: str
    origin: str = "retention"
    automatic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFeed:
    """What the plan says of one feed: its survey, and what it exceeds; or why it was left out."""

    record: FeedRecord
    survey: Survey | None = None
    obstacles: tuple[SweepObstacle, ...] = ()
    left_out: str | None = None
    sweep_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The sweeps of a plan, none where nothing may go; `superseded` are those in whose place they stand."""

    sweeps: tuple[Sweep, ...]
    feeds: tuple[PlannedFeed, ...]
    superseded: tuple[Sweep, ...] = ()
    is_clock_sane: bool = True


def plan_sweeps(
    database: Database,
    stores: StorePool,
    governance: Governance,
    cluster: str,
    feeds: Sequence[FeedRecord],
    ask: Ask,
    *,
    measurer: Measurer | None = None,
    dry_run: bool = False,
) -> Planned:
    """Find out what may go of feeds on a cluster, and store it as sweeps that can be looked at, approved and run.

    A sweep of the same feeds that has not begun is superseded. What cannot be listed is left out, with the reason.

    Args:
        database: the record.
        stores: storage; only walked, looked at and measured.
        governance: the definitions.
        cluster: where.
        feeds: which, those with retention.
        ask: who, and for when.
        measurer: who finds out how large paths are; this process if None.
        dry_run: store nothing.

    Raises:
        SweepRefusedError: a sweep of one of the feeds began meanwhile.
    """
    with database.read() as connection:
        others = Sweeps(connection).with_state(cluster, _AT_WORK | _UNBEGUN if ask.automatic else _AT_WORK)
        standing = _by_feed(each for each in others if each.state is not SweepState.PLANNED or each.approved_by)
        seen = load_clock_seen(connection, cluster)
        log_seq = EventLog(connection).last_seq()
    planned = []
    measurer = measurer or DriverMeasurer(stores)
    for record in feeds:
        if record.retention is None:
            continue
        other = standing.get(record.feed)
        if other is not None:
            planned.append(PlannedFeed(record=record, left_out=f"sweep {other.sweep_id} of it {_standing(other)}"))
        else:
            planned.append(_plan_feed(database, stores, governance, record, ask, seen, measurer))
    drafts = _drafts(cluster, planned, ask, log_seq)
    is_sane = not any(
        decide_clock(each.record.retention.cadence, ask.now, seen) for each in planned if each.record.retention
    )
    superseded: tuple[Sweep, ...] = ()
    if not dry_run:
        superseded = _store(database, cluster, drafts, ask, is_sane=is_sane)
    stored = () if dry_run else drafts
    sweep_of = {count.feed: sweep.sweep_id for sweep, _ in stored for count in sweep.counts}
    return Planned(
        sweeps=tuple(sweep for sweep, _ in drafts),
        feeds=tuple(replace(each, sweep_id=sweep_of.get(each.record.feed)) for each in planned),
        superseded=superseded,
        is_clock_sane=is_sane,
    )


def _standing(sweep: Sweep) -> str:
    match sweep.state:
        case SweepState.ASKING:
            return "waits for approval"
        case SweepState.PLANNED:
            return "is approved, and will be run"
        case _:
            return f"is {sweep.state.value}"


def _by_feed(sweeps: Iterable[Sweep]) -> dict[str, Sweep]:
    return {count.feed: sweep for sweep in sweeps for count in sweep.counts}


def _plan_feed(
    database: Database,
    stores: StorePool,
    governance: Governance,
    record: FeedRecord,
    ask: Ask,
    seen: ClockSeen,
    measurer: Measurer,
) -> PlannedFeed:
    policy = record.retention
    assert policy is not None
    asked = Asked(as_of=ask.as_of, wall=ask.wall, holder="")
    try:
        survey = survey_feed(database, stores, governance, record, asked, measurer)
        obstacles = _obstacles(survey, ask, seen) if survey.paths else ()
        if any(each.code in _OF_SHARES for each in obstacles):
            # The record may not know all that is there, so it is counted before a person is asked.
            survey = replace(survey, present=max(survey.present, count_present(stores, record)))
            obstacles = _obstacles(survey, ask, seen)
    except StorageError as exc:
        return PlannedFeed(record=record, left_out=str(exc))
    return PlannedFeed(record=record, survey=survey, obstacles=obstacles)


def _obstacles(survey: Survey, ask: Ask, seen: ClockSeen) -> tuple[SweepObstacle, ...]:
    policy = survey.record.retention
    assert policy is not None
    is_measured = all(item.bytes is not None for items in survey.taken.values() for item in items)
    taking = Taking(
        instances=survey.instances,
        stay=max(survey.present - survey.instances, 0),
        bytes=survey.bytes if is_measured else None,
    )
    return decide_limits(policy, taking, survey.record.sequence.frequency, ask.now, seen)


def _drafts(cluster: str, planned: Iterable[PlannedFeed], ask: Ask, log_seq: int) -> list[tuple[Sweep, list[NewChunk]]]:
    """One sweep for all feeds that exceed nothing, and one for each that does."""
    taking = [each for each in planned if each.survey is not None and each.survey.paths]
    quiet = [each for each in taking if not each.obstacles]
    groups = [*([quiet] if quiet else []), *([each] for each in taking if each.obstacles)]
    return [_draft(cluster, group, ask, log_seq) for group in groups]


def _draft(cluster: str, group: Sequence[PlannedFeed], ask: Ask, log_seq: int) -> tuple[Sweep, list[NewChunk]]:
    draft = SweepDraft(f"{ask.now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}", cluster)
    surveys = {each.record.feed: each.survey for each in group if each.survey is not None}
    for feed, survey in surveys.items():
        for kind, items in survey.taken.items():
            draft.add(feed, kind.value, items)
    obstacles = tuple(obstacle for each in group for obstacle in each.obstacles)
    sweep = draft.finish(
        SweepState.ASKING if obstacles else SweepState.PLANNED,
        as_of=ask.as_of,
        created_at=ask.now,
        author=ask.author,
        origin=ask.origin,
        log_seq=log_seq,
    )
    counts = tuple(_with_survey(count, surveys[count.feed]) for count in sweep.counts)
    return replace(sweep, obstacles=obstacles, counts=counts), draft.chunks


def _with_survey(count: FeedCount, survey: Survey) -> FeedCount:
    return replace(count, policy=digest_policy(survey.record), protected=len(survey.spared), keepers=survey.keepers)


def _store(
    database: Database, cluster: str, drafts: Sequence[tuple[Sweep, list[NewChunk]]], ask: Ask, *, is_sane: bool
) -> tuple[Sweep, ...]:
    feeds = {count.feed for sweep, _ in drafts for count in sweep.counts}
    with database.begin() as connection:
        sweeps = Sweeps(connection)
        _require_idle(sweeps, cluster, feeds)
        superseded = _supersede(connection, sweeps, cluster, feeds, ask)
        for sweep, chunks in drafts:
            sweeps.add(sweep, chunks)
        if is_sane:
            note_clock(connection, cluster, ask.now)
    return superseded


def _require_idle(sweeps: Sweeps, cluster: str, feeds: set[str]) -> None:
    for other in sweeps.with_state(cluster, _AT_WORK):
        shared = sorted(feeds & {count.feed for count in other.counts})
        if shared:
            raise SweepRefusedError(
                sweep=other.sweep_id,
                reason=f"it is {other.state.value} on feed '{shared[0]}', of which a sweep was to be planned",
                next_step="Plan again when it has ended.",
            )


def _supersede(connection: Connection, sweeps: Sweeps, cluster: str, feeds: set[str], ask: Ask) -> tuple[Sweep, ...]:
    """End the plans of the feeds that have not begun; what else they were about has its turn at once."""
    found = []
    for other in sweeps.with_state(cluster, _UNBEGUN):
        of_other = {count.feed for count in other.counts}
        if of_other & feeds and sweeps.transition(
            other.sweep_id, _UNBEGUN, state=SweepState.SUPERSEDED, ended_at=ask.now, note="a newer plan took its place"
        ):
            found.append(other)
            call_turns(connection, [(feed, cluster) for feed in of_other - feeds], ask.now)
    return tuple(found)
