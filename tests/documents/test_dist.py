"""`make dist`: its wheel has all that a new project needs."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.documents.newcomer import Newcomer, build_wheel


@pytest.mark.long
def test_a_project_is_made_and_validated_by_the_wheel_alone(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
    venv.create(tmp_path / "venv")
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    dependencies = sysconfig.get_path("purelib")  # without its .pth files, and so without our sources
    (packages / "dependencies.pth").write_text(dependencies)
    python = str(tmp_path / "venv/bin/python")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--ignore-installed")
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *quiet, str(wheel)], check=True)
    person = Newcomer(folder=tmp_path, programs=tmp_path / "venv/bin")
    assert person.run("python", "-c", "import feed_assets; print(feed_assets.__file__)").startswith(str(packages))
    assert "simulate" in person.run("feed-assets", "--help")
    person.run("feed-assets", "init", "shop")
    shop = Newcomer(folder=tmp_path / "shop", programs=person.programs)
    assert json.loads(shop.run("feed-assets", "validate", "--output", "json"))["issues"] == []
