"""The agenda: what is looked at again, and when, in one table for all kinds.

An entry is about an instance, or about an entity: its nominal time is `NEVER` then. What a kind must know beside the
time is its state.

Some kinds of "later" stand elsewhere. Retries, time-outs and notices of process instances are columns of these: a
changed status ends them in the same statement. Ranges of instances have watermarks. Arrival polls have a table: to ask
for 20,000 of them here took four times as long. Consumers of events have their own times, which routing moves.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from sqlalchemy import Column, ColumnElement, Executable, Select, bindparam, select, text, true, union_all, update

from feed_assets.entities.common import Kind
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import is_process_scheduled, state_without_row
from feed_assets.log.records import FeedKey
from feed_assets.sql.column_types import Choice, Payload, Text, UtcDateTime, to_micros
from feed_assets.sql.names import names_by
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, delete_keys, render_rows, select_keyed
from feed_assets.sql.tables import define_table, index_where
from feed_assets.timing.dates import NEVER


class AgendaKind(StrEnum):
    """What is done with an entry when it is due."""

    LATE_FEED = "late feed"
    LATE_INPUTS = "late inputs"
    UPDATE = "update"
    RERUN = "rerun"
    FEED_RISK_LOW = "feed risk low"
    FEED_RISK_HIGH = "feed risk high"
    PROCESS_RISK_LOW = "process risk low"
    PROCESS_RISK_HIGH = "process risk high"
    RETENTION = "retention"
    QUALITY = "quality"
    REGISTRATION = "registration"
    STAGED_TABLES = "staged tables"

    @property
    def entity_kind(self) -> Kind:
        """The kind of what its entries are about."""
        return Kind.FEED if self in _OF_FEEDS else Kind.PROCESS


_OF_FEEDS = frozenset(
    {
        AgendaKind.LATE_FEED,
        AgendaKind.FEED_RISK_LOW,
        AgendaKind.FEED_RISK_HIGH,
        AgendaKind.RETENTION,
        AgendaKind.QUALITY,
        AgendaKind.REGISTRATION,
    }
)
_WHILE_SCHEDULED = frozenset({AgendaKind.PROCESS_RISK_LOW, AgendaKind.PROCESS_RISK_HIGH})

IS_DUE_SOMETIME = text("due_at IS NOT NULL")

agenda = define_table(
    "fa_agenda",
    Column("kind", Choice(AgendaKind), nullable=False),
    Column("name", Text, nullable=False, info=names_by("kind", AgendaKind, lambda each: each.entity_kind)),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("due_at", UtcDateTime),
    Column("planned_at", UtcDateTime, nullable=False),
    Column("state", Payload),
    index_where("fa_agenda_due", IS_DUE_SOMETIME, "cluster", "kind", "due_at"),
    key=("kind", "name", "cluster", "nominal_time"),
)

_T = agenda.c


class AgendaKey(NamedTuple):
    """What an entry is about."""

    kind: AgendaKind
    name: str
    cluster: str
    nominal_time: datetime

    @classmethod
    def of_entity(cls, kind: AgendaKind, name: str, cluster: str) -> "AgendaKey":
        """Return the key of an entry that is about no instance."""
        return cls(kind, name, cluster, NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """An entry about an instance, to which a kind adds what it must know: when it is looked at next, None while it
    waits for something else.
    """

    kind: AgendaKind
    name: str
    cluster: str
    nominal_time: datetime
    planned_at: datetime
    due_at: datetime | None

    @property
    def key(self) -> AgendaKey:
        """What it is about."""
        return AgendaKey(self.kind, self.name, self.cluster, self.nominal_time)

    @property
    def feed_key(self) -> FeedKey:
        """The instance of a feed that it is about."""
        return FeedKey(self.name, self.cluster, self.nominal_time)


class Entry(NamedTuple):
    """An entry as it is stored."""

    kind: AgendaKind
    name: str
    cluster: str
    nominal_time: datetime
    due_at: datetime | None
    planned_at: datetime
    state: Mapping[str, Any] = {}

    @property
    def key(self) -> AgendaKey:
        """What it is about."""
        return AgendaKey(*self[:4])


T = TypeVar("T", bound=Planned | Entry)


class AgendaRows(RowMapper[T]):
    """Maps a class of one kind of entry: what has no column is in the state, unless it is None. `parts` reads each of
    these from JSON; one that is not there has the default of the class.
    """

    def __init__(self, cls: Callable[..., T], **parts: Callable[[Any], Any]) -> None:
        super().__init__(agenda, cls)
        self._parts = parts
        self.columns = (*self.columns, _T.state)
        self.select = select(*self.columns)

    def values(self, value: T) -> dict[str, Any]:
        """Return the row of an entry."""
        parts = {name: getattr(value, name) for name in self._parts}
        told = ((name, part) for name, part in parts.items() if part is not None)
        state = {name: to_micros(part) if isinstance(part, datetime) else part for name, part in told}
        return super().values(value) | {"state": state}

    def load(self, row: Any, **others: Any) -> T:
        """Return the entry in a row."""
        *values, state = row
        return super().load(
            values, **{name: read(state[name]) for name, read in self._parts.items() if name in state}, **others
        )


class Agenda(TableStore, Generic[T]):
    """The entries of some kinds, as one transaction sees them."""

    rows: ClassVar[RowMapper[Any]] = RowMapper(agenda, Entry)

    def due(self, kinds: Sequence[AgendaKind], cluster: str, as_of: datetime, limit: int) -> list[T]:
        """Return the due entries of some kinds on a cluster, the longest waiting first, in one statement.

        If there are more, half of them are the ones that became due last, so that what is due today does not wait
        for a long past. What is looked at only while its process is scheduled is left out else.
        """

        without_row = state_without_row(self._connection)

        def find(limit: int, *, newest: bool = False) -> list[T]:
            statement = _select_due(self.rows.columns, tuple(kinds), without_row, newest)
            found = self.rows.find(self._connection, statement, {_CLUSTER: cluster, _AS_OF: as_of, _LIMIT: limit})
            return sorted(found, key=_urgency, reverse=newest)[:limit]

        oldest = find(limit)
        newest = find(limit // 2, newest=True) if len(oldest) == limit else []
        found = {each.key: each for each in (*newest, *oldest)}
        return sorted(list(found.values())[:limit], key=_urgency)

    def get_many(self, keys: Collection[AgendaKey]) -> dict[AgendaKey, T]:
        """Return the entries that have some keys, in one statement."""
        return self._find(self._select_keys(), keys)

    def lock_many(self, keys: Collection[AgendaKey]) -> dict[AgendaKey, T]:
        """Return as `get_many`, and lock the rows until the transaction ends."""
        return self._find(self._select_keys().with_for_update(of=agenda), keys)

    def of_cluster(self, kind: AgendaKind, cluster: str) -> dict[str, T]:
        """Return all entries of a kind on a cluster by name; for changed definitions and commands, not for ticks."""
        found = self.rows.find(self._connection, self.rows.select.where(_T.kind == kind, _T.cluster == cluster))
        return {each.key.name: each for each in found}

    def processes_of(self, kind: AgendaKind) -> set[tuple[str, str]]:
        """Return the names with an entry of a kind, and their clusters."""
        found = self._connection.execute(select(_T.name, _T.cluster).where(_T.kind == kind).distinct())
        return {(name, cluster) for name, cluster in found}

    def times_of(self, kind: AgendaKind, name: str, cluster: str) -> list[datetime]:
        """Return the instances of a name that have an entry of a kind."""
        is_one = (_T.kind == kind, _T.name == name, _T.cluster == cluster)
        return [time for (time,) in self._connection.execute(select(_T.nominal_time).where(*is_one))]

    def replan_premature(self, cluster: str, as_of: datetime) -> int:
        """Let the entries of all kinds be due that were planned in the future, by a wrong clock; return how many."""
        is_premature = (_T.cluster == cluster, _T.planned_at > as_of, IS_DUE_SOMETIME)
        replanned = update(agenda).where(*is_premature).values(due_at=as_of, planned_at=as_of)
        return self._connection.execute(replanned).rowcount

    def put(self, entries: Iterable[T]) -> None:
        """Plan entries; replace those that have their keys."""
        self.rows.put(self._connection, sorted(entries, key=_key))

    def add(self, entries: Iterable[T]) -> None:
        """Plan entries whose keys no other has."""
        self.rows.put_absent(self._connection, sorted(entries, key=_key))

    def remove(self, keys: Iterable[AgendaKey]) -> None:
        """Remove entries; keys without one are ignored."""
        delete_keys(self._connection, agenda, AgendaKey._fields, keys)

    def _select_keys(self) -> Select[Any]:
        return select_keyed(self._dialect, agenda, AgendaKey._fields, self.rows.columns)

    def _find(self, statement: Select[Any], keys: Collection[AgendaKey]) -> dict[AgendaKey, T]:
        found = self.rows.find(self._connection, statement, {KEY_ROWS: render_rows(keys)}) if keys else []
        return {each.key: each for each in found}


def _key(entry: Planned | Entry) -> AgendaKey:
    return entry.key


def _urgency(entry: Planned | Entry) -> tuple[datetime, AgendaKey]:
    return entry.due_at or NEVER, entry.key


_CLUSTER, _AS_OF, _LIMIT = "of_cluster", "as_of", "at_most"


@cache  # measured: building a statement takes longer than executing it
def _select_due(
    columns: tuple[ColumnElement[Any], ...], kinds: tuple[AgendaKind, ...], without_row: ScheduleState, newest: bool
) -> Executable:
    """Select the first or newest due entries of each kind by the index: of several kinds all would be sorted."""
    is_due = (_T.cluster == bindparam(_CLUSTER), _T.due_at <= bindparam(_AS_OF), IS_DUE_SOMETIME)
    order = (_T.due_at.desc(),) if newest else (_T.due_at, _T.name, _T.nominal_time)
    ordered = select(*columns).where(*is_due).order_by(*order).limit(bindparam(_LIMIT))
    is_active = is_process_scheduled(_T.name, _T.cluster, without_row)
    by_kind = [
        ordered.where(_T.kind == kind, is_active if kind in _WHILE_SCHEDULED else true()).subquery() for kind in kinds
    ]
    return union_all(*map(select, by_kind))
