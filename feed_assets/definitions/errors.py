"""Why the store of definitions cannot make a change, or must not."""

from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import render_some


class DefinitionStoreError(DefinitionsError):
    """The store of definitions cannot make a change, or says why it must not; nothing was changed."""


class FileRefusedError(DefinitionStoreError):
    """A name of a file that leaves the folder of the definitions, or is none."""

    def __init__(self, *, location: str, file: str, reason: str) -> None:
        self.file = file
        super().__init__(
            location=location,
            reason=f"the file {file!r} is refused: {reason}",
            next_step="Name a .yaml, .yml or .xml file below the folder of the definitions.",
        )


class DefinitionsChangedError(DefinitionStoreError):
    """Files of definitions were edited by other means while a change was being made; nothing was changed."""

    def __init__(self, *, location: str, files: tuple[str, ...]) -> None:
        self.files = files
        super().__init__(
            location=location,
            reason=f"{render_some(files)} changed while the change was being made",
            next_step="Look at what is there now, and try again.",
        )
