"""New projects: writes the files of `files.py` into a folder, all or none, and never over a file."""

import re
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from feed_assets.command_lines import command_line
from feed_assets.context.errors import FolderNotEmptyError, ProjectNameError
from feed_assets.scaffolding.files import (
    ExampleEntities,
    iter_data_files,
    iter_entity_files,
    iter_project_files,
    package_name,
    read_template,
)
from feed_assets.settings import ENV_FILE

LOCAL_STORAGE = "file://${DATA_ROOT}"
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NewProject:
    """A project that was made, or would be. `kept` are files that exist and stay as they are."""

    folder: Path
    name: str
    package: str
    files: tuple[str, ...]
    kept: tuple[str, ...]
    dry_run: bool

    def render(self) -> str:
        """Return the files and the next commands."""
        lines = [f"{'would make' if self.dry_run else 'made'} the project {self.name} in {self.folder}:"]
        lines += [f"  {file}" for file in self.files]
        lines += [f"  {file} exists, and stays as it is" for file in self.kept]
        if "definitions.py" in self.kept:
            lines += [
                "",
                "Add the definitions of the feeds to yours:",
                "  defs = Definitions.merge(defs, build_definitions())",
            ]
        if not self.dry_run:
            lines += [
                "",
                "Now:",
                f"  cd {shlex.quote(str(self.folder))}",
                f"  {command_line('validate')}",
                "  dagster dev",
            ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRequest:
    """What to make. `name` is the folder's name by default. With `add`, files that exist are kept."""

    folder: Path
    as_of: datetime
    name: str | None = None
    storage: str | None = None
    postgres: str | None = None
    add: bool = False
    dry_run: bool = False


def make_project(request: ProjectRequest) -> NewProject:
    """Make a project.

    Raises:
        ProjectNameError: no Python package can have the name.
        FolderNotEmptyError: the folder has files, and `add` is not set. Nothing was written.
    """
    folder = request.folder.resolve()
    name = request.name or folder.name
    package = package_name(name)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", package):
        raise ProjectNameError(name=name)
    _require_empty(folder, is_adding=request.add)
    example = ExampleEntities(storage=request.storage or LOCAL_STORAGE, jobs=f"{package}.jobs", as_of=request.as_of)
    files = dict(iter_project_files(name, example, folder / "dagster_home", request.postgres))
    kept = tuple(file for file in files if (folder / file).exists())
    new = {file: text for file, text in files.items() if file not in kept}
    if not request.dry_run:
        _write(folder, new)
    return NewProject(folder=folder, name=name, package=package, files=tuple(new), kept=kept, dry_run=request.dry_run)


def lay_example(folder: Path, module: str, data: Path, as_of: datetime) -> None:
    """Lay the example entities and their function into a folder, and their data into another one. Keeps files that
    exist.

    Args:
        folder: the folder of the function; the entities are in `entities` below it.
        module: the importable name of that folder.
        data: the storage of the cluster, `${DATA_ROOT}`.
        as_of: the data are those of the days before it.
    """
    example = ExampleEntities(storage=LOCAL_STORAGE, jobs=f"{module}.jobs", as_of=as_of)
    code = {f"entities/{file}": text for file, text in iter_entity_files(example, schema=None)}
    code["jobs.py"] = read_template("jobs.py")
    for place, files in ((folder, code), (data, dict(iter_data_files(example)))):
        _write(place, {file: text for file, text in files.items() if not (place / file).exists()})


def _require_empty(folder: Path, *, is_adding: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise FolderNotEmptyError(folder=folder, found=[])
    found = sorted(path.name for path in folder.iterdir() if path.name != ".git") if folder.exists() else []
    if found and not is_adding:
        raise FolderNotEmptyError(folder=folder, found=found[:_SHOWN])


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files into a folder beside their places, and then move each into its place."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".feed-assets-init-") as staging:
        for file, text in files.items():
            staged = Path(staging) / file
            staged.parent.mkdir(parents=True, exist_ok=True)
            staged.touch(mode=0o600 if file == ENV_FILE else 0o666)
            staged.write_text(text, "utf-8")
        for file in files:
            place = folder / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.hardlink_to(Path(staging) / file)  # fails if the place is taken meanwhile
