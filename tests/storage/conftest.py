"""Stores for the behaviour suite: a local directory, fsspec's memory, and S3 of a real server on loopback."""

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from feed_assets.storage.local import LocalStore
from feed_assets.storage.registry import open_store
from tests.storage.beds import Bed, local_bed, object_bed

BUCKET = "instances"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, object]]:
    """The options of an S3 server with one bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options: dict[str, object] = {
            "key": "anybody",
            "secret": "anything",
            "endpoint_url": f"http://{host}:{port}",
            "client_kwargs": {"region_name": "us-east-1"},
        }
        fs = fsspec.filesystem("s3", **options)
        fs.call_s3("create_bucket", Bucket=BUCKET)
        yield options
    finally:
        server.stop()


@pytest.fixture(params=["local", "memory", pytest.param("s3", marks=pytest.mark.server)])
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    match request.param:
        case "local":
            yield local_bed(LocalStore(tmp_path / "root"), tmp_path / "root")
        case "memory":
            name = f"test-{next(_numbers)}"
            fs = fsspec.filesystem("memory")
            yield object_bed(open_store(f"memory://{name}", {"scratch": str(tmp_path / "scratch")}), fs, f"/{name}")
            fs.rm(f"/{name}", recursive=True) if fs.exists(f"/{name}") else None
        case "s3":
            options = request.getfixturevalue("s3_options")
            root = f"{BUCKET}/test-{next(_numbers)}"
            store = open_store(f"s3://{root}", {**options, "scratch": str(tmp_path / "scratch")})
            yield object_bed(store, fsspec.filesystem("s3", **options, use_listings_cache=False), root)
