"""Opening stores by URL."""

import subprocess
import sys
from pathlib import Path

import pytest

from feed_assets.storage.errors import StoreUnknownError
from feed_assets.storage.local import LocalStore
from feed_assets.storage.object_store import ObjectStore
from feed_assets.storage.registry import open_store


@pytest.mark.parametrize("url", ["{folder}", "{folder}/", "file://{folder}", "file://{folder}//"])
def test_a_directory_opens_by_path_and_by_url(tmp_path: Path, url: str) -> None:
    store = open_store(url.format(folder=tmp_path), {})
    assert isinstance(store, LocalStore)
    assert store.root_url == f"file://{tmp_path}"
    assert store.url("a") == store.spark_url("a") == f"file://{tmp_path}/a"
    assert store.local_path("a") == tmp_path / "a"


def test_s3_opens_without_asking_the_server(tmp_path: Path) -> None:
    store = open_store(
        "s3a://bucket/prefix/", {"region": "eu-west-1", "key": "k", "secret": "s", "spark_scheme": "s3a"}
    )
    assert isinstance(store, ObjectStore)
    assert store.url("/a//b") == "s3a://bucket/prefix/a/b"
    assert store.spark_url("a") == "s3a://bucket/prefix/a"
    assert store.local_path("a") is None


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("ftp://host/x", {}, "no adapter opens 'ftp'"),
        ("file://host/x", {}, "names a host"),
        ("file://", {}, "names no directory"),
        ("", {}, "names no directory"),
        ("s3://", {}, "names no bucket"),
        ("file:///x", {"key": "1"}, "'key' cannot be used: local storage has no options"),
        ("s3://bucket", {"client_kwargs": "x"}, "'client_kwargs' cannot be used"),
    ],
)
def test_what_cannot_be_opened_says_why(url: str, options: dict[str, object], expected: str) -> None:
    with pytest.raises(StoreUnknownError, match=expected):
        open_store(url, options)


@pytest.mark.parametrize(("url", "extra"), [("gs://bucket/x", "gcs"), ("abfs://container@account.host/x", "azure")])
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("gcsfs", "adlfs"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(StoreUnknownError, match=rf"pip install \"feed-assets\[{extra}\]\""):
        open_store(url, {})


def test_opening_a_directory_loads_no_cloud_package() -> None:
    code = (
        "import sys; from feed_assets.storage.registry import open_store; open_store('/tmp', {});"
        "print([name for name in ('fsspec', 's3fs', 'botocore', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
