"""Keep where the walk along each deadline stands, and how a changed plan moves it and ends misses.

Such a change costs a walk over the SLAs of a cluster and over what is late there, once for each plan. Deadlines are
judged as of the time up to which arrivals have been looked for: else the first look after a stop of the daemon would
call everything late that arrived since.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.due_times import KINDS, Deadlines, find_sla, moved_by, open_deadlines
from feed_assets.alerts.deadlines.records import Recovered, Recovery, SlaMiss, SlaPause
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.entities.common import Kind
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.store import Definitions
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.records import Watermark, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.records import Plan
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.database import Database
from feed_assets.timing.dates import NEVER

NOTED_EVERY = timedelta(seconds=15)
BEHIND = timedelta(minutes=10)
LONGEST_WAIT = timedelta(minutes=10)
"""Real time after which deadlines are judged although nobody looks for arrivals: that is news, too."""


def note_looked(database: Database, cluster: str, as_of: datetime) -> None:
    """Record that everything that had arrived by a time was found; at the end of a tick, a row each `NOTED_EVERY`."""
    with database.read() as connection:
        looked = Cursors(connection).get(_looked(cluster))
    looked_at = None if looked is None else datetime.fromisoformat(looked)
    if looked_at is None or not looked_at <= as_of < looked_at + NOTED_EVERY:
        with database.begin() as connection:
            Cursors(connection).put(_looked(cluster), as_of.isoformat())


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


class DeadlineKey(NamedTuple):
    """One level of the deadlines of a feed or process on a cluster."""

    kind: Kind
    name: str
    cluster: str
    level: SlaLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEffect:
    """What a changed plan means: watermarks to write and to remove, and misses that are over."""

    put: tuple[Watermark, ...] = ()
    remove: tuple[DeadlineKey, ...] = ()
    over: tuple[Recovered, ...] = ()


def is_followed(connection: Connection, plan: Plan, cluster: str) -> bool:
    """Return whether the deadlines of a cluster follow the plan; one read."""
    return Cursors(connection).get(_cursor(cluster)) == plan.digest


def note_followed(connection: Connection, plan: Plan, cluster: str) -> None:
    """Record that the deadlines of a cluster follow the plan."""
    Cursors(connection).put(_cursor(cluster), plan.digest)


def _cursor(cluster: str) -> str:
    return f"sla/followed/{cluster}"


def find_plan_effect(connection: Connection, timeline: ReleaseTimeline, cluster: str, as_of: datetime) -> PlanEffect:
    """Return what the current plan means for the deadlines of a cluster.

    An entity that is declared, but left out of the plan because of errors, keeps its place and its misses.
    """
    wanted = {
        key: found
        for key in _iter_declared(timeline.plan, cluster)
        if (found := open_deadlines(connection, timeline, *key)) is not None
    }
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
    return PlanEffect(
        put=tuple(put),
        remove=tuple(key for key in gone if (key.kind.value, key.name) not in left_out),
        over=tuple(over),
    )


def apply_plan_effect(connection: Connection, effect: PlanEffect) -> None:
    """Write the watermarks, and close the misses that are over."""
    watermarks = Watermarks(connection)
    for key in effect.remove:
        watermarks.remove(KINDS[key.kind, key.level], [(key.name, key.cluster)])
    watermarks.put(effect.put)
    SlaMisses(connection).close(effect.over)


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
