"""Real servers for tests: started once a session on a socket of their own, ended with it."""

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def run_postgres() -> Iterator[str]:
    """A PostgreSQL server with an empty database, at the URL that is given; its files are gone afterwards."""
    with warnings.catch_warnings():
        # Without XDG_RUNTIME_DIR the package says at import where it puts its sockets instead.
        warnings.simplefilter("ignore")
        import pgserver

    folder = Path(tempfile.mkdtemp(prefix="feed-assets-postgres-"))
    try:
        server = pgserver.get_server(folder / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server that lives as long as the test session."""
    with run_postgres() as url:
        yield url
