"""Datasources: databases that feeds are imported from and exported to; and what these transfers carry."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from feed_assets.entities.common import Entity, EntityModel, Kind, Properties
from feed_assets.entities.fields import (
    Colo,
    FilledText,
    FrequencyField,
    Name,
    PropertyName,
    Text,
    Version,
    ZoneName,
    refuse,
)
from feed_assets.entities.maps import EMPTY, Map

TABLE = "datasource"
"""The first part of the asset keys of tables: `[datasource, shop, orders]`."""


class DatasourceType(StrEnum):
    """The supported databases."""

    MYSQL = "mysql"
    ORACLE = "oracle"
    HSQL = "hsql"
    POSTGRES = "postgres"
    DB2 = "db2"
    NETEZZA = "netezza"
    TERADATA = "teradata"
    GENERIC = "generic"

    @property
    def has_snapshots(self) -> bool:
        """Whether several readers of such a database see one moment."""
        return self is DatasourceType.POSTGRES


class PasswordAlias(EntityModel):
    """A password in a credential store; `provider` is the path of the store (jceks)."""

    alias: FilledText
    provider: FilledText


class Credential(EntityModel):
    """A user, and the password as one of: text (write `${env:NAME}`), a file that contains it, or an alias.

    The text may be empty.
    """

    user: FilledText
    password: Text | None = Field(default=None, repr=False)
    password_file: FilledText | None = None
    password_alias: PasswordAlias | None = None

    @model_validator(mode="after")
    def _check_password(self) -> Self:
        given = [value for value in (self.password, self.password_file, self.password_alias) if value is not None]
        if len(given) != 1:
            raise refuse(
                "credential",
                f"{len(given) or 'no'} passwords are written",
                "Write one of password, password_file and password_alias.",
            )
        return self


class Driver(EntityModel):
    """A JDBC driver: its class, and its jars."""

    driver_class: Annotated[FilledText, Field(alias="class")]
    jars: Annotated[tuple[FilledText, ...], Field(min_length=1)]


class Interface(EntityModel):
    """A JDBC URL of the database; `driver` and `credential` replace those of the datasource."""

    endpoint: FilledText
    driver: Driver | None = None
    credential: Credential | None = None
    properties: Properties = EMPTY


class Interfaces(EntityModel):
    """The addresses for imports (read) and exports (write)."""

    readonly: Interface | None = None
    write: Interface | None = None

    @model_validator(mode="after")
    def _check_addresses(self) -> Self:
        if self.readonly is None and self.write is None:
            raise refuse("interfaces", "there is neither a readonly nor a write interface", "Write at least one.")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseInterface:
    """How a database is used: a JDBC URL, with the driver and the credential of the interface or of its datasource."""

    endpoint: str
    driver: Driver
    credential: Credential
    properties: Mapping[str, str] = field(default=EMPTY, repr=False)


class Datasource(Entity):
    """A database: type, addresses, driver and credential.

    `timezone` is that of its times that are without one. `staging_schema` is where exports make their tables; None for
    the schema of the target.
    """

    kind: ClassVar[Kind] = Kind.DATASOURCE

    colo: Colo = "default"
    type: DatasourceType
    interfaces: Interfaces
    driver: Driver | None = None
    credential: Credential | None = None
    timezone: ZoneName = "UTC"
    staging_schema: FilledText | None = None

    @property
    def readonly(self) -> DatabaseInterface | None:
        """The interface for imports; None without one, or if it has no driver or credential."""
        return self._complete(self.interfaces.readonly)

    @property
    def write(self) -> DatabaseInterface | None:
        """The interface for exports; None without one, or if it has no driver or credential."""
        return self._complete(self.interfaces.write)

    @property
    def usable_interfaces(self) -> Iterator[tuple[str, DatabaseInterface]]:
        """The interfaces that can be used, by name."""
        yield from ((name, each) for name in ("readonly", "write") if (each := getattr(self, name)) is not None)

    def _complete(self, found: Interface | None) -> DatabaseInterface | None:
        driver, credential = (found and found.driver) or self.driver, (found and found.credential) or self.credential
        if found is None or driver is None or credential is None:
            return None
        return DatabaseInterface(
            endpoint=found.endpoint, driver=driver, credential=credential, properties=found.properties
        )


class ExtractType(StrEnum):
    """Whether an import reads the whole table or only new rows."""

    FULL = "full"
    INCREMENTAL = "incremental"


class MergePolicy(StrEnum):
    """Whether an import replaces existing data or adds to them."""

    SNAPSHOT = "snapshot"
    APPEND = "append"


class IncrementBy(StrEnum):
    """Which rows an increment has: those in the period of the instance, or those above the mark of the one before."""

    WINDOW = "window"
    MARK = "mark"


class LoadType(StrEnum):
    """How an export writes rows.

    UPDATE_ONLY changes the rows of the table that have the key of one, ALLOW_INSERT inserts the others, too. INSERT
    refuses a key that the table has with other values. REPLACE deletes the rows of the instance before.
    """

    UPDATE_ONLY = "updateonly"
    ALLOW_INSERT = "allowinsert"
    INSERT = "insert"
    REPLACE = "replace"


class Extract(EntityModel):
    """The options for reading a table.

    A whole table is read for the newest due instance only, with `history` for each. An increment are the rows whose
    `delta_column` lies in the period of the instance, or by `mark` above that of the instance before; there `overlap`
    reads rows again that came late, known by their `key`. Several mappers see one moment of the database, unless it
    need not be `consistent`.
    """

    type: ExtractType = ExtractType.FULL
    delta_column: FilledText | None = None
    merge_policy: MergePolicy | None = None
    by: IncrementBy | None = None
    overlap: FrequencyField | None = None
    key: tuple[FilledText, ...] = ()
    history: bool = False
    consistent: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether the newest due instance alone is read, with the whole table."""
        return self.increment is None and not self.history

    @property
    def increment(self) -> IncrementBy | None:
        """How increments are told; None for whole tables."""
        return None if self.type is ExtractType.FULL else self.by or IncrementBy.WINDOW


