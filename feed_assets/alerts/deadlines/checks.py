"""Look for deadlines that have passed, and for late instances that have come: the work of one tick of a cluster.

A look reads the deadlines that have passed since the last one, and what is late; it asks for nothing else, so that its
cost does not grow with the instances of a feed. Watermarks, misses and messages are written in one transaction: after a
crash, all of a look has happened or nothing.

A changed plan costs a walk over the SLAs of a cluster and over what is late there, once for each plan. Deadlines are
judged as of the time up to which arrivals have been looked for: else the first look after a stop of the daemon would
call everything late that arrived since.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.due_times import (
    KINDS,
    DeadlineKey,
    Deadlines,
    find_misses,
    find_sla,
    iter_deadlines,
    moved_by,
    open_deadlines,
)
from feed_assets.alerts.deadlines.messages import FindCauses, build_missed, build_recovered, first_of_each
from feed_assets.alerts.deadlines.records import LateInstance, Recovered, Recovery, SlaMiss, SlaPause
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.context.bulkheads import TickStep
from feed_assets.context.heartbeat import note_time
from feed_assets.context.tick import Tick, tick_step
from feed_assets.entities.common import Kind
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.records import Watermark, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.records import Plan
from feed_assets.releases.timeline import ReleaseTimeline, is_applied
from feed_assets.sql.database import Database, lock_log
from feed_assets.timing.dates import NEVER

BEHIND = timedelta(minutes=10)
LONGEST_WAIT = timedelta(minutes=10)
"""Real time after which deadlines are judged although nobody looks for arrivals: that is news, too."""


def note_looked(database: Database, cluster: str, as_of: datetime) -> None:
    """Record that everything that had arrived by a time was found; at the end of a tick."""
    note_time(database, _looked(cluster), as_of)


def find_present(database: Database, cluster: str, as_of: datetime, real_now: datetime) -> datetime:
    """Return the time as of which deadlines of a cluster are judged: at most `as_of`.

    If arrivals have not been looked for up to then, it is the time up to which they were. It is `as_of` nevertheless
    once nobody has looked for them for the `LONGEST_WAIT`.
    """
    with database.read() as connection:
        found = Cursors(connection).get_many((_looked(cluster), _waiting(cluster)))
    looked = found.get(_looked(cluster))
    looked_at = None if looked is None else datetime.fromisoformat(looked)
    if looked_at is not None and as_of - looked_at < BEHIND:
        return min(as_of, looked_at)
    last, _, since = found.get(_waiting(cluster), "").rpartition(" ")
    if last != (looked or "") or not since:
        with database.begin() as connection:
            Cursors(connection).put(_waiting(cluster), f"{looked or ''} {real_now.isoformat()}")
    elif real_now - datetime.fromisoformat(since) > LONGEST_WAIT:
        return as_of
    return min(as_of, looked_at) if looked_at is not None else datetime.min.replace(tzinfo=as_of.tzinfo)


def _looked(cluster: str) -> str:
    return f"sla/looked/{cluster}"


def _waiting(cluster: str) -> str:
    return f"sla/waiting/{cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a step writes: walks that end, where others stand, misses, and those that are over.

    The first step under a changed plan `follows_plan`; all others are looks.
    """

    follows_plan: bool = False
    ended: tuple[DeadlineKey, ...] = ()
    moved: tuple[Watermark, ...] = ()
    misses: tuple[SlaMiss, ...] = ()
    over: tuple[Recovered, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.follows_plan or self.moved or self.over)


def _cursor(cluster: str) -> str:
    return f"sla/followed/{cluster}"


def find_plan_effect(connection: Connection, timeline: ReleaseTimeline, cluster: str, as_of: datetime) -> Findings:
    """Return what the current plan means for the deadlines of a cluster.

    An entity that is declared, but left out of the plan because of errors, keeps its place and its misses.
    """
    found = iter_deadlines(connection, timeline, _iter_declared(timeline.plan, cluster))
    wanted = {DeadlineKey(each.kind, each.name, each.cluster, each.level): each for each in found}
    standing = {
        DeadlineKey(kind, name, on, level): watermark
        for (kind, level), mark in KINDS.items()
        for (name, on), watermark in Watermarks(connection).all(mark).items()
        if on == cluster
    }
    declared = Definitions(connection).declared_versions()
    left_out = {(kind, name) for kind, name in declared if (kind, name) not in timeline.plan.facts}
    late = SlaMisses(connection).open(cluster)
    over = decide_over(late, wanted, declared.keys() - left_out, left_out, as_of)
    reopened: dict[DeadlineKey, list[datetime]] = defaultdict(list)
    for each in over:
        if each.by is Recovery.MOVED:
            reopened[_key_of(each.miss)].append(each.miss.nominal_time)
    put = [
        decide_watermark(deadlines, standing.get(key), reopened.get(key, ()), as_of)
        for key, deadlines in wanted.items()
    ]
    gone = [key for key in standing if key not in wanted]
    put += [decide_parked(standing[key]) for key in gone if (key.kind.value, key.name) in left_out]
    return Findings(
        follows_plan=True,
        moved=tuple(put),
        ended=tuple(key for key in gone if (key.kind.value, key.name) not in left_out),
        over=tuple(over),
    )


