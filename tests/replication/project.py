"""A project in which three hours of clicks lie on `east` and are copied to `west`, and commands given in it."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.project import set_clock, shown
from tests.definitions.verbs.harness import CLICKS, COUNTING, COUNTS
from tests.projects import declare, enter, land

START = "2013-11-01T00:00Z"
NOW = "2013-11-01T02:30Z"
EAST = {"kind": "cluster", "name": "east", "storage": "file://${PROJECT_ROOT}/east"}
WEST = {"kind": "cluster", "name": "west", "storage": "file://${PROJECT_ROOT}/west"}
VALIDITY = {"validity": {"start": START, "end": "2013-12-01T00:00Z"}}
REPLICATED = {
    **CLICKS,
    "availability_flag": "_SUCCESS",
    "clusters": {"east": {"type": "source", **VALIDITY}, "west": {"type": "target", **VALIDITY}},
    "replication": {"removed_files": "remove"},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Half past two, with no record of anything."""
    enter(tmp_path, monkeypatch)
    counts = {**COUNTS, "clusters": {"west": VALIDITY}}
    counting = {**COUNTING, "clusters": {"west": VALIDITY}}
    declare(tmp_path, EAST, WEST, REPLICATED, counts, counting)
    (tmp_path / "counting.sql").write_text("select count(*) as n from clicks")
    set_clock(tmp_path, NOW)
    for hour in range(3):
        land(instance(tmp_path, hour, "east"), f"clicks {hour}", is_flagged=True)
    return tmp_path


def instance(project: Path, hour: int, cluster: str = "west") -> Path:
    return project / cluster / f"clicks/2013-11-01/{hour:02d}"


def replication(*arguments: str, exit_code: int = 0) -> Any:
    """The JSON form of what `feed-assets replication` says."""
    return shown("replication", *arguments, code=exit_code)
