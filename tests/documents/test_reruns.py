"""docs/reruns.md says what a rerun runs again: its commands run on a week of the demo, which is simulated."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.project import let_ticks_come, ok, run
from tests.documents.markdown import ROOT, fences
from tests.documents.test_lineage import lay_week

PAGE = ROOT / "docs/reruns.md"


def test_the_commands_of_the_page_run_and_show_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_week(tmp_path, monkeypatch)
    let_ticks_come(f"sqlite:///{tmp_path}/state.db")
    monkeypatch.setenv("FEED_ASSETS_AUTHOR", "ann")
    (commands,) = fences(PAGE, "console")
    plan, rerun, why, kill = (shlex.split(line.removeprefix("$ "))[1:] for line in commands.splitlines())
    shown = run(*plan)
    (table,) = [text for text in fences(PAGE, "text") if text.startswith("level")]
    *rows, _, _ = table.splitlines()
    cells = [re.split(r"\s{2,}", row.strip()) for row in rows]
    told = [line.split("\t") for line in ok(shown).splitlines()]
    assert [[*each[:5], each[6]] for each in told] == [[*each[:5], each[6]] for each in cells]
    said = re.sub(r"\d\.\d\d hours", "", shown.stderr.splitlines()[0])
    assert said == re.sub(r"\d\.\d\d hours", "", " ".join(table.splitlines()[-2:]))
    assert "2 instances of daily-delays again" in run(*rerun).stderr
    assert "it is a part of rerun 62d9b4d2 of ann" in ok(run(*why, "--all"))
    assert "1 rerun that was asked for will not be" in run(*kill).stderr
    assert "rerun" not in ok(run(*why, "--all"))
