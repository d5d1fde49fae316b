"""A small project that is served in this process."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from feed_assets.server.application import build_application
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database, open_database
from tests.cli.project import must
from tests.cli.test_golden import prepare


def open_project(folder: Path, patch: pytest.MonkeyPatch) -> Database:
    """Prepare and declare the project of the golden files in a folder, and open its state."""
    prepare(folder, patch)
    must("entity", "submit-and-schedule", "all.yaml")
    settings = load_settings()
    assert settings.state is not None
    return open_database(settings.state, settings.namespace)


def serve(database: Database) -> TestClient:
    """Return a client of the application of the project in the working directory."""
    return TestClient(build_application(load_settings(), database), raise_server_exceptions=False)
