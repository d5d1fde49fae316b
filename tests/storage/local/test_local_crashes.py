"""A publisher on a local filesystem that is killed anywhere leaves the old instance or the new one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import feed_assets
from tests.drills import drill

PROJECT = Path(feed_assets.__path__[0]).parent


def kill_everywhere(root: Path, swap: str, repeat: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.storage.crash_publisher", str(root), swap, repeat],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("swap", "repeat"),
    [("exchange", "same"), ("renames", "anew"), drill("exchange", "anew"), drill("renames", "same")],
)
def test_a_publisher_killed_before_any_operation_leaves_old_or_new_and_a_repeat_converges(
    tmp_path: Path, swap: str, repeat: str
) -> None:
    reports = kill_everywhere(tmp_path / "root", swap, repeat)
    assert len(reports) > 20
    assert not reports[-1]["died"]
    assert {report["after"] for report in reports} == ({"old", "new"} | ({"MISSING"} if swap == "renames" else set()))
    assert {report["then"] for report in reports} == {"old", "new"}
    for report in reports:
        assert report["recovered"] or report["then"] == report["after"]
        assert "lost" not in report or report["after"] == "new"
        assert (report["at last"], report["swept"], report["left"]) == ("new", "new", [])
