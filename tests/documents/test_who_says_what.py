"""What docs/who-says-what.md shows is accepted, and does what it says."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from feed_assets.engines.port import Context
from feed_assets.engines.run_metadata import check_nothing, parse_reported
from feed_assets.entities.metadata import Origin, Scope
from tests.cli import project
from tests.documents.markdown import ROOT

TEXT = (ROOT / "docs/who-says-what.md").read_text("utf-8")


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)[number]


class Rows(list[int]):
    def count(self) -> int:  # type: ignore[override]
        return len(self)


def test_what_a_function_says_is_what_the_file_of_an_application_says() -> None:
    names: dict[str, object] = {}
    exec(block("python"), names)
    context = Context(
        process="p",
        cluster="c",
        nominal_time=datetime(2013, 11, 3, tzinfo=UTC),
        timezone=ZoneInfo("UTC"),
        run_id="r",
        attempt=1,
    )
    names["daily_delays"](Rows(range(12)), context)  # type: ignore[operator]
    assert (
        context.reported.render() == parse_reported(block("json"), check_nothing).render() == json.loads(block("json"))
    )


def test_a_file_and_a_program_say_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    project.prepare(tmp_path)
    (tmp_path / "entities" / "all.yaml").write_text(block("yaml").replace("/data", str(tmp_path / "data")))
    applied = project.run("apply", "--yes")
    assert applied.exit_code == 0, applied.output
    exec(block("python", 1), {})
    assert capsys.readouterr().out.startswith("feed/flights {")
    shown = project.run("metadata", "get", "feed/flights", "--scope", "user").stdout
    assert "tier\tgold\tdefinition" in shown
    assert "checked\t2013-11-03\tprogram\tnightly-check" in shown
    assert "unit\tminutes\tdefinition" in project.run("metadata", "get", "feed/flights/column/dep_delay").stdout


def test_every_origin_is_named() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\w+) \|$", TEXT, re.MULTILINE)
    assert {origin for origin, _ in rows} == set(Origin)
    assert {scope for _, scope in rows} == set(Scope)
