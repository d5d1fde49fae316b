"""A busy machine breaks no budget: only a test that is over it twice fails."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import time
from pathlib import Path

def burn():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass

def test_once(tmp_path_factory):
    mark = Path(__file__).with_suffix(".mark")
    if not mark.exists():
        mark.touch()
        burn()

def test_twice():
    burn()

def test_never():
    pass
"""
PROGRAM = """
import sys
import pytest
from tests import tiers

tiers.BUDGET = 0.2
options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-c", "/dev/null"]
sys.exit(pytest.main([*options, sys.argv[1]], [tiers.Tiers()]))
"""


def test_only_a_second_run_over_the_budget_fails(tmp_path: Path) -> None:
    file = tmp_path / "test_burning.py"
    file.write_text(TESTS)
    root = Path(__file__).parents[1]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "FEED_ASSETS_"))}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(file)], cwd=root, env=environ, capture_output=True, text=True, check=False
    )
    assert "1 failed, 2 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "FAILED" in ended.stdout
    assert "test_twice" in ended.stdout
