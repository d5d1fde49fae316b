"""Open stores by URL scheme. The packages of a cloud are imported when its first store is opened."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from feed_assets.entities.cluster import ICEBERG
from feed_assets.entities.copies.options import Columns
from feed_assets.storage.errors import StoreUnknownError, not_installed
from feed_assets.storage.iceberg.catalogs import ALIKE, open_catalog
from feed_assets.storage.port import InstanceStore

if TYPE_CHECKING:
    from feed_assets.storage.object.client import ObjectClient
    from feed_assets.storage.table.metastore import Metastore

Options = Mapping[str, object]
OWN_OPTIONS = frozenset({"spark_scheme", "scratch"})
"""The options of feed-assets; all others are those of the storage."""
_SCHEMES: dict[str, Callable[[str, str, Options], InstanceStore]]


def open_store(url: str, options: Options) -> InstanceStore:
    """Open the store that holds a cluster's instances.

    `url` is `file:///path`, a path, `s3://bucket/prefix` (also `s3a`), `gs://…` (also `gcs`), `abfs://…` (also
    `abfss`, `az`), `sftp://host/path`, `hdfs://host:8020/path` (also `viewfs`) or `memory://name`. `options` are the
    options of the storage, listed in `storage/object/services.py`; those of S3 include `key`, `secret`, `endpoint_url`
    and `region`. Options of `sftp` go to fsspec, those of HDFS are properties of Hadoop. Two options belong to
    feed-assets. `spark_scheme`, such as `s3a`, says that Spark has a connector on its class path and reads and writes
    the store itself; it always has one of HDFS. Otherwise files are written to `scratch` and uploaded later.
    `thrift://host:9083/database/table` (further metastores after a comma) holds the partitions of a table; its options
    are `storage` and `storage_options`, the settings of the cluster for the storage of its tables, and `is_received` of
    a table that copies make. An Iceberg table, `iceberg+https://host/database/table`, also has `catalog`, the whole
    address of the catalog, `catalog_options`, and `columns`. Nothing is contacted before the first use.

    Raises `StoreUnknownError` for an unknown scheme, a wrong option, or a package that is not installed.

    >>> from feed_assets.storage.registry import open_store
    >>> open_store("/data//primary/", {}).url("/weather/2013")
    'file:///data/primary/weather/2013'
    >>> open_store("ftp://host/data", {})
    Traceback (most recent call last):
    ...
    feed_assets.storage.errors.StoreUnknownError: ftp://host/data: 'ftp' storage is not supported. Use one of abfs, \
abfss, az, file, gcs, gs, hdfs, memory, s3, s3a, sftp, viewfs.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "file", url
    is_lake = scheme.startswith(ICEBERG)
    opener = _open_table if scheme == "thrift" else _open_lake if is_lake else _SCHEMES.get(scheme)
    if opener is None:
        raise StoreUnknownError(
            url=url,
            reason=f"{scheme!r} storage is not supported",
            next_step=f"Use one of {', '.join(sorted(_SCHEMES))}.",
        )
    return opener(url, rest, options)


def _open_local(url: str, rest: str, options: Options) -> InstanceStore:
    from feed_assets.storage.local.store import LocalStore

    if options:
        raise _wrong_option(url, next(iter(options)), "local storage has no options")
    if not rest:
        raise StoreUnknownError(url=url, reason="it names no directory", next_step="Write file:///directory.")
    if "://" in url and not rest.startswith("/"):
        raise StoreUnknownError(url=url, reason="it names a host", next_step="Write file:///directory, with three '/'.")
    return LocalStore(Path(rest))


def _open_objects(url: str, rest: str, options: Options) -> InstanceStore:
    """Open an object store without contacting it."""
    from feed_assets.storage.object.store import ObjectStore

    scheme = url.partition("://")[0]
    scratch, spark_scheme, others = _split_options(options)
    if not rest.strip("/"):
        raise StoreUnknownError(url=url, reason="it names no bucket", next_step="Write the bucket behind '://'.")
    client = _open_sftp(url, others) if scheme == "sftp" else _open_obstore(url, scheme, rest, others)
    return ObjectStore(client, root_url=url, spark_scheme=spark_scheme, scratch=scratch)


def _split_options(options: Options) -> tuple[Path | None, str | None, Options]:
    """Return the options of feed-assets, `scratch` and `spark_scheme`, and those of the storage."""
    scratch, scheme = (options.get(name) for name in ("scratch", "spark_scheme"))
    others = {name: value for name, value in options.items() if name not in OWN_OPTIONS}
    return None if scratch is None else Path(str(scratch)), None if scheme is None else str(scheme), others


def _open_obstore(url: str, scheme: str, rest: str, options: Options) -> "ObjectClient":
    from obstore.exceptions import BaseError

    from feed_assets.storage.object.obstore_client import ObstoreClient
    from feed_assets.storage.object.services import SERVICES, OptionError, list_s3

    lister = partial(list_s3, rest, options) if scheme in ("s3", "s3a") and find_spec("boto3") else None
    try:
        return ObstoreClient(SERVICES[scheme](rest, options), lister)
    except OptionError as exc:
        raise _wrong_option(url, exc.option, exc.reason) from exc
    except (BaseError, ValueError, OSError) as exc:
        raise _wrong_option(url, ", ".join(sorted(options)), str(exc).partition("\n")[0]) from exc


