"""Rules about imports and exports of feeds."""

import re
from collections.abc import Iterator
from contextlib import suppress

from feed_assets.entities.content.columns import parse_columns
from feed_assets.entities.datasource import (
    FETCH_SIZE,
    INPUT_NULL_OTHER,
    INPUT_NULL_STRING,
    MAPPERS,
    NULL_STRING,
    SPLIT_BY,
    UPDATE_KEY,
    DatasourceType,
    Export,
    Extract,
    ExtractType,
    Import,
    IncrementBy,
    LoadType,
    MergePolicy,
    find_argument,
)
from feed_assets.entities.errors import ColumnsError
from feed_assets.entities.feed import ClusterRole, Feed
from feed_assets.issues import FieldPath, Severity
from feed_assets.validation.scope import Complaint, Scope, column_names

_OF_IMPORTS = {SPLIT_BY: None, MAPPERS: 9_999_999, FETCH_SIZE: 9_999_999, NULL_STRING: None}
_OF_EXPORTS = {MAPPERS: 64, UPDATE_KEY: None, INPUT_NULL_STRING: None, INPUT_NULL_OTHER: None}
_WRITABLE = (DatasourceType.POSTGRES, DatasourceType.MYSQL)
_AN = {ExtractType.FULL: "a full", ExtractType.INCREMENTAL: "an incremental"}
_NUMBER = re.compile(r"0*[1-9][0-9]*", re.ASCII)  # 10000
_OF_A_LENGTH = re.compile(r"(?i:var)?(?i:char|character)\b")  # varchar(10)


