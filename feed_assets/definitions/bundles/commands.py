"""What can be asked of bundles: to make one, and to declare what is in one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.operation import WRITES_FILES, Does, Param, later, operation

if TYPE_CHECKING:
    from feed_assets.definitions.bundles import archive as archives
    from feed_assets.definitions.bundles import importing
    from feed_assets.definitions.verbs.context import EntityContext

later(globals())

_ABOUT = "Take entities from one location to another in one file: definitions, files of workflows, and metadata."
GROUPS = {"bundle": _ABOUT}

Names = Annotated[tuple[str, ...], Param("The entities.", argument=True, of=tuple(Kind))]
Everything = Annotated[bool, Param("All entities, and the metadata of all that is described.", option="all")]
WithNeeds = Annotated[bool, Param("Also what they need: feeds, clusters and datasources.", option="with-dependencies")]
Target = Annotated[str, Param("The file to write.", metavar="FILE", file=True)]
File = Annotated[BinaryIO, Param("The bundle.", argument=True, file=True)]


@operation("bundle export", text="lines", example="flights --with-dependencies --to flights.zip", no_route=WRITES_FILES)
def export_bundle(
    context: "EntityContext", *, names: Names = (), everything: Everything = False, needs: WithNeeds = False, to: Target
) -> "archives.BundleExport":
    """Write the entities NAMES, such as flights or feed/flights, to a bundle, which is a zip of texts."""
    if everything is bool(names):
        raise WrongUsageError("Give names, or --all.")
    made = archives.export_bundle(context, names, with_dependencies=needs)
    Path(to).write_bytes(made.content)
    return made


@operation(
    "bundle import",
    does=Does.DECLARES,
    safe=True,
    checks=True,
    text="lines",
    example="flights.zip --dry-run",
)
def import_bundle(context: "EntityContext", *, file: File) -> "importing.BundleImport":
    """Declare what is in FILE, completely or not at all; importing it again changes nothing.

    What is here already is left alone. An entity is changed only if it has the id of the bundle's.
    """
    archive = archives.read_archive(file.read(archives.MOST_BYTES + 1), file.name)
    return importing.import_bundle(context, archive, Path(file.name).name)
