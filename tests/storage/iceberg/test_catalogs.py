"""Iceberg catalogs by address: SQL on SQLite and PostgreSQL, files on S3, and what is said if one cannot be used."""

import sys
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from feed_assets.storage.errors import StorageAwayError, StorageError, StoreUnknownError, TableRefusedError
from feed_assets.storage.iceberg.catalogs import open_catalog
from tests.object_servers import BUCKET
from tests.servers import free_port

SCHEMA = Schema(NestedField(1, "text", StringType()))


@pytest.mark.server
def test_a_table_on_s3_is_found_by_the_options_of_the_storage(tmp_path: Path, s3_options: dict[str, object]) -> None:
    address, storage = f"iceberg+sqlite:///{tmp_path}/catalog.db", f"s3://{BUCKET}/lake"
    (tmp_path / "catalog.db").touch()
    lake = open_catalog(address, {"warehouse": f"{storage}/tables"}, storage, s3_options)
    lake.open().create_namespace("web")
    lake.open().create_table("web.clicks", SCHEMA)

    found = lake.get_table("web", "clicks", "the store")

    assert found.location() == f"{storage}/tables/web/clicks"
    assert lake.find_keys("web", "clicks") == ()
    assert lake.find_keys("web", "other") is None
    assert lake.find_keys("other", "clicks") is None
    assert open_catalog(address, {"warehouse": f"{storage}/tables"}, storage, s3_options) is lake
    with pytest.raises(TableRefusedError, match=r"the store: there is no table web\.other"):
        lake.get_table("web", "other", "the store")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("iceberg+https://127.0.0.1:{port}/api", "does not answer"),
        ("iceberg+postgresql://me:secret-of-mine@127.0.0.1:{port}/lake", "does not answer"),
        ("iceberg+thrift://127.0.0.1:{port}", "does not answer"),
        ("iceberg+sqlite:////nowhere/catalog.db", "does not answer: there is no file /nowhere/catalog.db"),
    ],
)
def test_a_catalog_that_is_away_is_named_without_its_password(address: str, reason: str) -> None:
    lake = open_catalog(address.format(port=free_port()), {}, "file:///data", {})
    with pytest.raises(StorageAwayError, match=f"the Iceberg catalog: it {reason}") as found:
        lake.check()
    assert "secret-of-mine" not in str(found.value)
    assert "catalog_options" in str(found.value)


def test_what_cannot_be_opened_says_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(StoreUnknownError, match=r"'glue' is not a kind of Iceberg catalog\. Write iceberg\+sqlite"):
        open_catalog("iceberg+glue://here", {}, "file:///data", {})
    for name in ("a.db", "b.db"):
        (tmp_path / name).touch()
    wrong = open_catalog(f"iceberg+sqlite:///{tmp_path}/a.db", {"schema_version": "v9"}, "file:///data", {})
    with pytest.raises(StorageError, match="it cannot be opened: Invalid schema_version"):
        wrong.check()
    other = open_catalog(f"iceberg+sqlite:///{tmp_path}/b.db", {"name": "other"}, "file:///data", {})
    with monkeypatch.context() as patch:
        patch.delattr("pyiceberg.catalog.CatalogType")  # another version than ours
        with pytest.raises(StoreUnknownError, match="'pyiceberg' cannot be used: cannot import name 'CatalogType'"):
            other.check()
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    lake = open_catalog(f"iceberg+sqlite:///{tmp_path}/b.db", {}, "file:///data", {})
    with pytest.raises(StoreUnknownError, match=r"pip install \"feed-assets\[iceberg\]\""):
        lake.check()
