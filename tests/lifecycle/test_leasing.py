import time
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.clock import FrozenClock, SystemClock
from feed_assets.errors import FencedOutError, LeaseHeldError
from feed_assets.lifecycle.leasing import TTL, Leased
from feed_assets.state.leases import Leases
from tests.lifecycle.world import START, World


def test_a_lease_is_renewed_while_the_work_goes_on_and_given_back_after_it(tmp_path: Path) -> None:
    database, short = World.of(tmp_path).database, timedelta(seconds=0.6)
    clock = SystemClock()
    with Leased(database, clock, holder="first", cluster="c", ttl=short) as leased:
        leased.acquire("process/p", START)
        time.sleep(1.0)
        leased.check()
        with pytest.raises(LeaseHeldError):
            Leases(database).acquire("process/p", "c", START, "second", clock.now(), short)
    assert Leases(database).acquire("process/p", "c", START, "second", clock.now(), short).token == 2


def test_losing_one_of_several_leases_is_losing(tmp_path: Path) -> None:
    database, clock = World.of(tmp_path).database, FrozenClock(START)
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
    database = World.of(tmp_path).database
    with Leased(database, FrozenClock(START), holder="first", cluster="c") as leased:
        lease = leased.acquire("process/p", START)
        with pytest.raises(FencedOutError, match="expired"):
            Leases(database).check(lease, START + TTL)
