"""Which adapter opens which storage URL. Packages of a cloud are imported when its first store is opened."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from feed_assets.storage.errors import StoreUnknownError
from feed_assets.storage.port import InstanceStore

Options = Mapping[str, object]
_SCHEMES: dict[str, Callable[[str, str, Options], InstanceStore]]


def open_store(url: str, options: Options) -> InstanceStore:
    """Open the store that holds a cluster's instances.

    `url` is `file:///path`, a path, `s3://bucket/prefix` (also `s3a`), `gs://…` (also `gcs`), `abfs://…` (also
    `abfss`, `az`) or `memory://name`. `options` go to the fsspec filesystem, for S3 for instance `key`, `secret`,
    `endpoint_url` and `region`; except two of our own: `spark_scheme`, such as `s3a`, says that Spark has a connector
    on its class path and reads and writes the store itself, and `scratch` is where files wait for their upload
    otherwise. `thrift://host:9083/database/table` (further metastores after a comma) holds the partitions of a table;
    its options are `storage` and `storage_options`, what a cluster says of the storage that tables lie in. Nothing is
    contacted before the first use.
    Raises `StoreUnknownError` for another scheme, an option that is wrong, or a package that is not installed.

    >>> from feed_assets.storage.registry import open_store
    >>> open_store("/data//primary/", {}).url("/weather/2013")
    'file:///data/primary/weather/2013'
    >>> open_store("sftp://host/data", {})
    Traceback (most recent call last):
    ...
    feed_assets.storage.errors.StoreUnknownError: sftp://host/data: no adapter opens 'sftp' storage. Use one of abfs, \
abfss, az, file, gcs, gs, memory, s3, s3a.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "file", url
    opener = _open_table if scheme == _TABLE_SCHEME else _SCHEMES.get(scheme)
    if opener is None:
        raise StoreUnknownError(
            url=url,
            reason=f"no adapter opens {scheme!r} storage",
            next_step=f"Use one of {', '.join(sorted(_SCHEMES))}.",
        )
    return opener(url, rest, options)


def _open_local(url: str, rest: str, options: Options) -> InstanceStore:
    from feed_assets.storage.local import LocalStore

    if options:
        raise _wrong_option(url, next(iter(options)), "local storage has no options")
    if not rest:
        raise StoreUnknownError(url=url, reason="it names no directory", next_step="Write file:///directory.")
    if "://" in url and not rest.startswith("/"):
        raise StoreUnknownError(url=url, reason="it names a host", next_step="Write file:///directory, with three '/'.")
    return LocalStore(Path(rest))


def _open_memory(url: str, rest: str, options: Options) -> InstanceStore:
    return _open_fsspec(url, f"memory://{rest}", options, packages=("fsspec",), extra="")


def _open_s3(url: str, rest: str, options: Options) -> InstanceStore:
    options = dict(options)
    client = options.pop("client_kwargs", {})
    if not isinstance(client, Mapping):
        raise _wrong_option(url, "client_kwargs", "it must be a map")
    if region := options.pop("region", None):
        client = {**client, "region_name": region}
    if client:
        options["client_kwargs"] = dict(client)
    foreign = ("botocore.exceptions:BotoCoreError", "botocore.exceptions:ClientError", "aiohttp:ClientError")
    return _open_fsspec(url, f"s3://{rest}", options, packages=("s3fs", "obstore"), extra="s3", foreign=foreign)


def _open_gcs(url: str, rest: str, options: Options) -> InstanceStore:
    foreign = ("gcsfs.retry:HttpError", "google.auth.exceptions:GoogleAuthError", "aiohttp:ClientError")
    return _open_fsspec(url, f"gs://{rest}", options, packages=("gcsfs",), extra="gcs", foreign=foreign)


def _open_azure(url: str, rest: str, options: Options) -> InstanceStore:
    foreign = ("azure.core.exceptions:AzureError",)
    return _open_fsspec(url, f"abfs://{rest}", options, packages=("adlfs",), extra="azure", foreign=foreign)


