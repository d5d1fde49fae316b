"""Pages for people: who looks at them, what they change, and what they are told if it cannot be."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from feed_assets.clock import open_clock
from feed_assets.operation import Does
from feed_assets.server.application import build_application
from feed_assets.server.callers import Keeper
from feed_assets.server.guard import Guard
from feed_assets.server.records import Address
from feed_assets.server.routes import Rights
from feed_assets.server.tokens import create_token, revoke_token
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateUnreachableError
from tests.server.project import open_project

HTML = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Site": "same-origin"}
ELSEWHERE = ("192.0.2.7", 5)
SECURE = "https://192.0.2.9:3030"


@pytest.fixture
def project(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    database = open_project(tmp_path, monkeypatch, state=database_url)
    yield database
    database.close()


def browse(database: Database, url: str = SECURE, read_only: bool = False, insecure: bool = False) -> TestClient:
    """Return a browser on another machine, or for a URL of the loopback on this one."""
    is_here = "127.0.0.1" in url
    address = Address(host="127.0.0.1" if is_here else "0.0.0.0", read_only=read_only, insecure=insecure)
    guard = Guard(
        build_application(load_settings(), database), Keeper(load_settings(), database, address, "ann"), Rights()
    )
    client = TestClient(guard, url, False, client=("127.0.0.1", 5) if is_here else ELSEWHERE, follow_redirects=False)
    client.headers.update(HTML)
    return client


def make_token(database: Database, *may: Does, name: str = "reader") -> str:
    now = open_clock(load_settings()).now()
    made = create_token(database, name, may, None, author="ann", now=now, dry_run=False)
    assert made.bearer is not None
    return made.bearer


def log_in(client: TestClient, token: str, leads_to: str = "/ui") -> Any:
    return client.post("/ui/login", data={"token": token, "next": leads_to})


@pytest.mark.both_databases
def test_a_browser_gives_its_token_once(project: Database, caplog: pytest.LogCaptureFixture) -> None:
    token, client = make_token(project, Does.READS), browse(project)
    asked = client.get("/ui/feed/clicks?x=1")
    assert (asked.status_code, asked.headers["location"]) == (303, "/ui/login?next=%2Fui%2Ffeed%2Fclicks%3Fx%3D1")
    form = client.get(asked.headers["location"])
    assert 'value="/ui/feed/clicks?x=1"' in form.text
    assert client.get("/ui/style.css").status_code == 200
    wrong = log_in(client, f"fa_{'0' * 64}")
    assert (wrong.status_code, "set-cookie" in wrong.headers, "not valid" in wrong.text) == (401, False, True)
    led = log_in(client, f" {token}\n", "/ui/feed/clicks?x=1")
    assert (led.status_code, led.headers["location"]) == (303, "/ui/feed/clicks?x=1")
    kept = led.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict", "Secure", "Path=/ui"} <= set(kept)
    shown = client.get("/ui/feed/clicks?x=1")
    assert (shown.status_code, "Log out" in shown.text, token in shown.text) == (200, True, False)
    assert token not in caplog.text
    out = client.post("/ui/logout")
    assert (out.headers["location"], client.get("/ui").status_code) == ("/ui/login", 303)
    log_in(client, token)
    revoke_token(project, "reader", author="ann", now=open_clock(load_settings()).now(), dry_run=False)
    assert client.get("/ui").status_code == 303


def test_the_cookie_is_for_pages_only_and_another_caller_goes_before(project: Database) -> None:
    token, client = make_token(project, Does.READS), browse(project)
    log_in(client, token)
    cookie = {"Cookie": f"feed-assets-token={token}"}
    assert client.get("/ui", headers=cookie).status_code == 200
    for path in ("/api/v1/entity/list", "/docs", "/uix", "/metrics"):
        assert client.get(path, headers=cookie).status_code == 401
    assert client.get("/ui", headers={**cookie, "Authorization": "Bearer fa_other"}).status_code == 303
    other = make_token(project, Does.NOTIFIES, name="other")
    refused = client.get("/ui", headers={**cookie, "Authorization": f"Bearer {other}"})
    assert (refused.status_code, "&#39;other&#39; has notifies" in refused.text) == (403, True)


@pytest.mark.parametrize(
    "leads_to",
    ["//evil.example/ui", "https://evil.example/ui", "/\\evil.example", "/uix", "/ui/\n/x", "", "/ui/.%2E/api/x"],
)
def test_the_log_in_leads_to_pages_only(project: Database, leads_to: str) -> None:
    client = browse(project)
    assert log_in(client, make_token(project, Does.READS), leads_to).headers["location"] == "/ui"
    assert '<input type="hidden" name="next" value="/ui">' in client.get("/ui/login", params={"next": leads_to}).text


def test_the_cookie_is_plain_where_requests_are(project: Database) -> None:
    token = make_token(project, Does.READS)
    here = browse(project, "http://127.0.0.1:3030")
    assert "Secure" not in log_in(here, token).headers["set-cookie"]
    assert here.get("/ui").status_code == 200
    assert "Secure" not in log_in(browse(project, "http://192.0.2.9:3030", insecure=True), token).headers["set-cookie"]
    assert "Use https://." in browse(project, "http://192.0.2.9:3030").get("/ui").text


def test_another_site_neither_logs_in_nor_out_and_may_link_to_a_page(project: Database) -> None:
    token, client = make_token(project, Does.READS), browse(project)
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        assert client.post("/ui/login", data={"token": token}, headers=headers).status_code == 403
        assert client.post("/ui/logout", headers=headers).status_code == 403
    linked = client.get("/ui/feed/clicks", headers={"Sec-Fetch-Site": "cross-site"})
    assert (linked.status_code, '<meta http-equiv="refresh" content="0">' in linked.text) == (401, True)


def test_a_browser_is_told_on_pages_what_is_refused(project: Database) -> None:
    client = browse(project, "http://127.0.0.1:3030")
    for method, path, status in (("GET", "/ui/a/b/c/d/e", 404), ("POST", "/ui", 405), ("GET", "/ui/feed/nothing", 404)):
        told = client.request(method, path)
        assert (told.status_code, told.headers["content-type"]) == (status, "text/html; charset=utf-8")
        assert "default-src 'self'" in told.headers["content-security-policy"]
        assert "http-equiv" not in told.text
    assert client.post("/ui").headers["allow"] == "GET, HEAD"
    told = client.get("/ui/a/b/c/d/e", headers={"Accept": "*/*"})
    assert told.headers["content-type"] == "application/problem+json"


def test_while_the_database_is_away_each_page_says_so_and_asks_again(
    project: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = make_token(project, Does.READS)
    browsers = [browse(project), TestClient(build_application(load_settings(), project))]
    log_in(browsers[0], token)

    def read(_: Database) -> None:
        raise StateUnreachableError(database="the database", reason="it is down", next_step="Start it.")

    pages = [
        "/ui",
        "/ui/feed/clicks",
        "/ui/process/counting",
        "/ui/keys",
        "/ui/search",
        "/ui/ask/queue/list",
        "/ui/run/x",
    ]
    assert all(browsers[0].get(page).status_code in (200, 404) for page in pages)
    monkeypatch.setattr(Database, "read", read)
    for client in browsers:
        for page in pages:
            away = client.get(page, headers=HTML)
            assert (away.status_code, away.headers["retry-after"]) == (503, "5"), page
            assert re.search('<meta http-equiv="refresh" content="5">.*asks again', away.text, re.DOTALL)
    assert log_in(browsers[0], token).status_code == 503
