"""Open Iceberg catalogs by address, `iceberg+<scheme>://…`: SQL databases, Hive metastores and REST services.

PyIceberg is imported when the first one is opened. Nothing is contacted before the first use.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from feed_assets.entities.cluster import ICEBERG, plain_address
from feed_assets.storage.errors import (
    StorageAwayError,
    StorageError,
    StoreUnknownError,
    TableRefusedError,
    not_installed,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

Options = Mapping[str, object]

_KINDS = {"sqlite": "sql", "postgresql": "sql", "thrift": "hive", "http": "rest", "https": "rest"}
_NAME = "name"
_CHECK = "Check catalog and catalog_options of the cluster, and that the catalog runs."
_FILES: Mapping[str, Mapping[str, str]] = {
    "s3": {
        "key": "s3.access-key-id",
        "secret": "s3.secret-access-key",
        "token": "s3.session-token",
        "profile": "s3.profile-name",
        "anon": "s3.anonymous",
        "region": "s3.region",
        "endpoint_url": "s3.endpoint",
    },
    "abfs": {
        "account_name": "adls.account-name",
        "account_key": "adls.account-key",
        "sas_token": "adls.sas-token",
        "tenant_id": "adls.tenant-id",
        "client_id": "adls.client-id",
        "client_secret": "adls.client-secret",
        "connection_string": "adls.connection-string",
    },
    "gs": {"project": "gcs.project-id", "endpoint_url": "gcs.service.host"},
}
"""The names that PyIceberg has for options of storages."""
ALIKE = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
"""Other schemes of the same storages."""


class LakeCatalog:
    """One Iceberg catalog, which is opened on first use. `url` is its address without user and password. Thread-safe.

    Every method raises `StorageError` if the catalog refuses, `StorageAwayError` if it does not answer, and
    `StoreUnknownError` if a package is not installed or an option is wrong.
    """

    def __init__(self, address: str, options: Options) -> None:
        self.url = plain_address(address)
        self.options = options
        self._address = address
        self._lock = threading.RLock()
        self._opened: Catalog | None = None

    def open(self) -> "Catalog":
        """Return PyIceberg's catalog; the errors of its calls are those of PyIceberg, see `translated`."""
        file = self._address.removeprefix(f"{ICEBERG}sqlite://").partition("?")[0]
        if file.startswith("//") and not Path(file[1:]).is_file():  # SQLite would make an empty catalog
            reason = f"it does not answer: there is no file {file[1:]}"
            raise self._refused(reason, path="", store="", kind=StorageAwayError)
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def check(self) -> None:
        """Contact the catalog, writing nothing."""
        catalog = self.open()
        with self.translated():
            catalog.list_namespaces()

    def has_database(self, database: str) -> bool:
        """Return whether a namespace exists."""
        catalog = self.open()
        with self.translated():
            return catalog.namespace_exists(database)

    def find_keys(self, database: str, table: str) -> tuple[str, ...] | None:
        """Return the fields of a table's partition spec; None if it does not exist."""
        found = self.find_table(database, table)
        return None if found is None else tuple(field.name for field in found.spec().fields)

    def find_table(self, database: str, name: str) -> "Table | None":
        """Return the current table; None if it does not exist."""
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        catalog = self.open()
        with self.translated():
            try:
                return catalog.load_table((database, name))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def get_table(self, database: str, name: str, store: str) -> "Table":
        """Return the current table. Raises `TableRefusedError` if it does not exist; `store` is the URL in it."""
        table = self.find_table(database, name)
        if table is None:
            raise TableRefusedError(
                store=store,
                path="",
                reason=f"there is no table {database}.{name}",
                next_step="Create it in the catalog, or correct table: of the feed.",
            )
        return table

    @contextmanager
    def translated(self, path: str = "", *, store: str = "") -> Iterator[None]:
        """Translate exceptions of the catalog and of its files. `CommitFailedException` and what says that something is
        not there pass. One call at a time asks a Hive metastore, whose client has one connection.
        """
        asks_alone = self._address.startswith(f"{ICEBERG}thrift")
        with self._lock if asks_alone else nullcontext(), self._translated(path, store):
            yield

    @contextmanager
    def _translated(self, path: str, store: str) -> Iterator[None]:
        from pyarrow import ArrowException
        from pyiceberg.exceptions import NotInstalledError, RESTError, ServiceUnavailableError
        from requests import RequestException
        from sqlalchemy.exc import OperationalError, SQLAlchemyError

        away: tuple[type[Exception], ...] = (
            OperationalError,
            RequestException,
            ServiceUnavailableError,
            ConnectionError,
        )
        away += _thrift_errors("transport.TTransport", "TTransportException")
        refusals: tuple[type[Exception], ...] = (SQLAlchemyError, RESTError, ArrowException, OSError)
        refusals += _thrift_errors("Thrift", "TException")
        try:
            yield
        except NotInstalledError as exc:
            raise lacks_iceberg(store or self.url, exc) from exc
        except away as exc:
            raise self._refused(f"it does not answer: {_first_line(exc)}", path, store, StorageAwayError) from exc
        except refusals as exc:
            raise self._refused(f"it refused: {_first_line(exc)}", path, store, StorageError) from exc

    def _refused(self, reason: str, path: str, store: str, kind: type[StorageError]) -> StorageError:
        return kind(store=store or self.url, path=path, reason=f"the Iceberg catalog: {reason}", next_step=_CHECK)

    def _open(self) -> "Catalog":
        try:
            from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
        except ImportError as exc:
            raise lacks_iceberg(self.url, exc) from exc

        uri = self._address.removeprefix(ICEBERG)
        if uri.startswith("postgresql://"):
            uri = f"postgresql+psycopg2://{uri.removeprefix('postgresql://')}"
        given = {name: str(value) for name, value in self.options.items() if value is not None}
        name = given.pop(_NAME, "default")
        kind = CatalogType(_KINDS[uri.partition("://")[0].partition("+")[0]])
        with self.translated():
            try:
                return AVAILABLE_CATALOGS[kind](name, {**given, "uri": uri})
            except (ValueError, KeyError, TypeError) as exc:
                reason = f"it cannot be opened: {_first_line(exc)}"
                raise StoreUnknownError(url=self.url, reason=reason, next_step=_CHECK) from exc