def open_metastore(address: str) -> "Metastore":
    """Open the metastores at `thrift://one:9083,two:9083`, or that of a table, without contacting them.

    Raises:
        StoreUnknownError: the address is wrong, or a package is not installed.
    """
    try:
        from feed_assets.storage.table.metastore import Metastore
    except ImportError as exc:
        raise not_installed(address, "pymetastore", "hive", exc) from exc
    parts = (part.strip().removeprefix("thrift://").partition("/")[0] for part in address.split(","))
    return Metastore([_parse_host(address, part) for part in parts if part], address)


def _open_table(url: str, rest: str, options: Options) -> InstanceStore:
    metastore = open_metastore(url)
    from feed_assets.storage.table.partitions import TablePartitions
    from feed_assets.storage.table.store import TableStore

    unknown = set(options) - {"storage", "storage_options", "is_received", "columns"}
    if unknown:
        raise _wrong_option(url, ", ".join(sorted(unknown)), "tables have none of this name")
    names = rest.strip("/").split("/")
    if len(names) != 3 or not names[0].strip(","):
        raise StoreUnknownError(url=url, reason="it names no table", next_step="Write thrift://host:9083/web/clicks.")
    columns, home = Columns(str(options.get("columns", Columns.REFUSE))), ""
    if options.get("is_received"):
        storage, own = str(options.get("storage", "")), options.get("storage_options", {})
        assert isinstance(own, Mapping)
        home = f"{own['spark_scheme']}://{storage.partition('://')[2]}" if "spark_scheme" in own else storage
    return TableStore(TablePartitions(metastore, names[1], names[2], url, _opener_of(options), columns, home))


def _open_lake(url: str, rest: str, options: Options) -> InstanceStore:
    try:
        from feed_assets.storage.iceberg.partitions import LakePartitions
        from feed_assets.storage.iceberg.store import LakeStore
    except ImportError as exc:
        raise not_installed(url, "pyiceberg", "iceberg", exc) from exc

    _, database, table = rest.rsplit("/", 2)
    own, of_catalog = options.get("storage_options", {}), options.get("catalog_options", {})
    assert isinstance(own, Mapping)
    assert isinstance(of_catalog, Mapping)
    catalog = open_catalog(str(options["catalog"]), of_catalog, str(options["storage"]), own)
    columns = Columns(str(options.get("columns", Columns.REFUSE)))
    received_on = str(options["storage"]) if options.get("is_received") else ""
    opener = cache(_opener_of(options))
    return LakeStore(LakePartitions(catalog, database, table, url, opener, received_on), columns)


def _opener_of(options: Options) -> Callable[[str], InstanceStore]:
    """Return what opens the files of a table, with the options of the cluster's storage if they are of its kind."""
    storage, own = str(options.get("storage", "")), options.get("storage_options", {})
    assert isinstance(own, Mapping)

    def open_files(location: str) -> InstanceStore:
        is_alike = ALIKE.get(_scheme(location), _scheme(location)) == ALIKE.get(_scheme(storage), _scheme(storage))
        return open_store(location, own if is_alike else {})

    return open_files


def _parse_host(url: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise StoreUnknownError(
            url=url, reason=f"{text!r} is not a host and port", next_step="Write thrift://host:9083 as catalog."
        )
    return host.strip("[]"), int(port)


def _scheme(url: str) -> str:
    return url.partition("://")[0]


def _open_sftp(url: str, options: Options) -> "ObjectClient":
    try:
        from paramiko import SSHException
    except ImportError as exc:
        raise not_installed(url, "paramiko", "sftp", exc) from exc
    from feed_assets.storage.object.fsspec_client import FsspecClient

    return FsspecClient(url, {**_SFTP_SECONDS, **options}, (SSHException,))


def _open_hdfs(url: str, _: str, options: Options) -> InstanceStore:
    try:
        from feed_assets.storage.hdfs.client import HdfsClient, OptionError
    except ImportError as exc:
        raise not_installed(url, "hdfs-native", "hdfs", exc) from exc
    from feed_assets.storage.hdfs.store import HdfsStore

    scratch, spark_scheme, others = _split_options(options)
    try:
        client = HdfsClient(url, others)
    except OptionError as exc:
        raise _wrong_option(url, str(exc), "HDFS has properties of Hadoop, such as dfs.replication") from exc
    return HdfsStore(client, root_url=url, spark_scheme=spark_scheme or _scheme(url), scratch=scratch)


def _wrong_option(url: str, option: str, reason: str) -> StoreUnknownError:
    return StoreUnknownError(
        url=url,
        reason=f"the storage option {option!r} cannot be used: {reason}",
        next_step="Correct storage_options of the cluster.",
    )


_SCHEMES = {
    "file": _open_local,
    **dict.fromkeys(("memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "sftp"), _open_objects),
    **dict.fromkeys(("hdfs", "viewfs"), _open_hdfs),
}
_SFTP_SECONDS = {"timeout": 10, "channel_timeout": 60}
