from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from feed_assets.log.leases import Leases
from feed_assets.log.records import Lease
from feed_assets.sql.database import Database
from feed_assets.sql.errors import FencedOutError, LeaseHeldError
from tests.log.samples import START, hour
from tests.log.workers import Team, acquire

pytestmark = pytest.mark.both_databases


MINUTE = timedelta(minutes=1)


def take(leases: Leases, holder: str, now: datetime = START) -> Lease:
    return leases.acquire("clicks", "primary", hour(0), holder, now, MINUTE)


def test_a_free_instance_is_leased_until_the_time_to_live_has_passed(database: Database) -> None:
    lease = take(Leases(database), "a")
    assert lease == Lease(
        entity="clicks", cluster="primary", nominal_time=hour(0), token=1, holder="a", expires_at=hour(0) + MINUTE
    )


def test_a_held_instance_is_refused_with_who_holds_it_and_until_when(database: Database) -> None:
    leases = Leases(database)
    take(leases, "run 7")
    with pytest.raises(LeaseHeldError, match=r"is leased by 'run 7' until 2024-01-01T00:01:00") as caught:
        take(leases, "run 8", hour(0) + MINUTE / 2)
    assert (caught.value.holder, caught.value.expires_at) == ("run 7", hour(0) + MINUTE)


def test_instances_and_clusters_are_leased_apart(database: Database) -> None:
    leases = Leases(database)
    take(leases, "a")
    assert leases.acquire("clicks", "backup", hour(0), "b", hour(0), MINUTE).holder == "b"
    assert leases.acquire("clicks", "primary", hour(1), "b", hour(0), MINUTE).holder == "b"


def test_an_expired_lease_is_taken_over_with_the_next_token(database: Database) -> None:
    leases = Leases(database)
    old = take(leases, "a")
    new = take(leases, "b", hour(0) + MINUTE)
    assert (new.token, new.holder) == (2, "b")
    with pytest.raises(FencedOutError, match=r"taken over by 'b' with 2"):
        leases.check_many([old], hour(0))
    assert leases.renew_many([old], hour(0), MINUTE) == []


def test_its_holder_gets_a_lease_again_with_its_token(database: Database) -> None:
    leases = Leases(database)
    first = take(leases, "a")
    again = take(leases, "a", hour(0) + MINUTE / 2)
    assert again == replace(first, expires_at=hour(0) + MINUTE * 1.5)


def test_a_renewed_lease_lasts_longer_even_if_it_had_expired(database: Database) -> None:
    leases = Leases(database)
    (lease,) = leases.renew_many([take(leases, "a")], hour(5), MINUTE)
    assert (lease.token, lease.expires_at) == (1, hour(5) + MINUTE)
    leases.check_many([lease], hour(5))
    with pytest.raises(LeaseHeldError):
        take(leases, "b", hour(5))


def test_the_token_grows_from_holder_to_holder_for_ever(database: Database) -> None:
    leases = Leases(database)
    tokens = []
    for turn in range(6):
        lease = take(leases, "ab"[turn % 2])
        tokens.append(lease.token)
        leases.release_many([lease])
    assert tokens == [1, 2, 3, 4, 5, 6]
    assert [take(leases, "c").token, take(leases, "c").token] == [7, 7]


def test_what_is_given_back_leaves_no_row_and_the_next_token_is_higher_than_any_before(database: Database) -> None:
    leases = Leases(database)
    others = leases.acquire_many([("clicks", "primary", hour(n)) for n in range(1, 4)], "b", hour(0), MINUTE)
    first = take(leases, "a")
    leases.release_many([*others, first])
    with database.read() as connection:
        assert connection.scalar(text("SELECT count(*) FROM fa_leases WHERE entity <> ''")) == 0
    (many,) = leases.acquire_many([("clicks", "primary", hour(0))], "c", hour(0), MINUTE)
    assert many.token > first.token > others[0].token
    with database.begin() as connection:
        assert leases.release_all(connection, "c") == 1
    assert take(leases, "d").token > many.token


def test_nobody_gets_the_row_of_the_rising_number(database: Database) -> None:
    leases, key = Leases(database), ("", "", datetime(1970, 1, 1, tzinfo=UTC))
    first = take(leases, "a")
    with pytest.raises(LeaseHeldError):
        leases.acquire(*key, "a", hour(0), MINUTE)
    assert leases.acquire_many([key], "a", hour(0), MINUTE) == []
    with database.begin() as connection:
        assert leases.release_all(connection, "a") == 1
    assert take(leases, "b").token > first.token


