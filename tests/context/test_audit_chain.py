"""The chain of the audit: what was changed by hand is named, and what people and the clean-up do is not."""

import json
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from feed_assets.clock import TimeBudget
from feed_assets.context import audit_chain
from feed_assets.context.audit_chain import ChainFault, ChainProof, apply_audit_chain, verify_chain
from feed_assets.errors import SettingsError
from feed_assets.log.audit import Audit
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.retention.cleanup import KeepingTimes, Leftover, apply_state_cleanup
from feed_assets.retention.rules.clock_witness import note_clock
from feed_assets.setting_sections import CleanupSettings
from feed_assets.settings import Settings
from feed_assets.sql.database import Database
from tests.instances.harness import LifecycleHarness
from tests.log.samples import hour

pytestmark = pytest.mark.both_databases

SECRET, OTHER = "correct horse battery", "staple battery horse"
KEYED = Settings.model_validate({"audit": {"secret": SECRET}})


@pytest.fixture
def lifecycle(tmp_path: Path, state_url: str, monkeypatch: pytest.MonkeyPatch) -> LifecycleHarness:
    monkeypatch.setattr(audit_chain.ChainHandler, "at_once", 4)
    monkeypatch.setattr(audit_chain, "_READ_AT_ONCE", 3)
    return LifecycleHarness.of(tmp_path, state=state_url)


def write(database: Database, *targets: str | None, at: int = 0) -> None:
    entries = [
        AuditEntry(recorded_at=hour(at), author="änn", action="touch", target=each, details={"a": [1, None]})
        for each in targets
    ]
    with database.begin() as connection:
        Audit(connection).append_many(entries)


def chain(lifecycle: LifecycleHarness, settings: Settings = KEYED) -> None:
    apply_audit_chain(lifecycle.open_tick(hour(9)), settings.audit)


def verify(database: Database, settings: Settings = KEYED) -> ChainProof:
    return verify_chain(database, settings.audit, lambda *_: None)


def run(database: Database, *statements: str) -> None:
    with database.begin() as connection:
        for each in statements:
            connection.execute(text(each))


def broken(database: Database, settings: Settings = KEYED) -> list[tuple[int, int, ChainFault]]:
    return [(each.first, each.last, each.fault) for each in verify(database, settings).faults]


@pytest.fixture
def chained(lifecycle: LifecycleHarness) -> LifecycleHarness:
    """Rows 1 to 10, and 11, which says that the chain has begun."""
    write(lifecycle.database, *["feed 'clicks'", "feed/clicks/column/user", "process/clicks@east", None, "x"] * 2)
    chain(lifecycle)
    assert verify(lifecycle.database).summary.startswith("rows 1 to 11 are chained, all as they were written; 0 not")
    return lifecycle


