"""Provide local directories for writers that cannot write to an object store directly; the files are uploaded later."""

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from feed_assets.storage.errors import PathRefusedError, StorageError
from feed_assets.storage.paths import path_name


def user_folder() -> Path:
    """Return the directory for this user's temporary files of feed-assets."""
    return Path(tempfile.gettempdir()) / f"feed-assets-{os.getuid()}"


def keep_files(folder: Path, names: Mapping[str, str]) -> None:
    """Give files below a directory other names directly in it, by their present ones, and remove everything else."""
    for name, new in names.items():
        if (folder / name).is_file():
            (folder / name).replace(folder / new)
    kept = set(names.values())
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name not in kept:
            entry.unlink()


def make_private(folder: Path, store: str, path: str) -> None:
    """Create a directory that only this user can enter. Raises `StorageError` if it belongs to somebody else."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StorageError(
            store=store,
            path=path,
            reason=f"the directory {folder} belongs to somebody else",
            next_step="Remove it, or name another place for temporary files by TMPDIR or the storage option 'scratch'.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """The scratch directories of one store: one for each (token, path), readable by this user only."""

    store: str
    root: Path

    @classmethod
    def of(cls, store: str, root: Path | None) -> Self:
        """Return the scratch directories below `root`, or by default below the user's temporary directory."""
        base = user_folder() if root is None else root
        return cls(store=store, root=base / path_name(store))

    def folder(self, token: str, path: str) -> Path:
        return self.root / token / path_name(path)

    def make(self, token: str, path: str, *, is_again: bool) -> Path:
        """Create the directory of a staging, or empty it, but not if it `is_again` for the same writer."""
        folder = self.folder(token, path)
        if not is_again:
            shutil.rmtree(folder, ignore_errors=True)
        make_private(self.root.parent, self.store, path)
        folder.mkdir(parents=True, exist_ok=is_again)
        return folder

    def files(self, folder: Path) -> list[str]:
        """Return the files below a directory, relative to it and sorted; none if it does not exist."""
        names = []
        for parent, _, files in os.walk(folder):
            for file in files:
                whole = Path(parent, file)
                if whole.is_symlink():
                    raise PathRefusedError(
                        store=self.store, path=str(whole), reason="a symbolic link cannot be published"
                    )
                names.append(whole.relative_to(folder).as_posix())
        return sorted(names)

    def remove(self, token: str, path: str) -> None:
        folder = self.folder(token, path)
        shutil.rmtree(folder, ignore_errors=True)
        for parent in (folder.parent, self.root):
            try:
                parent.rmdir()
            except OSError:
                return

    def sweep(self, older_than: datetime) -> None:
        """Remove the directories without changes since `older_than`."""
        for folder in [*self.root.glob("*/*")]:
            changed = max(item.lstat().st_mtime for item in [folder, *folder.rglob("*")])
            if datetime.fromtimestamp(changed, UTC) < older_than:
                shutil.rmtree(folder, ignore_errors=True)
