"""Apply a changed plan to the state: releases, watermarks, queues, unstarted instances and gates.

For each plan that is new to the database, the releases continue, the watermarks are corrected, instances without a
definition are removed, and processes whose gates may open now are recorded for the next tick.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from feed_assets.catalog.describing import apply_descriptions, sign_descriptions
from feed_assets.instances.late.lateness import decide_feed_check
from feed_assets.instances.late.store import LateChecks
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import Member
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.feed_places import FeedPlaces
from feed_assets.log.instances.process_instances import UnstartedInstances
from feed_assets.log.records import (
    CONTENT,
    PROCESS_TIME,
    FeedInstanceStatus,
    FeedKey,
    NewFeedEvent,
    Watermark,
    WatermarkKind,
)
from feed_assets.log.watermarks import Watermarks
from feed_assets.masking import get_logger
from feed_assets.plan.edges import Key
from feed_assets.plan.records import Plan
from feed_assets.plan.release_fingerprint import Step
from feed_assets.releases.decide_releases import (
    DeclaredProcess,
    ReleaseDecision,
    decide_releases,
    decide_touch,
    load_histories,
    put_releases,
)
from feed_assets.releases.errors import ReleaseError
from feed_assets.releases.timeline import (
    _APPLIED,
    _FIRST_VERSION,
    BEGINNING,
    DESCRIBED,
    ReleaseTimeline,
    first_at_or_after,
    is_applied,
    note_changed,
)
from feed_assets.setting_sections import EVERYTHING, SystemMetadataSettings
from feed_assets.settings import DefinitionChanges
from feed_assets.sql.database import Database, lock_definitions
from feed_assets.sql.errors import StateError
from feed_assets.timing.dates import NEVER, parse_timezone, render_datetime
from feed_assets.timing.sequence import InstanceSequence, is_same_grid, parse_frequency
from feed_assets.triggers.apply_triggers import begin_queues

_STARTS = "another start of the validity"
_TRACKED = "definitions/walked"
_VERSION = 2
_MOMENT = timedelta(microseconds=1)

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedSequence:
    """The instance sequence that a feed's watermark follows, and whether the feed was declared in the last plan."""

    start: str
    end: str | None
    frequency: str
    timezone: str
    is_present: bool = True

    @property
    def sequence(self) -> InstanceSequence:
        """The instances."""
        return InstanceSequence(
            start=datetime.fromisoformat(self.start),
            end=datetime.fromisoformat(self.end) if self.end else None,
            frequency=parse_frequency(self.frequency),
            timezone=parse_timezone(self.timezone),
        )


def decide_watermark(watermark: Watermark, followed: InstanceSequence, declared: InstanceSequence) -> Watermark:
    """Return the watermark of a feed under a definition that may differ from the previous one.

    The watermark stays at its nominal time, also if it had reached the end and the validity was extended. If the start
    moves to an earlier instance of the same grid, the watermark restarts there, and no work is repeated. Instances of
    another grid (other frequency, time zone or phase) are new from the watermark on, not in the past; those of a past
    that is left are of the grid that is declared.
    """
    is_earlier = declared.start < followed.start and is_same_grid(declared, followed)
    if is_earlier or not _keeps_past(watermark, declared, NEVER):
        watermark = watermark.rejoined()
    position = watermark.next_time or followed.at(watermark.next_index)
    index = 0 if is_earlier else max(0, declared.index_at_or_after(position))
    is_over = declared.size is not None and index >= declared.size
    return replace(watermark, next_index=index, next_time=None if is_over else declared.at(index))


def _keeps_past(watermark: Watermark, declared: InstanceSequence | None, position: datetime) -> bool:
    """Return whether a past ends at a position or before, and what is left of it is valid to its end. Else the
    watermark has to stand where that ends, so that it goes on from there if the validity is extended.
    """
    until, end = watermark.past_until, declared.end if declared is not None else None
    is_valid = watermark.past_time is None or until is None or end is None or until <= end
    return until is not None and until <= position and is_valid


