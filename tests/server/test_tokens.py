"""Tokens of a server: what is kept of them, and when they end."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from feed_assets.context.errors import VerbRefusedError
from feed_assets.errors import WrongUsageError
from feed_assets.log.audit import Audit
from feed_assets.operation import Does
from feed_assets.server.identity.tokens import Token, Tokens, create_token, revoke_token
from feed_assets.sql.database import Database
from tests.cli.project import must, run
from tests.instances.harness import at
from tests.projects import enter

NOW = at("03T12:00")
HOUR = timedelta(hours=1)


def make(
    database: Database, name: str = "loader", *may: Does, until: timedelta | None = None, dry_run: bool = False
) -> str:
    end = None if until is None else NOW + until
    made = create_token(database, name, may or (Does.READS,), end, author="ann", now=NOW, dry_run=dry_run)
    return made.bearer or ""


def find(database: Database, token: str) -> Token | None:
    with database.read() as connection:
        return Tokens(connection).find(token)


@pytest.mark.both_databases
def test_of_a_token_only_a_digest_is_kept(database: Database) -> None:
    token = make(database, "loader", Does.NOTIFIES, Does.READS, until=HOUR)
    assert re.fullmatch("fa_[0-9a-f]{64}", token)
    kept = find(database, token)
    assert kept is not None
    assert (kept.name, kept.may, kept.author) == ("loader", (Does.READS, Does.NOTIFIES), "ann")
    assert (kept.is_valid(NOW), kept.is_valid(NOW + HOUR)) == (True, False)
    assert find(database, f"{token[:-1]}{'1' if token[-1] == '0' else '0'}") is None
    with database.read() as connection:
        rows = (
            connection.execute(text("SELECT * FROM fa_tokens")).all()
            + connection.execute(text("SELECT * FROM fa_audit")).all()
        )
    assert token not in repr(rows)


@pytest.mark.both_databases
def test_a_token_ends_at_once_and_its_name_is_free_again(database: Database) -> None:
    token = make(database)
    with pytest.raises(VerbRefusedError, match=r"the token of 'loader': it is valid\. Choose another name"):
        make(database)
    revoke_token(database, "loader", author="bob", now=NOW + HOUR, dry_run=False)
    kept = find(database, token)
    assert kept is not None
    assert (kept.is_valid(NOW), kept.revoked_at, kept.revoked_by) == (False, NOW + HOUR, "bob")
    with pytest.raises(VerbRefusedError, match="it is revoked already"):
        revoke_token(database, "loader", author="bob", now=NOW, dry_run=False)
    with pytest.raises(VerbRefusedError, match="it does not exist"):
        revoke_token(database, "nobody", author="bob", now=NOW, dry_run=False)
    assert make(database) != token
    assert find(database, token) is None
    with database.read() as connection:
        told = [(each.author, each.action, each.target) for each in Audit(connection).newest(9)]
    assert told[::-1] == [
        ("ann", "token create", "token loader"),
        ("bob", "token revoke", "token loader"),
        ("ann", "token create", "token loader"),
    ]


def test_a_dry_run_makes_and_ends_nothing(database: Database) -> None:
    assert make(database, dry_run=True) == ""
    token = make(database)
    assert revoke_token(database, "loader", author="ann", now=NOW, dry_run=True).revoked_at == NOW
    kept = find(database, token)
    assert kept is not None
    assert kept.is_valid(NOW)


@pytest.mark.parametrize(
    ("name", "may", "until", "told"),
    [
        ("", (Does.READS,), None, "'' is no name of a token"),
        ("a\nb", (Does.READS,), None, "is no name of a token"),
        ("Feed-Assets", (Does.READS,), None, "neither feed-assets nor unknown"),
        ("loader", (), None, "may nothing. Give it one of reads, notifies"),
        ("loader", (Does.READS,), timedelta(0), "would have expired. Give a time after 2013-11-03T12:00Z"),
    ],
)
def test_what_is_wrong_is_refused(
    database: Database, name: str, may: tuple[Does, ...], until: timedelta | None, told: str
) -> None:
    end = None if until is None else NOW + until
    with pytest.raises(WrongUsageError, match=told):
        create_token(database, name, may, end, author="ann", now=NOW, dry_run=False)


def test_a_token_is_shown_once_and_hidden_everywhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(tmp_path, monkeypatch)
    monkeypatch.setenv("FEED_ASSETS_STATE", f"sqlite:///{tmp_path}/state.db")
    made = must("token", "create", "loader", "--may", "reads,acts")
    token = made.stdout.strip()
    assert re.fullmatch("fa_[0-9a-f]{64}", token)
    assert "'loader' may reads, acts, until it is revoked." in made.stderr
    listed = must("token", "list")
    assert ("fa_" in listed.output, listed.stderr) == (False, "")
    other = must("token", "create", "other", "--may", "reads").stdout.strip()
    assert "the token of 'fa_***': it does not exist" in run("token", "revoke", token).stderr
    told = [run("token", "revoke", "other", *words).stderr for words in (["--dry-run"], [], ["--dry-run"])]
    assert told[:2] == ["would end the token of 'other'\n", "ended the token of 'other'\n"]
    assert "it is revoked already" in told[2]
    assert other != token
    assert run("token", "create", "third", "--may", "reads,everything").exit_code == 2
    with_groups = must("token", "create", "third", "--may", "reads", "--groups", "etl, Data Team,etl")
    assert "'third' may reads as one of etl, Data Team, until it is revoked." in with_groups.stderr
    assert '"etl, Data Team"' in must("token", "list", "--output", "csv").stdout
    assert "groups: etl, Data Team" in must("admin", "audit").stdout
    wrong = run("token", "create", "fourth", "--may", "reads", "--groups", "a\nb")
    assert (wrong.exit_code, "is no name of a group" in wrong.stderr) == (2, True)
