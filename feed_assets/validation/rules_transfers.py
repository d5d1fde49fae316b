"""Rules about imports into feeds and exports from them."""

from collections.abc import Iterator, Mapping

from feed_assets.entities.datasource import Extract, ExtractType, Import, MergePolicy
from feed_assets.entities.feed import ClusterRole, Feed
from feed_assets.issues import FieldPath, Severity
from feed_assets.validation.scope import Complaint, Scope

_MAPPERS, _SPLIT_BY = "--num-mappers", "--split-by"
_OF_EXPORTS = (_MAPPERS, "--update-key", "--input-null-string", "--input-null-non-string")


def check_import(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F13: an import must read the whole table with supported options; only sources are checked."""
    for name, entry in feed.clusters.items():
        if entry.import_ is None or entry.type is not ClusterRole.SOURCE:
            continue
        path: FieldPath = ("clusters", name, "import")
        source = entry.import_.source
        if source.extract is not None:
            yield from _extract_complaints((*path, "source", "extract"), source.extract)
        if source.fields is not None and source.fields.excludes:
            yield Complaint(
                path=(*path, "source", "fields", "excludes"),
                message="columns cannot be excluded from an import",
                remedy="List the wanted columns under includes.",
            )
        if _mappers(entry.import_) != "1" and _find(entry.import_.arguments, _SPLIT_BY) is None:
            yield Complaint(
                path=(*path, "arguments"),
                message=f"{_MAPPERS} {_mappers(entry.import_)} needs {_SPLIT_BY}",
                remedy=f"Add {_SPLIT_BY} with a column, or write {_MAPPERS}: 1.",
            )


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


def check_export(_: Scope, feed: Feed) -> Iterator[Complaint]:
    """F14: an export must write all columns, with arguments that exporters know."""
    for name, entry in feed.clusters.items():
        if entry.export is None:
            continue
        path: FieldPath = ("clusters", name, "export")
        if entry.export.target.fields is not None:
            yield Complaint(
                path=(*path, "target", "fields"),
                message="the columns of an export cannot be chosen",
                remedy="Remove fields.",
            )
        for argument in entry.export.arguments:
            if argument.lower() not in _OF_EXPORTS:
                yield Complaint(
                    path=(*path, "arguments", argument),
                    message=f"{argument!r} is not an argument of exports",
                    remedy=f"Arguments are {', '.join(_OF_EXPORTS)}.",
                )


def check_datasource_versions(scope: Scope, feed: Feed) -> Iterator[Complaint]:
    """A referenced version of a datasource must exist already."""
    for name, entry in feed.clusters.items():
        used: list[tuple[tuple[str, str], str, int]] = []
        if entry.import_ is not None:
            used.append((("import", "source"), entry.import_.source.name, entry.import_.source.version))
        if entry.export is not None:
            used.append((("export", "target"), entry.export.target.name, entry.export.target.version))
        for path, named, version in used:
            datasource = scope.bundle.find_datasource(named)
            if datasource is not None and version > datasource.version:
                yield Complaint(
                    path=("clusters", name, *path, "version"),
                    message=f"version {version} of datasource {named!r} does not exist; "
                    f"the current one is {datasource.version}",
                    remedy="Leave the version out, or correct it.",
                )


def _extract_complaints(path: FieldPath, extract: Extract) -> Iterator[Complaint]:
    if extract.type is not ExtractType.FULL:
        yield Complaint(
            path=(*path, "type"),
            message=f"{extract.type.value} is an unsupported extraction mechanism",
            remedy="Write full.",
        )
        return
    if extract.merge_policy is not MergePolicy.SNAPSHOT:
        yield Complaint(
            path=(*path, "merge_policy"),
            message=f"a full import cannot be merged by {extract.merge_policy.value}",
            remedy="Write snapshot.",
        )
    if extract.delta_column is not None:
        yield Complaint(
            path=(*path, "delta_column"), message="a full import has no delta column", remedy="Remove delta_column."
        )


def _mappers(transfer: Import) -> str:
    return (_find(transfer.arguments, _MAPPERS) or "1").strip()


def _find(arguments: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in arguments.items() if key.lower() == name), None)
