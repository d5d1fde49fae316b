"""Store who did what and when: one row for each command that changes something, never changed."""

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Row,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy import Text as PlainText

from feed_assets.entities.common import Kind, label_of
from feed_assets.issues import EntityKey
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.log.tables import audit
from feed_assets.sql.database import lock_definitions
from feed_assets.sql.rows import KEY_ROWS, RowMapper, TableStore, count_rows, key_rows, render_rows

_T = audit.c
_ROWS = RowMapper(audit, AuditEntry)


_STORED_AS = {"recorded_at": BigInteger, "details": PlainText}
_STORED = (
    select(*(type_coerce(each, _STORED_AS[each.name]) if each.name in _STORED_AS else each for each in _T))
    .where(_T.seq > bindparam("after"))
    .order_by(_T.seq)
    .limit(bindparam("at_most"))
)


class Audit(TableStore):
    """The audit as one transaction sees it."""

    def append(self, entry: AuditEntry) -> int:
        """Add an entry; return its number."""
        return self.append_many([entry])

    def append_many(self, entries: Sequence[AuditEntry]) -> int:
        """Add entries, in the given order; return the number of the newest."""
        lock_definitions(self._connection)
        last = self.last_seq()
        if entries:
            rows = [_ROWS.values(entry) | {"seq": seq} for seq, entry in enumerate(entries, last + 1)]
            self._connection.execute(insert(audit), rows)
        return last + len(entries)

    def newest(self, limit: int, without: Collection[EntityKey] = ()) -> list[AuditEntry]:
        """Return the newest entries, newest first, but for those about some entities."""
        conditions, given = _is_other(self._dialect, without)
        statement = _ROWS.select.where(*conditions).order_by(_T.seq.desc()).limit(limit)
        return _ROWS.find(self._connection, statement, given)

    def count(self, end: int, without: Collection[EntityKey] = ()) -> int:
        """Return how many entries there are (see `count_rows`)."""
        conditions, given = _is_other(self._dialect, without)
        return count_rows(self._connection, select(_T.seq).where(*conditions), end, given)

    def find_old_end(self, before: datetime, as_of: datetime, limit: int, up_to: int | None = None) -> int:
        """Return the number of the last entry, of `limit` at most from the beginning, up to which all are older than
        `before`, 0 if none is; never the newest, so that numbers are not used again, and none behind `up_to`. One with
        a time after `as_of`, by a wrong clock, is as old as those behind it.
        """
        statement = select(_T.seq, _T.recorded_at).where(_T.recorded_at <= as_of).order_by(_T.seq).limit(limit + 1)
        oldest = self._connection.execute(statement).all()[:-1]
        old = [row.seq for row in takewhile(lambda row: row.recorded_at < before, oldest)]
        return max((seq for seq in old if up_to is None or seq <= up_to), default=0)

    def count_up_to(self, end: int) -> int:
        """Return how many entries there are up to a number."""
        return self._connection.scalar(select(func.count()).where(_T.seq <= end)) or 0

    def remove_up_to(self, end: int) -> int:
        """Remove the entries up to a number; return how many."""
        return self._connection.execute(delete(audit).where(_T.seq <= end)).rowcount if end else 0

    def first_seq(self) -> int | None:
        """Return the number of the oldest entry; None without one."""
        found: int | None = self._connection.scalar(select(func.min(_T.seq)))
        return found

    def last_seq(self) -> int:
        """Return the number of the newest entry; 0 without one."""
        return self._connection.scalar(select(func.max(_T.seq))) or 0

    def stored(self, after: int, limit: int) -> Sequence[Row[Any]]:
        """Return the next rows after a number, with the values of all columns as they are stored, the digest last."""
        return self._connection.execute(_STORED, {"after": after, "at_most": limit}).all()

    def put_digests(self, digests: Collection[tuple[int, str]]) -> None:
        """Write the digests of entries, by their numbers, in one statement."""
        made = key_rows(self._dialect, ("seq", "digest"))
        statement = update(audit).where(_T.seq == made.c.seq).values(digest=made.c.digest)
        self._connection.execute(statement, {KEY_ROWS: render_rows(digests)})


def _is_other(dialect: str, without: Collection[EntityKey]) -> tuple[list[ColumnElement[bool]], dict[str, str]]:
    """Return the condition that an entry is not about some entities, what is below them, or the work that they declare,
    with its parameters.
    """
    if not without:
        return [], {}
    made = key_rows(dialect, ("target",))
    begins = func.substr(_T.target + "/", 1, func.length(made.c.target)) == made.c.target
    is_below = and_(or_(*(_T.target.contains(each) for each in "/@.")), exists(select(made.c.target).where(begins)))
    is_about = or_(_T.target.in_(select(made.c.target)), is_below)
    work: dict[str, tuple[str, ...]] = {Kind.FEED: ("process '{}@", "process '{}.", "process/{}@", "process/{}.")}
    targets = [(label_of((kind, name)),) for kind, name in without]
    targets += [(each.format(name),) for kind, name in without for each in (f"{kind}/{{}}/", *work.get(kind, ()))]
    return [or_(_T.target.is_(None), ~is_about)], {KEY_ROWS: render_rows(targets)}