def apply_plan(
    database: Database,
    timeline: ReleaseTimeline,
    as_of: datetime,
    policy: DefinitionChanges = DefinitionChanges.FROM_NOW,
    record: Callable[[], bool] = lambda: True,
    described: SystemMetadataSettings = EVERYTHING,
) -> tuple[ReleaseDecision, ...]:
    """Bring the state in line with a plan: releases, watermarks and waiting instances. At the beginning of a tick, and
    after a change.

    Costs one read if the plan was applied last. A plan that differs from the recorded definitions is not applied: newer
    definitions exist, and the releases govern until they are loaded. Undeclared entities are remembered, so that they
    can come back.

    Args:
        database: the state.
        timeline: has the plan; its view of the releases is current afterwards.
        as_of: the present.
        policy: which instances a changed definition governs.
        record: called for a new plan to record its definitions; returns whether the plan matches the record.
        described: what the program says of the declared entities.
    """
    with database.read() as connection:
        sign = sign_descriptions(connection, timeline.plan, described)
        if is_applied(connection, timeline, sign):
            return ()
        timeline.refresh(connection, as_of)
        if is_applied(connection, timeline, sign):
            return ()
    is_recorded = record()
    with database.begin() as connection:
        lock_definitions(connection)
        decisions = decide_releases(connection, timeline.plan, timeline, as_of, policy) if is_recorded else None
        if decisions is None:
            _logger.info("the loaded definitions differ from the recorded ones; the change takes effect after a reload")
            return ()
        put_releases(connection, decisions)
        begin_queues(connection, timeline.plan)
        with _forgetting_on_error(timeline):
            timeline.refresh(connection, as_of)
            _apply_releases_and_feeds(connection, timeline, decisions)
            _follow_starts(connection, timeline.plan, as_of)
            _look_again(connection, timeline.plan, as_of)
            Cursors(connection).put(_APPLIED, timeline.plan.digest)
            apply_descriptions(connection, timeline.plan, described, as_of)
            Cursors(connection).put(DESCRIBED, sign)
    for decision in decisions:
        _logger.info("%s", decision.render())
    return decisions


def touch_process(
    database: Database, timeline: ReleaseTimeline, key: Key, as_of: datetime, effective_from: datetime | None = None
) -> ReleaseDecision:
    """Begin a new release of a process with its current definition.

    Started instances are left alone; instances before the effective time keep their release.

    Args:
        database: where the releases are; the plan must have been applied to it.
        timeline: has the plan with the process.
        key: process and cluster.
        as_of: the present.
        effective_from: the effective time; by default the first instance that is three minutes or more ahead.

    Raises:
        ReleaseError: the process is not declared there, or has no instance left.
    """
    record = timeline.plan.processes.get(key)
    if record is None:
        raise ReleaseError(process=key[0], cluster=key[1], reason="it is not declared there, or cannot run there")
    with database.begin() as connection:
        lock_definitions(connection)
        numbers = Definitions(connection).declared_versions()
        members = tuple(
            Member(kind=kind, name=name, version=numbers.get((kind, name), 0)) for kind, name in record.members
        )
        history = load_histories(connection, [key])[key]
        decision = decide_touch(DeclaredProcess(record=record, members=members), history, as_of, effective_from)
        if decision is None:
            raise ReleaseError(process=key[0], cluster=key[1], reason="its validity has no instance left")
        put_releases(connection, [decision])
        with _forgetting_on_error(timeline):
            timeline.refresh(connection, as_of)
            _apply_releases(connection, timeline, [decision])
    return decision


@contextmanager
def _forgetting_on_error(timeline: ReleaseTimeline) -> Iterator[None]:
    """Make the timeline read the releases again if the transaction fails."""
    try:
        yield
    except BaseException:
        timeline.forget()
        raise


def _apply_releases(
    connection: Connection,
    timeline: ReleaseTimeline,
    decisions: Sequence[ReleaseDecision],
    returned: Sequence[Key] = (),
) -> None:
    """Apply changed releases and returned processes to unstarted instances, watermarks and gates."""
    _remove_undeclared(connection, timeline, decisions)
    _set_process_watermarks(connection, timeline, {each.key: each for each in decisions}, returned)
    note_changed(connection, [*(each.key for each in decisions if each.before is not None), *returned])


