"""Opening stores by URL."""

import subprocess
import sys
from pathlib import Path

import pytest
from obstore.store import AzureStore, GCSStore, S3Store

from feed_assets.storage.errors import StoreUnknownError
from feed_assets.storage.local.store import LocalStore
from feed_assets.storage.object.services import open_azure, open_gcs, open_s3
from feed_assets.storage.object.store import ObjectStore
from feed_assets.storage.registry import open_store
from tests.object_servers import BUCKET
from tests.storage.harnesses import publish, read_all


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
        ("ftp://host/x", {}, "'ftp' storage is not supported"),
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


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("s3://bucket", {"default_fill_cache": False}, "'default_fill_cache' cannot be used: S3 has no option"),
        ("s3://bucket", {"client_kwargs": {"proxies": {}}}, r"'client_kwargs\.proxies' cannot be used"),
        (
            "s3://bucket",
            {"config_kwargs": {"retries": {"often": 1}}},
            r"'config_kwargs\.retries\.often' cannot be used",
        ),
        ("gs://bucket", {"consistency": "md5"}, "'consistency' cannot be used: Google Cloud Storage has no option"),
        ("abfs://container/x", {}, "'account_name' cannot be used: it is missing"),
        ("abfs://container@account.host/x", {"assume_container_exists": True}, "'assume_container_exists' cannot be"),
        ("memory://x", {"key": "1"}, "'key' cannot be used: memory has no option"),
    ],
)
def test_an_option_that_would_be_passed_over_is_refused_by_name(
    url: str, options: dict[str, object], expected: str
) -> None:
    with pytest.raises(StoreUnknownError, match=expected):
        open_store(url, options)


S3_OPTIONS: dict[str, object] = {
    "key": "k",
    "secret": "s",
    "token": "t",
    "endpoint_url": "https://store.example:9000",
    "requester_pays": True,
    "client_kwargs": {"region_name": "eu-west-1", "verify": False},
    "config_kwargs": {
        "connect_timeout": 3,
        "read_timeout": 60,
        "retries": {"max_attempts": 2, "mode": "standard"},
        "s3": {"addressing_style": "path"},
    },
    "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn:key"},
}


def test_the_options_of_s3fs_become_those_of_the_client() -> None:
    store = open_s3("bucket/a/prefix", S3_OPTIONS)
    assert isinstance(store, S3Store)
    assert store.prefix == "a/prefix"
    assert store.config == {
        "access_key_id": "k",
        "bucket": "bucket",
        "endpoint": "https://store.example:9000",
        "region": "eu-west-1",
        "request_payer": "true",
        "secret_access_key": "s",
        "server_side_encryption": "aws:kms",
        "session_token": "t",
        "sse_kms_key_id": "arn:key",
        "unsigned_payload": "true",
    } | {name: value for name, value in store.config.items() if name == "virtual_hosted_style_request"}
    assert store.retry_config is not None
    assert store.retry_config["max_retries"] == 2


def test_azure_is_named_by_account_by_url_and_by_connection_string() -> None:
    key = "a2V5"
    connection = f"DefaultEndpointsProtocol=https;AccountName=account;AccountKey={key};EndpointSuffix=core.windows.net"
    for address, options in (
        ("container/x", {"account_name": "account", "account_key": key}),
        ("container@account.dfs.core.windows.net/x", {"account_key": key}),
        ("container/x", {"connection_string": connection}),
    ):
        store = open_azure(address, options)
        assert isinstance(store, AzureStore)
        assert (store.config["account_name"], store.config["account_key"], store.prefix) == ("account", key, "x")


def test_a_public_bucket_is_read_without_a_signature() -> None:
    for store in (open_s3("bucket", {"anon": True}), open_gcs("bucket", {"token": "anon", "project": "p"})):
        assert isinstance(store, S3Store | GCSStore)
        assert store.config["skip_signature"] == "true"


@pytest.mark.server
def test_credentials_are_those_of_the_session_and_of_a_profile(
    s3_options: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {name: value for name, value in s3_options.items() if name not in ("key", "secret")}
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / "config").write_text("")
    text = "[ours]\naws_access_key_id = somebody\naws_secret_access_key = something\n"
    (tmp_path / "credentials").write_text(text)
    store = open_store(f"s3://{BUCKET}/profile", {**own, "profile": "ours"})
    publish(store, "x", {"a": b"1"})
    assert read_all(store, "x") == {"a": b"1"}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (look,) = open_store(f"s3://{BUCKET}/profile", own).look(["x"], None)
    assert "there are no credentials: no key and secret" in str(look.obstacle)
    assert "no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment or .env" in str(look.obstacle)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    assert read_all(open_store(f"s3://{BUCKET}/profile", own), "x") == {"a": b"1"}


@pytest.mark.parametrize(
    ("url", "options", "package", "extra"),
    [("s3://bucket/x", {"profile": "ours"}, "boto3", "s3"), ("sftp://host/x", {}, "paramiko", "sftp")],
)
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    url: str, options: dict[str, object], package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(StoreUnknownError, match=rf"pip install \"feed-assets\[{extra}\]\""):
        open_store(url, options)


def test_opening_a_directory_loads_no_cloud_package() -> None:
    code = (
        "import sys; from feed_assets.storage.registry import open_store; open_store('/tmp', {});"
        "print([name for name in ('fsspec', 'obstore', 'botocore', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


FORKING = """
import os
from feed_assets.storage.errors import StorageError
from feed_assets.storage.registry import open_store

store = open_store("memory://forked", {})
store.look(["x"], None)
child = os.fork()
if not child:
    try:
        store.look(["x"], None)
    except StorageError as exc:
        os._exit(0 if "forked off" in str(exc) else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_process_that_was_forked_off_is_told_so_and_does_not_hang() -> None:
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=60)
