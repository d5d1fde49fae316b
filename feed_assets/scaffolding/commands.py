"""What can be asked for to begin: a new project."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from feed_assets.clock import SystemClock
from feed_assets.errors import WrongUsageError
from feed_assets.operation import WRITES_FILES, Param, later, operation

if TYPE_CHECKING:
    from feed_assets.scaffolding import projects

later(globals())


@operation("init", text="text", no_route=WRITES_FILES)
def init(
    *,
    folder: Annotated[str, Param(argument=True, file=True, help="Where the project is.")] = ".",
    name: Annotated[str | None, Param("The name of the project; by default the name of the folder.")] = None,
    storage: Annotated[
        str | None, Param("The storage URL of the cluster; by default the folder data of the project.")
    ] = None,
    postgres: Annotated[
        str | None, Param("Keep the state of Dagster and feed-assets in this PostgreSQL.", metavar="URL")
    ] = None,
    add: Annotated[bool, Param("Add to a folder that has files; those that exist stay as they are.")] = False,
    here: Annotated[
        bool, Param("Write what a clone, a copy or a moved project lacks: its .env and Dagster home, and nothing else.")
    ] = False,
    dry_run: bool = False,
) -> "projects.NewProject":
    """Make a project in FOLDER, by default the working directory, that `dagster dev` runs at once.

    It has one cluster, two feeds and one process over three days of data, a test, the settings, and a Dagster home.
    Nothing is overwritten. What git does not hold of it, --here writes into a clone.
    """
    if here:
        if add or name is not None or storage is not None:
            raise WrongUsageError("--here completes a project as it is: it takes no --add, --name and --storage.")
        return projects.complete_project(Path(folder), postgres=postgres, dry_run=dry_run)

    now = SystemClock().now()
    return projects.make_project(
        Path(folder), now, name=name, storage=storage, postgres=postgres, add=add, dry_run=dry_run
    )
