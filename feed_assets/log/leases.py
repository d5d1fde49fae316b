"""Write leases on instances, with fencing tokens: a writer whose token is not the newest is rejected.

A row is there while somebody has the lease, or has died with it. All tokens come from one number that only rises, in
the row without an entity: a lease has a higher one than all before, also of those whose rows are gone.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    and_,
    case,
    delete,
    literal,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.sql.dml import ReturningInsert

from feed_assets.log.records import Lease
from feed_assets.log.tables import HAS_HOLDER, leases
from feed_assets.sql.column_types import Text, from_micros
from feed_assets.sql.database import Database
from feed_assets.sql.errors import FencedOutError, LeaseHeldError
from feed_assets.sql.rows import KEY_ROWS, POSITION, RowMapper, build_insert, key_rows, render_rows, select_keys

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

_T = leases.c
_KEY = ("entity", "cluster", "nominal_time")
_LEASE = (*_KEY, "token", "holder")
_ROWS = RowMapper(leases, Lease)
_COUNTER = {"entity": "", "cluster": "", "nominal_time": from_micros(0), "expires_at": from_micros(0)}


class Leases:
    """The leases of a database; each call without a connection is a transaction of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(
        self, entity: str, cluster: str, nominal_time: datetime, holder: str, now: datetime, ttl: timedelta
    ) -> Lease:
        """Take the lease on an instance until `now + ttl`.

        A lease that has expired is taken over, with the next token. The same holder gets its lease
        again, renewed, with the same token; so `holder` must name one attempt of one worker, not a machine.

        Raises:
            LeaseHeldError: another holder has it.
        """
        with self._database.begin() as connection:
            wanted = Lease(
                entity=entity,
                cluster=cluster,
                nominal_time=nominal_time,
                token=_next_token(connection),
                holder=holder,
                expires_at=now + ttl,
            )
            statement = _or_take_over(build_insert(connection.dialect.name, leases), now)
            row = connection.execute(statement, _ROWS.values(wanted)).one_or_none()
            if row is not None:
                return _ROWS.load(row)
            held = connection.execute(_ROWS.select.where(*_is_of(wanted))).one()
        raise LeaseHeldError(
            database=self._database.name,
            entity=entity,
            cluster=cluster,
            nominal_time=nominal_time,
            holder=held.holder,
            expires_at=held.expires_at,
        )

    def acquire_many(
        self, keys: Collection[tuple[str, str, datetime]], holder: str, now: datetime, ttl: timedelta
    ) -> list[Lease]:
        """Take the free leases among some (entity, cluster, nominal time) keys, by the rules of `acquire`.

        In one transaction with one statement, in the order of the keys. Leases of other holders are left out.
        """
        wanted = sorted(set(keys))
        if not wanted:
            return []
        with self._database.begin() as connection:
            rows = key_rows(connection.dialect.name, _KEY)
            new = select(
                *(rows.c[name] for name in _KEY),
                literal(_next_token(connection), BigInteger),
                literal(holder, Text),
                literal(now + ttl, _T.expires_at.type),
            )
            # In the order of the keys, so that two workers that want the same keys do not deadlock. The WHERE is for
            # SQLite, which otherwise parses the ON of "ON CONFLICT" as that of a join.
            ordered = new.where(true()).order_by(rows.c[POSITION])
            insert = build_insert(connection.dialect.name, leases).from_select([*_LEASE, "expires_at"], ordered)
            found = connection.execute(_or_take_over(insert, now), {KEY_ROWS: render_rows(wanted)})
            return sorted(map(_ROWS.load, found), key=_place_of)

    def renew_many(self, held: Collection[Lease], now: datetime, ttl: timedelta) -> list[Lease]:
        """Renew leases until `now + ttl`, also expired ones, unless they were taken over; return the renewed ones."""
        if not held:
            return []
        with self._database.begin() as connection:
            wanted = key_rows(connection.dialect.name, _LEASE)
            is_held = and_(*(_T[name] == wanted.c[name] for name in _LEASE))
            statement = update(leases).where(is_held).values(expires_at=now + ttl).returning(*_ROWS.columns)
            found = _ROWS.find(connection, statement, {KEY_ROWS: _render_leases(held)})
            return sorted(found, key=_place_of)

    def release_many(self, held: Collection[Lease]) -> None:
        """Release leases, in one statement; leases that are no longer held are left alone."""
        if not held:
            return
        with self._database.begin() as connection:
            wanted = key_rows(connection.dialect.name, _LEASE)
            is_held = tuple_(*(_T[name] for name in _LEASE)).in_(select(*(wanted.c[name] for name in _LEASE)))
            connection.execute(delete(leases).where(is_held), {KEY_ROWS: _render_leases(held)})

    def release_all(self, connection: Connection, *holders: str) -> int:
        """Release all leases of holders that have died, inside a write transaction; return how many."""
        if not holders:
            return 0
        wanted = key_rows(connection.dialect.name, ("of_holder",))
        statement = delete(leases).where(_T.holder.in_(select(wanted.c.of_holder)), HAS_HOLDER)
        return connection.execute(statement, {KEY_ROWS: render_rows(zip(holders))}).rowcount

    def check_many(self, held: Collection[Lease], now: datetime) -> None:
        """Make sure that leases are held at this moment. Called before an effect outside the database.

        Raises:
            FencedOutError: one was taken over or released, or has expired, so that it can be taken over at any moment.
        """
        if not held:
            return
        keys = {(lease.entity, lease.cluster, lease.nominal_time): lease for lease in held}
        with self._database.read() as connection:
            found = _ROWS.of_keys(connection, _KEY, keys)
            rows = {(row.entity, row.cluster, row.nominal_time): row for row in found}
            for key, lease in keys.items():
                row = rows.get(key)
                if row is None or (row.token, row.holder) != (lease.token, lease.holder):
                    raise self._fenced_out(connection, lease)
                if row.expires_at <= now:
                    raise self._error(lease, f"expired at {row.expires_at.isoformat()}")

    def check_many_in(self, connection: Connection, held: Collection[Lease]) -> None:
        """Make sure, inside a write transaction, that leases are not taken over before the transaction ends.

        Expired leases pass unless they were taken over: that is impossible until the transaction ends.

        Raises:
            FencedOutError: one was taken over or released.
        """
        if not held:
            return
        wanted = key_rows(connection.dialect.name, _LEASE)
        is_wanted = and_(*(_T[name] == wanted.c[name] for name in _LEASE))
        statement = select(*(_T[name] for name in _LEASE)).join_from(wanted, leases, is_wanted)
        statement = statement.order_by(wanted.c[POSITION]).with_for_update(of=leases)
        still = {tuple(row) for row in connection.execute(statement, {KEY_ROWS: _render_leases(held)})}
        for lease in sorted(held, key=_place_of):
            if _place_of(lease) not in still:
                raise self._fenced_out(connection, lease)

    def _fenced_out(self, connection: Connection, lease: Lease) -> FencedOutError:
        row = connection.execute(_ROWS.select.where(*_is_of(lease))).one_or_none()
        if row is None:
            return self._error(lease, "was released")
        return self._error(lease, f"was taken over by {row.holder!r} with {row.token}")

    def _error(self, lease: Lease, reason: str) -> FencedOutError:
        return FencedOutError(
            database=self._database.name,
            entity=lease.entity,
            cluster=lease.cluster,
            nominal_time=lease.nominal_time,
            token=lease.token,
            reason=reason,
        )


