"""Open the object storages of obstore from storage options: S3, Google Cloud Storage, Azure and memory.

Options have the names of fsspec's filesystems (s3fs, gcsfs, adlfs); an option without effect is refused.
"""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obstore.store import AzureStore, GCSStore, MemoryStore, ObjectStore, S3Store

from feed_assets.clock import SystemClock
from feed_assets.storage.object.client import Children
from feed_assets.storage.object.obstore_client import NO_CREDENTIALS, object_file

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Credential

Options = Mapping[str, object]
_META = {"size": "Size", "last_modified": "LastModified", "e_tag": "ETag"}
_CREDENTIALS_STAY = timedelta(minutes=5)
_CLIENT: "ClientConfig" = {
    "connect_timeout": timedelta(seconds=10),
    "read_timeout": timedelta(minutes=1),
    "timeout": timedelta(hours=12),  # "of a whole object, however large"
}


class OptionError(Exception):
    """A storage option cannot be used."""

    def __init__(self, option: str, reason: str) -> None:
        self.option = option
        self.reason = reason
        super().__init__(f"{option}: {reason}")


class _Options:
    """Options that are taken one by one; `end` refuses those that are left."""

    def __init__(self, options: Options, prefix: str = "") -> None:
        self._left = {name: value for name, value in options.items() if value is not None}
        self._prefix = prefix

    def text(self, *names: str) -> str | None:
        """Take the first of these options that is set, as text."""
        found = [str(self._left.pop(name)) for name in names if name in self._left]
        return found[0] if found else None

    def switch(self, name: str) -> bool:
        return bool(self._left.pop(name, False))

    def any(self, name: str) -> object:
        return self._left.pop(name, None)

    def map(self, name: str) -> "_Options":
        value = self._left.pop(name, {})
        if not isinstance(value, Mapping):
            raise OptionError(self._prefix + name, "it must be a map")
        return _Options(value, f"{self._prefix}{name}.")

    def end(self, service: str) -> None:
        for name in self._left:
            raise OptionError(self._prefix + name, f"{service} has no option of this name here")


def open_s3(address: str, options: Options) -> ObjectStore:
    """Open a bucket of S3 or a compatible service.

    Options: `key`, `secret`, `token`, `profile`, `anon`, `region`, `endpoint_url`, `requester_pays`; `client_kwargs`
    with `region_name`, `endpoint_url`, `verify`; `config_kwargs` with `connect_timeout`, `read_timeout`, `retries` and
    `s3.addressing_style`; `s3_additional_kwargs` with `ServerSideEncryption` and `SSEKMSKeyId`.
    """
    given = _Options(options)
    client, config, more = given.map("client_kwargs"), given.map("config_kwargs"), given.map("s3_additional_kwargs")
    endpoint = given.text("endpoint_url") or client.text("endpoint_url")
    key, secret = given.text("key"), given.text("secret")
    is_public, profile = given.switch("anon"), given.text("profile")
    bucket, prefix = _split(address)
    style = (addressing := config.map("s3")).text("addressing_style")
    chosen = {
        "access_key_id": key,
        "secret_access_key": secret,
        "session_token": given.text("token"),
        "region": given.text("region") or client.text("region_name"),
        "endpoint": endpoint,
        "server_side_encryption": more.text("ServerSideEncryption"),
        "sse_kms_key_id": more.text("SSEKMSKeyId"),
        "request_payer": given.switch("requester_pays") or None,
        "virtual_hosted_style_request": True if style == "virtual" else None,
        "skip_signature": is_public or None,
        "unsigned_payload": not (endpoint or "").startswith("http:"),  # as botocore signs
    }
    client_options, retry = _client(endpoint, config, client.any("verify"))
    for part in (addressing, config, client, more, given):
        part.end("S3")
    provider = None if key or is_public else _find_credentials(profile)
    return S3Store(
        bucket,
        prefix=prefix,
        client_options=client_options,
        retry_config=retry,
        credential_provider=provider,
        **_drop_none(chosen),
    )


def list_s3(address: str, options: Mapping[str, Any], folder: str) -> Children:
    """List a folder of S3 by boto3, which takes any name, and all that is below a second slash behind it."""
    from boto3 import Session
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, prefix = _split(address)
    below = f"{prefix or ''}/{folder}/".lstrip("/")
    config = Config(signature_version=UNSIGNED if options.get("anon") else None, **options.get("config_kwargs", {}))
    chosen = {"config": config, "endpoint_url": options.get("endpoint_url"), **options.get("client_kwargs", {})}
    asked = {"Bucket": bucket} | ({"RequestPayer": "requester"} if options.get("requester_pays") else {})
    try:
        session = Session(*map(options.get, ("key", "secret", "token", "region")), profile_name=options.get("profile"))
        paginate = session.client("s3", **chosen).get_paginator("list_objects_v2").paginate
        pages = [*paginate(Prefix=below, Delimiter="/", **asked), *paginate(Prefix=f"{below}/", **asked)]
    except (BotoCoreError, ClientError) as exc:
        raise OSError(str(exc)) from exc
    found = [each for page in pages for each in page.get("Contents", ()) if each["Key"] != below]
    metas = {each["Key"].removeprefix(below): {to: each[of] for to, of in _META.items()} for each in found}
    folders = [each["Prefix"][len(below) : -1] for page in pages for each in page.get("CommonPrefixes", ())]
    return Children(folders, {name: object_file(name, meta) for name, meta in metas.items()})


