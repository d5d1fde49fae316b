"""What can be asked of Falcon's documents: their import and export."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.errors import WrongUsageError
from feed_assets.loading.entity_files import read_entity_files
from feed_assets.log.definitions.records import DocumentFormat
from feed_assets.operation import WRITES_FILES, Param, later, operation
from feed_assets.parameters import AnyKindFirst, Files
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.definitions import folder
    from feed_assets.definitions.falcon import exporting, importing
    from feed_assets.loading import entity_documents

later(globals())
_BEFORE_XML = b"\xef\xbb\xbf \t\r\n"

To = Annotated[str, Param("The folder for <kind>/<name>.yaml.", metavar="DIR")]
MappingFile = Annotated[
    str | None,
    Param("YAML with workflows: {name: {engine, path}} and urls: {old: new}.", option="map", metavar="FILE"),
]
Replacements = Annotated[
    dict[str, str] | None,
    Param(
        "A replacement workflow for a process; overrides the mapping file. May be repeated.",
        option="replace-workflow",
        metavar="NAME=ENGINE:PATH",
    ),
]
Format = Annotated[DocumentFormat, Param("The format of the written files.", option="format")]
Force = Annotated[bool, Param("Replace files that say something else.")]
MaybeName = Annotated[str | None, Param("The entity.", argument=True)]
Every = Annotated[bool, Param("Every entity.", option="all")]
Source = Annotated[
    str | None,
    Param("Another folder, file or URL than that of the settings.", option="from", metavar="PATH", local=True),
]
MaybeTo = Annotated[
    str | None, Param("The folder for <kind>/<name>.xml; without it they are printed.", metavar="DIR", local=True)
]


@operation("import-falcon", text="lines", no_route=WRITES_FILES)
def import_falcon(
    *,
    files: Files,
    to: To,
    mapping_file: MappingFile = None,
    replacements: Replacements = None,
    file_format: Format = DocumentFormat.YAML,
    force: Force = False,
    dry_run: bool = False,
) -> "importing.ImportReport":
    """Convert Falcon's XML FILES (or folders of them) to entity files, all of them or none.

    Prints for each file what was carried over, what was mapped, what to check and what cannot run here. Exits with 1,
    and writes nothing, if a file cannot be read or would replace another one.
    """
    found = [
        each
        for each in files
        if entity_documents.is_falcon(each.name) or each.content.lstrip(_BEFORE_XML).startswith(b"<")
    ]
    if not found:
        named = ", ".join(each.name for each in files[:5])
        raise WrongUsageError(f"There is no XML in FILES: {named or 'they are folders without entity files'}.")
    workflows = importing.parse_workflows(replacements or {})
    mapping = importing.parse_mapping(read_entity_files(mapping_file)[0]) if mapping_file else importing.ImportMapping()
    return importing.import_documents(
        found,
        folder.open_folder(to),
        mapping.with_workflows(workflows),
        file_format=file_format,
        is_forced=force,
        is_dry_run=dry_run,
    )


@operation("export-falcon", rows="documents", text="lines")
def export_falcon(
    *,
    kind: AnyKindFirst = None,
    name: MaybeName = None,
    everything: Every = False,
    source: Source = None,
    to: MaybeTo = None,
    force: Force = False,
    dry_run: bool = False,
) -> "tuple[exporting.ExportedDocument, ...] | exporting.ExportReport":
    """Export the entity KIND NAME, or --all entities, as Falcon's XML.

    Fields without an element in Falcon become properties feed_assets.<field>, so an import gives the same entity.
    """
    if everything == (name is not None):
        raise WrongUsageError("Give KIND and NAME, or --all.")
    documents = exporting.export_documents(source or load_settings().entities_location, kind, name)
    return (
        documents
        if to is None
        else exporting.write_documents(documents, folder.open_folder(to), is_forced=force, is_dry_run=dry_run)
    )
