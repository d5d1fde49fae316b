"""A project in which three hours of clicks lie on `east` and are copied to `west`, and commands given in it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.project import run
from tests.cli.retention_project import set_clock
from tests.databases import lay_tables
from tests.operations.harness import CLICKS, COUNTING, COUNTS

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
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEED_ASSETS_AUTHOR", "ann")
    for name in ("FEED_ASSETS_STATE", "FEED_ASSETS_ENTITIES", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "entities").mkdir()
    counts = {**COUNTS, "clusters": {"west": VALIDITY}}
    counting = {**COUNTING, "clusters": {"west": VALIDITY}}
    declared = [EAST, WEST, REPLICATED, counts, counting]
    (tmp_path / "entities/all.yaml").write_text(yaml.safe_dump_all(declared))
    (tmp_path / "counting.sql").write_text("select count(*) as n from clicks")
    lay_tables(tmp_path / "state.db")
    set_clock(tmp_path, NOW)
    for hour in range(3):
        folder = instance(tmp_path, hour, "east")
        folder.mkdir(parents=True)
        (folder / "part.csv").write_text(f"clicks {hour}")
        (folder / "_SUCCESS").touch()
    return tmp_path


def instance(project: Path, hour: int, cluster: str = "west") -> Path:
    return project / cluster / f"clicks/2013-11-01/{hour:02d}"


def replication(*arguments: str, exit_code: int = 0) -> Any:
    """The JSON form of what `feed-assets replication` says."""
    result = run("replication", *arguments, "--output", "json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)
