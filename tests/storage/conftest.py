"""Stores for the behaviour suite: a local directory, memory, and what real servers on loopback hold."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from feed_assets.storage.local import calls as local_calls
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.registry import open_store
from tests.object_servers import ObjectServer, run_gcs, run_sftp
from tests.storage.harnesses import StoreHarness, local_harness, object_harness, s3_harness
from tests.storage.shops import Shop, open_shop
from tests.storage.table_harness import table_harness
from tests.tables import Catalog

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def working_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty directory to work in: a removal that loses its handle takes what is there, as Python's calls do."""
    monkeypatch.chdir(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[ObjectServer]:
    with run_gcs() as server:
        yield server


@pytest.fixture(scope="session")
def sftp_server() -> Iterator[ObjectServer]:
    with run_sftp() as server:
        yield server


DAILY = "test_instance_store.py"
LARGE = str(20 << 20)
"""The size of a file that is dear on HDFS; files of several blocks are also in tests/transfer."""
OF_HDFS = (DAILY, "test_trash.py", "test_copies.py")


def pytest_itemcollected(item: pytest.Item) -> None:
    """GCS, Azure and sftp pass the suite of stores in `make test`, and the other suites in `make drills`; HDFS also
    those of what it has of its own. Tables have tests of their own of the trash.
    """
    callspec = getattr(item, "callspec", None)
    kinds = set() if callspec is None else set(map(str, callspec.params.values()))
    if kinds & {"gcs", "azure", "sftp"} and item.path.name != DAILY:
        item.add_marker(pytest.mark.drill)
    if "table" in kinds and item.path.name == "test_trash.py":
        item.add_marker(pytest.mark.drill)
    if "hdfs" in kinds and (item.path.name not in OF_HDFS or LARGE in kinds):
        item.add_marker(pytest.mark.drill)


HDFS = pytest.param("hdfs", marks=[pytest.mark.server, pytest.mark.xdist_group("hdfs")])
FILES = (
    "local",
    "memory",
    *(pytest.param(name, marks=pytest.mark.server) for name in ("s3", "gcs", "azure", "sftp")),
    HDFS,
)
ALL = (*FILES, pytest.param("table", marks=[pytest.mark.server, pytest.mark.spark]))


@pytest.fixture(params=["kernel", "portable"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the system calls of a new Linux, and without: then paths are opened step by step."""
    if request.param == "portable":
        monkeypatch.setattr(local_calls, "_load_openat2", lambda: None)
        monkeypatch.setattr(local_calls, "load_function", lambda _: None)


@pytest.fixture(params=ALL)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    yield from _make_harness(request, tmp_path)


@pytest.fixture(params=["local", "memory", HDFS, ALL[-1]])
def one_of_each(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    """A store of each kind, for what is decided before a server is asked."""
    yield from _make_harness(request, tmp_path)


@pytest.fixture(params=FILES)
def file_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    """A store in which an instance is a directory, and nothing else says that it is there."""
    yield from _make_harness(request, tmp_path)


@pytest.fixture(params=FILES[1:])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    """A store of objects, of which none can be renamed."""
    yield from _make_harness(request, tmp_path)


@pytest.fixture(scope="session")
def catalog(metastore_port: int) -> Catalog:
    return Catalog(metastore_port)


@pytest.fixture
def shop(catalog: Catalog, tmp_path: Path) -> Shop:
    return open_shop(catalog, tmp_path / "shop")


def _make_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    match request.param:
        case "local":
            yield local_harness(LocalStore(tmp_path / "root"), tmp_path / "root")
        case "memory":
            yield object_harness(open_store(f"memory://test-{next(_numbers)}", {"scratch": str(tmp_path / "scratch")}))
        case "s3" | "gcs" | "azure" | "sftp" as kind:
            server = request.getfixturevalue(f"{kind}_server")
            name = f"test-{next(_numbers)}"
            store = open_store(f"{server.url}/{name}", {**server.options, "scratch": str(tmp_path / "scratch")})
            yield s3_harness(store, server.options, name) if kind == "s3" else object_harness(store)
        case "hdfs":
            url = f"{request.getfixturevalue('hdfs_cluster').url}/test-{next(_numbers)}"
            yield object_harness(open_store(url, {"scratch": str(tmp_path / "scratch")}))
        case "table":
            yield table_harness(request.getfixturevalue("catalog"), tmp_path / "table")
