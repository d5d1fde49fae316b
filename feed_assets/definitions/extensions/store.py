"""Where extensions are: with us, in installed packages, and in the state, which has the code of those that are
registered. A content is kept once by its digest, with the files of workflows.
"""

import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from importlib.metadata import entry_points, version
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from feed_assets.context.errors import VerbRefusedError
from feed_assets.definitions.extensions.recipes import read_recipe
from feed_assets.definitions.extensions.records import BUILD, ENTITIES, README, RECIPE, Extension, Recipe
from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import Fault, FeedAssetsError, describe_error
from feed_assets.log.cursors import Cursors
from feed_assets.plan.pinned_files import KEPT_BYTES
from feed_assets.releases.store import WorkflowFiles
from feed_assets.sql.rows import TableStore

GROUP = "feed_assets.extensions"
"""The entry points of packages with extensions: `NAME = package`, whose folder has the files of the recipe."""
_OURS = {
    "database-export": "feed_assets.definitions.extensions.ours.database_export",
    "database-import": "feed_assets.definitions.extensions.ours.database_import",
    "directory-mirror": "feed_assets.replication.mirrors.recipe",
}
_NOTE = "extension/"
_FILES, _DISABLED = "files", "disabled"
_SUFFIXES = (".yaml", ".yml")
_DIGITS = 16


def read_folder(folder: Path | Traversable) -> dict[str, bytes]:
    """Return the files of a recipe in a folder, by their paths in it; whatever else is there is no part of it.

    Raises:
        DefinitionsError: they cannot be read, or are too big.
    """
    try:
        files = {name: (folder / name).read_bytes() for name in (RECIPE, README, BUILD) if (folder / name).is_file()}
        below = folder / ENTITIES.removesuffix("/")
        for each in below.iterdir() if below.is_dir() else ():
            if each.name.endswith(_SUFFIXES) and not each.name.startswith(".") and each.is_file():
                files[f"{ENTITIES}{each.name}"] = each.read_bytes()
    except OSError as exc:
        raise DefinitionsError(location=str(folder), reason=f"it cannot be read: {exc}", next_step="Check it.") from exc
    if sum(map(len, files.values())) > KEPT_BYTES:
        reason = f"it has more than {KEPT_BYTES >> 20} MiB"
        raise DefinitionsError(location=str(folder), reason=reason, next_step="Make it smaller.")
    return files


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return what names a version of registered code."""
    content = json.dumps(sorted((name, hashlib.sha256(each).hexdigest()) for name, each in files.items()))
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]}"


class Extensions(TableStore):
    """The extensions as one transaction sees them. Ours come before those of packages."""

    def names(self) -> list[str]:
        """Return the names of all."""
        registered = (name for name, note in self._notes().items() if note.get(_FILES))
        return sorted({*registered, *_OURS, *entry_points(group=GROUP).names})

    def is_registered(self, name: str) -> bool:
        """Return whether the code of an extension is in the state."""
        return bool(self._note(name).get(_FILES))

    def get(self, name: str) -> Extension:
        """Return an extension.

        Raises:
            VerbRefusedError: there is none of this name, or its package cannot be imported.
            DefinitionsError: its recipe has mistakes; carries the issues.
        """
        note = self._note(name)
        if digests := note.get(_FILES):
            contents = WorkflowFiles(self._connection)
            files, module = {path: contents.find(digest) or b"" for path, digest in digests.items()}, None
            made_by = digest_of(files)
        else:
            made_by, module = self._find_installed(name)
            try:
                files = read_folder(resources.files(module))
            except Exception as exc:
                reason = f"its package {module} cannot be used: {describe_error(exc)}"
                raise VerbRefusedError(subject=_label(name), reason=reason, next_step="Install it again.") from exc
        recipe = read_recipe(files, name)
        if recipe.name != name:
            raise DefinitionsError(
                location=f"{name}/{RECIPE}", reason=f"its name is {recipe.name!r}", next_step=f"Write name: {name}."
            )
        is_enabled = not note.get(_DISABLED)
        return Extension(recipe=recipe, made_by=made_by, is_enabled=is_enabled, files=files, module=module)

    def look(self, name: str) -> Extension:
        """Return an extension as `get`. One that cannot be used has no files, and its description says why."""
        try:
            return self.get(name)
        except FeedAssetsError as exc:
            recipe = Recipe.model_construct(name=name, description=str(exc))
            return Extension(recipe=recipe, made_by="", is_enabled=False, files={})

    def put(self, name: str, files: Mapping[str, bytes]) -> None:
        """Keep the code of an extension, in the place of the one before. It stays disabled if it was."""
        digests = {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}
        WorkflowFiles(self._connection).put({digests[path]: content for path, content in files.items()})
        self._change(name, {_FILES: digests})

    def remove(self, name: str) -> None:
        """Forget an extension that is registered."""
        self._change(name, {_FILES: {}, _DISABLED: False})

    def enable(self, name: str, *, is_enabled: bool) -> None:
        """Let jobs of an extension be submitted, scheduled and updated, or not any more."""
        self._change(name, {_DISABLED: not is_enabled})

    def _find_installed(self, name: str) -> tuple[str, str]:
        """Return the version and the package of an extension that is not registered."""
        if name in _OURS:
            return f"feed-assets {version('feed-assets')}", _OURS[name]
        for each in entry_points(group=GROUP, name=name):
            return f"{each.dist.name} {each.dist.version}" if each.dist is not None else "unknown", each.module
        reason, known = "there is none of this name", f"Extensions are: {', '.join(self.names())}."
        raise VerbRefusedError(subject=_label(name), reason=reason, next_step=known, fault=Fault.MISSING)

    def _change(self, name: str, note: Mapping[str, object]) -> None:
        Cursors(self._connection).put(f"{_NOTE}{name}", json.dumps({**self._note(name), **note}, sort_keys=True))

    def _note(self, name: str) -> dict[str, Any]:
        return self._notes().get(name, {})

    def _notes(self) -> dict[str, dict[str, Any]]:
        return {name: json.loads(told) for name, told in Cursors(self._connection).with_prefix(_NOTE).items()}


def _label(name: str) -> str:
    return f"extension {name!r}"
