"""`make dist`: its wheel has all that a new project needs."""

import json
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from tests.documents.markdown import ROOT, tables_of
from tests.documents.newcomer import Newcomer, build_wheel


def test_every_extra_is_described() -> None:
    (table,) = [each for each in tables_of("docs/install.md") if each.section == "Extras"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert sorted(row[0].strip("`") for row in table.rows) == sorted(extras)


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
