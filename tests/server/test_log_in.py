"""Log-in by an issuer: what is let in, and what is refused without a trace of a secret."""

import base64
import hmac
import html
import json
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from anyio import to_thread
from joserfc import jwt
from joserfc.jwk import RSAKey
from oidc_provider_mock import User, run_server_in_thread
from starlette.responses import JSONResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from feed_assets.access.principals import Principal
from feed_assets.log.audit import Audit
from feed_assets.operation import Does
from feed_assets.server import waiting
from feed_assets.server.application import build_application
from feed_assets.server.guard import Guard
from feed_assets.server.identity import oidc
from feed_assets.server.identity.callers import Keeper
from feed_assets.server.identity.oidc import Issuer
from feed_assets.server.identity.tokens import SESSION, Tokens, create_token, revoke_token
from feed_assets.server.records import Address
from feed_assets.setting_sections import OidcSettings
from feed_assets.settings import Settings, load_settings
from feed_assets.sql.database import Database
from tests.cli.project import run
from tests.server import browser
from tests.server.browser import browse
from tests.server.project import listen, open_project

pytestmark = pytest.mark.filterwarnings("ignore")  # of the mock, in its thread
SECRET = "s3cr3t-of-the-client"
ANN = User(sub="1", claims={"preferred_username": "ann", "groups": ["etl", "a,b", 7], "email": "ann@example.org"})
LIST = "/api/v1/entity/list"


@pytest.fixture(scope="module")
def issuer_url() -> Iterator[str]:
    with run_server_in_thread(user_claims=[ANN, User(sub="2", claims={"email": "x"})]) as server:
        yield f"http://localhost:{server.server_port}"


def begin_session(database: Database, principal: Principal, now: datetime) -> str:
    told = {"author": principal.name, "session_of": principal.name, "now": now, "dry_run": False}
    name, until = f"session-{now:%H}", now + SESSION
    return create_token(database, name, tuple(Does), until, tuple(principal.groups), **told).bearer or ""


@dataclass
class Served:
    """A server with an issuer, and a browser without pictures."""

    client: TestClient
    database: Database
    issuer: Issuer

    def begin(self, path: str = "/ui/entities?kind=feed") -> str:
        """Go where the issuer asks who it is."""
        answer = self.client.get("/ui/login/issuer", params={"next": path}, follow_redirects=False)
        assert answer.status_code == 303, answer.text
        return answer.headers["location"]

    def agree(self, address: str, sub: str = "1") -> str:
        """Log in at the issuer; return where it leads back."""
        answer = requests.post(address, data={"sub": sub}, allow_redirects=False, timeout=5)
        return answer.headers["location"]

    def log_in(self, sub: str = "1") -> Any:
        back = urlsplit(self.agree(self.begin(), sub))
        return self.client.get(f"{back.path}?{back.query}", follow_redirects=False)

    def audited(self) -> list[tuple[str, str, str]]:
        with self.database.read() as connection:
            return [
                (each.author, each.action, str(each.details.get("refused", ""))) for each in Audit(connection).newest(3)
            ]


@pytest.fixture
def settings(issuer_url: str) -> Settings:
    return Settings(oidc=OidcSettings(issuer=issuer_url, client_id="feeds", client_secret=SECRET))


def open_client(guard: Guard) -> TestClient:
    return TestClient(guard, base_url="http://127.0.0.1:3030", client=("127.0.0.1", 5))


@pytest.fixture
def served(database: Database, settings: Settings) -> Iterator[Served]:
    assert settings.oidc is not None
    issuer = Issuer(settings.oidc)
    keeper = Keeper(settings, database, Address(), "root", issuer)
    with TestClient(
        Guard(build_application(settings, database), keeper), base_url="http://127.0.0.1:3030", client=("127.0.0.1", 5)
    ) as client:
        yield Served(client, database, issuer)


def test_row_133_who_has_logged_in_looks_at_pages_until_the_log_out(served: Served) -> None:
    client = served.client
    assert client.get(LIST).status_code == 401  # also on this machine
    page = client.get("/ui/login?next=/ui/keys")
    assert f'href="/ui/login/issuer?next=%2Fui%2Fkeys">Log in at {served.issuer.host}' in page.text
    answer = served.log_in()
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"] == "/ui/entities?kind=feed"
    cookies = answer.headers.get_list("set-cookie")
    assert all("HttpOnly" in each and "samesite=lax" in each.lower() for each in cookies[:2])
    assert "Max-Age=36000" in cookies[0]
    kept = client.cookies.get("feed-assets-token", path="/ui")
    assert client.get("/ui/login").status_code == 200
    with served.database.read() as connection:
        assert [(each.author, each.action) for each in Audit(connection).newest(1)] == [("ann", "log in")]
    assert served.client.get(LIST, headers={"Authorization": f"Bearer {kept}"}).status_code == 200
    out = client.post("/ui/logout", headers={"Sec-Fetch-Site": "same-origin"})
    assert f'href="http://{served.issuer.host}/oauth2/end_session?client_id=feeds"' in out.text
    assert served.audited()[0][:2] == ("ann", "log out")
    assert served.client.get(LIST, headers={"Authorization": f"Bearer {kept}"}).status_code == 401