def decide_watermark(
    deadlines: Deadlines, standing: Watermark | None, reopened: Sequence[datetime], as_of: datetime
) -> Watermark:
    """Return where the walk along deadlines stands under the current definitions.

    A new walk begins with the first instance `since` the time that is declared, or with the first whose deadline is
    still to come. A walk that goes on stays at its nominal time, unless deadlines that had passed were `reopened`.
    """
    if standing is None:
        first = deadlines.sla.since or _after(as_of, deadlines.delay)
    elif standing.next_time is None:
        first = min([_after(as_of, deadlines.delay), *reopened])
    else:
        first = min([standing.next_time, *reopened])
    return watermark_at(deadlines, deadlines.ceil(first))


def _after(as_of: datetime, delay: timedelta) -> datetime:
    """Return the first nominal time whose deadline is at a time or later."""
    return as_of - delay if as_of - datetime.min.replace(tzinfo=as_of.tzinfo) > delay else as_of


def watermark_at(deadlines: Deadlines, time: datetime | None) -> Watermark:
    """Return the watermark in front of an instance; None means that there is no other."""
    return Watermark(
        kind=deadlines.watermark,
        entity=deadlines.name,
        cluster=deadlines.cluster,
        next_index=0,
        next_time=time,
        delay=timedelta(0) if time is None else deadlines.due_at(time) - time,
    )


def decide_parked(standing: Watermark) -> Watermark:
    """Return the watermark of an entity that is left out of the plan: at its place, and not due."""
    return standing if standing.next_time is None else replace(standing, delay=NEVER - standing.next_time)


def decide_over(
    late: Iterable[SlaMiss],
    wanted: Mapping[DeadlineKey, Deadlines],
    declared: Iterable[tuple[str, str]],
    left_out: Iterable[tuple[str, str]],
    as_of: datetime,
) -> list[Recovered]:
    """Return the misses that changed definitions have ended, and how.

    The entity was deleted; its instance has no such deadline any more; or the deadline is still to come.
    """
    declared, left_out = frozenset(declared), frozenset(left_out)
    found = []
    for miss in late:
        deadlines = wanted.get(_key_of(miss))
        if deadlines is not None and deadlines.contains(miss.nominal_time):
            if deadlines.due_at(miss.nominal_time) > as_of:
                found.append(Recovered(miss, Recovery.MOVED, as_of))
        elif (miss.kind, miss.name) not in left_out:
            is_declared = (miss.kind, miss.name) in declared
            found.append(Recovered(miss, Recovery.UNDECLARED if is_declared else Recovery.DELETED, as_of))
    return found


def apply_pause(connection: Connection, pause: SlaPause) -> None:
    """Record that a process was not scheduled for a time, and put off the deadline in front of its walks."""
    SlaMisses(connection).add_pause(pause)
    watermarks = Watermarks(connection)
    for mark in (WatermarkKind.PROCESS_LOW, WatermarkKind.PROCESS_HIGH):
        standing = watermarks.get(mark, pause.process, pause.cluster)
        if standing is not None and standing.next_time is not None:
            due_at = moved_by(standing.next_time + standing.delay, standing.next_time, [pause])
            watermarks.put([replace(standing, delay=due_at - standing.next_time)])


def _iter_declared(plan: Plan, cluster: str) -> Iterator[DeadlineKey]:
    for kind, records in ((Kind.FEED, plan.feeds), (Kind.PROCESS, plan.processes)):
        for name, on in records:
            if on == cluster and find_sla(plan, kind, name, on) is not None:
                for level in SlaLevel:
                    yield DeadlineKey(kind, name, on, level)


def _key_of(miss: SlaMiss) -> DeadlineKey:
    return DeadlineKey(Kind(miss.kind), miss.name, miss.cluster, miss.level)


ENTITIES_A_STEP = 500
INSTANCES_A_STEP = 500
RECOVERED_A_STEP = 5_000

_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookResult:
    """What a look has found: how many instances missed a deadline and are told, how many were late and have come
    meanwhile, and how many late ones are not late any more.
    """

    missed: int = 0
    recorded: int = 0
    recovered: int = 0
    is_complete: bool = True