def _apply_releases_and_feeds(
    connection: Connection, timeline: ReleaseTimeline, decisions: Sequence[ReleaseDecision]
) -> None:
    plan = timeline.plan
    known, present = _load_tracked(connection)
    returned = [key for key in plan.processes if key not in present]
    now = {key: _track(record.sequence) for key, record in plan.feeds.items() if record.is_polled}
    _set_feed_watermarks(connection, known, now, {key for key, record in plan.feeds.items() if record.is_current})
    FeedPlaces(connection).put(plan.feeds.values())
    _apply_releases(connection, timeline, decisions, returned)
    absent = {key: replace(walk, is_present=False) for key, walk in known.items()}
    _store_tracked(connection, {**absent, **now}, plan)


def _follow_starts(connection: Connection, plan: Plan, as_of: datetime) -> None:
    """Let what stands in the place of a current instance that is written here be its version, too, since the validity
    of its feed starts at another time. One from outside is polled.
    """
    own = {FeedKey(*key, each.sequence.start): each for key, each in plan.feeds.items() if each.is_current}
    known, log, instances = FeedInstances(connection).get_many(own), EventLog(connection), FeedInstances(connection)
    for key, record in own.items():
        event = None if record.is_external or key in known else log.newest(*record.key, CONTENT)
        former = instances.get(*event.key) if event is not None else None
        if event is None or former is None or (former.event_seq, former.place) != (event.seq, record.place):
            continue
        made_at = event.maker.nominal_time if event.maker is not None else event.nominal_time
        new = NewFeedEvent(
            **key._asdict(),
            kind=event.kind,
            origin=_STARTS,
            manifest_digest=event.manifest_digest,
            bytes=event.bytes,
            files=event.files,
            payload={**event.payload, PROCESS_TIME: render_datetime(made_at)},
            recorded_at=as_of,
        )
        (seq,) = log.append([new])
        instances.put([replace(former, nominal_time=key.nominal_time, event_seq=seq, updated_at=as_of)])
        instances.remove([former.key])


def _look_again(connection: Connection, plan: Plan, as_of: datetime) -> None:
    """Let the places of current instances that have come be looked at now: they may be other ones, or others than the
    instances on schedule that their feeds had.
    """
    current = {FeedKey(*key, each.sequence.start): each for key, each in plan.feeds.items() if each.is_current}
    rows = FeedInstances(connection).get_many(current)
    come = [key for key, row in rows.items() if row.status is FeedInstanceStatus.AVAILABLE]
    found = (decide_feed_check(current[key], key.nominal_time, as_of) for key in come)
    LateChecks(connection).put([check for check in found if check is not None])


def _set_feed_watermarks(
    connection: Connection,
    before: Mapping[Key, TrackedSequence],
    now: Mapping[Key, TrackedSequence],
    current: Collection[Key],
) -> None:
    """Write watermarks that are missing or whose sequence has changed; the others are not read. `current` feeds have
    one instance, which is polled anew if it has another time.
    """
    watermarks = Watermarks(connection)
    kind = WatermarkKind.FEED
    missing = frozenset((key.entity, key.cluster) for key in watermarks.missing(kind, list(now)))
    rows = []
    for key, walk in now.items():
        was = before.get(key, walk)
        if key in missing or (key in current and was != walk):
            found = Watermark(kind=kind, entity=key[0], cluster=key[1], next_index=0, next_time=walk.sequence.start)
            rows.append(decide_watermark(found, walk.sequence, walk.sequence))
        elif was != walk and (standing := watermarks.get(kind, *key)) is not None:
            rows.append(decide_watermark(standing, was.sequence, walk.sequence))
    watermarks.put(rows)