def test_what_is_no_answer_to_the_log_in_of_this_browser_is_refused(served: Served) -> None:
    client, issuer = served.client, served.issuer
    back = urlsplit(served.agree(served.begin()))
    told = {name: values[0] for name, values in parse_qs(back.query).items()}
    again = {**told, "code": f"{told['code'][:-3]}xyz"}
    for given, reason in (
        ({**told, "state": "0" * 64}, "this browser has not asked for it"),
        ({"code": told["code"]}, "this browser has not asked for it"),
        ({**told, "error": "access_denied"}, "the issuer says &#39;access_denied&#39;"),
        ({**told, "error": "<b>"}, "the issuer says &#39;&lt;b&gt;&#39;"),
        (again, "the issuer refuses its code: invalid_grant"),
        ({"state": told["state"]}, "the issuer refuses its code: invalid"),
    ):
        refused = client.get(back.path, params=given)
        assert (refused.status_code, f"Nobody is logged in: {reason}" in refused.text) == (401, True), refused.text
        assert served.audited()[0][:2] == ("unknown", "log in")
        assert html.unescape(reason) in served.audited()[0][2]
    assert client.get(back.path, params=told, follow_redirects=False).status_code == 303
    kept = client.cookies.get("feed-assets-token", path="/ui")
    replayed = client.get(back.path, params=told)  # the browser has forgotten its secret
    assert (replayed.status_code, "has not asked for it" in replayed.text) == (401, True)
    with pytest.raises(Exception, match="the issuer refuses its code: invalid_grant"):  # of a thief who has it
        issuer.redeem(f"{client.base_url}/ui/login/callback", told["code"], "x")
    assert client.get(LIST, headers={"Authorization": f"Bearer {kept}"}).status_code == 200
    nameless = served.log_in("2")
    assert (nameless.status_code, "no name in the claim preferred_username" in nameless.text) == (401, True)
    assert client.get("/ui/login/callback").status_code == 401
    assert client.get("/ui/login/issuer?next=https://evil.example", follow_redirects=False).status_code == 303


def test_a_session_ends_after_ten_hours_and_is_listed_and_revoked_as_a_token(served: Served) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ann = Principal(name="ann", groups=frozenset({"etl"}))
    token = begin_session(served.database, ann, now)
    with served.database.read() as connection:
        store = Tokens(connection)
        found = store.find_valid(token, now + timedelta(hours=10) - timedelta(seconds=1))
        assert found is not None
        assert (found.principal, store.find_valid(token, now + timedelta(hours=10))) == (ann, None)
        assert store.find_person("ann", now) == ann
        assert store.find_person(found.name, now) is None
    revoke_token(served.database, found.name, author="root", now=now, dry_run=False)
    begin_session(served.database, ann, now + timedelta(hours=11))
    with served.database.read() as connection:
        assert [each.name for each in Tokens(connection).all()] == ["session-11"]


