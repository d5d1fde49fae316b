"""Plan sweeps: find the paths that may be removed, decide on them and store the plan; nothing is removed.

Feeds within all limits are planned together as one sweep that may run. Each feed that exceeds a limit gets a sweep of
its own that needs approval, so that it does not block the others.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, partial

from sqlalchemy import Connection

from feed_assets.clock import Stopwatch
from feed_assets.context.bulkheads import NOT_CONFINED, TIME_OUT_SECONDS
from feed_assets.context.errors import NotAskedError
from feed_assets.context.operation import TimelineContext
from feed_assets.errors import describe_error
from feed_assets.instances.arrival.stored_data import require_stored
from feed_assets.json_form import Hidden
from feed_assets.log.events import EventLog
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.messages.payloads import SweepPayload
from feed_assets.log.messages.records import OutboxMessage
from feed_assets.log.removals.chunks import SweepDraft
from feed_assets.log.removals.records import AT_WORK, FeedCount, Sweep, SweepChunk, SweepObstacle, SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.masking import get_logger
from feed_assets.plan.copy_records import endpoint_of
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.retention.errors import SweepRefusedError
from feed_assets.retention.rules.clock_witness import load_known_times, note_clock
from feed_assets.retention.rules.eligibility import Amounts, KnownTimes, ObstacleCode, decide_clock, decide_limits
from feed_assets.retention.rules.former_places import Neighbours, find_former
from feed_assets.retention.rules.hold_traces import HoldTraces
from feed_assets.retention.rules.protections import ProtectionQuery
from feed_assets.retention.rules.schedule import Grace, digest_policy, find_graces, schedule_retention_now
from feed_assets.retention.sweeps.movers import Measurer
from feed_assets.retention.sweeps.surveying import FeedSurvey, Surveyor
from feed_assets.sql.database import lock_log

PATIENCE = timedelta(days=1)
"""How long the schedule leaves a sweep alone that a person has planned and not begun."""

_logger = get_logger(__name__)

_UNSTARTED = frozenset({SweepState.PLANNED, SweepState.ASKING})
_OF_SHARES = frozenset({ObstacleCode.SHARE.value, ObstacleCode.EVERYTHING.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """A request to plan sweeps: the author and the times.

    `as_of` is the moment at which ages count, `now` the time of the data. An `automatic` plan skips feeds whose sweep
    waits for approval, or was planned by somebody else within `PATIENCE`. Others do not wait for the end of a `grace`
    period, but tell it.
    """

    as_of: datetime
    now: datetime
    author: str
    origin: str = "retention"
    automatic: bool = False
    grace: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFeed:
    """The plan of one feed: its survey and obstacles, or why it was left out; `error` if it could not be planned.

    With a `grace`, the schedule would not act yet.
    """

    record: FeedRecord
    survey: FeedSurvey | None = None
    obstacles: tuple[SweepObstacle, ...] = ()
    left_out: str | None = None
    sweep_id: str | None = None
    grace: Grace | None = None
    error: Hidden[Exception | None] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSweeps:
    """The planned sweeps, empty if nothing may be removed; `superseded` are the sweeps that they replace."""

    sweeps: tuple[Sweep, ...]
    feeds: tuple[PlannedFeed, ...]
    superseded: tuple[Sweep, ...] = ()


def plan_sweeps(
    context: TimelineContext,
    cluster: str,
    feeds: Sequence[FeedRecord],
    request: SweepRequest,
    *,
    measurer: Measurer | None = None,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PlannedSweeps:
    """Plan sweeps of feeds on a cluster and store them, to be inspected, approved and run.

    An earlier sweep of the same feeds that has not begun is superseded. Feeds that cannot be listed are left out, with
    the reason.

    Args:
        context: the record, the definitions, and the storage; that is only walked, polled and measured, and its traces
            of holds are brought up to date.
        cluster: the cluster.
        feeds: the feeds; those without retention are skipped.
        request: the author and the times.
        measurer: measures paths; this process if None.
        dry_run: store nothing.
        progress: called before each feed with the numbers of planned and of all feeds.

    Raises:
        SweepRefusedError: a sweep of one of the feeds began meanwhile.
    """
    with context.database.read() as connection:
        known = _Known.read(connection, context.timeline, cluster, feeds, request)
    query = ProtectionQuery(as_of=request.as_of, real_now=context.real_now, holder="")
    surveyor = Surveyor(context=context, query=query, measurer=measurer or Measurer(context.stores))
    traces = HoldTraces(context=context, as_of=request.now, dry_run=dry_run)
    neighbours = cache(partial(Neighbours, context))
    planned: list[PlannedFeed] = []
    away: dict[str, str] = {}
    for number, record in enumerate(feeds):
        if progress is not None:
            progress(number, len(feeds))
        if record.retention is None:
            continue
        endpoint = endpoint_of(record.store)
        if endpoint in away and record.feed not in known.sweeps:
            error = NotAskedError(endpoint=endpoint, reason=away[endpoint])
            planned.append(PlannedFeed(record=record, left_out=str(error), error=error))
            continue
        watch = Stopwatch()
        planned.append(_plan_feed(surveyor, record, request, known, traces, neighbours))
        if planned[-1].error is not None and watch.seconds > TIME_OUT_SECONDS:
            away[endpoint] = describe_error(planned[-1].error)
    drafts = _drafts(cluster, planned, request, known.log_seq)
    is_sane = not any(
        decide_clock(each.record.retention.cadence, request.now, known.times)
        or any(obstacle.code == ObstacleCode.CLOCK_JUMP for obstacle in each.obstacles)
        for each in planned
        if each.record.retention
    )
    superseded: tuple[Sweep, ...] = ()
    if not dry_run:
        superseded = _store(context, cluster, drafts, request, is_sane=is_sane)
    sweep_of = {count.feed: sweep.sweep_id for sweep, _ in drafts for count in sweep.counts} if not dry_run else {}
    return PlannedSweeps(
        sweeps=tuple(sweep for sweep, _ in drafts),
        feeds=tuple(replace(each, sweep_id=sweep_of.get(each.record.feed)) for each in planned),
        superseded=superseded,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What the record knows before a plan: open sweeps by feed, times of the clock, its position, and graces."""

    sweeps: Mapping[str, Sweep]
    times: KnownTimes
    log_seq: int
    graces: Mapping[Key, Grace]

    @classmethod
    def read(
        cls,
        connection: Connection,
        timeline: ReleaseTimeline,
        cluster: str,
        feeds: Iterable[FeedRecord],
        request: SweepRequest,
    ) -> "_Known":
        states = AT_WORK | _UNSTARTED if request.automatic else AT_WORK
        open_sweeps = [each for each in Sweeps(connection).with_state(cluster, states) if _is_open(each, request)]
        told = () if request.automatic else feeds
        return cls(
            sweeps={count.feed: sweep for sweep in open_sweeps for count in sweep.counts},
            times=load_known_times(connection, cluster),
            log_seq=EventLog(connection).last_seq(),
            graces=find_graces(connection, timeline, told, request.now, request.grace),
        )


