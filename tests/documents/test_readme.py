"""README shows what its commands print: here they run in the project that `init` makes, after three simulated days.

`pytest tests/documents/test_readme.py --update-golden` writes what is shown anew, and the picture of the graph.
"""

import re
import shlex
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from feed_assets.context.heartbeat import note_tick
from feed_assets.scaffolding.projects import make_project
from feed_assets.simulate.parts import Arrival
from feed_assets.sql.database import open_database
from feed_assets.testing import simulate
from tests.cli.project import must
from tests.documents.markdown import ROOT, fences

README, PICTURE = ROOT / "README.md", ROOT / "docs/pictures/lineage.svg"
SHOWN = re.compile(r"(```console\n\$ (feed-assets [^\n]+)\n```\n\n```text\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)
NOW = datetime(2026, 3, 4, 7, tzinfo=UTC)
HOME = "/home/ann"
"""Where the reader has the project."""
DIGEST = "848a10df9d54a2cffadc5f6776e49f3fcb1e98e0e71fbc9b18f813ad3125faab"
"""What is another one in each folder and at each time: the look of a file, and the digest of a plan."""


def live(folder: Path) -> None:
    """Let the orders of three days come to a new project, and those of 2 March once more."""
    (folder / ".env").unlink()
    settings = folder / "feed_assets.yaml"
    settings.write_text(f"state: sqlite:///{folder}/state.db\nvariables: {{DATA_ROOT: '{folder}/data'}}\n")

    def arrive(day: int, at: datetime, content: str) -> Arrival:
        time = datetime(2026, 3, day, tzinfo=UTC)
        return Arrival(at=at, feed="orders", cluster="primary", nominal_time=time, content=content)

    arrivals = [arrive(day, datetime(2026, 3, day, 1, tzinfo=UTC) + timedelta(days=1), f"{day}") for day in (1, 2, 3)]
    arrivals.append(arrive(2, datetime(2026, 3, 3, 5, tzinfo=UTC), "2, corrected"))
    with (
        simulate(arrivals, start="2026-03-01T00:00Z", end=f"{NOW:%Y-%m-%dT%H:%MZ}", folder=folder) as simulated,
        simulated._database.read() as connection,
        sqlite3.connect(folder / "state.db") as copy,
    ):
        inner: Any = connection.connection.driver_connection
        inner.backup(copy)
    note_tick(open_database(f"sqlite:///{folder}/state.db"), "primary", datetime.now(UTC))
    clock = {"origin": NOW, "real_start": NOW, "speed": 1, "until": NOW}
    settings.write_text(settings.read_text() + yaml.safe_dump({"demo": {"replay": clock}}))


def test_what_readme_shows_is_what_its_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "shop"
    make_project(folder, NOW)
    live(folder)
    monkeypatch.chdir(folder)

    def show(line: str) -> str:
        words = shlex.split(line)[1:]
        if words == ["plan"]:
            change(folder)
        said = must(*words).stdout.replace(str(tmp_path), HOME)
        said = re.sub(r"look:\w{12}", f"look:{DIGEST[:12]}", said)
        return re.sub(r"^Plan \w{64}$", f"Plan {DIGEST}", said, flags=re.MULTILINE)

    text = README.read_text("utf-8")
    assert [match[2].split()[1] for match in SHOWN.finditer(text)] == ["why", "lineage", "plan"]
    drawn = show("feed-assets lineage show daily-revenue 2026-03-02 --up --output svg")
    shown = SHOWN.sub(lambda match: match[1] + show(match[2]) + match[4], text)
    if request.config.getoption("--update-golden"):
        README.write_text(shown, "utf-8")
        PICTURE.write_text(drawn, "utf-8")
    assert README.read_text("utf-8") == shown
    assert PICTURE.read_text("utf-8") == drawn


def change(folder: Path) -> None:
    """Let another function do the work, and its results be kept for a shorter time."""
    code, entities = folder / "shop/jobs.py", folder / "entities/daily_revenue.yaml"
    code.write_text(code.read_text("utf-8").replace("def daily_revenue", "def net_revenue"), "utf-8")
    text = entities.read_text("utf-8").replace(":daily_revenue", ":net_revenue").replace("months(12)", "days(60)")
    entities.write_text(text, "utf-8")


def test_the_feed_of_readme_is_that_of_a_new_project(tmp_path: Path) -> None:
    make_project(tmp_path / "shop", NOW)
    (told,) = (yaml.safe_load(body) for body in fences(README, "yml"))
    made = yaml.safe_load((tmp_path / "shop/entities/orders.yaml").read_text("utf-8"))
    assert told == {name: value for name, value in made.items() if name in told}


def test_readme_and_the_changelog_name_the_version() -> None:
    from feed_assets import __version__

    assert f"\nVersion {__version__}" in README.read_text("utf-8")
    assert f"\n## {__version__} " in (ROOT / "CHANGELOG.md").read_text("utf-8")
