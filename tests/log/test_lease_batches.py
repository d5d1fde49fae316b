"""Many leases at once, by the rules of one."""

from datetime import timedelta

import pytest

from feed_assets.log.leases import Leases
from feed_assets.log.records import Lease
from feed_assets.sql.database import Database
from feed_assets.sql.errors import FencedOutError, LeaseHeldError
from tests.log.samples import START, hour
from tests.log.workers import LEASES, Team, acquire_some

pytestmark = pytest.mark.both_databases


MINUTE = timedelta(minutes=1)
KEYS = [("clicks", "primary", hour(n)) for n in range(4)]


def hours_of(leases: list[Lease]) -> list[int]:
    return [int((lease.nominal_time - START).total_seconds() // 3600) for lease in leases]


def test_the_leases_that_can_be_had_are_taken_as_one_would_be(database: Database) -> None:
    leases = Leases(database)
    leases.acquire(*KEYS[0], "a", hour(0), MINUTE)
    leases.acquire(*KEYS[1], "b", hour(0), MINUTE)
    leases.acquire(*KEYS[2], "b", hour(-1), MINUTE)
    got = leases.acquire_many([*reversed(KEYS), KEYS[3]], "a", hour(0), 2 * MINUTE)
    assert hours_of(got) == [0, 2, 3]
    assert [lease.token for lease in got] == [1, 4, 4]
    assert {(lease.holder, lease.expires_at) for lease in got} == {("a", hour(0) + 2 * MINUTE)}
    assert leases.acquire_many([], "a", hour(0), MINUTE) == []
    assert leases.acquire_many(KEYS[1:2], "a", hour(0), MINUTE) == []


def test_many_are_renewed_and_given_back_where_they_are_still_ours(database: Database) -> None:
    leases = Leases(database)
    got = leases.acquire_many(KEYS, "a", hour(0), MINUTE)
    leases.acquire(*KEYS[1], "b", hour(1), MINUTE)
    leases.release_many([got[2]])
    renewed = leases.renew_many(got, hour(1), MINUTE)
    assert hours_of(renewed) == [0, 3]
    assert {lease.expires_at for lease in renewed} == {hour(1) + MINUTE}
    assert leases.renew_many([], hour(1), MINUTE) == []
    leases.release_many(got)
    leases.release_many([])
    assert hours_of(leases.acquire_many(KEYS, "c", hour(1), MINUTE)) == [0, 2, 3]
    with pytest.raises(LeaseHeldError, match="'b'"):
        leases.acquire(*KEYS[1], "c", hour(1), MINUTE)


def test_a_transaction_is_guarded_by_all_of_its_leases(database: Database) -> None:
    leases = Leases(database)
    got = leases.acquire_many(KEYS, "a", hour(0), MINUTE)
    with database.begin() as connection:
        leases.check_many_in(connection, got)
        leases.check_many_in(connection, [])
    leases.acquire(*KEYS[1], "b", hour(1), MINUTE)
    with database.begin() as connection:
        leases.check_many_in(connection, [got[0], *got[2:]])
        with pytest.raises(FencedOutError, match=r"01:00:00\+00:00 was taken over by 'b' with 2"):
            leases.check_many_in(connection, got)


def test_of_workers_that_want_the_same_leases_each_is_had_by_one(database: Database, database_url: str) -> None:
    results = Team(acquire_some, database_url, 4).results()
    assert sorted(n for hours in results for n in hours) == sorted(range(LEASES))
