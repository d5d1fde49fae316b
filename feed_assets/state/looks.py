"""When to look at instances of external feeds that have not arrived yet.

A small table beside the record of all instances, so that looking costs the same however long the history is.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Integer, Select, and_, bindparam, delete, select, update

from feed_assets.state.keyed import KEY_ROWS, key_rows, render_rows
from feed_assets.state.records import FeedKey, PlannedLook
from feed_assets.state.schema import looks
from feed_assets.state.upserts import build_upsert

_T = looks.c
_COLUMNS = (_T.feed, _T.cluster, _T.nominal_time, _T.found, _T.looked_at, _T.next_look_at)
_IS_WANTED = (
    (_T.feed == bindparam("of_feed")) & (_T.cluster == bindparam("on_cluster")) & (_T.nominal_time == bindparam("at"))
)
_REMOVE = delete(looks).where(_IS_WANTED)
_MOVE = update(looks).where(_IS_WANTED).values(looked_at=bindparam("seen_at"), next_look_at=bindparam("next_at"))

_SELECT_DUE = (
    select(*_COLUMNS)
    .where(_T.cluster == bindparam("on_cluster"), _T.next_look_at <= bindparam("not_after"))
    .order_by(_T.next_look_at, _T.feed, _T.nominal_time)
    .limit(bindparam("at_most", type_=Integer))
)


class Looks:
    """The planned looks as one transaction sees them; an instance that has arrived or was evicted has none."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def due(self, cluster: str, as_of: datetime, limit: int) -> list[PlannedLook]:
        """The looks that are due, the one that waits longest first."""
        parameters = {"on_cluster": cluster, "not_after": as_of, "at_most": limit}
        return [PlannedLook(*row) for row in self._connection.execute(_SELECT_DUE, parameters)]

    def find(self, feed: str, cluster: str, nominal_time: datetime) -> PlannedLook | None:
        """The look at one instance."""
        statement = select(*_COLUMNS).where(_T.feed == feed, _T.cluster == cluster, _T.nominal_time == nominal_time)
        row = self._connection.execute(statement).one_or_none()
        return None if row is None else PlannedLook(*row)

    def find_many(self, keys: Collection[tuple[str, str, datetime]]) -> dict[FeedKey, PlannedLook]:
        """The looks at several instances in one statement; one that has none is left out."""
        if not keys:
            return {}
        statement = _select_many(self._connection.dialect.name)
        found = (PlannedLook(*row) for row in self._connection.execute(statement, {KEY_ROWS: render_rows(keys)}))
        return {look.key: look for look in found}

    def put(self, planned: Iterable[PlannedLook]) -> None:
        """Plan looks, in the place of those there are."""
        rows = [look._asdict() for look in sorted(planned)]
        if rows:
            self._connection.execute(build_upsert(self._connection.dialect.name, looks), rows)

    def move(self, planned: Iterable[PlannedLook]) -> None:
        """Put off looks that are planned; one that is not any more stays away: somebody has found the instance."""
        parameters = [
            {"of_feed": look.feed, "on_cluster": look.cluster, "at": look.nominal_time}
            | {"seen_at": look.looked_at, "next_at": look.next_look_at}
            for look in sorted(planned)
        ]
        if parameters:
            self._connection.execute(_MOVE, parameters)

    def remove(self, keys: Iterable[tuple[Any, ...]]) -> None:
        """Look no more at instances, by (feed, cluster, nominal time)."""
        parameters = [{"of_feed": key[0], "on_cluster": key[1], "at": key[2]} for key in sorted(keys)]
        if parameters:
            self._connection.execute(_REMOVE, parameters)


@lru_cache
def _select_many(dialect: str) -> Select[Any]:
    wanted = key_rows(dialect, FeedKey._fields)
    is_wanted = and_(_T.feed == wanted.c.feed, _T.cluster == wanted.c.cluster, _T.nominal_time == wanted.c.nominal_time)
    return select(*_COLUMNS).join_from(wanted, looks, is_wanted)
