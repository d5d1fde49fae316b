"""Store facts: what attempts have counted or measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, true

from feed_assets.catalog.tables import facts
from feed_assets.log.records import OfProcessInstance, ProcessKey
from feed_assets.sql.rows import RowMapper, TableStore

_T = facts.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact(OfProcessInstance):
    """One fact of an attempt, as text; `name` is unique in its category."""

    attempt: int
    category: str
    name: str
    value: str
    recorded_at: datetime


_ROWS = RowMapper(facts, Fact)


class Facts(TableStore):
    """The facts as one transaction sees them."""

    def add(self, key: ProcessKey, attempt: int, category: str, said: Mapping[str, str], now: datetime) -> None:
        """Record the facts of one category of an attempt, which has none of them."""
        rows = [
            Fact(**key._asdict(), attempt=attempt, category=category, name=name, value=value, recorded_at=now)
            for name, value in said.items()
        ]
        _ROWS.insert(self._connection, rows)

    def of(self, key: ProcessKey) -> Sequence[Fact]:
        """Return the facts of all attempts at an instance, in the order of attempts, categories and names."""
        is_it = (_T.process == key.process) & (_T.cluster == key.cluster) & (_T.nominal_time == key.nominal_time)
        statement = _ROWS.select.where(is_it).order_by(_T.attempt, _T.category, _T.name)
        return _ROWS.find(self._connection, statement)

    def newest(self, process: str, cluster: str, category: str, limit: int) -> Sequence[Fact]:
        """Return the facts of one category of at most `limit` instances, newest first; of each all attempts."""
        is_it = (_T.process == process) & (_T.cluster == cluster) & (_T.category == category)
        times = select(_T.nominal_time).where(is_it).group_by(_T.nominal_time)
        newest = times.order_by(_T.nominal_time.desc()).limit(limit)
        statement = _ROWS.select.where(is_it & _T.nominal_time.in_(newest))
        return _ROWS.find(self._connection, statement.order_by(_T.nominal_time.desc(), _T.attempt, _T.name))

    def between(
        self, process: str, category: str, start: datetime, end: datetime, name: str | None = None
    ) -> Sequence[Fact]:
        """Return the facts of one category of the instances from `start` to before `end`, newest first."""
        is_it = (_T.process == process) & (_T.category == category) & (_T.nominal_time >= start)
        wanted = is_it & (_T.nominal_time < end) & (true() if name is None else _T.name == name)
        order = (_T.nominal_time.desc(), _T.cluster, _T.attempt, _T.name)
        return _ROWS.find(self._connection, _ROWS.select.where(wanted).order_by(*order))
