"""What datasources compile to: their interfaces, each with the driver, the user and the password that it names."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from feed_assets.entities.datasource import Datasource
from feed_assets.entities.maps import EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseInterface:
    """A JDBC URL of a database, and how it is used: the class of the driver, its jars (paths below the project's
    folder, or URLs), and the user with his password: a text, a file, or an alias with its credential store.
    """

    endpoint: str
    driver_class: str
    jars: tuple[str, ...]
    user: str
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    password_alias: tuple[str, str] | None = None
    properties: Mapping[str, str] = field(default=EMPTY, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasourceRecord:
    """A database that feeds are imported from and exported to: its type, such as `mysql`, and its data centre; the
    interfaces for imports (`readonly`) and exports (`write`), if they are declared.

    `timezone` is that of its times without one. `staging_schema` is where exports make their tables; None for the
    schema of the target.
    """

    name: str
    type: str
    colo: str
    timezone: str = "UTC"
    staging_schema: str | None = None
    readonly: DatabaseInterface | None = None
    write: DatabaseInterface | None = None

    @property
    def interfaces(self) -> Iterator[tuple[str, DatabaseInterface]]:
        """The declared interfaces, by name."""
        yield from ((name, each) for name in ("readonly", "write") if (each := getattr(self, name)) is not None)


def compile_datasource(datasource: Datasource) -> DatasourceRecord:
    """Return the record of a datasource; an interface without a driver or a credential, its own or the datasource's,
    is left out.
    """
    return DatasourceRecord(
        name=datasource.name,
        type=datasource.type.value,
        colo=datasource.colo,
        timezone=datasource.timezone,
        staging_schema=datasource.staging_schema,
        readonly=_interface(datasource, "readonly"),
        write=_interface(datasource, "write"),
    )


def _interface(datasource: Datasource, name: str) -> DatabaseInterface | None:
    interface = getattr(datasource.interfaces, name)
    if interface is None:
        return None
    driver, credential = interface.driver or datasource.driver, interface.credential or datasource.credential
    if driver is None or credential is None:
        return None
    alias = credential.password_alias
    return DatabaseInterface(
        endpoint=interface.endpoint,
        driver_class=driver.driver_class,
        jars=driver.jars,
        user=credential.user,
        password=credential.password,
        password_file=credential.password_file,
        password_alias=None if alias is None else (alias.alias, alias.provider),
        properties=interface.properties,
    )
