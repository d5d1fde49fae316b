"""The guard before every route, asked as an application: each kind of refusal, and who is let in."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Match, Route
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from feed_assets.access.principals import Principal
from feed_assets.log.audit import Audit
from feed_assets.operation import Does
from feed_assets.server.aliases.airflow import AIRFLOW
from feed_assets.server.aliases.records import Alias
from feed_assets.server.aliases.table import ALIASES
from feed_assets.server.application import build_application
from feed_assets.server.bodies import LARGEST
from feed_assets.server.guard import Guard
from feed_assets.server.identity.callers import Keeper
from feed_assets.server.identity.tokens import create_token, revoke_token
from feed_assets.server.records import Address
from feed_assets.server.routes import LOOKS, find_rights, list_routes
from feed_assets.setting_sections import Authorization, ServerSettings
from feed_assets.settings import Settings, load_settings
from feed_assets.sql.database import Database
from tests.instances.harness import at
from tests.projects import enter

LIST, RERUN = "/api/v1/entity/list", "/api/v1/instance/rerun"
SAFE_MODE = "/api/admin/setSafeMode/true"
HOST = {"Host": "127.0.0.1:3030"}
NOW = at("03T12:00")
PROXIES = ServerSettings.model_validate(
    {
        "author_header": "X-Forwarded-User",
        "groups_header": "X-Forwarded-Groups",
        "proxies": ["10.0.0.0/8", "fd00::7"],
        "hosts": ["Feeds.example"],
    }
)


@dataclass
class Asked:
    """What came of a request: the answer, and what was let in."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    principals: list[Principal] = field(default_factory=list)
    queries: list[bytes] = field(default_factory=list)
    let_in: list[bytes] = field(default_factory=list)

    @property
    def authors(self) -> list[str]:
        return [each.author for each in self.principals] or ["nobody"] * len(self.let_in)

    @property
    def told(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        document: dict[str, Any] = json.loads(self.body)
        assert document["status"] == self.status
        return document


@dataclass
class Server:
    """A guard before an application that answers 200 to whatever is let in."""

    database: Database
    host: str = "127.0.0.1"
    server: ServerSettings = field(default_factory=ServerSettings)
    authorization: Authorization = Authorization.OFF
    read_only: bool = False
    insecure: bool = False
    body_seconds: float = 60.0

    def ask(
        self,
        target: str = LIST,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        client: str = "127.0.0.1",
        scheme: str = "http",
        bodies: tuple[bytes, ...] = (b"",),
        is_endless: bool = False,
    ) -> Asked:
        asked = Asked()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            asked.principals += [scope["state"]["principal"]] if "principal" in scope.get("state", {}) else []
            asked.queries.append(scope["query_string"])
            asked.let_in.append((await receive())["body"] if scope["path"] != "/health" else b"")
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        left = list(bodies)
        path, _, query = target.partition("?")

        async def receive() -> Message:
            if not left:
                if is_endless:
                    await asyncio.sleep(60)
                return {"type": "http.disconnect"}
            body = left.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(left) or is_endless}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                asked.status = message["status"]
                asked.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            asked.body += message.get("body", b"")

        told = {**HOST, **(headers or {})}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "scheme": scheme,
            "client": (client, 5),
            "headers": [(name.lower().encode(), value.encode()) for name, value in told.items()],
        }
        settings = Settings(server=self.server, authorization=self.authorization)
        address = Address(host=self.host, read_only=self.read_only, insecure=self.insecure)
        keeper = Keeper(settings, self.database, address, "ann")
        guard = Guard(app, keeper, body_seconds=self.body_seconds)
        asyncio.run(guard(scope, receive, send))
        return asked

    def find(self, headers: Mapping[str, str], client: str) -> tuple[str, set[str]] | None:
        """Return who asks with some headers, and in which groups."""
        keeper = Keeper(Settings(server=self.server), self.database, Address(host=self.host), "ann")
        told = [(name.lower(), value) for name, value in headers.items()]
        found = keeper.find_caller(client, lambda name: [value for each, value in told if each == name.lower()])
        return None if found is None else (found.name, {*found.groups})


