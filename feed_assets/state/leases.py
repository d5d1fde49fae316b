"""Who may write an instance and until when; a token that only grows tells a late writer that he is not the one."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Connection,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    case,
    literal,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningInsert

from feed_assets.state.column_types import from_micros
from feed_assets.state.database import Database
from feed_assets.state.errors import FencedOutError, LeaseHeldError
from feed_assets.state.keyed import KEY_ROWS, POSITION, key_rows, render_rows
from feed_assets.state.records import Lease
from feed_assets.state.schema import HAS_HOLDER, leases
from feed_assets.state.upserts import build_insert

_T = leases.c
_KEY = ("entity", "cluster", "nominal_time")
_LEASE = (*_KEY, "token", "holder")
_LONG_AGO = from_micros(0)
_NOW: BindParameter[datetime] = bindparam("now", type_=_T.expires_at.type)
_IS_OF_IT = and_(
    _T.entity == bindparam("of_entity"), _T.cluster == bindparam("on_cluster"), _T.nominal_time == bindparam("at")
)
_IS_STILL = and_(_IS_OF_IT, _T.token == bindparam("with_token"), _T.holder == bindparam("of_holder"))
_SELECT_ONE = select(*leases.columns).where(_IS_OF_IT)
_RENEW = update(leases).where(_IS_STILL).returning(*leases.columns)
_GIVEN_BACK = {"holder": None, "expires_at": _LONG_AGO}


class Leases:
    """The leases of a database; each call without a connection is a transaction of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def acquire(
        self, entity: str, cluster: str, nominal_time: datetime, holder: str, now: datetime, ttl: timedelta
    ) -> Lease:
        """Take the lease on an instance until `now + ttl`.

        A lease that has expired or was released is taken over with the next token. The holder of a lease gets it again
        with its token, renewed; so `holder` must name one attempt of one worker, not a machine.

        Raises:
            LeaseHeldError: another holder has it.
        """
        values = {
            "entity": entity,
            "cluster": cluster,
            "nominal_time": nominal_time,
            "token": 1,
            "holder": holder,
            "expires_at": now + ttl,
        }
        with self._database.begin() as connection:
            statement = _acquire(connection.dialect.name)
            row = connection.execute(statement, values | {"now": now}).one_or_none()
            if row is not None:
                return _from_row(row)
            held = connection.execute(_SELECT_ONE, _parameters(entity, cluster, nominal_time)).one()
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
        """Take the leases on those of the (entity, cluster, nominal time) that can be had, by the rules of `acquire`.

        In one transaction of one statement; what another holder has is left out. In the order of the keys.
        """
        wanted = sorted(set(keys))
        if not wanted:
            return []
        parameters = {KEY_ROWS: render_rows(wanted), "holder": holder, "now": now, "expires_at": now + ttl}
        with self._database.begin() as connection:
            found = connection.execute(_acquire_many(connection.dialect.name), parameters)
            return sorted(map(_from_row, found), key=_place_of)

    def renew_many(self, held: Collection[Lease], now: datetime, ttl: timedelta) -> list[Lease]:
        """Those of the leases that are still ours, until `now + ttl`; by the rules of `renew`."""
        if not held:
            return []
        with self._database.begin() as connection:
            statement = _change_many(connection.dialect.name).returning(*leases.columns)
            found = connection.execute(statement, {KEY_ROWS: _render_leases(held), "expires_at": now + ttl})
            return sorted(map(_from_row, found), key=_place_of)

    def release_many(self, held: Collection[Lease]) -> None:
        """Give leases back, in one statement; those that are not ours any more stay as they are."""
        if not held:
            return
        with self._database.begin() as connection:
            connection.execute(_change_many(connection.dialect.name), {KEY_ROWS: _render_leases(held)} | _GIVEN_BACK)

    def renew(self, lease: Lease, now: datetime, ttl: timedelta) -> Lease:
        """The same lease until `now + ttl`; also one that has expired, as long as nobody has taken it over.

        Raises:
            FencedOutError: it was taken over or released.
        """
        with self._database.begin() as connection:
            row = connection.execute(_RENEW, _parameters_of(lease) | {"expires_at": now + ttl}).one_or_none()
            if row is None:
                raise self._fenced_out(connection, lease)
        return _from_row(row)

    def release(self, lease: Lease) -> None:
        """Give the lease back; does nothing if it is not ours any more."""
        self.release_many([lease])

    def release_all(self, connection: Connection, *holders: str) -> int:
        """Inside a write transaction, take back all that holders have; how many leases. For those that have died."""
        if not holders:
            return 0
        statement = _change_held_by(connection.dialect.name)
        return connection.execute(statement, {KEY_ROWS: render_rows(zip(holders))} | _GIVEN_BACK).rowcount

    def check(self, lease: Lease, now: datetime) -> None:
        """Make sure that the lease is ours at this moment; before an effect outside the database.

        Raises:
            FencedOutError: it was taken over or released, or has expired, so that it may be at any moment.
        """
        self.check_many([lease], now)

    def check_many(self, held: Collection[Lease], now: datetime) -> None:
        """As `check`, for many leases in one statement.

        Raises:
            FencedOutError: one of them is not ours.
        """
        if not held:
            return
        keys = {(lease.entity, lease.cluster, lease.nominal_time): lease for lease in held}
        with self._database.read() as connection:
            found = connection.execute(_select_many(connection.dialect.name), {KEY_ROWS: render_rows(keys)})
            rows = {(row.entity, row.cluster, row.nominal_time): row for row in map(_from_row, found)}
            for key, lease in keys.items():
                row = rows.get(key)
                if row is None or (row.token, row.holder) != (lease.token, lease.holder):
                    raise self._fenced_out(connection, lease)
                if row.expires_at <= now:
                    raise self._error(lease, f"expired at {row.expires_at.isoformat()}")

    def check_in(self, connection: Connection, lease: Lease) -> None:
        """Make sure inside a write transaction that nobody takes the lease over before the transaction ends.

        An expired lease passes if nobody has taken it over: nobody can until then.

        Raises:
            FencedOutError: it was taken over or released.
        """
        self.check_many_in(connection, [lease])

    def check_many_in(self, connection: Connection, held: Collection[Lease]) -> None:
        """As `check_in`, for many leases in one statement.

        Raises:
            FencedOutError: one of them was taken over or released.
        """
        if not held:
            return
        statement = _lock_many(connection.dialect.name)
        still = {tuple(row) for row in connection.execute(statement, {KEY_ROWS: _render_leases(held)})}
        for lease in sorted(held, key=_place_of):
            if _place_of(lease) not in still:
                raise self._fenced_out(connection, lease)

    def _fenced_out(self, connection: Connection, lease: Lease) -> FencedOutError:
        row = connection.execute(_SELECT_ONE, _parameters_of(lease)).one_or_none()
        if row is None:
            return self._error(lease, "is not known")
        if row.holder is None:
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
    """The leases on some (entity, cluster, nominal time) that somebody has at `now`; for people who look."""
    if not keys:
        return []
    statement = _select_held(connection.dialect.name)
    return [_from_row(row) for row in connection.execute(statement, {KEY_ROWS: render_rows(keys), "now": now})]


