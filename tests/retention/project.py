"""A project in which six of ten hours of clicks have expired, and all hours of views, and commands given in it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.project import set_clock, shown
from tests.definitions.verbs.harness import CLICKS, CLUSTER, with_validity
from tests.projects import declare, enter, land

LANDED = {"clicks": range(10), "views": range(2)}
EXPIRED = [f"clicks/2013-11-03/{hour:02d}" for hour in range(6)]
NOON = "2013-11-03T12:00Z"
_LOCATION = "/{}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """At noon, with no record of anything."""
    enter(tmp_path, monkeypatch)
    feeds: list[dict[str, Any]] = []
    for name, hours in LANDED.items():
        feed = with_validity({**CLICKS, "name": name, "locations": {"data": _LOCATION.format(name)}})
        feed["clusters"]["primary"]["retention"] = {"limit": "hours(6)"}  # type: ignore[index]
        feeds.append(feed)
        for hour in hours:
            land(tmp_path / f"data/{name}/2013-11-03/{hour:02d}", f"{name} {hour}", is_flagged=True)
    declare(tmp_path, CLUSTER, *feeds)
    set_clock(tmp_path, NOON)
    return tmp_path


def retention(*arguments: str, exit_code: int = 0) -> Any:
    """The JSON form of what `feed-assets retention` says."""
    return shown("retention", *arguments, code=exit_code)


def planned(*feeds: str) -> str:
    """The id of a new plan of feeds."""
    options = [text for feed in feeds for text in ("--feed", feed)]
    (sweep,) = retention("plan", *options)["sweeps"]
    return str(sweep["sweep_id"])


def daily_sweep(project: Path) -> str:
    """Let both feeds be daily, each in a zone of its own, and run a sweep over both; returns its id."""
    documents = list(yaml.safe_load_all((project / "entities/all.yaml").read_text()))
    for document, zone, start in zip(documents[1:], ("UTC", "America/New_York"), ("00", "04"), strict=True):
        document |= {
            "frequency": "days(1)",
            "timezone": zone,
            "locations": {"data": f"/daily/{document['name']}/${{YEAR}}-${{MONTH}}-${{DAY}}"},
        }
        document["clusters"]["primary"]["validity"]["start"] = f"2013-10-30T{start}:00Z"
        document["clusters"]["primary"]["retention"] = {"limit": "days(1)", "sweep_limits": {"share": 1.0}}
        for day in ("01", "02", "03"):
            land(project / f"data/daily/{document['name']}/2013-11-{day}", day, is_flagged=True)
    (project / "entities/all.yaml").write_text(yaml.safe_dump_all(documents))
    sweep = planned("clicks", "views")
    retention("run", sweep)
    return sweep
