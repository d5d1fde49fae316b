"""Projects in which commands are given: each is the working directory, and `ann` works there."""

from pathlib import Path

import pytest

from tests.cli.project import must, prepare
from tests.projects import enter


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is declared; a cluster, two feeds and a process wait in `all.yaml`."""
    enter(tmp_path, monkeypatch)
    prepare(tmp_path)
    return tmp_path


@pytest.fixture
def declared(prepared: Path) -> Path:
    """They stand in the folder of entities; nothing is recorded."""
    (prepared / "all.yaml").rename(prepared / "entities/all.yaml")
    return prepared


@pytest.fixture
def submitted(prepared: Path) -> Path:
    """They are submitted."""
    must("entity", "submit", "all.yaml")
    return prepared
