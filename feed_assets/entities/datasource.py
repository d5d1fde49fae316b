"""Datasources: databases that feeds are imported from and exported to; and what these transfers carry."""

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from feed_assets.entities.common import Entity, EntityModel, Kind, Properties
from feed_assets.entities.fields import Colo, FilledText, Name, PropertyName, Text, Version, ZoneName, refuse
from feed_assets.entities.maps import EMPTY, Map


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


class Datasource(Entity):
    """A database: type, addresses, driver and credential.

    `timezone` is that of its times that are without one. `staging_schema` is where exports make their tables.
    """

    kind: ClassVar[Kind] = Kind.DATASOURCE

    colo: Colo = "default"
    type: DatasourceType
    interfaces: Interfaces
    driver: Driver | None = None
    credential: Credential | None = None
    timezone: ZoneName = "UTC"
    staging_schema: FilledText | None = None


class ExtractType(StrEnum):
    """Whether an import reads the whole table or only new rows."""

    FULL = "full"
    INCREMENTAL = "incremental"


class MergePolicy(StrEnum):
    """Whether an import replaces existing data or adds to them."""

    SNAPSHOT = "snapshot"
    APPEND = "append"


class LoadType(StrEnum):
    """Whether an export leaves out rows that the table lacks, or inserts them."""

    UPDATE_ONLY = "updateonly"
    ALLOW_INSERT = "allowinsert"


class Extract(EntityModel):
    """The options for reading a table."""

    type: ExtractType
    delta_column: FilledText | None = None
    merge_policy: MergePolicy


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


class ImportSource(EntityModel):
    """The table that is read, with the name of its datasource."""

    name: Name
    table: FilledText
    version: Version = 0
    extract: Extract | None = None
    fields: Fields | None = None


class Import(EntityModel):
    """An import into each instance; `arguments` are options of the importer, such as `--split-by`."""

    source: ImportSource
    arguments: Map[PropertyName, Text] = EMPTY


class Load(EntityModel):
    """The options for writing rows."""

    type: LoadType


class ExportTarget(EntityModel):
    """The table that is written, with the name of its datasource."""

    name: Name
    table: FilledText
    version: Version = 0
    load: Load
    fields: Fields | None = None


class Export(EntityModel):
    """An export of each instance; `arguments` are options of the exporter."""

    target: ExportTarget
    arguments: Map[PropertyName, Text] = EMPTY