@pytest.fixture
def server(database: Database, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(
        "feed_assets.server.identity.callers.open_clock", lambda _: type("Clock", (), {"now": lambda _: NOW})()
    )
    return Server(database)


def make(
    server: Server, *may: Does, until: timedelta | None = None, name: str = "loader", groups: tuple[str, ...] = ()
) -> dict[str, str]:
    """Make a token, and return the header with it."""
    end, now = None if until is None else NOW + until, NOW - timedelta(days=1)
    made = create_token(server.database, name, may, end, groups, author="ann", now=now, dry_run=False)
    return {"Authorization": f"Bearer {made.bearer}"}


def test_on_this_machine_without_tokens_the_author_is_the_user_of_the_server(server: Server) -> None:
    assert server.ask().authors == ["ann"]
    assert server.ask(RERUN, method="POST", bodies=(b"{", b"}")).let_in == [b"{}"]
    server.host = "::1"
    assert server.ask(client="::1", headers={"Host": "[::1]:3030"}).authors == ["ann"]
    server.authorization = Authorization.ACL  # who has rights has to say who it is
    assert server.ask(client="::1", headers={"Host": "[::1]:3030"}).status == 401


@pytest.mark.parametrize(
    "header",
    ["Forwarded", "Via", "x-real-ip", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto"],
)
def test_what_is_forwarded_does_not_come_from_this_machine(server: Server, header: str) -> None:
    assert server.ask(headers={header: "for=192.0.2.7"}).status == 401


def test_a_token_that_was_made_is_needed_from_then_on_even_when_it_expires(server: Server) -> None:
    make(server, Does.READS, until=timedelta(0))
    assert server.ask().status == 401
    revoke_token(server.database, "loader", author="ann", now=NOW, dry_run=False)
    assert server.ask().status == 200


def test_row_134_the_holder_of_a_token_asks_in_its_name_for_what_it_may(server: Server) -> None:
    token = make(server, Does.READS, Does.NOTIFIES)
    assert server.ask(headers=token).authors == ["loader"]
    refused = server.ask(RERUN, token, method="POST")
    assert (refused.status, refused.let_in, refused.told["needs"]) == (403, [], "acts")
    assert refused.told["detail"] == "This needs the right acts; 'loader' has reads, notifies."
    acts = make(server, Does.ACTS, name="other")
    assert server.ask(RERUN, acts, method="POST").authors == ["other"]
    assert server.ask(headers=acts).status == 403  # to act is not to read


@pytest.mark.both_databases
def test_row_133_expired_revoked_foreign_and_malformed_tokens_are_refused_alike(server: Server) -> None:
    expired = make(server, Does.READS, until=timedelta(0), name="expired")
    revoked = make(server, Does.READS, name="revoked")
    revoke_token(server.database, "revoked", author="ann", now=NOW, dry_run=False)
    valid = make(server, Does.READS, name="valid")["Authorization"]
    texts = [f"Bearer fa_{'0' * 64}", "Bearer ", "Bearer é\x00", f"Bearer {valid}", f"Basic {valid}", "", valid[7:]]
    answers = [server.ask(headers=each) for each in (expired, revoked)]
    answers += [server.ask(headers={"Authorization": each}) for each in texts] + [server.ask("/nowhere")]
    assert {(each.status, each.body, tuple(each.headers.items())) for each in answers} == {
        (401, answers[0].body, tuple(answers[0].headers.items()))
    }
    assert answers[0].headers["www-authenticate"] == "Bearer"
    assert not any(each.let_in for each in answers)
    assert server.ask(headers={"Authorization": valid}).status == 200
    for other in (valid, "Basic eA==", ""):
        assert server.ask(headers={"Authorization": valid, "authorization": other}).status == 401


@pytest.mark.parametrize("alias", AIRFLOW, ids=lambda each: f"{each.method} {each.path}")
def test_a_path_of_another_system_needs_a_caller_with_the_right_of_its_operation(server: Server, alias: Alias) -> None:
    path = alias.path.replace("{", "a").replace("}", "")
    holder = make(server, alias.called.right)
    other = make(server, Does.DECLARES, name="other")
    found = [server.ask(path, headers, method=alias.method).status for headers in ({}, other, holder)]
    assert found == [401, 403, 200]


@pytest.mark.parametrize("path", ["/api/v1/entity/validate", "/api/v1/plan", "/api/entities/validate/feed"])
def test_definitions_of_the_caller_are_taken_of_who_may_declare(server: Server, path: str) -> None:
    """They name variables of the server, its files, and places that it then reaches."""
    refused = server.ask(path, make(server, Does.READS), method="POST")
    assert (refused.status, refused.let_in, refused.told["needs"]) == (403, [], "declares")
    assert server.ask(path, make(server, Does.DECLARES, name="other"), method="POST").authors == ["other"]
    server.read_only = True
    assert server.ask(path, make(server, *Does, name="whole"), method="POST").status == 403


def test_to_look_into_storage_is_to_notify_too(server: Server) -> None:
    """It records what has arrived and what is gone."""
    reads, notifies = make(server, Does.READS), make(server, Does.NOTIFIES, name="notifier")
    both = make(server, Does.READS, Does.NOTIFIES, name="both")
    for path in ("/api/v1/why?name=a&look=true", "/api/v1/instance/listing?feed=a&lo%6Fk=true&output=csv"):
        refused = server.ask(path, reads)
        assert (refused.status, refused.let_in, refused.told["needs"]) == (403, [], "notifies")
        assert server.ask(path, notifies).told["needs"] == "reads"
        assert server.ask(path, both).status == 200
        assert server.ask(path.replace("look", "all").replace("lo%6Fk", "all"), reads).status == 200
        assert server.ask(path, {**both, "Sec-Fetch-Site": "cross-site"}).status == 403  # as of an image
        assert server.ask(path, both, method="HEAD").status == 405
    server.read_only = True
    refused = server.ask(path, both)
    assert (refused.status, refused.told["detail"]) == (403, "This server only reads; this needs notifies.")


def test_what_no_rule_names_is_refused(server: Server) -> None:
    for path, method, status in (
        ("/nowhere", "GET", 404),
        ("/api/v1/init", "POST", 404),
        (f"{LIST}/", "GET", 404),
        (LIST, "POST", 405),
        (RERUN, "GET", 405),
        (SAFE_MODE, "HEAD", 405),
        ("/docs", "POST", 405),
        ("/v3/namespaces/default/feed/x/metadata/tags", "OPTIONS", 405),
    ):
        refused = server.ask(path, method=method)
        assert (refused.status, refused.let_in) == (status, []), path
        assert bool(refused.headers.get("allow")) is (status == 405)
    assert refused.headers["allow"] == "GET, HEAD, POST, DELETE"
    assert refused.told["detail"].endswith("is asked by GET or HEAD or POST or DELETE, not by OPTIONS.")
    assert server.ask("/health", {"Host": "elsewhere"}, client="192.0.2.1").authors == ["nobody"]


def test_every_caller_may_read_how_to_ask(server: Server) -> None:
    token = make(server, Does.NOTIFIES)
    found = [server.ask(path, token).status for path in ("/docs", "/openapi.json", "/", "/metrics", LIST)]
    assert found == [200, 200, 200, 403, 403]
    assert server.ask("/docs").status == 401
    assert server.ask("/docs", token, method="POST").status == 405


def test_what_is_refused_is_a_line_in_the_log_without_what_is_secret(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    token = make(server, Does.READS)
    server.ask(headers=token)
    server.ask("/nowhere", headers=token)
    assert caplog.messages == []
    server.ask(f"{LIST}\n{'x' * 300}", {"Authorization": "Bearer fa_wrong"})
    server.ask(RERUN, token, method="POST")
    with server.database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE fa_tokens RENAME TO gone")
    server.ask(headers=token)
    told = [each.partition("Z ")[2] for each in caplog.messages if " 127.0.0.1 " in each]
    assert told[1:] == [f"127.0.0.1 POST {RERUN} 403", f"127.0.0.1 GET {LIST} 503"]
    assert re.fullmatch(rf"127.0.0.1 GET {LIST}%0Ax{{50,200}} 401", told[0])
    assert not re.search("fa_|Bearer", caplog.text.replace("fa_tokens", ""))
    server.ask(f"{LIST}{'/x' * 70}/fa_{'0a' * 32}")
    assert caplog.messages[-1].endswith("/x/fa_*** 503")


def test_the_right_is_that_of_the_route_that_answers(server: Server) -> None:
    """Also for paths that a parameter spoils: else who may read could act."""
    answered = set[str]()
    needed = [(each.path, each.method, each.right) for each in list_routes()]
    needed += [(each.path, each.method, each.called.right) for each in ALIASES]
    routes = [(Route(path, str, methods=[method]), does) for path, method, does in needed]
    values, methods = ("a", "", "a/b", "status", "a\n"), {method for _, method, _ in needed}
    for (path, *_), value, method in product(needed, values, methods):
        asked = re.sub(r"\{[^}]*\}", value, path)
        for end in ("", "/", "\n"):
            scope = {"type": "http", "method": method, "path": asked + end, "headers": []}
            found = [does for route, does in routes if route.matches(scope)[0] is Match.FULL]
            right = find_rights(scope)
            assert right in ((), *((each,) for each in found[:1]), *[(Does.READS,)] * (asked in LOOKS)), (
                method,
                asked + end,
            )
            answered.update([path] if right else [])
    assert answered == {path for path, *_ in needed}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
        "evil.example:3030",
        "",
        "localhost/x",
        "[::1",
        "127.0.0.1:99999",
        "localhost..",
        "a b",
    ],
)
def test_another_host_is_refused(server: Server, host: str) -> None:
    refused = server.ask(headers={"Host": host})
    assert (refused.status, refused.let_in) == (400, [])
    assert refused.told["next_step"].startswith("Ask by its IP address, or by a name that whoever runs it has")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost.:3030",
        "127.0.0.1:",
        "LOCALHOST:8080",
        "127.0.0.1",
        "[::1]:3030",
        "feeds.example:443",
        "192.0.2.9:3030",
        "[fd00::9]",
    ],
)
def test_the_names_of_the_server_and_all_addresses_are_known(server: Server, host: str) -> None:
    server.server = ServerSettings(hosts=("Feeds.example",))
    assert server.ask(headers={"Host": host}).status == 200


