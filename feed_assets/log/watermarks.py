"""Store how far the instances of each feed and process were created, to find due instances at once; part long pasts."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, select

from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import is_process_scheduled, is_scheduled, state_without_row
from feed_assets.log.records import EntityKey, Watermark, WatermarkKind
from feed_assets.log.tables import HAS_NEXT_TIME, HAS_PAST, watermarks
from feed_assets.sql.rows import RowMapper, TableStore, build_upsert, delete_keys
from feed_assets.timing.sequence import InstanceSequence

NEWEST = 1_000
"""Instances of a feed or process that come first, oldest first; those before them are worked off behind what is due."""

PAST_A_TICK = 10_000
"""Instances of the past of a feed or process that a tick creates at most: two seconds of work."""

_T = watermarks.c
_ROWS = RowMapper(watermarks, Watermark)
_KEY = ("kind", "entity", "cluster")
_OF_PROCESSES = frozenset(
    {WatermarkKind.PROCESS, WatermarkKind.PROCESS_LOW, WatermarkKind.PROCESS_HIGH, WatermarkKind.PROCESS_RISK}
)
_SELECT = select(*_ROWS.columns, _T.due_at)


class Watermarks(TableStore):
    """The watermarks as one transaction sees them."""

    def due(
        self,
        kind: WatermarkKind,
        as_of: datetime,
        limit: int | None,
        cluster: str | None = None,
        *,
        only_scheduled: bool = False,
        of_past: bool = False,
    ) -> list[Watermark]:
        """Return the watermarks whose next instance (or the first `of_past`) is due at `as_of`, oldest first; of one
        cluster, and of scheduled entities only, if asked for.
        """
        at, is_set = (_T.past_time, HAS_PAST) if of_past else (_T.due_at, HAS_NEXT_TIME)
        statement = _SELECT.where(_T.kind == kind, at <= as_of, is_set)
        if cluster is not None:
            statement = statement.where(_T.cluster == cluster)
        if only_scheduled:
            statement = statement.where(_is_active(kind, state_without_row(self._connection)))
        return self._find(statement.order_by(at, _T.entity, _T.cluster).limit(limit))

    def get(self, kind: WatermarkKind, entity: str, cluster: str) -> Watermark | None:
        """Return the watermark of an entity on a cluster; None if it has none yet."""
        found = self._find(_SELECT.where(_T.kind == kind, _T.entity == entity, _T.cluster == cluster))
        return found[0] if found else None

    def beginnings(self, kind: WatermarkKind, keys: Iterable[tuple[str, str]]) -> dict[EntityKey, datetime]:
        """Return where those of (entity, cluster) keys that have a long past, or had one, begin behind it."""
        found = self.next_of([(kind, *key) for key in keys])
        return {each.key: each.past_until for each in found.values() if each.past_until is not None}

    def next_of(self, keys: Collection[tuple[WatermarkKind, str, str]]) -> dict[tuple[str, str, str], Watermark]:
        """Return the watermarks that some (kind, entity, cluster) have, without their delays, in one statement."""
        found = _ROWS.of_keys(self._connection, _KEY, keys)
        return {(each.kind, *each.key): each for each in found}

    def all(self, kind: WatermarkKind) -> dict[EntityKey, Watermark]:
        """Return every watermark of a kind; for commands, not for ticks."""
        return {watermark.key: watermark for watermark in self._find(_SELECT.where(_T.kind == kind))}

    def starting_with(self, kind: WatermarkKind, prefix: str, cluster: str) -> list[str]:
        """Return the entities on a cluster whose names have a prefix; for commands, not for ticks."""
        is_one = (_T.kind == kind, _T.cluster == cluster, _T.entity.startswith(prefix, autoescape=True))
        return list(self._connection.scalars(select(_T.entity).where(*is_one).order_by(_T.entity)))

    def put(self, rows: Iterable[Watermark]) -> None:
        """Insert or replace rows. Of two rows of one entity the last counts."""
        by_key = {(row.kind, *row.key): _to_row(row) for row in rows}
        if by_key:
            upsert = build_upsert(self._dialect, watermarks)
            self._connection.execute(upsert, [by_key[key] for key in sorted(by_key)])

    def move(self, moves: Sequence[tuple[Watermark, Watermark]]) -> None:
        """Replace rows, given as they were read and as they become; one that somebody has set meanwhile stays."""
        found = _ROWS.of_keys(self._connection, _KEY, [(read.kind, *read.key) for read, _ in moves])
        standing = {replace(each, delay=timedelta(0)) for each in found}
        self.put(moved for read, moved in moves if replace(read, delay=timedelta(0)) in standing)

    def missing(self, kind: WatermarkKind, keys: Sequence[tuple[str, str]]) -> list[EntityKey]:
        """Return the (entity, cluster) keys that have no watermark, in the given order."""
        rows = self._connection.execute(select(_T.entity, _T.cluster).where(_T.kind == kind))
        present = {(entity, cluster) for entity, cluster in rows}
        return [EntityKey(*key) for key in keys if key not in present]

    def remove(self, kind: WatermarkKind, keys: Iterable[tuple[str, str]]) -> None:
        """Remove the watermarks of (entity, cluster) keys; keys without one are ignored."""
        delete_keys(self._connection, watermarks, _KEY, ((kind, *key) for key in keys))

    def _find(self, statement: Select[Any]) -> list[Watermark]:
        return [_from_row(row) for row in self._connection.execute(statement)]


def part_past(watermark: Watermark, due: Sequence[tuple[InstanceSequence, datetime, datetime]]) -> Watermark:
    """Return a watermark that is due in front of the `NEWEST` due instances, with those before them as its past.

    As long as a past is left, what falls due meanwhile is created in its order, unless that is long, too: then it is
    parted anew. One that begins anew before or in its past takes that along. `due` are sequences, and from when to
    before when their instances are.
    """
    if watermark.next_time is None:
        return watermark
    is_long = sum(len(indices) for _, indices in _due_from(watermark.next_time, due)) > NEWEST
    if is_long or watermark.past_until is None or watermark.next_time < watermark.past_until:
        watermark = watermark.rejoined()
    elif watermark.past_time is not None:
        return watermark
    ((begin, _),) = watermark.ahead
    parts = _due_from(begin, due)
    excess = sum(len(indices) for _, indices in parts) - NEWEST
    for sequence, indices in parts if excess > 0 else ():
        if excess < len(indices):
            index, cut = indices[excess], sequence.at(indices[excess])
            return replace(watermark, next_index=index, next_time=cut, past_time=begin, past_until=cut)
        excess -= len(indices)
    return watermark


def _due_from(
    begin: datetime, due: Sequence[tuple[InstanceSequence, datetime, datetime]]
) -> list[tuple[InstanceSequence, range]]:
    return [(sequence, sequence.indices_between(max(begin, first), stop)) for sequence, first, stop in due]


def _is_active(kind: WatermarkKind, without_row: ScheduleState) -> ColumnElement[bool]:
    if kind in _OF_PROCESSES:
        return is_process_scheduled(_T.entity, _T.cluster, without_row)
    return is_scheduled(kind.value, _T.entity, _T.cluster, without_row)


def _to_row(watermark: Watermark) -> dict[str, object]:
    due_at = None if watermark.next_time is None else watermark.next_time + watermark.delay
    return _ROWS.values(watermark) | {"due_at": due_at}


def _from_row(row: Sequence[Any]) -> Watermark:
    *values, due_at = row
    watermark = _ROWS.load(values)
    return watermark if watermark.next_time is None else replace(watermark, delay=due_at - watermark.next_time)