@tick_step(TickStep.DEADLINES, otherwise=LookResult(is_complete=False))
def apply_deadlines(tick: Tick, find_causes: FindCauses) -> LookResult:
    """Record and tell the deadlines of a cluster that have passed, and the late instances that are not late any more.

    Deadlines of processes count only while these are scheduled. Without anything new this takes a handful of queries.
    `find_causes` is asked outside any transaction.
    """
    result = LookResult()
    done: frozenset[tuple[WatermarkKind, str]] = frozenset()
    while True:
        with tick.database.read() as connection:
            tick.timeline.refresh(connection, tick.as_of)
            if not is_applied(connection, tick.timeline):
                return replace(result, is_complete=False)
            found = _find(tick, connection, done)
        if found.is_empty:
            return result
        causes = find_causes(first_of_each(found.misses))
        with tick.database.begin() as connection:
            lock_log(connection)
            found = _find(tick, connection, done)
            _write(connection, tick, found, causes)
        done |= {(each.kind, each.entity) for each in found.moved if not found.follows_plan}
        told = sum(miss.told_at is not None for miss in found.misses)
        result = LookResult(
            missed=result.missed + told,
            recorded=result.recorded + len(found.misses) - told,
            recovered=result.recovered + len(found.over),
        )
        if tick.budget.is_spent:
            return replace(result, is_complete=False)


def _find(tick: Tick, connection: Connection, done: frozenset[tuple[WatermarkKind, str]]) -> Findings:
    """Return what the next step writes. `done` are the deadlines that this tick has walked along: one message each."""
    if Cursors(connection).get(_cursor(tick.cluster)) != tick.plan.digest:
        return find_plan_effect(connection, tick.timeline, tick.cluster, tick.as_of)
    passed: list[tuple[Deadlines, tuple[datetime, ...]]] = []
    moved: list[Watermark] = []
    before, step = tick.as_of - _MOMENT, TickStep.DEADLINES
    for (kind, level), mark in KINDS.items():
        is_process = kind is Kind.PROCESS
        due = Watermarks(connection).due(mark, before, ENTITIES_A_STEP, tick.cluster, only_scheduled=is_process)
        for standing in (each for each in due if (mark, each.entity) not in done):
            walked = tick.bulkheads.run_unit(
                step, standing.entity, None, _walk, tick, connection, kind, level, standing
            )
            if walked is not None:
                deadlines, times, following = walked
                passed.append((deadlines, times))
                moved.append(following)
    misses = find_misses(connection, passed, tick.as_of)
    last = SlaMisses(connection).last_episodes({miss.instance for miss in misses})
    return Findings(
        moved=tuple(moved),
        misses=tuple(replace(miss, episode=last.get((miss.instance, miss.level), 0) + 1) for miss in misses),
        over=tuple(SlaMisses(connection).recovered(tick.cluster, RECOVERED_A_STEP)),
    )


def _walk(
    tick: Tick, connection: Connection, kind: Kind, level: SlaLevel, watermark: Watermark
) -> tuple[Deadlines, tuple[datetime, ...], Watermark] | None:
    """Walk along the deadlines that have passed; return whose they are, and where the walk stands behind them. None if
    the entity is not in the plan.
    """
    deadlines = open_deadlines(connection, tick.timeline, kind, watermark.entity, tick.cluster, level)
    if deadlines is None or watermark.next_time is None:
        return None
    times = tuple(islice(deadlines.passed(watermark.next_time, tick.as_of), INSTANCES_A_STEP))
    following = deadlines.ceil(times[-1] + _MOMENT if times else watermark.next_time)
    return deadlines, times, watermark_at(deadlines, following)


def _write(connection: Connection, tick: Tick, found: Findings, causes: Mapping[LateInstance, str]) -> None:
    misses, watermarks = SlaMisses(connection), Watermarks(connection)
    if found.follows_plan:
        Cursors(connection).put(_cursor(tick.cluster), tick.plan.digest)
    for key in found.ended:
        watermarks.remove(KINDS[key.kind, key.level], [key.at])
    watermarks.put(found.moved)
    misses.add(found.misses)
    misses.close(found.over)
    messages = build_missed(found.misses, causes, tick.as_of)
    messages += build_recovered(found.over, find_still_late(misses, found.over), tick.as_of)
    Outbox(connection).append_many(messages)
    if found.misses or found.over:
        note_changed_misses(connection, tick.cluster)


def find_still_late(misses: SlaMisses, over: Iterable[Recovered]) -> frozenset[LateInstance]:
    """Return the instances that still miss another deadline. Call it in the closing transaction."""
    instances = {each.miss.instance for each in over}
    return frozenset(
        instance for instance, found in misses.of(instances).items() if any(miss.is_open for miss in found)
    )


def close_all(database: Database, cluster: str, as_of: datetime, by: Recovery) -> int:
    """End all misses of a cluster that is not declared any more; return how many there were."""
    with database.read() as connection:
        if not SlaMisses(connection).open(cluster, limit=1):
            return 0
    with database.begin() as connection:
        lock_log(connection)
        misses = SlaMisses(connection)
        over = [Recovered(miss, by, as_of) for miss in misses.open(cluster)]
        misses.close(over)
        Outbox(connection).append_many(build_recovered(over, frozenset(), as_of))
        note_changed_misses(connection, cluster)
    return len(over)


def revision_of(cluster: str) -> str:
    """Return the name of the cursor that changes whenever the misses of a cluster do."""
    return f"sla/revision/{cluster}"


def note_changed_misses(connection: Connection, cluster: str) -> None:
    """Record that the misses of a cluster have changed."""
    Cursors(connection).advance(revision_of(cluster))
