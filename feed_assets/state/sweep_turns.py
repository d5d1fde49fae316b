"""When the retention of each feed on each cluster comes next."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, select

from feed_assets.state.keyed import KEY_ROWS, key_rows, render_rows
from feed_assets.state.retention_schema import sweep_turns
from feed_assets.state.sweep_records import SweepTurn
from feed_assets.state.upserts import build_upsert

_T = sweep_turns.c
_COLUMNS = (_T.feed, _T.cluster, _T.next_at, _T.last_at, _T.policy_digest)
_REMOVE = delete(sweep_turns).where(_T.feed == bindparam("of_feed"), _T.cluster == bindparam("on_cluster"))


class SweepTurns:
    """The turns as one transaction sees them. A feed without one has not been scheduled for retention yet."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dialect = connection.dialect.name

    def due(self, cluster: str, as_of: datetime, limit: int) -> list[SweepTurn]:
        """The turns that have come at `as_of`, the one that waits longest first."""
        is_due = (_T.cluster == cluster, _T.next_at <= as_of)
        statement = select(*_COLUMNS).where(*is_due).order_by(_T.next_at, _T.feed).limit(limit)
        return [SweepTurn(*row) for row in self._connection.execute(statement)]

    def of_cluster(self, cluster: str) -> dict[str, SweepTurn]:
        """All turns on a cluster, by feed."""
        found = self._connection.execute(select(*_COLUMNS).where(_T.cluster == cluster))
        return {turn.feed: turn for turn in (SweepTurn(*row) for row in found)}

    def find_many(self, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], SweepTurn]:
        """The turns of those (feed, cluster) that have one, in one statement."""
        if not keys:
            return {}
        wanted = key_rows(self._dialect, ("feed", "cluster"))
        is_wanted = and_(_T.feed == wanted.c.feed, _T.cluster == wanted.c.cluster)
        statement = select(*_COLUMNS).join_from(wanted, sweep_turns, is_wanted)
        found = self._connection.execute(statement, {KEY_ROWS: render_rows(keys)})
        return {turn.key: turn for turn in (SweepTurn(*row) for row in found)}

    def put(self, turns: Iterable[SweepTurn]) -> None:
        """Set turns, in the place of those there are."""
        rows: list[dict[str, Any]] = [turn._asdict() for turn in sorted(turns, key=lambda turn: turn.key)]
        if rows:
            self._connection.execute(build_upsert(self._dialect, sweep_turns), rows)

    def remove(self, keys: Iterable[tuple[str, str]]) -> None:
        """Forget the turns of (feed, cluster) keys; those that have none are left out."""
        parameters = [{"of_feed": feed, "on_cluster": cluster} for feed, cluster in sorted(keys)]
        if parameters:
            self._connection.execute(_REMOVE, parameters)