def open_catalog(address: str, options: Options, storage: str, storage_options: Options) -> LakeCatalog:
    """Return the catalog at `iceberg+sqlite:///catalog.db`, `iceberg+postgresql://host/db`, `iceberg+thrift://host:9083`
    or `iceberg+https://host/path` (REST), always the same object for the same arguments. Nothing is contacted.

    `options` are `catalog_options` of the cluster, properties of PyIceberg's catalog such as `warehouse`, `credential`
    or `token`, and `name`, by which a SQL catalog knows its tables (`default`). They go before those that follow from
    the `storage` of the cluster and its options.
    Raises `StoreUnknownError` for an unknown scheme.
    """
    scheme, found, _ = address.removeprefix(ICEBERG).partition("://")
    if not found or scheme not in _KINDS or not address.startswith(ICEBERG):
        raise StoreUnknownError(
            url=plain_address(address),
            reason=f"{scheme!r} is not a kind of Iceberg catalog",
            next_step="Write iceberg+sqlite:///file, iceberg+postgresql://, iceberg+thrift:// or iceberg+https://.",
        )
    merged = {**file_properties(storage, storage_options), **options}
    return _catalog(address, tuple(sorted((name, str(value)) for name, value in merged.items() if value is not None)))


@cache
def _catalog(address: str, options: tuple[tuple[str, str], ...]) -> LakeCatalog:
    return LakeCatalog(address, dict(options))


def file_properties(storage: str, options: Options) -> dict[str, str]:
    """Return the options of a storage by their names in PyIceberg; others have no such name, and are left out.

    >>> file_properties("s3a://bucket/data", {"region": "eu-central-1", "spark_scheme": "s3a"})
    {'s3.region': 'eu-central-1'}
    """
    scheme = storage.partition("://")[0]
    names = _FILES.get(ALIKE.get(scheme, scheme), {})
    nested = options.get("client_kwargs")
    given = {**(nested if isinstance(nested, Mapping) else {}), **options}
    if "region_name" in given:
        given.setdefault("region", given["region_name"])
    return {names[name]: str(value) for name, value in given.items() if name in names and value is not None}


def lacks_iceberg(url: str, cause: Exception) -> StoreUnknownError:
    """Return the error for a package of Iceberg that cannot be used."""
    return not_installed(url, "pyiceberg", "iceberg,hive" if "+thrift" in url else "iceberg", cause)


def _thrift_errors(module: str, name: str) -> tuple[type[Exception], ...]:
    """Return an error of Thrift; none if it is not installed."""
    try:
        return (getattr(import_module(f"thrift.{module}"), name),)
    except ImportError:
        return ()


def _first_line(exc: Exception) -> str:
    return (str(exc) or type(exc).__name__).strip().partition("\n")[0]
