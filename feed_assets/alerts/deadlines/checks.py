"""Look for deadlines that have passed, and for late instances that have come: the work of one tick of a cluster.

A look reads the deadlines that have passed since the last one, and what is late; it asks for nothing else, so that its
cost does not grow with the instances of a feed. Watermarks, misses and messages are written in one transaction: after a
crash, all of a look has happened or nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TypeVar

from sqlalchemy import Connection

from feed_assets.alerts.deadlines.due_times import (
    KINDS,
    Deadlines,
    decide_feed_misses,
    decide_process_misses,
    open_deadlines,
)
from feed_assets.alerts.deadlines.messages import FindCauses, build_missed, build_recovered, first_of_each
from feed_assets.alerts.deadlines.records import LateInstance, Recovered, Recovery, SlaMiss, Starts
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.alerts.deadlines.watermarks import (
    PlanEffect,
    apply_plan_effect,
    find_plan_effect,
    is_followed,
    note_followed,
    watermark_at,
)
from feed_assets.context.tick import Tick, tick_step
from feed_assets.context.tick_failures import TickStep
from feed_assets.entities.common import Kind
from feed_assets.log.cursors import Cursors
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.log.messages.outbox import Outbox
from feed_assets.log.records import FeedInstance, FeedKey, ProcessInstance, ProcessKey, Watermark, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.releases.timeline import is_applied
from feed_assets.sql.database import Database
from feed_assets.sql.locks import lock_log

ENTITIES_A_STEP = 500
INSTANCES_A_STEP = 500
RECOVERED_A_STEP = 5_000
KEYS_A_QUERY = 10_000

_MOMENT = timedelta(microseconds=1)
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookResult:
    """What a look has found: how many instances missed a deadline and are told, how many were late and have come
    meanwhile, and how many late ones are not late any more.
    """

    missed: int = 0
    recorded: int = 0
    recovered: int = 0
    is_complete: bool = True

    def __add__(self, other: "LookResult") -> "LookResult":
        return LookResult(
            missed=self.missed + other.missed,
            recorded=self.recorded + other.recorded,
            recovered=self.recovered + other.recovered,
            is_complete=self.is_complete and other.is_complete,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """The instances of an entity whose deadlines have passed, and where the walk stands behind them."""

    deadlines: Deadlines
    times: tuple[datetime, ...]
    following: Watermark

    @property
    def keys(self) -> Iterator[tuple[str, str, datetime]]:
        """The instances."""
        return ((self.deadlines.name, self.deadlines.cluster, time) for time in self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Findings:
    """What a step writes."""

    plan_effect: PlanEffect | None = None
    moved: tuple[Watermark, ...] = ()
    misses: tuple[SlaMiss, ...] = ()
    recovered: tuple[Recovered, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self.plan_effect is None and not self.moved and not self.recovered

    @property
    def over(self) -> tuple[Recovered, ...]:
        """All misses that end."""
        return (*self.recovered, *(self.plan_effect.over if self.plan_effect is not None else ()))


@tick_step(TickStep.DEADLINES, otherwise=LookResult(is_complete=False))
def apply_deadlines(tick: Tick, find_causes: FindCauses) -> LookResult:
    """Record and tell the deadlines of a cluster that have passed, and the late instances that are not late any more.

    Deadlines of processes count only while these are scheduled. Without anything new this takes a handful of queries.
    `find_causes` is asked outside any transaction.
    """
    look = _Look(tick=tick)
    result = LookResult()
    done: frozenset[tuple[WatermarkKind, str]] = frozenset()
    while True:
        with tick.database.read() as connection:
            tick.timeline.refresh(connection, tick.as_of)
            if not is_applied(connection, tick.timeline):
                return replace(result, is_complete=False)
            found = look.find(connection, done)
        if found.is_empty:
            return result
        causes = find_causes(first_of_each(found.misses))
        with tick.database.begin() as connection:
            lock_log(connection)
            found = look.find(connection, done)
            _write(connection, tick, found, causes)
        done |= {(each.kind, each.entity) for each in found.moved}
        result += LookResult(
            missed=sum(miss.told_at is not None for miss in found.misses),
            recorded=sum(miss.told_at is None for miss in found.misses),
            recovered=len(found.over),
        )
        if tick.budget.is_spent:
            return replace(result, is_complete=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    tick: Tick

    def find(self, connection: Connection, done: frozenset[tuple[WatermarkKind, str]]) -> _Findings:
        """Return what the next step writes. `done` are the deadlines that this tick has walked along: one message
        each.
        """
        if not is_followed(connection, self.tick.plan, self.tick.cluster):
            return _Findings(
                plan_effect=find_plan_effect(connection, self.tick.timeline, self.tick.cluster, self.tick.as_of)
            )
        walks: list[_Walk] = []
        for (kind, level), mark in KINDS.items():
            for watermark in self._due(connection, kind, mark):
                if (mark, watermark.entity) not in done:
                    walk = self.tick.bulkheads.run_unit(
                        TickStep.DEADLINES, watermark.entity, None, self._walk, connection, kind, level, watermark
                    )
                    walks += [walk] if walk is not None else []
        recovered = SlaMisses(connection).recovered(self.tick.cluster, RECOVERED_A_STEP)
        return _Findings(
            moved=tuple(walk.following for walk in walks),
            misses=tuple(find_misses(connection, walks, self.tick.as_of)),
            recovered=tuple(recovered),
        )

    def _due(self, connection: Connection, kind: Kind, mark: WatermarkKind) -> list[Watermark]:
        without_row = self.tick.without_row if kind is Kind.PROCESS else None
        return Watermarks(connection).due(
            mark, self.tick.as_of - _MOMENT, ENTITIES_A_STEP, cluster=self.tick.cluster, without_row=without_row
        )

    def _walk(self, connection: Connection, kind: Kind, level: SlaLevel, watermark: Watermark) -> _Walk | None:
        """Walk along the deadlines that have passed; None if the entity is not in the plan."""
        deadlines = open_deadlines(connection, self.tick.timeline, kind, watermark.entity, self.tick.cluster, level)
        if deadlines is None or watermark.next_time is None:
            return None
        times = tuple(islice(deadlines.passed(watermark.next_time, self.tick.as_of), INSTANCES_A_STEP))
        following = deadlines.ceil(times[-1] + _MOMENT if times else watermark.next_time)
        return _Walk(deadlines=deadlines, times=times, following=watermark_at(deadlines, following))


def find_misses(connection: Connection, walks: Sequence[_Walk], as_of: datetime) -> list[SlaMiss]:
    """Return the misses among the instances of several walks, whose records are read together."""
    feeds = [walk for walk in walks if walk.deadlines.kind is Kind.FEED]
    processes = [walk for walk in walks if walk.deadlines.kind is Kind.PROCESS]
    misses: list[SlaMiss] = []
    rows: dict[FeedKey, FeedInstance] = {}
    for keys in batched((FeedKey(*key) for walk in feeds for key in walk.keys), KEYS_A_QUERY):
        rows |= FeedInstances(connection).get_many(keys)
    for walk in feeds:
        misses += decide_feed_misses(walk.deadlines, walk.times, rows, as_of)
    found: dict[ProcessKey, ProcessInstance] = {}
    starts: dict[ProcessKey, Starts] = {}
    for wanted in batched((ProcessKey(*key) for walk in processes for key in walk.keys), KEYS_A_QUERY):
        found |= ProcessInstances(connection).get_many(wanted)
        starts |= SlaMisses(connection).starts(wanted)
    for walk in processes:
        misses += decide_process_misses(walk.deadlines, walk.times, found, starts, as_of)
    last = SlaMisses(connection).last_episodes({miss.instance for miss in misses})
    return [replace(miss, episode=last.get((miss.instance, miss.level), 0) + 1) for miss in misses]


def _write(connection: Connection, tick: Tick, found: _Findings, causes: Mapping[LateInstance, str]) -> None:
    misses = SlaMisses(connection)
    if found.plan_effect is not None:
        apply_plan_effect(connection, found.plan_effect)
        note_followed(connection, tick.plan, tick.cluster)
    Watermarks(connection).put(found.moved)
    misses.add(found.misses)
    misses.close(found.recovered)
    messages = build_missed(found.misses, causes, tick.as_of)
    messages += build_recovered(found.over, find_still_late(misses, found.over), tick.as_of)
    Outbox(connection).append_many(messages)
    if found.misses or found.over:
        note_changed_misses(connection, tick.cluster)


def batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield the items in lists of at most so many; nothing without items."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


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
