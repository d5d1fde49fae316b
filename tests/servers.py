"""Real servers for tests: started once a session on a socket of their own, ended with it."""

import shutil
import socket
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


@contextmanager
def run_tcp_postgres() -> Iterator[int]:
    """A PostgreSQL server on a free port of 127.0.0.1, user `postgres` without a password; yields the port."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver

    folder = Path(tempfile.mkdtemp(prefix="feed-assets-postgres-"))
    port = free_port()
    try:
        server = pgserver.get_server(folder / "data", cleanup_mode="stop")
        try:
            options = f"-h 127.0.0.1 -p {port} -k {folder / 'data'}"
            pgserver.pg_ctl(["-w", "-o", options, "restart"], pgdata=folder / "data", user=server.system_user)
            yield port
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
