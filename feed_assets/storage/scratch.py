"""Provide local directories for writers that cannot write to an object store directly; the files are uploaded later."""

import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from feed_assets.storage.errors import PathRefusedError, StorageError
from feed_assets.storage.paths import path_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """The scratch directories of one store: one for each (token, path), readable by this user only."""

    store: str
    root: Path

    @classmethod
    def of(cls, store: str, root: Path | None) -> Self:
        """Return the scratch directories below `root`, or by default below the user's temporary directory."""
        base = root if root is not None else Path(tempfile.gettempdir()) / f"feed-assets-{os.getuid()}"
        return cls(store=store, root=base / path_name(store))

    def folder(self, token: str, path: str) -> Path:
        return self.root / token / path_name(path)

    def make(self, token: str, path: str) -> Path:
        """Create the directory of a staging, or empty it."""
        folder = self.folder(token, path)
        shutil.rmtree(folder, ignore_errors=True)
        self.root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self.root.parent.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise StorageError(
                store=self.store,
                path=path,
                reason=f"the scratch directory {self.root.parent} belongs to somebody else",
                next_step="Name another one by the storage option 'scratch'.",
            )
        folder.mkdir(parents=True)
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
