"""Pages in a real Chromium: what a person types, clicks and reads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.server.application import build_application
from feed_assets.settings import load_settings
from tests.cli.project import must
from tests.cli.test_golden import record_instances
from tests.drills import sized
from tests.projects import land
from tests.server import browser
from tests.server.browser import Looker, browse
from tests.server.project import listen, open_project

pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason="there is no Chromium")


@pytest.fixture
def looker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looker]:
    database = open_project(tmp_path, monkeypatch)
    record_instances(tmp_path)
    with listen(build_application(load_settings(), database)) as address, browse(address) as looker:
        yield looker
    database.close()


def test_rows_i1_and_i2_from_a_word_or_all_keys_to_who_carries_it(looker: Looker) -> None:
    looker.open("/ui")
    looker.page.fill("#text", "own*")
    looker.page.keyboard.press("Enter")
    looker.page.click("main a >> text=owner")
    assert "feed/clicks" in looker.page.inner_text("main")
    looker.page.click("main a >> text=feed/clicks")
    assert looker.page.inner_text("h1") == "feed clicks"
    looker.page.click("nav >> text=Keys")
    looker.page.click("main a >> text=owner")
    assert "feed/clicks" in looker.page.inner_text("main")
    assert looker.wrong == []


FLIGHTS = """
kind: feed
name: flights
frequency: days(1)
format: csv
schema: "carrier string, dep_delay double"
tags: {owner: ops}
locations: {data: "/flights/${YEAR}-${MONTH}-${DAY}"}
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
---
kind: feed
name: delays
frequency: days(1)
format: csv
locations: {data: "/delays/${YEAR}-${MONTH}-${DAY}"}
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
---
kind: process
name: daily-delays
frequency: days(1)
clusters: {primary: {validity: {start: 2013-11-01T00:00Z}}}
inputs: {flights: {feed: flights, start: "now(0,0)", end: "now(0,0)"}}
outputs: {delays: {feed: delays, instance: "now(0,0)"}}
workflow: {engine: sql, path: counting.sql}
"""


def test_links_lead_from_a_column_to_its_feed_owner_instance_origin_and_readers(looker: Looker, tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_text(FLIGHTS)
    land(tmp_path / "primary/flights/2013-11-02")
    must("entity", "submit-and-schedule", "flights.yaml")
    must("feed", "notify", "flights", "2013-11-02")
    looker.open("/ui")
    clicks = ("Keys", "entity-name", "feed/flights/column/dep_delay", "flights", "2013-11-02T00:00Z", "daily-delays")
    for shown, text in zip(("", "", "", "", "ops", "by notice:ann"), clicks, strict=True):
        assert shown in looker.page.inner_text("main")
        looker.page.click(f"a:text-is('{text}')")
    assert looker.page.inner_text("h1") == "process daily-delays"
    assert looker.wrong == []


PAGES = (
    "/ui",
    "/ui/feed/clicks",
    "/ui/feed/clicks/calendar",
    "/ui/process/counting/at/2013-11-03T05:00Z",
    "/ui/ask/instance/list?kind=process&name=counting",
    "/ui/process/counting/lineage?instance=2013-11-03T00:00Z",
    "/ui/login",
)
"""One page of each form."""
MORE_PAGES = (
    "/ui/ask",
    "/ui/ask/admin/audit/show",
    "/ui/ask/hold/list",
    "/ui/ask/instance/search?kind=feed&kind=process",
    "/ui/ask/lineage/show?names=clicks&names=2013-11-03T00:00Z",
    "/ui/ask/notify/list",
    "/ui/ask/quality/history?feed=counts",
    "/ui/ask/queue/list",
    "/ui/ask/replication/status",
    "/ui/ask/retention/list",
    "/ui/ask/sla/alerts",
    "/ui/entities?kind=feed",
    "/ui/feed/clicks/at/2013-11-03T00:00Z",
    "/ui/feed/clicks/calendar?day=2013-11-03",
    "/ui/feed/clicks/columns",
    "/ui/feed/clicks/lineage?start=2013-11-03&end=2013-11-04&levels=3",
    "/ui/feed/counts/at/2013-11-03T00:00Z",
    "/ui/keys",
    "/ui/keys/owner",
    "/ui/lineage/cluster/primary",
    "/ui/process/counting",
    "/ui/run/run-1",
    "/ui/search?text=clicks",
    "/ui/search?text=nothing&scope=user",
    "/ui/words?entity=dashboard/hits",
)


@pytest.mark.sample
def test_everybody_can_read_each_kind_of_page_at_any_width_in_both_themes(looker: Looker) -> None:
    pages = sized(PAGES, PAGES + MORE_PAGES)
    assert {path: found for path in pages if (found := looker.look(path))} == {}


@pytest.mark.sample
def test_tab_reaches_each_link_and_control_in_order_and_everybody_sees_where_it_is(looker: Looker) -> None:
    pages = sized(("/ui/feed/clicks",), PAGES + MORE_PAGES)
    assert {path: found for path in pages if (found := looker.walk_by_tab(path))} == {}
    assert looker.wrong == []


def test_of_two_who_change_a_property_the_second_can_read_both_values(looker: Looker) -> None:
    looker.open("/ui/feed/clicks")
    looker.page.click("text=Say something of it")
    looker.page.fill("form[action$='metadata/put'] >> input[name=name]", "note")
    looker.page.fill("form[action$='metadata/put'] >> input[name=value]", "of ann")
    looker.page.click("text=Put the property")
    looker.page.click("dd:has-text('of ann') >> text=Change")
    looker.page.fill("dd >> form[action$='metadata/put'] >> input[name=value]", "of bob")
    must("metadata", "put", "feed/clicks", "note=of eve")
    looker.page.click("text=Put note")
    assert {"of bob", "of eve"} <= set(looker.page.locator("pre").all_inner_texts())
    assert looker.find_faults() == []
    looker.page.click("text=Overwrite it")
    assert "of bob" in looker.page.inner_text("main")