def _is_open(sweep: Sweep, request: SweepRequest) -> bool:
    """Return whether a sweep is at work, waits for a person, or was planned by one just now."""
    if sweep.state is not SweepState.PLANNED or sweep.approved_by:
        return True
    is_recent = sweep.created_at > request.now - PATIENCE
    return request.automatic and sweep.author != request.author and is_recent


def _describe_state(sweep: Sweep) -> str:
    match sweep.state:
        case SweepState.ASKING:
            return "waits for approval"
        case SweepState.PLANNED if sweep.approved_by is None:
            return f"was planned by {sweep.author} and has not begun"
        case SweepState.PLANNED:
            return "is approved and will run"
        case _:
            return f"is {sweep.state.value}"


def _plan_feed(
    surveyor: Surveyor,
    record: FeedRecord,
    request: SweepRequest,
    known: _Known,
    traces: HoldTraces,
    neighbours: Callable[[], Neighbours],
) -> PlannedFeed:
    other = known.sweeps.get(record.feed)
    if other is not None:
        return PlannedFeed(record=record, left_out=f"its sweep {other.sweep_id} {_describe_state(other)}")
    try:
        context = surveyor.context
        require_stored(context, record, dry_run=traces.dry_run)
        traces.settle([record])
        survey = surveyor.survey(record, find_former(record, neighbours, traces))
        obstacles = _obstacles(survey, request, known.times) if survey.paths else ()
        if any(each.code in _OF_SHARES for each in obstacles):
            # The record may lack instances, so count those in storage before asking for approval.
            survey = surveyor.with_all_present(survey)
            obstacles = _obstacles(survey, request, known.times)
    except NOT_CONFINED:
        raise
    except Exception as exc:
        _logger.warning("retention of feed %s on %s cannot be planned", record.feed, record.cluster, exc_info=True)
        return PlannedFeed(record=record, left_out=describe_error(exc), error=exc)
    return PlannedFeed(record=record, survey=survey, obstacles=obstacles, grace=known.graces.get(record.key))


def _obstacles(survey: FeedSurvey, request: SweepRequest, seen: KnownTimes) -> tuple[SweepObstacle, ...]:
    policy = survey.record.retention
    assert policy is not None
    is_measured = all(item.bytes is not None for items in survey.taken.values() for item in items)
    taking = Amounts(
        instances=survey.filled,
        stay=survey.stay,
        bytes=survey.bytes if is_measured else None,
        newest=survey.newest,
    )
    return decide_limits(policy, taking, survey.record.sequence.frequency, request.now, seen)


