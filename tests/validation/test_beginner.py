"""The mistakes of beginners, through the command itself: each is named with file, line, cause and remedy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from pyspark.sql import SparkSession

from feed_assets.cli.main import main
from feed_assets.definitions.checks import code_trials
from feed_assets.engines.code_trial import try_here
from tests.spark_session import spark

__all__ = ["spark"]

TEXT = (Path(__file__).parent / "beginner.yaml").read_text("utf-8")
DOCUMENT: dict[str, Any] = yaml.safe_load(TEXT)


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """An edit of the project; `line` is that of the message, or of none (the file as a whole)."""

    name: str
    file: str
    old: str
    new: str
    line: int | None
    cause: str
    remedy: str
    is_live: bool = False

    def __str__(self) -> str:
        return self.name


MISTAKES = [
    Mistake(name=name, file=file, **mistake)
    for file, mistakes in DOCUMENT["mistakes"].items()
    for name, mistake in mistakes.items()
]


def write_project(folder: Path, mistake: Mistake | None = None) -> None:
    """Write the project, with a mistake."""
    for name, text in DOCUMENT["project"].items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        if mistake is not None and mistake.file == name:
            assert mistake.old in text, f"{mistake.old!r} is not in {name}"
            text = text.replace(mistake.old, mistake.new, 1)
        file.write_text(text, "utf-8")


def _validate(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    monkeypatch.chdir(folder)
    return CliRunner().invoke(main, ["validate", *options]).output


def _is_named(output: str, mistake: Mistake) -> bool:
    place = f"{mistake.file}:{mistake.line}: "
    return any(
        line.removeprefix("warning: ").startswith(place) and mistake.cause in line and mistake.remedy in line
        for line in output.splitlines()
    )


def test_the_project_without_a_mistake_is_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path)
    summary = "0 errors, 0 warnings; usable: 1 cluster, 3 feeds, 2 processes"
    assert _validate(tmp_path, monkeypatch) == f"{tmp_path}/entities: {summary}\n"


@pytest.mark.parametrize("mistake", [each for each in MISTAKES if not each.is_live], ids=str)
def test_a_mistake_is_named_by_validate(mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path, mistake)
    output = _validate(tmp_path, monkeypatch)
    assert _is_named(output, mistake), output


@pytest.mark.spark
def test_mistakes_that_only_python_and_spark_see_are_named_by_validate_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """In this process and in its session, which starts once; another test starts another process."""
    monkeypatch.setattr(code_trials, "try_elsewhere", lambda trials, _: list(try_here(trials, lambda: spark)))
    for number, mistake in enumerate([None, *(each for each in MISTAKES if each.is_live)]):
        (folder := tmp_path / str(number)).mkdir()
        write_project(folder, mistake)
        output = _validate(folder, monkeypatch, "--live")
        if mistake is None:
            assert "0 errors, 0 warnings" in output
        else:
            assert _is_named(output, mistake), output


def test_at_least_thirty_mistakes_are_planted() -> None:
    assert len(MISTAKES) == TEXT.count("{old: ") >= 30
