"""Errors of releases."""

from feed_assets.command_lines import command_line
from feed_assets.entities.flow_names import declared_by, describe_process
from feed_assets.errors import LifecycleError


class ReleaseError(LifecycleError):
    """No new release of a process can be made as asked."""

    def __init__(self, *, process: str, cluster: str, reason: str) -> None:
        kind, declared = declared_by(process)
        super().__init__(
            f"{describe_process(process)} on {cluster!r}: no new release: {reason}. "
            f"Show the declaration: {command_line('entity', 'definition', kind.value, declared)}"
        )


class NeighbourLeftOutError(LifecycleError):
    """A process would write over data of an entity that is declared, but left out of the plan because of errors."""

    def __init__(self, *, process: str, cluster: str, written: str, place: str, where: str) -> None:
        super().__init__(
            f"{describe_process(process)} on {cluster!r} writes {written}, and {place}, which is left out of the plan "
            f"at present, is {where}: its data would be lost. Correct that definition, or delete it, and run again."
        )
