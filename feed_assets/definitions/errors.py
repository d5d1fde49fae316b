"""Errors of the definition store."""

from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import render_some


class DefinitionStoreError(DefinitionsError):
    """The definition store cannot or must not make a change; nothing was changed."""


class FileRefusedError(DefinitionStoreError):
    """The name of a file is invalid or leads out of the folder of definitions."""

    def __init__(self, *, location: str, file: str, reason: str) -> None:
        self.file = file
        super().__init__(
            location=location,
            reason=f"the file {file!r} is refused: {reason}",
            next_step="Name a .yaml, .yml or .xml file below the folder of the definitions.",
        )


class DefinitionsChangedError(DefinitionStoreError):
    """Definition files were edited outside the store during a change; nothing was changed."""

    def __init__(self, *, location: str, files: tuple[str, ...]) -> None:
        self.files = files
        super().__init__(
            location=location,
            reason=f"{render_some(files)} changed while the change was being made",
            next_step="Review the current definitions, and try again.",
        )
