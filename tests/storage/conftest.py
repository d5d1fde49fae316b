"""Stores for the behaviour suite: a local directory, fsspec's memory, and S3 of a real server on loopback."""

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from feed_assets.storage import local_calls, object_assembly
from feed_assets.storage.local import LocalStore
from feed_assets.storage.registry import open_store
from tests.storage.beds import Bed, local_bed, object_bed
from tests.storage.shops import Shop, open_shop
from tests.storage.table_bed import table_bed
from tests.tables import Catalog

BUCKET = "instances"
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def working_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory to work in: a removal that loses its handle takes what is there, as Python's calls do."""
    monkeypatch.chdir(tmp_path_factory.mktemp("work"))


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes over a copy on an object storage does not wait long for former writers."""
    monkeypatch.setattr(object_assembly, "_SURE", 0.05)


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


FILES = ("local", "memory", pytest.param("s3", marks=pytest.mark.server))
ALL = (*FILES, pytest.param("table", marks=[pytest.mark.server, pytest.mark.spark]))


@pytest.fixture(params=["kernel", "portable"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the system calls of a new Linux, and without: then paths are opened step by step."""
    if request.param == "portable":
        monkeypatch.setattr(local_calls, "_load_openat2", lambda: None)
        monkeypatch.setattr(local_calls, "_load", lambda _: None)


@pytest.fixture(params=ALL)
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    yield from _make_bed(request, tmp_path)


@pytest.fixture(params=FILES)
def file_bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    """A store in which an instance is a directory, and nothing else says that it is there."""
    yield from _make_bed(request, tmp_path)


@pytest.fixture(params=FILES[1:])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    """A store of objects, of which none can be renamed."""
    yield from _make_bed(request, tmp_path)


@pytest.fixture(scope="session")
def catalog(metastore_port: int) -> Catalog:
    return Catalog(metastore_port)


@pytest.fixture
def shop(catalog: Catalog, tmp_path: Path) -> Shop:
    return open_shop(catalog, tmp_path / "shop")


def _make_bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
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
        case "table":
            yield table_bed(request.getfixturevalue("catalog"), tmp_path / "table")
