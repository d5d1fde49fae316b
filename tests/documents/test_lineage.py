"""docs/lineage.md says what is recorded of lineage: its commands run on the days of the demo, which are simulated."""

import re
import shlex
import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.log.records import FeedEventKind
from feed_assets.simulate.parts import Arrival
from feed_assets.testing import simulate
from tests.cli.project import run
from tests.documents.markdown import ROOT, fences
from tests.instances.harness import at

PAGE = ROOT / "docs/lineage.md"
HOUR = timedelta(hours=1)
LATE = at("01T19:00")


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The state of a week of the demo, in a file; the name of one of its runs."""
    return lay_week(tmp_path, monkeypatch)


def lay_week(folder: Path, patch: pytest.MonkeyPatch) -> str:
    """Let a week of the demo pass in a folder, and work there; its state is in a file. Return the name of a run."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "feed_assets.yaml").write_text(
        "entities: examples/flights/entities\n"
        f"state: sqlite:///{folder}/state.db\n"
        f"variables: {{DATA_ROOT: '{folder}', S3_ENDPOINT: 'http://127.0.0.1:1'}}\n"
    )
    patch.chdir(folder)
    days = [at("01T04:00"), at("02T04:00"), at("03T04:00"), *(at(f"0{day}T05:00") for day in range(4, 8))]
    hours = [at("01T04:00") + n * HOUR for n in range(7 * 24 + 1)]

    def arrive(feed: str, nominal_time: Any, after: timedelta) -> Arrival:
        return Arrival(
            at=nominal_time + after, feed=feed, cluster="primary", nominal_time=nominal_time, content=f"{nominal_time}"
        )

    arrivals = [arrive("flights", day, 25 * HOUR) for day in days]
    arrivals += [arrive("weather", hour, (60 if hour == LATE else 1) * HOUR) for hour in hours]
    with simulate(
        arrivals, start="2013-11-01T04:00Z", end="2013-11-09T05:00Z", every=6 * HOUR, folder=folder
    ) as simulated:
        database = simulated._database
        with database.read() as connection, sqlite3.connect(folder / "state.db") as copy:
            inner: Any = connection.connection.driver_connection
            inner.backup(copy)
            (found,) = copy.execute("SELECT max(run_id) FROM fa_attempts").fetchone()
    return bytes(found).decode()


def test_its_commands_answer(demo: str) -> None:
    (block,) = fences(PAGE, "console")
    said = {}
    for line in block.splitlines():
        words = shlex.split(line.removeprefix("$ feed-assets "), comments=True)
        words = [demo if re.fullmatch(r"[0-9a-f-]{36}", word) else word for word in words]
        result = run(*words)
        assert result.exit_code == 0 or "--proof" in words, (line, result.output)
        said[tuple(words[:3])] = result.stdout
    up = said["lineage", "show", "airline-report"]
    assert "nothing has touched" not in up
    down = said["lineage", "show", "weather"]
    assert down.count("process daily-delays on primary 2013-11-01T04:00Z attempt") >= 1
    assert "on backup" in down


def test_a_report_is_told_as_the_page_shows_it(demo: str) -> None:
    up = run("lineage", "show", "airline-report", "2013-11-07", "--up").stdout
    (shown,) = [each for each in fences(PAGE, "text") if each.startswith("feed ")]
    for line in shown.splitlines():
        told = re.sub(r" [A-Z]+ 2013\S+ sha256:\w+| SUCCEEDED …|; evicted .*| (ARRIVED|PRODUCED).*", "", line)
        assert told in up, told


def test_the_kinds_of_events_are_told() -> None:
    (sentence,) = re.findall(r"The events of an instance are ([A-Z, \w]+)\.", PAGE.read_text("utf-8"))
    assert set(re.findall("[A-Z]{4,}", sentence)) == {each.value for each in FeedEventKind}