def find_holders(connection: Connection, holders: Collection[str], now: datetime) -> set[str]:
    """Which of the holders have a lease at `now`."""
    held = select(_T.holder).where(_T.holder.in_(holders), HAS_HOLDER, _T.expires_at > now)
    return {row.holder for row in connection.execute(held)}


@lru_cache
def _select_held(dialect: str) -> Select[Any]:
    return _select_many(dialect).where(HAS_HOLDER, _T.expires_at > _NOW)


@lru_cache
def _acquire(dialect: str) -> ReturningInsert[Any]:
    return _or_take_over(build_insert(dialect, leases))


@lru_cache
def _acquire_many(dialect: str) -> ReturningInsert[Any]:
    """In the order of the keys, so that two who want the same do not wait for each other in a circle."""
    wanted = key_rows(dialect, _KEY)
    rows = select(
        wanted.c.entity,
        wanted.c.cluster,
        wanted.c.nominal_time,
        literal(1, BigInteger),
        bindparam("holder", type_=Text),
        bindparam("expires_at", type_=_T.expires_at.type),
    )
    # SQLite takes the ON of "ON CONFLICT" for that of a join where nothing stands between.
    ordered = rows.where(true()).order_by(wanted.c[POSITION])
    return _or_take_over(build_insert(dialect, leases).from_select([*_KEY, "token", "holder", "expires_at"], ordered))


def _or_take_over(new: sqlite.Insert | postgresql.Insert) -> ReturningInsert[Any]:
    is_same_holder = _T.holder == new.excluded.holder
    return new.on_conflict_do_update(
        index_elements=_KEY,
        set_={
            "token": case((is_same_holder, _T.token), else_=_T.token + 1),
            "holder": new.excluded.holder,
            "expires_at": new.excluded.expires_at,
        },
        where=or_(is_same_holder, _T.holder.is_(None), _T.expires_at <= _NOW),
    ).returning(*leases.columns)


@lru_cache
def _change_many(dialect: str) -> Update:
    wanted = key_rows(dialect, _LEASE)
    return update(leases).where(*(_T[name] == wanted.c[name] for name in _LEASE))


@lru_cache
def _change_held_by(dialect: str) -> Update:
    wanted = key_rows(dialect, ("of_holder",))
    return update(leases).where(_T.holder == wanted.c.of_holder, HAS_HOLDER)


@lru_cache
def _select_many(dialect: str) -> Select[Any]:
    wanted = key_rows(dialect, _KEY)
    is_wanted = and_(
        _T.entity == wanted.c.entity, _T.cluster == wanted.c.cluster, _T.nominal_time == wanted.c.nominal_time
    )
    return select(*leases.columns).join_from(wanted, leases, is_wanted)


@lru_cache
def _lock_many(dialect: str) -> Select[Any]:
    wanted = key_rows(dialect, _LEASE)
    is_wanted = and_(*(_T[name] == wanted.c[name] for name in _LEASE))
    columns = (_T[name] for name in _LEASE)
    return select(*columns).join_from(wanted, leases, is_wanted).order_by(wanted.c[POSITION]).with_for_update(of=leases)


def _render_leases(held: Iterable[Lease]) -> str:
    return render_rows(sorted(map(_place_of, held)))


def _place_of(lease: Lease) -> tuple[str, str, datetime, int, str]:
    return (lease.entity, lease.cluster, lease.nominal_time, lease.token, lease.holder)


def _parameters(entity: str, cluster: str, nominal_time: datetime) -> dict[str, object]:
    return {"of_entity": entity, "on_cluster": cluster, "at": nominal_time}


def _parameters_of(lease: Lease) -> dict[str, object]:
    key = _parameters(lease.entity, lease.cluster, lease.nominal_time)
    return key | {"with_token": lease.token, "of_holder": lease.holder}


def _from_row(row: Sequence[Any]) -> Lease:
    entity, cluster, nominal_time, token, holder, expires_at = row
    return Lease(
        entity=entity, cluster=cluster, nominal_time=nominal_time, token=token, holder=holder, expires_at=expires_at
    )