CHANGES = {
    **{
        column: (f"UPDATE fa_audit SET {column} = {value} WHERE seq = 5", [(5, 5, ChainFault.CHANGED)])
        for column, value in (
            ("author", "'eve'"),
            ("action", "'x'"),
            ("target", "NULL"),
            ("details", "NULL"),
            ("recorded_at", "recorded_at + 1"),
        )
    },
    "removed": ("DELETE FROM fa_audit WHERE seq IN (4, 5)", [(4, 5, ChainFault.MISSING)]),
    "first": ("DELETE FROM fa_audit WHERE seq <= 2", [(1, 2, ChainFault.MISSING)]),
    "last": ("DELETE FROM fa_audit WHERE seq >= 10", [(10, 11, ChainFault.MISSING)]),
    "all": ("DELETE FROM fa_audit", [(1, 11, ChainFault.MISSING)]),
    "inserted": (
        "INSERT INTO fa_audit (seq, recorded_at, author, action) VALUES (0, 0, 'eve', 'x')",
        [(0, 0, ChainFault.INSERTED)],
    ),
    "inserted before all": (
        "INSERT INTO fa_audit (seq, recorded_at, author, action) VALUES (-9223372036854775808, 0, 'eve', 'x')",
        [(-(2**63), 0, ChainFault.INSERTED)],
    ),
    "blob": ("UPDATE fa_audit SET author = x'ff00' WHERE seq = 5", [(5, 5, ChainFault.CHANGED)]),
    "replaced": ("UPDATE fa_audit SET action = 'x', digest = NULL WHERE seq = 5", [(5, 5, ChainFault.INSERTED)]),
    "digest": (
        "UPDATE fa_audit SET digest = (SELECT digest FROM fa_audit WHERE seq = 2) WHERE seq = 5",
        [(5, 6, ChainFault.CHANGED)],
    ),
    "foreign": ("UPDATE fa_audit SET digest = '0:1' WHERE seq = 11", [(11, 11, ChainFault.CHANGED)]),
    "moved": (
        "UPDATE fa_audit SET seq = 12 WHERE seq = 5",
        [(5, 5, ChainFault.MISSING), (12, 12, ChainFault.INSERTED)],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_row_that_was_changed_by_hand_is_named(chained: LifecycleHarness, change: str) -> None:
    statement, faults = CHANGES[change]
    run(chained.database, statement)
    assert broken(chained.database) == faults
    assert verify(chained.database).has_failed


def test_rows_wait_for_the_next_tick_and_nothing_is_chained_without_a_secret(lifecycle: LifecycleHarness) -> None:
    write(lifecycle.database, "a")
    chain(lifecycle, Settings())
    assert verify(lifecycle.database, Settings()).summary == "nothing is chained: the settings have no audit.secret"
    assert verify(lifecycle.database).summary == "no row is chained; 1 not yet chained, which ticks do"
    chain(lifecycle)
    write(lifecycle.database, "b", "c")
    proof = verify(lifecycle.database)
    assert (proof.first, proof.last, proof.waiting, proof.faults) == (1, 2, 2, ())
    with pytest.raises(SettingsError, match=r"audit\.secret.*it is missing, but the audit is chained"):
        verify(lifecycle.database, Settings())


def test_another_secret_is_an_error_and_goes_on_beside_the_former_one(chained: LifecycleHarness) -> None:
    alone = Settings.model_validate({"audit": {"secret": OTHER}})
    both = Settings.model_validate({"audit": {"secret": OTHER, "former_secret": SECRET}})
    with pytest.raises(SettingsError, match="it is not the one that has chained the audit"):
        verify(chained.database, alone)
    write(chained.database, "later")
    with pytest.raises(SettingsError):
        chain(chained, alone)
    chain(chained, both)
    assert (verify(chained.database, both).last, broken(chained.database, both)) == (12, [])
    assert broken(chained.database, alone) == [(1, 11, ChainFault.CHANGED)]


def test_a_short_secret_and_one_that_the_environment_lacks_are_named(lifecycle: LifecycleHarness) -> None:
    for secret, reason in (("short", "fewer than 16"), ("${env:NOT_THERE}", "the environment has no NOT_THERE")):
        with pytest.raises(SettingsError, match=rf"'audit\.secret': .*{reason}"):
            verify(lifecycle.database, Settings.model_validate({"audit": {"secret": secret}}))


@pytest.mark.parametrize("forged", [["x"], [], [0, "", 5, ""], [0, "", 5, "", 7]])
def test_a_forged_record_of_the_chain_is_refused(chained: LifecycleHarness, forged: list[object]) -> None:
    with chained.database.begin() as connection:
        cursors = Cursors(connection)
        *_, seal = json.loads(cursors.get("audit/chain") or "")
        cursors.put("audit/chain", json.dumps([*forged, seal] if len(forged) == 4 else forged))
    for use in (lambda: verify(chained.database), lambda: chain(chained)):
        with pytest.raises(SettingsError, match="changed by hand"):
            use()


def test_a_chain_without_its_record_does_not_begin_anew(chained: LifecycleHarness) -> None:
    run(chained.database, "DELETE FROM fa_cursors WHERE name = 'audit/chain'")
    assert broken(chained.database) == [(1, 11, ChainFault.INSERTED)]
    with pytest.raises(SettingsError, match="the record of the chain was removed by hand"):
        chain(chained)


def clean(database: Database, settings: Settings = KEYED) -> int:
    now, times = hour(0) + timedelta(days=400), KeepingTimes.of(CleanupSettings())
    with database.begin() as connection:
        note_clock(connection, "primary", now)
    dry, done = (
        next(
            each.count
            for each in apply_state_cleanup(
                database, {}, times, now, TimeBudget.ample(), audit=settings.audit, dry_run=dry_run
            )
            if each.leftover is Leftover.AUDIT
        )
        for dry_run in (True, False)
    )
    assert dry == done
    return done


def test_the_clean_up_leaves_an_anchor_and_what_is_not_chained(chained: LifecycleHarness) -> None:
    write(chained.database, "waits", "waits", at=1)
    assert clean(chained.database) == 11
    proof = verify(chained.database)
    assert (proof.first, proof.last, proof.waiting, proof.faults) == (12, 11, 2, ())
    chain(chained)
    assert (verify(chained.database).last, broken(chained.database)) == (13, [])
    run(chained.database, "UPDATE fa_audit SET author = 'eve' WHERE seq = 12")
    assert broken(chained.database) == [(12, 12, ChainFault.CHANGED)]


def test_a_clean_up_without_the_secret_or_with_another_removes_nothing(chained: LifecycleHarness) -> None:
    assert clean(chained.database, Settings.model_validate({"audit": {"secret": OTHER}})) == 0
    assert (clean(chained.database, Settings()), broken(chained.database)) == (0, [])


def test_who_write_and_chain_at_once_make_one_chain(lifecycle: LifecycleHarness) -> None:
    def work(number: int) -> None:
        for place in range(10):
            chain(lifecycle) if number % 2 else write(lifecycle.database, f"{number}/{place}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    chain(lifecycle)
    proof = verify(lifecycle.database)
    assert (proof.first, proof.last, proof.waiting, proof.faults) == (1, 21, 0, ())


def test_a_row_of_an_open_transaction_is_behind_no_chained_one(lifecycle: LifecycleHarness) -> None:
    if lifecycle.database.dialect == "sqlite":
        return  # who writes is alone there
    write(lifecycle.database, "first")
    entry = AuditEntry(recorded_at=hour(0), author="ann", action="slow")
    with ThreadPoolExecutor(1) as pool:
        with lifecycle.database.begin() as connection:
            slow = Audit(connection).append(entry)
            other = pool.submit(write, lifecycle.database, "second")  # waits for the lock of the audit
            assert wait([other], timeout=0.5).not_done
            assert verify(lifecycle.database).waiting == 1
        other.result()
    chain(lifecycle)
    with lifecycle.database.read() as connection:
        assert [each.action for each in reversed(Audit(connection).newest(3))] == ["slow", "touch", "audit chain"]
    proof = verify(lifecycle.database)
    assert (slow, proof.last, proof.faults) == (2, 4, ())


@pytest.mark.parametrize(
    "change", ["recorded_at = recorded_at - 1", "digest = NULL", "digest = (SELECT digest FROM fa_audit WHERE seq = 2)"]
)
def test_a_clean_up_removes_nothing_that_was_changed_nor_what_is_behind(
    chained: LifecycleHarness, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(chained.database, f"UPDATE fa_audit SET {change} WHERE seq = 5")
    found = broken(chained.database)
    assert (clean(chained.database), clean(chained.database), broken(chained.database)) == (4, 0, found)
    assert "from row 5 on the audit stays" in caplog.text