def check_import(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """F13: an import has options that it understands; only sources are checked.

    Differs from Falcon: columns may be excluded, increments are read, and arguments without a meaning are refused.
    """
    for name, entry in feed.clusters.items():
        if entry.import_ is None or entry.type is not ClusterRole.SOURCE:
            continue
        path: FieldPath = ("clusters", name, "import")
        source = entry.import_.source
        yield from _extract_complaints((*path, "source", "extract"), source.extract)
        if source.query is not None and source.fields is not None:
            yield Complaint(
                path=(*path, "source", "fields"),
                message="the columns of an import are chosen by fields and by a query",
                remedy="Remove fields, and choose them in the query.",
            )
        yield from _argument_complaints((*path, "arguments"), entry.import_)
        datasource = scope.bundle.find_datasource(source.name)
        mappers = find_argument(entry.import_, MAPPERS) or "1"
        if mappers != "1" and find_argument(entry.import_, SPLIT_BY) is None:
            yield Complaint(
                path=(*path, "arguments"),
                message=f"{MAPPERS} {mappers} needs {SPLIT_BY}",
                remedy=f"Add {SPLIT_BY} with a column, or write {MAPPERS}: 1.",
            )
        if mappers != "1" and source.extract.consistent and datasource and not datasource.type.has_snapshots:
            yield Complaint(
                path=(*path, "arguments", MAPPERS),
                message=f"{mappers} mappers read {datasource.type.value} at moments of their own",
                remedy=f"Write {MAPPERS}: 1, or extract: {{consistent: false}} if rows do not change meanwhile.",
            )
        if datasource is not None and datasource.interfaces.readonly is None:
            yield Complaint(
                path=(*path, "source", "name"),
                message=f"datasource {source.name!r} has no interface for imports",
                remedy="Add interfaces.readonly to it.",
            )
        yield from _kind_complaints(scope, feed, name)
        if feed.ddl is not None:
            yield from _type_complaints(feed)


def check_import_place(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F13: an import has an effect on sources only."""
    for name, entry in feed.clusters.items():
        if entry.import_ is not None and entry.type is not ClusterRole.SOURCE:
            yield Complaint(
                path=("clusters", name, "import"),
                message=f"the import on {name} has no effect: imports write to sources only",
                remedy="Write type: source, or remove the import.",
                severity=Severity.WARNING,
            )


def _type_complaints(feed: Feed) -> Iterator[Complaint]:
    """Spark has texts of a length in tables only."""
    with suppress(ColumnsError):  # another rule refuses it
        for name, kind in parse_columns(feed.ddl or ""):
            if _OF_A_LENGTH.match(kind):
                yield Complaint(
                    path=("schema",),
                    message=f"column {name} is {kind}, and Spark writes files without the length of a text",
                    remedy=f"Write {name} string.",
                )


def _kind_complaints(scope: Scope, feed: Feed, cluster: str) -> Iterator[Complaint]:
    """An import writes each instance of the feed at its time, and nobody else does."""
    path: FieldPath = ("clusters", cluster, "import")
    if not feed.is_expected or feed.is_current or not feed.has_data:
        yield Complaint(
            path=path,
            message="an import writes one instance after the other at their times, and this feed has none",
            remedy="Remove instances, signal or asset, and write a frequency.",
        )
    writers = [each.process.label for each in scope.writers.get((feed.name, cluster), ())]
    if feed.clusters[cluster].produced_by is not None:
        writers.append("produced_by")
    if writers:
        yield Complaint(
            path=path,
            message=f"the import writes what {', '.join(writers)} writes, too",
            remedy="Let one of them write a feed of its own.",
        )


def _argument_complaints(path: FieldPath, declared: Import | Export) -> Iterator[Complaint]:
    """Complain about arguments that are not known, and numbers that are not from 1 to the most that is known."""
    what, known = ("imports", _OF_IMPORTS) if isinstance(declared, Import) else ("exports", _OF_EXPORTS)
    for argument, value in declared.arguments.items():
        most = known.get(argument.lower())
        if argument.lower() not in known:
            message, remedy = f"{argument!r} is not an argument of {what}", f"Arguments are {', '.join(known)}."
            yield Complaint(path=(*path, argument), message=message, remedy=remedy)
        elif most is not None and not (_NUMBER.fullmatch(value.strip()) and int(value) <= most):
            message = f"{argument} {value!r} is no number from 1 to {most}"
            yield Complaint(path=(*path, argument), message=message, remedy="Write one.")


def _extract_complaints(path: FieldPath, extract: Extract) -> Iterator[Complaint]:
    is_full = extract.type is ExtractType.FULL
    right = MergePolicy.SNAPSHOT if is_full else MergePolicy.APPEND
    if extract.merge_policy not in (None, right):
        yield Complaint(
            path=(*path, "merge_policy"),
            message=f"{_AN[extract.type]} import cannot be merged by {extract.merge_policy}",
            remedy=f"Write {right.value}, or leave it out.",
        )
    if is_full:
        for field in ("delta_column", "by", "overlap", "key"):
            if getattr(extract, field):
                yield Complaint(
                    path=(*path, field),
                    message=f"a full import has no {field.replace('_', ' ')}",
                    remedy=f"Remove {field}, or write type: incremental.",
                )
        return
    if extract.delta_column is None:
        yield Complaint(
            path=path, message="an incremental import needs delta_column", remedy="Name the column that tells new rows."
        )
    if extract.history:
        yield Complaint(path=(*path, "history"), message="every increment is read anyway", remedy="Remove history.")
    if extract.increment is IncrementBy.MARK:
        if (extract.overlap is None) is bool(extract.key):
            wrong = "an overlap needs a key" if extract.overlap is not None else "a key tells rows of an overlap apart"
            path = (*path, "key" if extract.key else "overlap")
            yield Complaint(path=path, message=wrong, remedy="Write both of overlap and key, or none.")
    elif extract.overlap is not None or extract.key:
        yield Complaint(
            path=(*path, "overlap" if extract.overlap is not None else "key"),
            message="increments by window read no row twice",
            remedy="Remove overlap and key, or write by: mark.",
        )


def check_export(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F14: an export must say by which key rows are found, with arguments that exports know.

    Differs from Falcon: columns may be chosen, and `updateonly` and `allowinsert` need a key.
    """
    for name, entry in feed.clusters.items():
        if entry.export is not None:
            path: FieldPath = ("clusters", name, "export")
            yield from _load_complaints(path, entry.export)
            yield from _argument_complaints((*path, "arguments"), entry.export)
            key = find_argument(entry.export, UPDATE_KEY)
            if key is not None and not all(map(str.strip, key.split(","))):
                message, remedy = f"{UPDATE_KEY} lacks the name of a column", "Write names with commas between them."
                yield Complaint(path=(*path, "arguments"), message=message, remedy=remedy)
            if feed.table_on(name) is None:  # a table may have got others
                yield from _column_complaints(path, feed, entry.export)


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
        others = [each for each in scope.exported[target.name, target.table] if each != (feed.name, name)]
        if target.load.type is LoadType.REPLACE and others:
            yield Complaint(
                path=(*path, "target", "table"),
                message=f"it deletes what feed {others[0][0]!r} on {others[0][1]} exports to the same table "
                "for the same time",
                remedy="Name another table.",
                severity=Severity.WARNING,
            )


def _load_complaints(path: FieldPath, export: Export) -> Iterator[Complaint]:
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


def _column_complaints(path: FieldPath, feed: Feed, export: Export) -> Iterator[Complaint]:
    """Complain of columns that the schema of the feed lacks."""
    fields, key = export.target.fields, find_argument(export, UPDATE_KEY) or ""
    named = [] if fields is None else [*fields.includes, *fields.excludes]
    known = column_names(feed)
    for name in filter(None, (*named, *map(str.strip, key.split(",")))):
        if known is not None and name.lower() not in known:
            message = f"{name!r} is no column of the schema of feed {feed.name!r}"
            yield Complaint(path=path, message=message, remedy=f"Write one of {', '.join(sorted(known))}.")