def test_a_server_for_others_is_asked_by_the_names_of_its_machine(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("feed_assets.server.identity.callers.find_machine_names", lambda: ("box", "Box.example"))
    assert [server.ask(headers={"Host": host}).status for host in ("box", "box.example:3030")] == [400, 400]
    server.host, server.insecure, token = "0.0.0.0", True, make(server, Does.READS)
    for host, status in (("BOX:3030", 200), ("box.example", 200), ("other.example", 400)):
        assert server.ask(headers={**token, "Host": host}).status == status
    keeper = Keeper(Settings(server=PROXIES), server.database, Address(host="0.0.0.0"), "ann")
    assert keeper.names == ("localhost", "box", "box.example", "feeds.example")


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:8000", "http://127.0.0.1", "", "foo://127.0.0.1:3030"]
)
def test_row_136_a_page_of_another_site_is_refused(server: Server, origin: str, method: str) -> None:
    refused = server.ask(headers={"Origin": origin}, method=method)
    assert (refused.status, refused.let_in) == (403, [])
    assert refused.told["detail"] == "A page of another site cannot ask this server."


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "Cross-Site"])
def test_an_image_or_a_link_of_another_site_changes_nothing(server: Server, site: str) -> None:
    headers = {"Sec-Fetch-Site": site}
    for path, method in ((SAFE_MODE, "GET"), (RERUN, "POST"), ("/api/v1/plan", "POST")):
        refused = server.ask(path, headers, method=method)
        assert (refused.status, refused.let_in) == (403, []), path
        assert refused.told["detail"] == "A page of another site cannot ask this server."
        own = [server.ask(path, {"Sec-Fetch-Site": each}, method=method) for each in ("same-origin", "none")]
        assert [each.status for each in own] == [200, 200]
    assert server.ask(headers=headers).status == 200  # it cannot read the answer
    assert server.ask(method="HEAD").status == 200