def _set_process_watermarks(
    connection: Connection, timeline: ReleaseTimeline, decisions: Mapping[Key, ReleaseDecision], returned: Iterable[Key]
) -> None:
    """Write the watermarks of processes that are new, came back, or have changed releases."""
    watermarks = Watermarks(connection)
    kind = WatermarkKind.PROCESS
    missing = frozenset((key.entity, key.cluster) for key in watermarks.missing(kind, list(timeline.plan.processes)))
    rows = []
    for key in sorted({*missing, *decisions, *returned}):
        standing = watermarks.get(kind, *key)
        moment = BEGINNING if standing is None else _find_position(connection, standing)
        decision = decisions.get(key)
        if decision is not None and decision.step is not Step.IN_PLACE:
            moment = min(moment, *(row.effective_from for row in decision.rows))
        record = timeline.plan.processes.get(key)
        declared = record.sequence if record is not None else None
        past = standing if standing is not None and _keeps_past(standing, declared, moment) else None
        if past is None and standing is not None:
            moment = min(moment, standing.past_time or moment)
        spans = timeline.spans(connection, key, since=moment)
        found = None if record is not None and not record.is_enumerated else first_at_or_after(spans, moment)
        rows.append(
            Watermark(
                kind=kind,
                entity=key[0],
                cluster=key[1],
                next_index=found[0].record.sequence.index(found[1]) if found else 0,
                next_time=found[1] if found else None,
                delay=found[0].record.delay if found else timedelta(0),
                past_time=past.past_time if past else None,
                past_until=past.past_until if past else None,
            )
        )
    watermarks.put(rows)


def _find_position(connection: Connection, standing: Watermark) -> datetime:
    """Return the nominal time from which on no instance of a process has been created."""
    if standing.next_time is not None:
        return standing.next_time
    newest = UnstartedInstances(connection, *standing.key).newest_time()
    return BEGINNING if newest is None else newest + _MOMENT


def _remove_undeclared(connection: Connection, timeline: ReleaseTimeline, decisions: Sequence[ReleaseDecision]) -> None:
    """Remove unstarted instances that no release has any more."""
    for decision in decisions:
        unstarted = UnstartedInstances(connection, *decision.key)
        unstarted.forget([time for time in unstarted.times() if timeline.find(connection, decision.key, time) is None])


def _track(sequence: InstanceSequence) -> TrackedSequence:
    return TrackedSequence(
        start=sequence.start.isoformat(),
        end=sequence.end.isoformat() if sequence.end else None,
        frequency=sequence.frequency.render(),
        timezone=sequence.timezone.key,
    )


def _load_tracked(connection: Connection) -> tuple[dict[Key, TrackedSequence], frozenset[Key]]:
    """Load the sequences of all feeds that were ever declared, and the processes of the last plan."""
    text = Cursors(connection).get(_TRACKED)
    if text is None:
        return {}, frozenset()
    document = json.loads(text)
    if document["version"] > _VERSION:
        raise StateError(
            reason=f"walks are noted in version {document['version']}, and this release reads up to {_VERSION}",
            next_step="Upgrade feed-assets here to the release that wrote them.",
        )
    if document["version"] == _FIRST_VERSION:
        rows = [[*row[1:-1], bool(row[-1])] for row in document["walks"] if row[0] == WatermarkKind.FEED.value]
        present = [(row[1], row[2]) for row in document["walks"] if row[0] == WatermarkKind.PROCESS.value and row[-1]]
    else:
        rows, present = document["feeds"], [(name, cluster) for name, cluster in document["processes"]]
    walks = {
        (feed, cluster): TrackedSequence(
            start=start, end=end, frequency=frequency, timezone=timezone, is_present=is_present
        )
        for feed, cluster, start, end, frequency, timezone, is_present in rows
    }
    return walks, frozenset(present)


def _store_tracked(connection: Connection, walks: Mapping[Key, TrackedSequence], plan: Plan) -> None:
    document = {
        "version": _VERSION,
        "feeds": [[*key, *astuple(walk)] for key, walk in walks.items()],
        "processes": sorted(map(list, plan.processes)),
    }
    Cursors(connection).put(_TRACKED, json.dumps(document, separators=(",", ":")))
