"""Runs the tables of outside truth: each case must hold, or be listed with the reason why it does not.

A test module names its table (`TABLE`) and has one runner per kind of case (`RUNNERS`). `differences/<table>` lists
the kinds that belong elsewhere and the cases that differ on purpose; a listed case that holds after all fails.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from feed_assets.errors import FeedAssetsError

Case = dict[str, Any]
Runner = Callable[[Case], None]

_HERE = Path(__file__).parent


def load_table(name: str) -> list[Case]:
    cases: list[Case] = json.loads((_HERE / name).read_text(encoding="utf-8"))
    return cases


def load_differences(name: str) -> Mapping[str, Mapping[str, str]]:
    differences: Mapping[str, Mapping[str, str]] = json.loads(
        (_HERE / "differences" / name).read_text(encoding="utf-8")
    )
    return differences


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        cases = load_table(metafunc.module.TABLE)
        metafunc.parametrize("case", cases, ids=[case["id"] for case in cases])


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Callable[[Case], None]:
    """Runs a case with the runners of the test module and the differences of its table."""
    runners: Mapping[str, Runner] = request.module.RUNNERS
    differences = load_differences(request.module.TABLE)

    def run(case: Case) -> None:
        kind, listed = case["kind"], case["id"] in differences["cases"]
        if kind not in runners:
            assert kind in differences["kinds"], f"no runner for {kind!r} and no reason listed"
            return
        if not listed:
            runners[kind](case)
            return
        with pytest.raises((AssertionError, LookupError, TypeError, FeedAssetsError, ValidationError)):
            runners[kind](case)

    return run


@pytest.fixture
def unknown_differences(request: pytest.FixtureRequest) -> set[str]:
    """Listed kinds and cases that the table does not have, or that have a runner although a kind is listed."""
    cases = load_table(request.module.TABLE)
    differences = load_differences(request.module.TABLE)
    kinds = {case["kind"] for case in cases} - set(request.module.RUNNERS)
    return (set(differences["kinds"]) - kinds) | (set(differences["cases"]) - {case["id"] for case in cases})