def _drafts(
    cluster: str, planned: Iterable[PlannedFeed], request: SweepRequest, log_seq: int
) -> list[tuple[Sweep, list[SweepChunk]]]:
    """Draft one sweep for all feeds without obstacles, and one for each feed with obstacles."""
    taking = [each for each in planned if each.survey is not None and each.survey.paths]
    quiet = [each for each in taking if not each.obstacles]
    groups = [*([quiet] if quiet else []), *([each] for each in taking if each.obstacles)]
    return [_draft(cluster, group, request, log_seq) for group in groups]


def _draft(
    cluster: str, group: Sequence[PlannedFeed], request: SweepRequest, log_seq: int
) -> tuple[Sweep, list[SweepChunk]]:
    draft = SweepDraft(f"{request.now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}", cluster)
    surveys = {each.record.feed: each.survey for each in group if each.survey is not None}
    for feed, survey in surveys.items():
        for (kind, place), items in survey.taken.items():
            draft.add(feed, kind.value, items, place)
    obstacles = tuple(obstacle for each in group for obstacle in each.obstacles)
    sweep = draft.finish(
        SweepState.ASKING if obstacles else SweepState.PLANNED,
        as_of=request.as_of,
        created_at=request.now,
        author=request.author,
        origin=request.origin,
        log_seq=log_seq,
    )
    counts = tuple(_with_survey(count, surveys[count.feed]) for count in sweep.counts)
    return replace(sweep, obstacles=obstacles, counts=counts), draft.chunks


def _with_survey(count: FeedCount, survey: FeedSurvey) -> FeedCount:
    return replace(
        count,
        policy=digest_policy(survey.record),
        protected=len(survey.protected),
        protected_by=survey.protected_by,
        is_archived=survey.record.retention is not None and survey.record.retention.archive is not None,
    )


def _store(
    context: TimelineContext,
    cluster: str,
    drafts: Sequence[tuple[Sweep, list[SweepChunk]]],
    request: SweepRequest,
    *,
    is_sane: bool,
) -> tuple[Sweep, ...]:
    feeds = {count.feed for sweep, _ in drafts for count in sweep.counts}
    with context.database.begin() as connection:
        lock_log(connection)
        sweeps = Sweeps(connection)
        _require_idle(sweeps, cluster, feeds)
        superseded = _supersede(connection, context.timeline, cluster, feeds, request)
        for sweep, chunks in drafts:
            sweeps.add(sweep, chunks)
            _tell_asking(connection, sweep, request.now)
        if is_sane:
            note_clock(connection, cluster, request.now)
    return superseded


def _tell_asking(connection: Connection, sweep: Sweep, now: datetime) -> None:
    """Tell of each feed of a sweep that it asks for approval, if it does."""
    if sweep.state is not SweepState.ASKING:
        return
    reason = "; ".join(obstacle.sentence for obstacle in sweep.obstacles)
    Outbox(connection).append_many(
        [
            OutboxMessage(
                recorded_at=now,
                payload=SweepPayload(
                    sweep=sweep.sweep_id,
                    feed=count.feed,
                    cluster=sweep.cluster,
                    instances=count.instances,
                    bytes=count.bytes,
                    reason=reason,
                ),
                idempotency_key=f"sweep/{sweep.sweep_id}/asking/{count.feed}",
            )
            for count in sweep.counts
        ]
    )


def _require_idle(sweeps: Sweeps, cluster: str, feeds: set[str]) -> None:
    for other in sweeps.with_state(cluster, AT_WORK):
        shared = sorted(feeds & {count.feed for count in other.counts})
        if shared:
            raise SweepRefusedError(
                sweep=other.sweep_id,
                reason=f"it is {other.state.value} on feed '{shared[0]}', so no other sweep can be planned",
                next_step="Plan again after it has ended.",
            )


def _supersede(
    connection: Connection, timeline: ReleaseTimeline, cluster: str, feeds: set[str], request: SweepRequest
) -> tuple[Sweep, ...]:
    """End the unstarted plans of the feeds; the other feeds of these plans become due at once."""
    found, sweeps = [], Sweeps(connection)
    for other in sweeps.with_state(cluster, _UNSTARTED):
        of_other = {count.feed for count in other.counts}
        if of_other & feeds and sweeps.transition(
            other.sweep_id,
            _UNSTARTED,
            state=SweepState.SUPERSEDED,
            ended_at=request.now,
            note="a newer plan took its place",
        ):
            found.append(other)
            keys = [(feed, cluster) for feed in of_other - feeds]
            schedule_retention_now(connection, timeline, keys, request.now, request.grace)
    return tuple(found)