class Fields(EntityModel):
    """The columns that are included, or those that are excluded."""

    includes: tuple[FilledText, ...] = ()
    excludes: tuple[FilledText, ...] = ()

    @model_validator(mode="after")
    def _check_lists(self) -> Self:
        if bool(self.includes) == bool(self.excludes):
            wrong = "both includes and excludes are" if self.includes else "neither includes nor excludes is"
            raise refuse("fields", f"{wrong} written", "Write one of them.")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are named."""
        return self.includes or self.excludes

    def take(self, column: str) -> bool:
        """Return whether a column is read or written, in any case of its name."""
        return (column.lower() in map(str.lower, self.names)) is bool(self.includes)


class ImportSource(EntityModel):
    """What is read, with the name of its datasource: a table, or the rows of a `query`, as far as `where` holds."""

    name: Name
    table: FilledText | None = None
    query: FilledText | None = None
    where: FilledText | None = None
    version: Version = 0
    extract: Extract = Extract()
    fields: Fields | None = None

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if (self.table is None) is (self.query is None):
            wrong = "neither table nor query is" if self.table is None else "both table and query are"
            raise refuse("table", f"{wrong} written", "Write one of them.")
        return self


SPLIT_BY, MAPPERS, FETCH_SIZE, NULL_STRING = "--split-by", "--num-mappers", "--fetch-size", "--null-string"


class Import(EntityModel):
    """An import into each instance; `arguments` are options of Sqoop, such as `--split-by`, in any case."""

    source: ImportSource
    arguments: Map[PropertyName, Text] = EMPTY


class Load(EntityModel):
    """The options for writing rows; `instance_column` is that of the table with the nominal time of each instance."""

    type: LoadType
    instance_column: FilledText | None = None


class ExportTarget(EntityModel):
    """The table that is written, with the name of its datasource."""

    name: Name
    table: FilledText
    version: Version = 0
    load: Load
    fields: Fields | None = None


UPDATE_KEY = "--update-key"
INPUT_NULL_STRING, INPUT_NULL_OTHER = "--input-null-string", "--input-null-non-string"
ROW_ARGUMENTS = (UPDATE_KEY, INPUT_NULL_STRING, INPUT_NULL_OTHER)
"""Those of exports that decide what becomes of the table."""


class Export(EntityModel):
    """An export of each instance; `arguments` are those of Sqoop that mean something here."""

    target: ExportTarget
    arguments: Map[PropertyName, Text] = EMPTY


def find_argument(transfer: Import | Export, name: str) -> str | None:
    """Return the value of an argument of an import or export."""
    return next((value.strip() for key, value in transfer.arguments.items() if key.lower() == name), None)
