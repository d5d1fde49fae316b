"""Databases and folders for the tests of this package: once of each kind."""

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from feed_assets.definitions.folder import DefinitionFolder, open_folder
from feed_assets.sql.database import Database
from tests.definitions.harness import DefinitionsHarness

_BUCKET = "definitions"
_numbers = itertools.count()


@pytest.fixture
def harness(database: Database, tmp_path: Path) -> DefinitionsHarness:
    """A store in a local folder that does not exist yet."""
    return DefinitionsHarness(database=database, location=str(tmp_path / "entities"))


@pytest.fixture(scope="module")
def s3_bucket() -> Iterator[str]:
    """The URL of a bucket of a real S3 server, which fsspec finds without options; no other module shall find it so."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    before = fsspec.config.conf.get("s3")
    try:
        host, port = server.get_host_and_port()
        fsspec.config.conf["s3"] = {
            "key": "anybody",
            "secret": "anything",
            "endpoint_url": f"http://{host}:{port}",
            "client_kwargs": {"region_name": "us-east-1"},
        }
        fsspec.filesystem("s3").call_s3("create_bucket", Bucket=_BUCKET)
        yield f"s3://{_BUCKET}"
    finally:
        fsspec.config.conf.pop("s3")
        if before is not None:
            fsspec.config.conf["s3"] = before
        server.stop()


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.server)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> DefinitionFolder:
    """A folder of each kind; it does not exist yet."""
    number = next(_numbers)
    match request.param:
        case "memory":
            return open_folder(f"memory://definitions-{number}/entities")
        case "s3":
            return open_folder(f"{request.getfixturevalue('s3_bucket')}/{number}/entities")
        case _:
            return open_folder(tmp_path / "entities")