def open_gcs(address: str, options: Options) -> ObjectStore:
    """Open a bucket of Google Cloud Storage.

    Options: `token` (the path of a JSON file, its content as a map, `anon`, or `google_default`), `endpoint_url`,
    `project` (which objects do not need).
    """
    given = _Options(options)
    bucket, prefix = _split(address)
    endpoint, token = given.text("endpoint_url"), given.any("token")
    given.text("project")
    chosen: dict[str, object] = {"base_url": endpoint}
    match token:
        case "anon":
            chosen["skip_signature"] = True
        case Mapping():
            chosen["service_account_key"] = json.dumps(dict(token))
        case str() if token not in ("google_default", "cloud"):
            chosen["application_credentials"] = token
    client_options, retry = _client(endpoint, given, None)
    given.end("Google Cloud Storage")
    return GCSStore(bucket, prefix=prefix, client_options=client_options, retry_config=retry, **_drop_none(chosen))


def open_azure(address: str, options: Options) -> ObjectStore:
    """Open a container of Azure, by `container/path` or `container@account.host/path`.

    Options: `account_name`, `account_key`, `sas_token`, `connection_string`, `client_id`, `client_secret`, `tenant_id`,
    `anon`, `endpoint_url`.
    """
    given = _Options(options)
    container, prefix = _split(address)
    container, _, host = container.partition("@")
    pairs = (given.text("connection_string") or "").split(";")
    connection = {name: value for name, found, value in (pair.partition("=") for pair in pairs) if found}
    endpoint = given.text("endpoint_url") or connection.get("BlobEndpoint")
    chosen = {
        "account_name": given.text("account_name") or connection.get("AccountName") or host.partition(".")[0] or None,
        "account_key": given.text("account_key") or connection.get("AccountKey"),
        "sas_key": given.text("sas_token") or connection.get("SharedAccessSignature"),
        "client_id": given.text("client_id"),
        "client_secret": given.text("client_secret"),
        "tenant_id": given.text("tenant_id"),
        "skip_signature": given.switch("anon") or None,
        "endpoint": endpoint,
    }
    client_options, retry = _client(endpoint, given, None)
    given.end("Azure")
    if not chosen["account_name"]:
        raise OptionError("account_name", "it is missing; or write abfs://container@account.host/path")
    return AzureStore(container, prefix=prefix, client_options=client_options, retry_config=retry, **_drop_none(chosen))


def open_memory(address: str, options: Options) -> ObjectStore:
    """Open objects in the memory of this process; all stores with the same address share them."""
    _Options(options).end("memory")
    return _open_memory(address.strip("/"))


@cache
def _open_memory(name: str) -> ObjectStore:  # noqa: ARG001
    return MemoryStore()


SERVICES: Mapping[str, Callable[[str, Options], ObjectStore]] = {
    "memory": open_memory,
    "s3": open_s3,
    "s3a": open_s3,
    "gs": open_gcs,
    "gcs": open_gcs,
    "abfs": open_azure,
    "abfss": open_azure,
    "az": open_azure,
}


def _split(address: str) -> tuple[str, str | None]:
    bucket, _, prefix = address.strip("/").partition("/")
    return bucket, prefix or None


def _drop_none(chosen: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in chosen.items() if value is not None}


def _client(endpoint: str | None, given: _Options, verify: object) -> "tuple[ClientConfig, RetryConfig]":
    """Return the client and retry configuration from the options of botocore's configuration and its `verify`."""
    client: ClientConfig = {**_CLIENT, "allow_http": (endpoint or "").startswith("http:")}
    if seconds := given.text("connect_timeout"):
        client["connect_timeout"] = timedelta(seconds=float(seconds))
    if seconds := given.text("read_timeout"):
        client["read_timeout"] = timedelta(seconds=float(seconds))
    if verify is False:
        client["allow_invalid_certificates"] = True
    elif isinstance(verify, str):
        client["root_certificate"] = Path(verify).read_bytes()
    retries = given.map("retries")
    retries.text("mode")  # accepted without effect: botocore's rule for waiting
    total = retries.text("total_max_attempts")
    most = int(retries.text("max_attempts") or 5) if total is None else int(total) - 1
    retries.end("the storage")
    return client, {"max_retries": most, "retry_timeout": timedelta(minutes=3)}


def _find_credentials(profile: str | None) -> "Callable[[], S3Credential] | None":
    """Return a function that finds the credentials of a profile, or in the default places of AWS, as boto3 does.

    obstore calls it on the first request and repeatedly after that. Returns None if boto3 is not installed and no
    profile is given: obstore itself finds credentials in the environment and from the roles of machines and containers,
    but not in configuration files.
    """
    try:
        from boto3 import Session
    except ImportError:
        if profile:
            raise OptionError("profile", 'it needs boto3; install it with: pip install "feed-assets[s3]"') from None
        return None

    @cache
    def session() -> Session:
        return Session(profile_name=profile)

    def find() -> "S3Credential":
        found = session().get_credentials()
        if found is None:
            raise ValueError(NO_CREDENTIALS)
        frozen = found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": SystemClock().now() + _CREDENTIALS_STAY,
        }

    return find
