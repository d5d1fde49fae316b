"""An Iceberg table after kills of those who publish, remove and restore: the old rows or the new ones, never half."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.markdown import ROOT
from tests.object_servers import BUCKET

ACTIONS = ("publish", "put", "restore")
KILLS = 17
"""Kills of each action."""


def killed(folder: Path, storage: str, options: dict[str, object], kills: int) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "tests.storage.iceberg.crash_lake", str(folder), storage, json.dumps(options)]
    done = subprocess.run([*command, str(kills)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def require_whole(found: list[dict[str, object]], kills: int) -> None:
    states = [each for each in found if "state" in each]
    assert len(states) == len(ACTIONS) * kills
    assert [each for each in states if each["state"] not in ("old", "new") or not each["same"]] == []
    assert [each for each in found if "converged" in each and not each["converged"]] == []


@pytest.mark.sample
def test_a_kill_leaves_old_rows_or_new_ones(tmp_path: Path) -> None:
    require_whole(killed(tmp_path, f"file://{tmp_path}/lake", {}, 1), 1)


@pytest.mark.drill
@pytest.mark.server
def test_a_kill_leaves_old_rows_or_new_ones_on_s3(tmp_path: Path, s3_options: dict[str, object]) -> None:
    found = killed(tmp_path, f"s3://{BUCKET}/{tmp_path.name}", s3_options, KILLS)
    require_whole(found, KILLS)
    for action in ACTIONS:
        seen = {each["state"] for each in found if each.get("action") == action and "state" in each}
        assert seen == {"old", "new"}, action