@dataclass
class Signing:
    """An issuer with keys of its own, that can be away, or break off; of `said` it says something else."""

    url: str = ""
    keys: list[Any] = field(default_factory=lambda: [RSAKey.generate_key(2048, {"kid": "1"})])
    asked: int = 0
    is_away: bool = False
    breaks_off: bool = False
    said: dict[str, Any] = field(default_factory=dict)
    is_redeeming: Event = field(default_factory=Event)
    may_answer: Event = field(default_factory=Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        endpoints = {f"{each}_endpoint": f"{self.url}/{each}" for each in ("authorization", "token")}
        document: Any = {"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **endpoints, **self.said}
        if scope["path"] == "/jwks":
            others = [
                {"kty": "OKP"},
                {"kty": "EC", "crv": "brainpoolP256r1", "kid": "1"},
                {"kty": "RSA", "kid": 7},
                "x",
            ]
            document = {"keys": [*others, *(each.as_dict(private=False) for each in self.keys)]}
        if scope["path"] == "/token":
            self.is_redeeming.set()
            await to_thread.run_sync(self.may_answer.wait, 5)
        if self.breaks_off:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"99")]})
            return
        await JSONResponse(document, 503 if self.is_away else 200)(scope, receive, send)

    def sign(self, key: Any = None, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        now = datetime.now(UTC)
        told = {"iss": self.url, "aud": "feeds", "exp": now + timedelta(hours=1), "preferred_username": "ann", **claims}
        told = {name: value for name, value in told.items() if value is not None}
        key = key or self.keys[-1]
        return jwt.encode(
            {"alg": "RS256", "kid": key.kid, **(header or {})}, told, key, algorithms=["RS256", "HS256", "none"]
        )


@pytest.fixture
def signing() -> Iterator[Signing]:
    made = Signing()
    with listen(made) as made.url:
        yield made


def test_a_bearer_token_of_the_issuer_is_checked_by_its_keys(
    database: Database, signing: Signing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings = Settings(oidc=OidcSettings(issuer=signing.url, client_id="feeds", groups_claim="roles"))
    assert settings.oidc is not None
    keeper = Keeper(settings, database, Address(), "root", Issuer(settings.oidc))

    def ask(token: str) -> tuple[str, frozenset[str]] | None:
        found = keeper.find_caller("127.0.0.1", lambda name: [f"Bearer {token}"] if name == "Authorization" else [])
        return None if found is None else (found.name, found.groups)

    valid = signing.sign(roles=["etl", "ops"])
    assert ask(valid) == ("ann", frozenset({"etl", "ops"}))
    assert ask(signing.sign(aud=["other", "feeds"])) == ("ann", frozenset())
    asked = signing.asked
    now, other = datetime.now(UTC), RSAKey.generate_key(2048, {"kid": "1"})
    shared = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "1"}).encode()).decode().rstrip("=")
    mac = hmac.digest(signing.keys[0].as_pem(private=False), f"{shared}.{valid.split('.')[1]}".encode(), "sha256")
    forged = f"{shared}.{valid.split('.')[1]}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    head, body, signature = valid.split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    deep = base64.urlsafe_b64encode(b'{"alg":' + b"[" * 100_000).decode()
    for token, reason in (
        (signing.sign(aud="others"), "invalid_claim aud"),
        (signing.sign(aud=None), "missing_claim"),
        (signing.sign(iss="https://evil.example"), "invalid_claim iss"),
        (signing.sign(exp=now - timedelta(minutes=2)), "expired_token"),
        (signing.sign(exp=None), "missing_claim exp"),
        (signing.sign(nbf=now + timedelta(minutes=2)), "invalid_claim nbf"),
        (signing.sign(preferred_username="a,b"), "no name in the claim"),
        (signing.sign(preferred_username=["ann"]), "no name in the claim"),
        (signing.sign(preferred_username="feed-assets"), "no name in the claim"),
        (signing.sign(other), "bad_signature"),
        (forged, "unsupported_algorithm"),
        (f"{none}.{body}.", "unsupported_algorithm"),
        (f"{none}.{body}.{signature}", "unsupported_algorithm"),
        (f"{head}.{body}.", "bad_signature"),
        (f"{head}.{body}x.{signature}", ""),
        (f"{deep}.{body}.{signature}", ""),
        (f"{head}.{body}", ""),
        ("x" * 200, ""),
        ("é", ""),
    ):
        keeper.refused_at.clear()
        assert ask(token) is None, reason
        with database.read() as connection:
            entry = Audit(connection).newest(1)[0]
        assert (entry.author, entry.action, reason in str(entry.details["refused"])) == ("unknown", "log in", True), (
            entry
        )
    assert signing.asked == asked  # nobody lets it be asked without end
    signing.keys = [RSAKey.generate_key(2048, {"kid": "2"})]  # the keys are others
    monkeypatch.setattr(oidc, "_AGAIN", 0.0)
    assert ask(signing.sign()) == ("ann", frozenset())
    assert ask(valid) is None
    signing.is_away, valid = True, signing.sign()
    monkeypatch.setattr(oidc, "_KEPT", 0.0)
    assert ask(valid) == ("ann", frozenset())  # what is known of it holds on
    assert valid not in caplog.text


@pytest.mark.parametrize("fault", ["is_away", "breaks_off"])
def test_who_is_logged_in_goes_on_while_the_issuer_is_away_and_a_log_in_says_so(
    database: Database, signing: Signing, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    setattr(signing, fault, True)
    settings = Settings(oidc=OidcSettings(issuer=signing.url, client_id="feeds", client_secret=SECRET))
    assert settings.oidc is not None
    keeper = Keeper(settings, database, Address(), "root", Issuer(settings.oidc))
    guard = Guard(build_application(settings, database), keeper)
    token = begin_session(database, Principal(name="ann"), datetime.now(UTC))
    with open_client(guard) as client:
        away = client.get("/ui/login/issuer", headers={"Accept": "text/html"})
        assert (away.status_code, f"the issuer {signing.url[7:]}: it does not answer" in away.text) == (503, True)
        assert client.get(LIST, headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert client.get(LIST, headers={"Authorization": f"Bearer {signing.sign()}"}).status_code == 503
        assert client.get("/ui/login").status_code == 200
    assert SECRET not in capsys.readouterr().err


def test_a_log_in_that_waits_for_its_issuer_holds_up_nobody(
    database: Database, signing: Signing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_READERS", 1)
    settings = Settings(oidc=OidcSettings(issuer=signing.url, client_id="feeds", client_secret=SECRET))
    assert settings.oidc is not None
    keeper = Keeper(settings, database, Address(), "root", Issuer(settings.oidc))
    token = begin_session(database, Principal(name="ann"), datetime.now(UTC))
    with open_client(Guard(build_application(settings, database), keeper)) as client, ThreadPoolExecutor(1) as pool:
        led = client.get("/ui/login/issuer", follow_redirects=False).headers["location"]
        told = {"code": "x", "state": parse_qs(urlsplit(led).query)["state"][0]}
        waits = pool.submit(client.get, "/ui/login/callback", params=told)
        assert signing.is_redeeming.wait(30)
        assert client.get(LIST, headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert not waits.done()
        signing.may_answer.set()
        assert waits.result().status_code == 401


def test_settings_that_are_wrong_end_serve_with_file_key_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signing: Signing
) -> None:
    open_project(tmp_path, monkeypatch).close()
    file, before = tmp_path / "feed_assets.yaml", (tmp_path / "feed_assets.yaml").read_text()
    for told, expected in (
        ("{issuer: x, client_id: a}", "setting 'oidc.issuer': 'x' is not an address such as"),
        ("{issuer: 'http://a.example', client_id: a}", "'http://a.example' is not an address with https"),
        ("{issuer: 'https://a.example'}", "setting 'oidc.client_id': it is missing"),
        ("{issuer: 'https://a.example', client_id: a, secret: b}", "there is no such setting"),
        ("{issuer: 'https://a.example', client_id: a, scopes: [email]}", "['email'] is not a list with openid"),
        (
            f"{{issuer: '{signing.url}', client_id: a, client_secret: '${{env:ABSENT}}'}}",
            "the environment has no ABSENT",
        ),
        (f"{{issuer: '{signing.url}/', client_id: a}}", f"the issuer calls itself '{signing.url}'. Write the issuer"),
    ):
        file.write_text(f"{before}\noidc: {told}\n")
        ended = run("serve", "--port", "0")
        assert (ended.exit_code, expected in ended.stderr, str(file) in ended.stderr) == (2, True, True), ended.stderr
    signing.said = {"token_endpoint": "ftp://a.example"}
    file.write_text(f"{before}\noidc: {{issuer: '{signing.url}', client_id: a}}\n")
    assert "token_endpoint of the issuer is 'ftp://a.example'" in run("serve", "--port", "0").stderr
    file.write_text(f"{before}\nserver: {{proxy_users: {{a: {{hosts: [x]}}}}}}\n")
    ended = run("serve", "--port", "0")
    assert "setting 'server.proxy_users.a.hosts.0': 'x' is not an address or a network" in ended.stderr


@pytest.mark.skipif(browser.CHROMIUM is None, reason="there is no Chromium")
def test_a_person_logs_in_at_the_issuer_acts_and_logs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, issuer_url: str
) -> None:
    database = open_project(tmp_path, monkeypatch)
    settings = load_settings({"oidc": {"issuer": issuer_url, "client_id": "feeds", "client_secret": SECRET}})
    assert settings.oidc is not None
    keeper = Keeper(settings, database, Address(), "root", Issuer(settings.oidc))
    with listen(Guard(build_application(settings, database), keeper)) as address, browse(address) as looker:
        page = looker.page
        looker.open("/ui/feed/clicks")
        page.click(f"text=Log in at {issuer_url[7:]}")
        page.click("button[value='1']")
        page.wait_for_url(f"{address}/ui/feed/clicks")
        page.click("text=Say something of it")
        page.fill("form[action$='metadata/put'] >> input[name=name]", "note")
        page.fill("form[action$='metadata/put'] >> input[name=value]", "of ann")
        page.click("text=Put the property")
        page.wait_for_selector("dd:has-text('of ann')")
        page.click("text=Log out")
        page.wait_for_url(f"{address}/ui/login*")
        looker.open("/ui/feed/clicks")
        assert "/ui/login?next=" in page.url
    with database.read() as connection:
        newest = [(each.author, each.action) for each in Audit(connection).newest(3)]
    assert newest == [("ann", "log out"), ("ann", "metadata"), ("ann", "log in")]
    database.close()