def test_a_page_of_the_server_is_let_in(server: Server) -> None:
    assert server.ask(headers={"Origin": "http://127.0.0.1:3030"}).status == 200


@pytest.mark.parametrize("client", ["10.1.2.3", "fd00::7", "::ffff:10.1.2.3"])
def test_row_135_a_proxy_says_who_asks(server: Server, client: str) -> None:
    server.host, server.server = "0.0.0.0", PROXIES
    host = {"Host": "feeds.example"}
    assert server.ask(RERUN, {**host, "X-Forwarded-User": "bob"}, client=client, method="POST").authors == ["bob"]
    for name in (
        "",
        " ",
        "a\nb",
        "b" * 201,
        "ann, bob",
        "a\N{REPLACEMENT CHARACTER}",
        "a\N{RIGHT-TO-LEFT OVERRIDE}b",
        "feed-assets",
    ):
        assert server.ask(headers={**host, "X-Forwarded-User": name}, client=client).status == 401
    assert server.ask(headers=host, client=client).status == 401
    several = {**host, "X-Forwarded-User": "bob", "x-forwarded-user": "bob"}
    assert server.ask(headers=several, client=client).status == 401


def test_groups_come_with_the_proof(server: Server) -> None:
    """Of a token, or of a proxy that says who asks; whoever is on this machine has none."""
    server.server = PROXIES
    told = {"X-Forwarded-User": "bob", "X-Forwarded-Groups": "etl, Data Team,", "x-forwarded-groups": "ops"}
    assert server.find(told, client="10.1.2.3") == ("bob", {"etl", "Data Team", "ops"})
    assert server.find({"X-Forwarded-User": "bob", "X-Forwarded-Groups": ""}, client="10.1.2.3") == ("bob", set())
    assert server.find({"X-Forwarded-User": "bob", "X-Forwarded-Groups": "a\nb"}, client="10.1.2.3") is None
    assert server.find({}, client="127.0.0.1") == ("ann", set())
    token = make(server, Does.READS, groups=("etl", "ops"))
    assert server.find(token, client="127.0.0.1") == ("loader", {"etl", "ops"})
    assert server.find({**token, "X-Forwarded-Groups": "root"}, client="10.1.2.3") == ("loader", {"etl", "ops"})


