"""Imports into a feed from a datasource, and exports from it: tables, columns and options."""

from enum import StrEnum
from typing import Self

from pydantic import model_validator

from feed_assets.entities.common import EntityModel
from feed_assets.entities.fields import FilledText, Name, PropertyName, Text, Version, refuse
from feed_assets.entities.maps import EMPTY, Map


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
