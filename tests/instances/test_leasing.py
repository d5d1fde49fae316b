import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.clock import Clock, FrozenClock, SystemClock
from feed_assets.instances.leasing import TTL, Leased
from feed_assets.log.leases import Leases
from feed_assets.sql.errors import FencedOutError, LeaseHeldError
from tests.instances.harness import START, LifecycleHarness


@dataclass(slots=True)
class SetClock(Clock):
    """A clock that somebody sets."""

    at: datetime

    def now(self) -> datetime:
        return self.at


def test_a_lease_is_renewed_while_the_work_goes_on_and_given_back_after_it(tmp_path: Path) -> None:
    database, short = LifecycleHarness.of(tmp_path).database, timedelta(seconds=0.6)
    clock = SystemClock()
    with Leased(database, clock, holder="first", cluster="c", ttl=short) as leased:
        leased.acquire("process/p", START)
        time.sleep(1.0)
        leased.check()
        with pytest.raises(LeaseHeldError):
            Leases(database).acquire("process/p", "c", START, "second", clock.now(), short)
    assert Leases(database).acquire("process/p", "c", START, "second", clock.now(), short).token > 1


def test_losing_one_of_several_leases_is_losing(tmp_path: Path) -> None:
    database, clock = LifecycleHarness.of(tmp_path).database, FrozenClock(START)
    with Leased(database, clock, holder="first", cluster="c") as leased:
        leased.acquire("process/p", START)
        leased.acquire("feed/f", START)
        leased.check()
        Leases(database).acquire("feed/f", "c", START, "second", START + 2 * TTL, TTL)
        with pytest.raises(FencedOutError):
            leased.check()
        with pytest.raises(FencedOutError), database.begin() as connection:
            leased.check_in(connection)


def test_a_lease_that_ran_out_is_lost_even_if_nobody_took_it(tmp_path: Path) -> None:
    database = LifecycleHarness.of(tmp_path).database
    with Leased(database, FrozenClock(START), holder="first", cluster="c") as leased:
        lease = leased.acquire("process/p", START)
        with pytest.raises(FencedOutError, match="expired"):
            Leases(database).check_many([lease], START + TTL)


@pytest.mark.parametrize("step", [timedelta(days=3), -timedelta(days=3)])
def test_a_lease_outlives_that_somebody_sets_the_clock(tmp_path: Path, step: timedelta) -> None:
    database, clock = LifecycleHarness.of(tmp_path).database, SetClock(START)
    with Leased(database, clock, holder="first", cluster="c") as leased:
        leased.acquire("process/p", START)
        clock.at += step
        leased.check()
        with pytest.raises(LeaseHeldError):
            Leases(database).acquire("process/p", "c", START, "second", clock.now(), TTL)
        leased.check()


def test_who_slept_while_his_lease_was_taken_away_has_lost_it(tmp_path: Path) -> None:
    database, clock = LifecycleHarness.of(tmp_path).database, SetClock(START)
    with Leased(database, clock, holder="first", cluster="c") as leased:
        leased.acquire("process/p", START)
        clock.at += TTL
        with database.begin() as connection:
            Leases(database).release_all(connection, "first")
        with pytest.raises(FencedOutError, match="released"):
            leased.check()
