"""Datasources: databases that feeds are imported from and exported to."""

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from feed_assets.entities.common import Entity, EntityModel, Kind, Properties
from feed_assets.entities.fields import Colo, FilledText, Text, refuse
from feed_assets.entities.maps import EMPTY


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
    """A database: type, addresses, driver and credential."""

    kind: ClassVar[Kind] = Kind.DATASOURCE

    colo: Colo = "default"
    type: DatasourceType
    interfaces: Interfaces
    driver: Driver | None = None
    credential: Credential | None = None