def test_nobody_else_says_who_asks(server: Server) -> None:
    told = {"X-Forwarded-User": "bob"}
    server.server = PROXIES
    refused = server.ask(headers=told)  # of this machine, which is no proxy
    assert (refused.status, refused.told["detail"]) == (401, "127.0.0.1 is none of the proxies that say who asks.")
    assert server.ask(headers={"X-Forwarded-Groups": "etl"}).status == 401
    server.server = ServerSettings.model_validate({"author_header": "X-Forwarded-User", "proxies": ["127.0.0.1"]})
    assert server.ask().status == 401  # what comes through a proxy is never the user of the server
    server.host, server.server, server.insecure = "0.0.0.0", PROXIES, True
    assert server.ask(headers=told, client="192.0.2.1").status == 401
    token = make(server, Does.READS)
    assert server.ask(headers=token, client="192.0.2.1").authors == ["loader"]
    assert server.ask(headers={**told, **token}, client="192.0.2.1").status == 401
    cookie = {"Cookie": f"feed-assets-token={token['Authorization'][7:]}"}
    assert server.ask("/ui", cookie, client="192.0.2.1").authors == ["loader"]
    assert server.ask("/ui", {**cookie, **told}, client="192.0.2.1").status == 401
    with server.database.read() as connection:
        entry = Audit(connection).newest(1)[0]
    assert (entry.author, entry.action, entry.details["from"]) == ("unknown", "log in", "192.0.2.1")