def find_held(connection: Connection, keys: Collection[tuple[str, str, datetime]], now: datetime) -> list[Lease]:
    """Return the leases on some (entity, cluster, nominal time) keys that are held at `now`; for observers."""
    found = select_keys(connection, leases, _KEY, _ROWS.columns, keys, HAS_HOLDER, _T.expires_at > now)
    return list(map(_ROWS.load, found))


def find_leased(connection: Connection, entity: str, now: datetime) -> list[Lease]:
    """Return the leases on an entity that are held at `now`; for commands, not for ticks."""
    return _ROWS.find(connection, _ROWS.select.where(_T.entity == entity, HAS_HOLDER, _T.expires_at > now))


def _is_of(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return (_T.entity == lease.entity, _T.cluster == lease.cluster, _T.nominal_time == lease.nominal_time)


def _or_take_over(new: "sqlite.Insert | postgresql.Insert", now: datetime) -> ReturningInsert[Any]:
    is_same_holder = _T.holder == new.excluded.holder
    return new.on_conflict_do_update(
        index_elements=_KEY,
        set_={
            "token": case((is_same_holder, _T.token), else_=new.excluded.token),
            "holder": new.excluded.holder,
            "expires_at": new.excluded.expires_at,
        },
        where=or_(is_same_holder, and_(_T.expires_at <= now, _T.holder.is_not(None))),  # nobody gets the number's row
    ).returning(*_ROWS.columns)


def _next_token(connection: Connection) -> int:
    """Raise the number; nobody else does before the transaction ends."""
    new = build_insert(connection.dialect.name, leases).values(**_COUNTER, token=1)
    raised = new.on_conflict_do_update(index_elements=_KEY, set_={"token": _T.token + 1}).returning(_T.token)
    token: int = connection.execute(raised).scalar_one()
    return token


def _render_leases(held: Iterable[Lease]) -> str:
    return render_rows(sorted(map(_place_of, held)))


def _place_of(lease: Lease) -> tuple[str, str, datetime, int, str]:
    return (lease.entity, lease.cluster, lease.nominal_time, lease.token, lease.holder)
