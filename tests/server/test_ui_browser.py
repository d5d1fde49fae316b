"""Pages in a real Chromium: what a person types, clicks and reads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.server.application import build_application
from feed_assets.settings import load_settings
from tests.cli.test_golden import record_instances
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


PAGES = (
    "/ui",
    "/ui/search?text=clicks",
    "/ui/keys/owner",
    "/ui/entities?kind=feed",
    "/ui/feed/clicks",
    "/ui/feed/clicks/calendar",
    "/ui/feed/clicks/calendar?day=2013-11-03",
    "/ui/process/counting",
    "/ui/process/counting/at/2013-11-03T05:00Z",
    "/ui/ask/instance/list?kind=process&name=counting",
    "/ui/ask/quality/history?feed=counts",
)


def test_everybody_can_read_each_kind_of_page_at_any_width_in_both_themes(looker: Looker) -> None:
    assert {path: found for path in PAGES if (found := looker.look(path))} == {}