def test_beyond_this_machine_only_proxies_may_do_without_tls(server: Server) -> None:
    token = make(server, Does.READS)
    server.host, server.server = "0.0.0.0", PROXIES
    refused = server.ask(headers=token, client="192.0.2.1")
    assert (refused.status, refused.let_in) == (403, [])
    assert refused.told["next_step"] == "Use https://, and another token."
    assert server.ask(client="192.0.2.1").told["next_step"] == "Use https://."
    assert server.ask(headers=token, client="192.0.2.1", scheme="https").status == 200
    assert server.ask(headers=token, client="10.0.0.1").status == 200
    server.insecure = True
    assert server.ask(headers=token, client="192.0.2.1").status == 200


def test_a_server_that_only_reads_says_so(server: Server) -> None:
    server.read_only = True
    assert server.ask().status == 200
    refused = server.ask(RERUN, method="POST")
    assert (refused.status, refused.told["detail"]) == (403, "This server only reads; this needs acts.")


def test_a_body_that_is_too_large_is_told_at_once_or_while_it_comes(server: Server) -> None:
    largest = (b"x" * LARGEST,)
    assert server.ask(RERUN, {"Content-Length": str(LARGEST)}, method="POST", bodies=largest).status == 200
    for size in (str(LARGEST + 1), "9" * 5000):
        refused = server.ask(RERUN, {"Content-Length": size}, method="POST", is_endless=True)
        assert (refused.status, refused.let_in) == (413, [])
    chunks = server.ask(RERUN, method="POST", bodies=(b"x" * (LARGEST // 2),) * 3, is_endless=True)
    assert (chunks.status, chunks.told["detail"], chunks.let_in) == (413, "The body has more than 8 MiB.", [])


def test_a_body_that_does_not_come_is_not_waited_for(server: Server) -> None:
    server.body_seconds = 0.05
    refused = server.ask(RERUN, method="POST", bodies=(b"{",), is_endless=True)
    assert (refused.status, refused.let_in) == (408, [])
    gone = server.ask(RERUN, method="POST", bodies=())
    assert (gone.status, gone.let_in) == (0, [])


def test_without_its_database_a_server_says_that_it_comes_back(server: Server) -> None:
    token = make(server, Does.READS)
    with server.database.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE fa_tokens RENAME TO gone")
    refused = server.ask(headers=token)
    assert (refused.status, refused.headers["retry-after"], refused.let_in) == (503, "5", [])
    assert "sqlite" not in refused.body.decode()


def test_a_request_of_an_administrator_makes_a_token_that_may_ask(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(tmp_path, monkeypatch)
    application = build_application(load_settings(), server.database)
    guard = Guard(application, Keeper(load_settings(), server.database, Address(), "ann"))
    client = TestClient(guard, base_url="http://127.0.0.1:3030", client=("127.0.0.1", 5))
    made = client.post("/api/v1/token/create", json={"name": "loader", "may": "reads"})
    assert (made.status_code, made.json()["author"]) == (201, "ann")
    token = {"Authorization": f"Bearer {made.json()['bearer']}"}
    listed = client.get("/api/v1/token/list", headers=token)
    assert [(each["name"], each["bearer"]) for each in listed.json()["tokens"]] == [("loader", None)]
    refused = client.post("/api/v1/token/create", json={"name": "more", "may": "administers"}, headers=token)
    assert (refused.status_code, refused.json()["needs"]) == (403, "administers")
    assert client.get("/api/v1/token/list").status_code == 401
