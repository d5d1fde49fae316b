"""The journal of a staging on a local filesystem: a file `journal-…` in its slot for each writer."""
# System calls on text and descriptors.
# ruff: noqa: PTH108, PTH123

import os
import uuid
from collections.abc import Collection, Sequence

from feed_assets.storage.copy_notes import parse_notes, render_notes
from feed_assets.storage.copy_port import Written
from feed_assets.storage.local_files import write_all
from feed_assets.storage.local_tree import list_directory

_PREFIX = "journal-"


class LocalJournal:
    """What was noted in the slot at `folder`, by whomever; this writer's own file is made with its first note.

    All methods raise `OSError`.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._own: int | None = None

    def note(self, written: Sequence[Written]) -> None:
        """Append to the own file."""
        if self._own is None:
            name = f"{self._folder}/{_PREFIX}{uuid.uuid4().hex}"
            self._own = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        write_all(self._own, render_notes(written))

    def read(self) -> list[Written]:
        """All that was noted."""
        return [note for file in self._files() for note in _read_notes(file)]

    def forget(self, files: Collection[str]) -> None:
        """Write all anew without some files; a crash in between leaves more than is wanted, not less."""
        self.close()
        former = self._files()
        notes = [note for file in former for note in _read_notes(file)]
        self.note([note for note in notes if note.file not in files])
        for file in former:
            os.unlink(file)

    def close(self) -> None:
        """Close the own file; the next note begins another one."""
        if self._own is not None:
            os.close(self._own)
            self._own = None

    def _files(self) -> list[str]:
        return [f"{self._folder}/{name}" for name in list_directory(self._folder) if name.startswith(_PREFIX)]


def _read_notes(path: str) -> list[Written]:
    with open(path, "rb") as stream:
        return parse_notes(stream.read())
