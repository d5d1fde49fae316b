"""What `make mutants` tries, and how it counts."""

import tomllib
from pathlib import Path

import pytest

from benchmarks.mutants import Mutant, parse_results, print_scores

ROOT = Path(__file__).resolve().parents[1]
LISTING = """
    feed_assets.storage.local.walk.x_walk_below__mutmut_1: killed
    feed_assets.storage.local.walk.xǁLocalMeasureǁclose__mutmut_2: survived
    feed_assets.retention.rules.eligibility.x__obstacle__mutmut_1: no tests
"""


def test_what_is_changed_and_what_must_notice_it_exist() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mutmut"]
    files = [*settings["only_mutate"], *settings["pytest_add_cli_args_test_selection"]]
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_results_are_read_by_module_and_status() -> None:
    assert [(mutant.module.rpartition(".")[2], mutant.status) for mutant in parse_results(LISTING)] == [
        ("walk", "killed"),
        ("walk", "survived"),
        ("eligibility", "no tests"),
    ]
    assert next(parse_results(LISTING)).name == "feed_assets.storage.local.walk.x_walk_below__mutmut_1"


@pytest.mark.parametrize(
    ("survivors", "others", "code"), [(5, ["killed"] * 95, 0), (6, ["killed"] * 94, 1), (0, ["timeout"], 0), (0, [], 1)]
)
def test_a_module_below_the_target_fails(
    survivors: int, others: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses = ["survived"] * survivors + others
    mutants = [Mutant(name=f"m.x_{n}", module="m", status=status) for n, status in enumerate(statuses)]
    mutants += [Mutant(name="good.x", module="good", status="killed")] * 10_000 if others else []
    assert print_scores(mutants, 60) == code
    assert ("100.0 %" in capsys.readouterr().out) == bool(others)
