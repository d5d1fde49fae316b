"""Rules about exports of feeds to tables of databases."""

from collections.abc import Iterator

from feed_assets.entities.datasource import (
    INPUT_NULL_OTHER,
    INPUT_NULL_STRING,
    MAPPERS,
    UPDATE_KEY,
    DatasourceType,
    Export,
    LoadType,
    find_argument,
)
from feed_assets.entities.feed import Feed
from feed_assets.issues import FieldPath, Severity
from feed_assets.validation.rules_transfers import check_arguments
from feed_assets.validation.scope import Complaint, Scope, column_names

_ARGUMENTS = {MAPPERS: 64, UPDATE_KEY: None, INPUT_NULL_STRING: None, INPUT_NULL_OTHER: None}
_WRITABLE = (DatasourceType.POSTGRES, DatasourceType.MYSQL)


def check_export(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F14: an export must say by which key rows are found, with arguments that exports know.

    Differs from Falcon: columns may be chosen, and `updateonly` and `allowinsert` need a key.
    """
    for name, entry in feed.clusters.items():
        if entry.export is not None:
            path: FieldPath = ("clusters", name, "export")
            yield from _check_load(path, entry.export)
            yield from check_arguments((*path, "arguments"), entry.export, _ARGUMENTS)
            yield from _check_key((*path, "arguments"), entry.export)
            if feed.table_on(name) is None:  # a table may have got others
                yield from _check_columns(path, feed, entry.export)


def check_export_place(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """There is a database that rows can be moved into."""
    for name, entry in feed.clusters.items():
        if entry.export is None:
            continue
        path: FieldPath = ("clusters", name, "export")
        datasource = scope.bundle.find_datasource(entry.export.target.name)
        if datasource is None:
            continue
        if datasource.interfaces.write is None:
            yield Complaint(
                path=(*path, "target", "name"),
                message=f"datasource {datasource.name!r} has no write interface",
                remedy="Add interfaces.write to it, or name another datasource.",
            )
        if datasource.type not in _WRITABLE:
            yield Complaint(
                path=(*path, "target", "load", "type"),
                message=f"{entry.export.target.load.type.value} cannot be done in a database of type {datasource.type}",
                remedy=f"Name a datasource of type {' or '.join(_WRITABLE)}.",
            )
        target = entry.export.target
        others = [each for each in scope.exported[target.name, target.table] if each[:2] != (feed.name, name)]
        if target.load.type is LoadType.REPLACE and others:
            yield Complaint(
                path=(*path, "target", "table"),
                message=f"it deletes what feed {others[0][0]!r} on {others[0][1]} exports to the same table "
                "for the same time",
                remedy="Name another table.",
                severity=Severity.WARNING,
            )


def _check_load(path: FieldPath, export: Export) -> Iterator[Complaint]:
    load = export.target.load
    if load.type in (LoadType.UPDATE_ONLY, LoadType.ALLOW_INSERT) and not find_argument(export, UPDATE_KEY):
        yield Complaint(
            path=(*path, "target", "load", "type"),
            message=f"{load.type.value} needs {UPDATE_KEY}: the columns of a unique key of the table",
            remedy=f"Add {UPDATE_KEY} with their names to arguments.",
        )
    if load.type is LoadType.REPLACE and load.instance_column is None:
        yield Complaint(
            path=(*path, "target", "load", "type"),
            message="replace needs instance_column: the column of the table that tells the rows of an instance",
            remedy="Add load.instance_column.",
        )
    if load.type is not LoadType.REPLACE and load.instance_column is not None:
        yield Complaint(
            path=(*path, "target", "load", "instance_column"),
            message=f"instance_column has no effect on {load.type.value}",
            remedy="Remove it, or write type: replace.",
        )


def _check_columns(path: FieldPath, feed: Feed, export: Export) -> Iterator[Complaint]:
    """Complain of columns that the schema of the feed lacks."""
    fields, key = export.target.fields, find_argument(export, UPDATE_KEY) or ""
    named = [] if fields is None else [*fields.includes, *fields.excludes]
    known = column_names(feed)
    for name in filter(None, (*named, *map(str.strip, key.split(",")))):
        if known is not None and name.lower() not in known:
            message = f"{name!r} is no column of the schema of feed {feed.name!r}"
            yield Complaint(path=path, message=message, remedy=f"Write one of {', '.join(sorted(known))}.")


def _check_key(path: FieldPath, export: Export) -> Iterator[Complaint]:
    key = find_argument(export, UPDATE_KEY)
    if key is not None and not all(map(str.strip, key.split(","))):
        message = f"{UPDATE_KEY} lacks the name of a column"
        yield Complaint(path=path, message=message, remedy="Write names with commas between them.")
