"""`doAs`: who may ask on behalf of whom, with which rights, and what is recorded of it."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from feed_assets.log.audit import Audit
from feed_assets.operation import Does
from feed_assets.server.application import build_application
from feed_assets.server.guard import Guard
from feed_assets.server.identity.callers import MOST_REFUSED, Keeper
from feed_assets.server.identity.tokens import create_token
from feed_assets.server.records import Address
from feed_assets.setting_sections import ServerSettings
from feed_assets.settings import Settings, load_settings
from feed_assets.sql.database import Database
from tests.cli.project import must, run
from tests.documents.shell import commands_of
from tests.server.project import listen, open_project
from tests.server.test_guard import LIST, NOW, RERUN, Server, make, server

__all__ = ["server"]
ALLOWED = {
    "loader": {"hosts": ["10.0.0.0/8", "127.0.0.1"], "groups": ["etl"], "users": ["eve"]},
    "anyone": {"hosts": ["*"], "groups": ["*"]},
    "nowhere": {"hosts": [], "users": ["*"]},
}


@pytest.fixture
def asker(server: Server) -> dict[str, str]:
    """The header of the user who may ask for eve, and for members of etl: ann is one, bob is none."""
    server.server = ServerSettings.model_validate({"proxy_users": ALLOWED})
    make(server, Does.READS, Does.ACTS, Does.DECLARES, name="ann", groups=("etl", "ops"))
    make(server, Does.READS, name="bob", groups=("ops",))
    make(server, Does.READS, until=timedelta(0), name="expired", groups=("etl",))
    return make(server, Does.READS, Does.ACTS, name="loader")


def test_row_135_it_is_done_in_the_name_of_another_by_who_may(server: Server, asker: Mapping[str, str]) -> None:
    for client in ("127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3"):
        assert server.ask(f"{LIST}?doAs=ann", asker, client=client, scheme="https").authors == ["ann via loader"]
    assert server.ask(f"{RERUN}?doAs=ann", asker, method="POST").authors == ["ann via loader"]
    assert server.ask(f"{LIST}?a=%41&d%6FAs=eve&b", asker).queries == [b"a=%41&b"]
    assert server.ask("/api/entities/status/feed/a?doAs=ann&user.name=bob", asker).queries == [b"user.name=bob"]
    other = make(server, Does.READS, name="anyone")
    assert server.ask(f"{LIST}?doAs=joe+doe", other, client="192.0.2.1", scheme="https").authors == [
        "joe doe via anyone"
    ]


def test_the_rights_are_those_of_the_named_person_limited_by_the_token_of_who_asks(
    server: Server, asker: Mapping[str, str]
) -> None:
    found = server.ask(f"{LIST}?doAs=ann", asker).principals[0]
    assert (found.groups, found.may, found.asked_by) == (frozenset({"etl", "ops"}), (Does.READS, Does.ACTS), "loader")
    refused = server.ask("/api/v1/plan?doAs=ann", asker, method="POST")
    assert refused.told["detail"] == "This needs the right declares; 'ann via loader' has reads, acts."
    server.server = ServerSettings.model_validate({"proxy_users": {"loader": {"hosts": ["*"], "users": ["*"]}}})
    assert server.ask(f"{LIST}?doAs=bob", asker).principals[0].may == (Does.READS,)  # no more than bob's own token
    assert server.ask(f"{RERUN}?doAs=bob", asker, method="POST").status == 403
    nobody = server.ask(f"{LIST}?doAs=nobody", asker).principals[0]
    assert (nobody.groups, nobody.may) == (frozenset(), (Does.READS, Does.ACTS))


@pytest.mark.both_databases
def test_everything_else_is_refused_with_a_sentence_and_audited(server: Server, asker: Mapping[str, str]) -> None:
    nowhere = make(server, *Does, name="nowhere")
    ann = make(server, *Does, name="ann2")
    for headers, name, client, told in (
        (asker, "bob", "127.0.0.1", "'loader' may not ask on behalf of 'bob'."),
        (asker, "expired", "127.0.0.1", "'expired'. Nobody of this name has a valid token or is logged in"),
        (asker, "nobody", "127.0.0.1", "'nobody'. Nobody of this name has a valid token or is logged in"),
        (asker, "EVE", "127.0.0.1", "'loader' may not ask on behalf of 'EVE'."),
        (asker, "ann", "192.0.2.1", "'loader' may not ask on behalf of others from 192.0.2.1."),
        (nowhere, "ann", "127.0.0.1", "'nowhere' may not ask on behalf of others from 127.0.0.1."),
        (ann, "loader", "127.0.0.1", "'ann2' may not ask on behalf of others."),
    ):
        refused = server.ask(f"{LIST}?doAs={name}", headers, client=client, scheme="https")
        assert (refused.status, refused.let_in, told in refused.told["detail"]) == (403, [], True), refused.told
        with server.database.read() as connection:
            entry = Audit(connection).newest(1)[0]
        assert (repr(entry.author) in told or entry.author == "loader", entry.action) == (True, "do as")
        assert (entry.details["from"], str(entry.details["refused"]) in refused.told["detail"]) == (client, True)


def test_on_behalf_of_oneself_is_as_always_and_nobody_is_no_name(server: Server, asker: Mapping[str, str]) -> None:
    assert server.ask(f"{LIST}?doAs=loader", asker).authors == ["loader"]
    for query in ("doAs=", "doAs", "doAs=%20", "doAs=ann&doAs=ann", "doAs=ann&doAs=loader", "doAs=a,b", "doAs=a%0Ab"):
        refused = server.ask(f"{LIST}?{query}", asker)
        assert (refused.status, refused.told["detail"]) == (400, "doAs is one name, of whom it is asked for."), query
    for query in ("doAs=a+via+b", "doAs=%ff", f"doAs={'a' * 201}"):
        assert server.ask(f"{LIST}?{query}", asker).status == 400
    assert server.ask(f"{LIST}?doAs=ann").status == 401  # who asks has to say so first
    page = server.ask("/ui?doAs=ann", asker)
    assert (page.status, page.told["detail"]) == (400, "Pages are for who looks at them: leave doAs out.")


def test_who_asks_without_end_does_not_fill_the_audit(server: Server, asker: Mapping[str, str]) -> None:
    keeper = Keeper(Settings(server=server.server), server.database, Address(), "ann")
    for _ in range(MOST_REFUSED + 9):
        keeper.note_refusal("do as", "127.0.0.1", "no")
    with server.database.read() as connection:
        found = [each for each in Audit(connection).newest(200) if each.action == "do as"]
    assert len(found) == MOST_REFUSED


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Database]]:
    """The address of a server with tokens of ann and loader, which is in the environment, and its state."""
    database = open_project(tmp_path, monkeypatch)
    rules = '{"loader": {"hosts": ["127.0.0.1"], "groups": ["etl"]}}'
    monkeypatch.setenv("FEED_ASSETS_SERVER__PROXY_USERS", rules)
    settings = load_settings()
    create_token(database, "ann@example.org", tuple(Does), None, ("etl",), author="ann", now=NOW, dry_run=False)
    made = create_token(database, "loader", tuple(Does), None, author="ann", now=NOW, dry_run=False)
    monkeypatch.setenv("FEED_ASSETS_TOKEN", made.bearer or "")
    with listen(Guard(build_application(settings, database), Keeper(settings, database, Address(), "root"))) as address:
        yield address, database
    database.close()


def test_both_names_are_in_audit_and_history(served: tuple[str, Database]) -> None:
    address, database = served
    afar = ("--server", address, "--do-as", "ann@example.org")
    (line,) = [each for each in commands_of("docs/log-in.md") if "--do-as" in each]
    must(*line.replace("https://feeds.example.org:3030", address).split()[1:])
    must(*afar, "metadata", "put", "feed/clicks", "steward=ann")
    with database.read() as connection:
        assert [each.author for each in Audit(connection).newest(2)] == ["ann@example.org via loader"] * 2
    assert "ann@example.org via loader" in must("metadata", "history", "feed/clicks").stdout
    assert must("--server", address, "--do-as", "loader", "entity", "resume", "process", "counting").exit_code == 0
    with database.read() as connection:
        assert Audit(connection).newest(1)[0].author == "loader"
    refused = run("--server", address, "--do-as", "bob", "entity", "list")
    assert (refused.exit_code, "'loader' may not ask on behalf of 'bob'." in refused.stderr) == (2, True)
    assert "doAs is one name" in run("--server", address, "--do-as", "", "entity", "list").stderr
    here = run("--do-as", "ann", "entity", "list")
    assert (here.exit_code, "--do-as is for servers" in here.stderr) == (2, True)
