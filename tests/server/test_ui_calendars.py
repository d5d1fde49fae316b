"""The calendar of a feed: from a hole of a year to why it is there, and without it once the data have come."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from feed_assets.clock import FrozenClock
from feed_assets.settings import load_settings
from feed_assets.sql.database import open_database
from tests.cli.project import must
from tests.instances.harness import at
from tests.projects import declare, enter, land
from tests.server.project import serve

VALIDITY = {"validity": {"start": "2013-11-01T00:00Z", "end": "2013-12-01T00:00Z"}}
CLUSTER = {"kind": "cluster", "name": "primary", "storage": "file://${PROJECT_ROOT}/data"}
WEATHER = {
    "kind": "feed",
    "name": "weather",
    "frequency": "hours(1)",
    "format": "csv",
    "locations": {"data": "/weather/${YEAR}-${MONTH}-${DAY}/${HOUR}"},
    "clusters": {"primary": VALIDITY},
}
REPORTS = WEATHER | {
    "name": "reports",
    "frequency": "days(1)",
    "locations": {"data": "/reports/${YEAR}-${MONTH}-${DAY}"},
}
LETTERS = WEATHER | {
    "name": "letters",
    "frequency": "seconds(1)",
    "instances": "as-they-come",
    "locations": {"data": "/letters/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"},
}
HOLES = {"2013-11-03": ("05", "06"), "2013-11-04": ("07",)}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    enter(tmp_path, monkeypatch)
    for name in ("feed_assets.context.operation.open_clock", "feed_assets.server.ui.endpoint.open_clock"):
        monkeypatch.setattr(name, lambda _: FrozenClock(at("05T00:30")))
    declare(tmp_path, CLUSTER, WEATHER, REPORTS, LETTERS)
    for day in range(1, 5):
        for hour in range(24):
            if f"{hour:02}" not in HOLES.get(f"2013-11-0{day}", ()):
                land(tmp_path / f"data/weather/2013-11-0{day}/{hour:02}")
    land(tmp_path / "data/reports/2013-11-02")
    for second in ("070001", "070002", "090007"):
        land(tmp_path / f"data/letters/2013-11-02/{second}")
    for feed in ("weather", "reports", "letters"):
        must("feed", "notify", feed, "--start", "2013-11-01T00:00Z", "--end", "2013-11-05T00:00Z")
    settings = load_settings()
    assert settings.state is not None
    database = open_database(settings.state, settings.namespace)
    with serve(database) as client:
        yield client
    database.close()


def squares(client: TestClient, page: str) -> dict[str, str]:
    """The words of each square that leads somewhere, and where it leads."""
    answer = client.get(page)
    assert answer.status_code == 200, answer.text
    found = re.findall(r'href="([^"]*)" class="square[^"]*" title="([^"]*)" aria-label="([^"]*)"', answer.text)
    assert all(title == label for _, title, label in found)
    return {unescape(words): unescape(href) for href, words, _ in found}


def test_a_hole_of_a_year_leads_to_why_and_is_filled_when_the_data_come(client: TestClient, tmp_path: Path) -> None:
    entity = client.get("/ui/feed/weather").text
    assert 'href="/ui/feed/weather/calendar"' in entity
    year = squares(client, "/ui/feed/weather/calendar?year=2013")
    assert [words for words in year if "missing" in words][:2] == [
        "2013-11-03: 22 of 24 available, 2 missing",
        "2013-11-04: 23 of 24 available, 1 missing",
    ]
    assert "2013-11-02: 24 of 24 available" in year
    assert not any("2013-12" in words or "2013-11-30" in words for words in year)
    day = squares(client, year["2013-11-03: 22 of 24 available, 2 missing"])
    assert day["05:00 UTC: 1 of 1 missing"] == "/ui/feed/weather/at/2013-11-03T05:00Z"
    why = client.get(day["05:00 UTC: 1 of 1 missing"]).text
    assert ">Why</h2>" in why
    assert "MISSING" in why
    for date, missing in HOLES.items():
        for hour in missing:
            land(tmp_path / f"data/weather/{date}/{hour}")
            told = {"feed": "weather", "instance": f"{date}T{hour}:00Z"}
            assert client.post("/api/v1/feed/notify", json=told).status_code == 200
    filled = squares(client, "/ui/feed/weather/calendar?year=2013")
    assert {"2013-11-03: 24 of 24 available", "2013-11-04: 24 of 24 available"} <= filled.keys()


def test_a_square_with_one_instance_leads_to_it_at_once(client: TestClient) -> None:
    found = squares(client, "/ui/feed/reports/calendar?year=2013")
    assert found["2013-11-02: 1 of 1 available"] == "/ui/feed/reports/at/2013-11-02T00:00Z"
    assert found["2013-11-01: 1 of 1 missing"] == "/ui/feed/reports/at/2013-11-01T00:00Z"


def test_hours_of_what_comes_as_it_comes_lead_to_what_came(client: TestClient) -> None:
    found = squares(client, "/ui/feed/letters/calendar?day=2013-11-02")
    alone = found["09:00 UTC: 1 of 1 available"]
    assert alone == "/ui/feed/letters/at/2013-11-02T09:00:07Z"
    assert client.get(alone).status_code == 200
    both = client.get(found["07:00 UTC: 2 of 2 available"])
    assert both.status_code == 200
    assert "/ui/feed/letters/at/2013-11-02T07:00:01Z" in both.text
    assert alone not in both.text


def test_other_years_and_days_are_offered_as_far_as_there_are_any(client: TestClient) -> None:
    day = client.get("/ui/feed/weather/calendar?day=2013-11-01").text
    assert "day=2013-11-02" in day
    assert "day=2013-10-31" not in day
    assert "year=2014" not in client.get("/ui/feed/weather/calendar").text
    assert client.get("/ui/feed/weather/calendar?year=x").status_code == 400
    assert "No instance." in client.get("/ui/feed/weather/calendar?year=2012").text