def _open_table(url: str, rest: str, options: Options) -> InstanceStore:
    try:
        from feed_assets.storage.metastore import Metastore
    except ImportError as exc:
        raise _not_installed(url, "pymetastore", "hive") from exc
    from feed_assets.storage.table_store import TableStore

    unknown = set(options) - {"storage", "storage_options"}
    if unknown:
        raise _wrong_option(url, ", ".join(sorted(unknown)), "tables have none of this name")
    names = rest.strip("/").split("/")
    hosts = [_parse_host(url, part) for part in names[0].split(",") if part]
    if len(names) != 3 or not hosts:
        raise StoreUnknownError(url=url, reason="it names no table", next_step="Write thrift://host:9083/web/clicks.")
    storage, own = str(options.get("storage", "")), options.get("storage_options", {})
    assert isinstance(own, Mapping)

    def open_files(location: str) -> InstanceStore:
        is_alike = _ALIKE.get(_scheme(location), _scheme(location)) == _ALIKE.get(_scheme(storage), _scheme(storage))
        return open_store(location, own if is_alike else {})

    return TableStore(Metastore(hosts, url), names[1], names[2], url, open_files)


def _parse_host(url: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise StoreUnknownError(
            url=url, reason=f"{text!r} is no host and port", next_step="Write thrift://host:9083/web/clicks."
        )
    return host.strip("[]"), int(port)


def _scheme(url: str) -> str:
    return url.partition("://")[0]


def _open_fsspec(
    url: str, address: str, options: Options, *, packages: tuple[str, ...], extra: str, foreign: tuple[str, ...] = ()
) -> InstanceStore:
    for package in packages:
        try:
            import_module(package)
        except ImportError as exc:
            raise _not_installed(url, package, extra) from exc
    import fsspec

    from feed_assets.storage.object_store import ObjectStore

    options = dict(options)
    spark_scheme = options.pop("spark_scheme", None)
    scratch = options.pop("scratch", None)
    try:
        filesystem = fsspec.get_filesystem_class(address.partition("://")[0])
        named = filesystem._get_kwargs_from_urls(address)
        fs = filesystem(**{**named, **options, "use_listings_cache": False})
        root = filesystem._strip_protocol(address)
    except (TypeError, ValueError) as exc:
        raise _wrong_option(url, ", ".join(sorted(options)), str(exc)) from exc
    if not root.strip("/"):
        raise StoreUnknownError(url=url, reason="it names no bucket", next_step="Write the bucket behind '://'.")
    return ObjectStore(
        fs,
        root=root,
        root_url=url,
        spark_scheme=None if spark_scheme is None else str(spark_scheme),
        scratch=None if scratch is None else Path(str(scratch)),
        foreign=tuple(_load_error(name) for name in foreign),
        has_containers=not address.startswith("memory://"),
    )


def _load_error(name: str) -> type[Exception]:
    module, _, attribute = name.partition(":")
    error: type[Exception] = getattr(import_module(module), attribute)
    return error


def _not_installed(url: str, package: str, extra: str) -> StoreUnknownError:
    return StoreUnknownError(
        url=url,
        reason=f"the package {package!r} is not installed",
        next_step=f'Install it with: pip install "feed-assets[{extra}]".',
    )


def _wrong_option(url: str, option: str, reason: str) -> StoreUnknownError:
    return StoreUnknownError(
        url=url,
        reason=f"the storage option {option!r} cannot be used: {reason}",
        next_step="Correct storage_options of the cluster.",
    )


_SCHEMES = {
    "file": _open_local,
    "memory": _open_memory,
    "s3": _open_s3,
    "s3a": _open_s3,
    "gs": _open_gcs,
    "gcs": _open_gcs,
    "abfs": _open_azure,
    "abfss": _open_azure,
    "az": _open_azure,
}
_TABLE_SCHEME = "thrift"
_ALIKE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