def test_releasing_a_lease_that_is_no_longer_ours_does_nothing(database: Database) -> None:
    leases = Leases(database)
    old = take(leases, "a")
    new = take(leases, "b", hour(1))
    leases.release_many([old])
    leases.release_many([old])
    leases.check_many([new], hour(1))


def test_what_a_dead_holder_has_is_free_at_once_and_he_is_fenced_out(database: Database) -> None:
    leases = Leases(database)
    dead = take(leases, "dead")
    other = leases.acquire("clicks", "backup", hour(0), "alive", hour(0), MINUTE)
    with database.begin() as connection:
        assert leases.release_all(connection, "dead") == 1
    assert take(leases, "next").token > dead.token
    leases.check_many([other], hour(0))
    with pytest.raises(FencedOutError, match="taken over by 'next'"):
        leases.check_many([dead], hour(0))


def test_what_several_dead_holders_have_is_free_at_once(database: Database) -> None:
    leases = Leases(database)
    held = [leases.acquire("clicks", "primary", hour(n), f"holder {n % 3}", START, MINUTE) for n in range(6)]
    with database.begin() as connection:
        assert leases.release_all(connection) == 0
        assert leases.release_all(connection, "holder 0", "holder 2", "nobody") == 4
    leases.check_many([lease for lease in held if lease.holder == "holder 1"], START)
    for lease in held:
        if lease.holder != "holder 1":
            with pytest.raises(FencedOutError, match="was released"):
                leases.check_many([lease], START)


def test_of_many_leases_every_one_is_checked(database: Database) -> None:
    leases = Leases(database)
    held = [leases.acquire("clicks", "primary", hour(n), "a", START, MINUTE * (n + 1)) for n in range(3)]
    leases.check_many(held, START)
    leases.check_many([], START)
    with pytest.raises(FencedOutError, match="expired at 2024-01-01T00:01:00"):
        leases.check_many(held, START + MINUTE)
    leases.release_many([held[2]])
    with pytest.raises(FencedOutError, match="was released"):
        leases.check_many(held, START)


def test_a_check_fails_for_a_lease_that_was_released_has_expired_or_never_was(database: Database) -> None:
    leases = Leases(database)
    lease = take(leases, "a")
    leases.check_many([lease], hour(0))
    with pytest.raises(FencedOutError, match="expired at 2024-01-01T00:01:00"):
        leases.check_many([lease], hour(0) + MINUTE)
    leases.release_many([lease])
    with pytest.raises(FencedOutError, match="was released"):
        leases.check_many([lease], hour(0))
    with pytest.raises(FencedOutError, match="was released"):
        leases.check_many([replace(lease, entity="never")], hour(0))


def test_a_transaction_is_guarded_by_the_lease(database: Database) -> None:
    leases = Leases(database)
    old = take(leases, "a")
    with database.begin() as connection:
        leases.check_many_in(connection, [old])
    new = take(leases, "b", hour(1))
    with database.begin() as connection:
        leases.check_many_in(connection, [new])
        with pytest.raises(FencedOutError, match=r"lease 1 on 'clicks' on 'primary'"):
            leases.check_many_in(connection, [old])


def test_nobody_takes_a_lease_over_while_a_transaction_is_guarded_by_it(database: Database, database_url: str) -> None:
    leases = Leases(database)
    lease = leases.acquire("clicks", "primary", hour(0), "a", hour(-9), MINUTE)
    with database.begin() as connection:
        leases.check_many_in(connection, [lease])
        team = Team(acquire, database_url, 1)
        team.wait_until_begun()
        leases.check_many_in(connection, [lease])
    assert team.results() == [2]


def test_of_workers_that_race_for_a_lease_one_gets_it(database: Database, database_url: str) -> None:
    results = Team(acquire, database_url, 4).results()
    winners = [number for number, result in enumerate(results) if result == 1]
    assert len(winners) == 1
    assert [result for result in results if result != 1] == [f"worker {winners[0]}"] * 3


def test_of_workers_that_race_to_take_a_lease_over_one_gets_it(database: Database, database_url: str) -> None:
    Leases(database).acquire("clicks", "primary", hour(0), "dead", hour(-9), MINUTE)
    results = Team(acquire, database_url, 4).results()
    assert results.count(2) == 1
    assert all(str(result).startswith("worker ") for result in results if result != 2)
