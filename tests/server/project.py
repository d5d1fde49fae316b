"""A small project that is served in this process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from feed_assets.server.application import build_application
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database, open_database
from tests.cli.project import let_ticks_come, must
from tests.cli.test_golden import prepare


def open_project(folder: Path, patch: pytest.MonkeyPatch, *, state: str = "") -> Database:
    """Prepare and declare the project of the golden files in a folder, and open its state: a file, or at a URL."""
    prepare(folder, patch)
    if state:
        patch.setenv("FEED_ASSETS_STATE", state)
    must("entity", "submit-and-schedule", "all.yaml")
    settings = load_settings()
    assert settings.state is not None
    let_ticks_come(settings.state, until=timedelta(days=1))
    return open_database(settings.state, settings.namespace)


def serve(database: Database) -> TestClient:
    """Return a client of the application of the project in the working directory."""
    return TestClient(build_application(load_settings(), database), raise_server_exceptions=False)


@contextmanager
def listen(application: ASGIApp, **options: Any) -> Iterator[str]:
    """Serve an application at an address of the loopback, in a thread."""
    taken = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_level="critical", lifespan="off", ws="none", **options))
    thread = Thread(target=server.run, kwargs={"sockets": [taken]})
    thread.start()
    try:
        yield f"{'https' if options else 'http'}://127.0.0.1:{taken.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
