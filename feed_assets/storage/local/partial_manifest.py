"""Keep the partial manifest of a staging on a local filesystem: its complete files, one line each.

It survives crashes. It is in `files-….jsonl` next to the data. Each writer has its own file, because several processes
fill one staging at once.
"""
# System calls on text and descriptors, because this runs while files are copied.
# ruff: noqa: PTH108, PTH123

import os
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from feed_assets.storage.copy_port import StagedFile
from feed_assets.storage.local.files import write_all
from feed_assets.storage.local.tree import list_directory
from feed_assets.storage.manifests import parse_json, render_json

_PREFIX = "files-"


class PartialManifest:
    """The records in the `folder` of a staging. All methods raise `OSError`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._own: int | None = None

    def add(self, files: Sequence[StagedFile]) -> None:
        """Record complete files."""
        if self._own is None:
            name = f"{self._folder}/{_PREFIX}{uuid.uuid4().hex}.jsonl"
            self._own = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        write_all(self._own, b"".join([render_json(list(file)) + b"\n" for file in files]))

    def read(self) -> dict[str, StagedFile]:
        """Return the records of all writers, by path."""
        return {file.path: file for file in _read(self._names())}

    def drop(self, files: Collection[str]) -> None:
        """Remove the records of files. A crash during the call can leave too many records, never too few."""
        former = self._names()
        kept = [file for file in _read(former) if file.path not in files]
        self.close()
        self.add(kept)
        for name in former:
            os.unlink(name)

    def close(self) -> None:
        """Close the file of this writer; the next record starts a new one."""
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def _names(self) -> list[str]:
        return [f"{self._folder}/{name}" for name in list_directory(self._folder) if name.startswith(_PREFIX)]


def _read(names: Sequence[str]) -> Iterator[StagedFile]:
    """Yield records in order; skip torn lines."""
    for name in names:
        with open(name, "rb") as stream:
            for line in stream:
                with suppress(ValueError, TypeError):
                    yield StagedFile(*parse_json(line))
