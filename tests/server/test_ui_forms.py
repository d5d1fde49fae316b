"""Pages for people: who looks at them, what they change, and what they are told if it cannot be."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from feed_assets.alerts.deadlines.records import SlaMiss
from feed_assets.alerts.deadlines.store import SlaMisses
from feed_assets.clock import open_clock
from feed_assets.log.messages.levels import SlaLevel
from feed_assets.operation import Does
from feed_assets.server.application import build_application
from feed_assets.server.guard import Guard
from feed_assets.server.identity.callers import Keeper
from feed_assets.server.identity.tokens import create_token, revoke_token
from feed_assets.server.records import Address
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateUnreachableError
from tests.instances.harness import at
from tests.server.project import open_project

HTML = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Site": "same-origin"}
ELSEWHERE = ("192.0.2.7", 5)
SECURE = "https://192.0.2.9:3030"
LATE = SlaMiss(
    kind="feed",
    name="views",
    cluster="primary",
    nominal_time=at("03T02:00"),
    level=SlaLevel.LOW,
    due_at=at("03T03:00"),
    missed_at=at("03T03:01"),
    told_at=at("03T03:01"),
)


@pytest.fixture
def project(tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    database = open_project(tmp_path, monkeypatch, state=database_url)
    yield database
    database.close()


def browse(database: Database, url: str = SECURE, read_only: bool = False, insecure: bool = False) -> TestClient:
    """Return a browser on another machine, or for a URL of the loopback on this one."""
    is_here = "127.0.0.1" in url
    address = Address(host="127.0.0.1" if is_here else "0.0.0.0", read_only=read_only, insecure=insecure)
    guard = Guard(build_application(load_settings(), database), Keeper(load_settings(), database, address, "ann"))
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
    assert "$FEED_ASSETS_TOKEN" in client.get("/docs", headers=cookie).text
    assert client.get("/ui/lineage/owner/Ann Lee", headers=cookie).status_code == 404
    for path in ("/api/v1/entity/list", "/openapi.json", "/uix", "/metrics"):
        assert client.get(path, headers=cookie).status_code == 401
    assert client.get("/ui", headers={**cookie, "Authorization": "Bearer fa_other"}).status_code == 303
    other = make_token(project, Does.NOTIFIES, name="other")
    refused = client.get("/ui", headers={**cookie, "Authorization": f"Bearer {other}"})
    assert (refused.status_code, "&#39;other&#39; has notifies" in refused.text) == (403, True)


@pytest.mark.parametrize(
    "leads_to",
    [
        *("//evil.example/ui", "https://evil.example/ui", "/\\evil.example", "/uix", "/ui/\n/x", "", "/ui/.%2E/api/x"),
        *("/ui/logout", "/ui/log%6Fut?x=1", "/ui/login?next=/ui", "/ui/do/hold/add"),
    ],
)
def test_the_log_in_leads_to_pages_only(project: Database, leads_to: str) -> None:
    client = browse(project)
    assert log_in(client, make_token(project, Does.READS), leads_to).headers["location"] == "/ui"
    assert '<input type="hidden" name="next" value="/ui">' in client.get("/ui/login", params={"next": leads_to}).text


def test_a_browser_finds_the_pages_and_the_operations_from_addresses_close_to_theirs(project: Database) -> None:
    client = browse(project)
    for address, leads_to in {
        "/": "/docs",
        "/docs": "/ui/login?next=%2Fdocs",
        "/ui/": "/ui/login?next=%2Fui%2F",
    }.items():
        asked = client.get(address)
        assert (asked.status_code, asked.headers["location"]) == (303, leads_to)
    assert client.get("/", headers={"Accept": "*/*"}).status_code == 401
    led = log_in(client, make_token(project, Does.READS), "/docs")
    assert led.headers["location"] == "/docs"
    assert client.get("/docs").status_code == 200
    for address in ("/ui/", "/ui/feed/clicks/?x=1", "/docs//"):
        led = client.get(address)
        assert (led.status_code, led.headers["location"]) == (308, re.sub(r"/+(\?|$)", r"\1", address))
    for address in ("/ui/nothing/at/all/", "/docs/more/"):
        assert client.get(address).status_code == 404
    assert client.post("/ui/").status_code == 404
    client.post("/ui/logout")
    assert client.get("/docs").status_code == 303


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
        assert '<a href="/ui/keys">Keys</a>' in told.text
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
    told = log_in(browsers[0], token)
    assert (told.status_code, told.headers["retry-after"], "it is down" in told.text) == (503, "5", False)


def fields_of(page: str, path: str, **given: str) -> dict[str, str]:
    """Return the hidden fields of the first form of a page for a path with what is given."""
    for form in re.findall(rf'action="/ui/do/{path}">(.*?)</form>', page, re.DOTALL):
        found = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))
        if given.items() <= found.items():
            return found
    raise AssertionError(f"{path} {given}")


@pytest.mark.both_databases
def test_of_two_browsers_that_change_a_key_one_is_told_and_sees_both_values(project: Database) -> None:
    ann, bob = (browse(project) for _ in range(2))
    for client, name in ((ann, "ann"), (bob, "bob")):
        log_in(client, make_token(project, *Does, name=name))
    new = fields_of(ann.get("/ui/feed/clicks").text, "metadata/put")
    led = ann.post("/ui/do/metadata/put", data={**new, "name": "note", "value": "first"})
    assert (led.status_code, led.headers["location"]) == (303, "/ui/feed/clicks")
    seen, others = (fields_of(each.get("/ui/feed/clicks").text, "metadata/put", name="note") for each in (ann, bob))
    assert ann.post("/ui/do/metadata/put", data={**seen, "value": "of ann"}).status_code == 303
    told = bob.post("/ui/do/metadata/put", data={**others, "value": "of bob"})
    assert (told.status_code, "of ann" in told.text, "of bob" in told.text) == (409, True, True)
    assert re.search("<small>ann, <time", told.text)
    assert "of bob" not in ann.get("/ui/feed/clicks").text
    assert bob.post("/ui/do/metadata/remove", data=others).status_code == 409
    again = fields_of(told.text, "metadata/put")
    assert bob.post("/ui/do/metadata/put", data={**again, "value": "of bob"}).status_code == 303
    removed = fields_of(bob.get("/ui/feed/clicks").text, "metadata/remove", name="note")
    for path, wrong in (
        ("put", {"name": ["a", "b"]}),
        ("put", {"value": ["a", "b"]}),
        ("remove", {"name": ["a", "b"]}),
    ):
        assert bob.post(f"/ui/do/metadata/{path}", data={"value": "x", **removed, **wrong}).status_code == 400
    assert bob.post("/ui/do/metadata/remove", data=removed).status_code == 303
    assert "<dd>of bob" not in bob.get("/ui/feed/clicks").text


def test_tags_and_holds_are_changed_by_forms(project: Database) -> None:
    client = browse(project, "http://127.0.0.1:3030")
    page = client.get("/ui/feed/clicks").text
    given = {**fields_of(page, "metadata/tag"), "tags": "checked"}
    assert client.post("/ui/do/metadata/tag", data=given).status_code == 303
    page = client.get("/ui/feed/clicks").text
    given = fields_of(page, "metadata/untag", tags="checked")
    assert client.post("/ui/do/metadata/untag", data=given).status_code == 303
    given = {**fields_of(page, "hold/add"), "name": "audit", "reason": "<script>alert(1)</script>"}
    assert client.post("/ui/do/hold/add", data=given).status_code == 303
    listed = client.get("/ui/ask/hold/list").text
    assert "&lt;script&gt;" in listed
    assert "<script" not in listed
    given = {**fields_of(listed, "hold/release"), "name": "audit"}
    assert client.post("/ui/do/hold/release", data=given).status_code == 303
    assert "audit" not in client.get("/ui/ask/hold/list").text


def test_who_knows_that_an_instance_is_late_says_so_once(project: Database) -> None:
    with project.begin() as connection:
        SlaMisses(connection).add([LATE])
    client, page = browse(project, "http://127.0.0.1:3030"), "/ui/feed/views/at/2013-11-03T02:00Z"
    assert "sla/ack" not in client.get("/ui/feed/views/at/2013-11-03T01:00Z").text
    given = fields_of(client.get(page).text, "sla/ack")
    led = client.post("/ui/do/sla/ack", data=given)
    assert (led.status_code, led.headers["location"]) == (303, page)
    assert "sla/ack" not in client.get(page).text
    assert "<td>sla ack</td>" in client.get("/ui/ask/admin/audit/show").text


def test_forms_are_for_whoever_may_act_and_of_their_own_page(project: Database) -> None:
    client = browse(project)
    log_in(client, make_token(project, Does.READS, name="reads"))
    assert "/ui/do/" not in client.get("/ui/feed/clicks").text
    assert client.post("/ui/do/metadata/put", data={"entity": "feed/clicks"}).status_code == 403
    client = browse(project)
    log_in(client, make_token(project, *Does, name="all"))
    fields = fields_of(client.get("/ui/feed/clicks").text, "metadata/tag")
    for page in ("", "é", "0" * 64):
        told = client.post("/ui/do/metadata/tag", data={**fields, "page": page, "tags": "x"})
        assert (told.status_code, "Load it again" in told.text) == (403, True)
    foreign = {"Sec-Fetch-Site": "cross-site"}
    assert client.post("/ui/do/metadata/tag", data={**fields, "tags": "x"}, headers=foreign).status_code == 403
    assert "tags:x" not in client.get("/ui/feed/clicks").text
    reads = browse(project, read_only=True)
    log_in(reads, make_token(project, *Does, name="more"))
    assert "/ui/do/" not in reads.get("/ui/feed/clicks").text
