"""Errors of the definition store."""

from feed_assets.command_lines import command_line
from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import Fault, render_some


class DefinitionStoreError(DefinitionsError):
    """The definition store cannot or must not make a change; nothing was changed."""

    fault = Fault.STATE


class FileRefusedError(DefinitionStoreError):
    """The name of a file is invalid or leads out of the folder of definitions."""

    fault = Fault.CONTENT

    def __init__(self, *, location: str, file: str, reason: str) -> None:
        super().__init__(
            location=location,
            reason=f"the file {file!r} is refused: {reason}",
            next_step="Name a .yaml, .yml or .xml file below the folder of the definitions.",
        )


class DefinitionsChangedError(DefinitionStoreError):
    """Definition files were edited outside the store during a change; nothing was changed."""

    def __init__(self, *, location: str, files: tuple[str, ...]) -> None:
        super().__init__(
            location=location,
            reason=f"{render_some(files)} changed while the change was being made",
            next_step="Review the current definitions, and try again.",
        )


class MassDeletionError(DefinitionStoreError):
    """Many declared entities have disappeared at once, and nobody has confirmed that they are deleted."""

    def __init__(self, *, location: str, deleted: tuple[str, ...], declared: int) -> None:
        super().__init__(
            location=location,
            reason=f"{len(deleted)} of {declared} declared entities are gone at once: {render_some(deleted)}",
            next_step="If another project uses this database, set a namespace in the settings of one of them. Restore "
            "their files, or confirm that they are deleted: " + command_line("apply", delete_all=True),
        )


class EditedHereError(DefinitionStoreError):
    """A file was edited where a front declares what it has; nothing was recorded."""

    def __init__(self, *, file: str, kind: str, name: str, version: int | None) -> None:
        recorded = command_line("entity", "definition", kind, name, version=str(version))
        undo = "Remove it there" if version is None else f"Undo that: `{recorded}` prints what is recorded"
        super().__init__(
            location=file,
            reason=f"{kind} {name!r} was edited here, and here only the front declares",
            next_step=f"{undo}. Then give the change to the front.",
        )


class RenamedInFilesError(DefinitionStoreError):
    """A feed or process has another name in its file. Recorded as a new one, it would lose all that is known of it."""

    def __init__(self, *, location: str, kind: str, old: str, new: str, is_of_job: bool) -> None:
        super().__init__(
            location=location,
            reason=f"{kind} {old!r} is gone, and {kind} {new!r} {RENAMED_PLACES[kind]}",
            next_step=f"{rename_hint(kind, old, new, is_of_job=is_of_job)} If it is another one, confirm that {old!r} "
            f"is deleted: {command_line('apply')}",
        )


RENAMED_PLACES = {"feed": "has its place", "process": "does what it did"}


def rename_hint(kind: str, old: str, new: str, *, is_of_job: bool) -> str:
    """Return what keeps what is recorded of an entity with another name in its file, be it that of a job."""
    if is_of_job:
        return f"What a job has made is not renamed: let its extension call it {old!r} still."
    return f"Let all that is recorded of it go along: `{command_line('entity', 'rename', kind, old, new)}`."


class ForeignDefinitionsError(DefinitionStoreError):
    """The database records the definitions of another project."""

    def __init__(self, *, location: str, database: str, places: tuple[str, ...], recorded: int, lacking: int) -> None:
        of = f" of {render_some(places)}" if places else ""
        super().__init__(
            location=location,
            reason=f"the state database {database} records the definitions{of}, and {lacking} of these {recorded} "
            "entities are not declared here: it belongs to another project",
            next_step="Set a namespace in the settings of this project. If this project has replaced the other one, "
            "confirm it: " + command_line("apply", delete_all=True),
        )


class ReplacedDefinitionsError(DefinitionStoreError):
    """Another place has declared the entities of the record since this one did, and declares them differently."""

    def __init__(self, *, location: str, by: str, differing: tuple[str, ...]) -> None:
        super().__init__(
            location=location,
            reason=f"{by} has replaced it as the declaration of the recorded entities, and {render_some(differing)} "
            f"{'differs' if len(differing) == 1 else 'differ'}: two projects use one database, or an earlier one is "
            "back",
            next_step="Set a namespace in the settings of one of them. If this one replaces the other, confirm it: "
            + command_line("apply"),
        )
