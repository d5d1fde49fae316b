"""Errors of the state database, and violations of its rules."""

from datetime import datetime

from feed_assets.command_lines import command_line
from feed_assets.errors import FeedAssetsError


class StateError(FeedAssetsError):
    """The state database refused, or contains something unknown."""

    def __init__(self, *, reason: str, next_step: str, database: str | None = None) -> None:
        self.database = database
        self.reason = reason
        where = f"state database {database}" if database else "state database"
        super().__init__(f"{where}: {reason}. {next_step}")


class StateUnreachableError(StateError):
    """The state database cannot be reached, or stays locked: nothing can be read or recorded now."""


class StateSchemaError(StateError):
    """The state database has the tables of another release; nothing was read or changed."""

    def __init__(self, *, database: str, revision: str, known: str) -> None:
        is_newer = _number_of(revision) > _number_of(known)
        super().__init__(
            database=database,
            reason=(
                f"its schema {revision} is newer than {known}, the newest this release knows"
                if is_newer
                else f"its schema {revision} is another than {known}, which this release makes and reads"
            ),
            next_step=(
                "Upgrade feed-assets here to the release that others use with this database."
                if is_newer
                else "Go on with the release that made it, or name a new database in the setting 'state' "
                f"and fill it with {command_line('state', 'rebuild')}."
            ),
        )


class LeaseHeldError(StateError):
    """Another worker has the lease of this instance."""

    def __init__(
        self, *, database: str, entity: str, cluster: str, nominal_time: datetime, holder: str, expires_at: datetime
    ) -> None:
        super().__init__(
            database=database,
            reason=(
                f"{entity!r} on {cluster!r} at {nominal_time.isoformat()} is leased by {holder!r} "
                f"until {expires_at.isoformat()}"
            ),
            next_step="Wait for it to finish, or end it and wait until its lease has expired.",
        )


class FencedOutError(StateError):
    """The worker's lease was taken over, released or has expired; nothing of its work may become visible."""

    def __init__(
        self, *, database: str, entity: str, cluster: str, nominal_time: datetime, token: int, reason: str
    ) -> None:
        super().__init__(
            database=database,
            reason=f"the lease {token} on {entity!r} on {cluster!r} at {nominal_time.isoformat()} {reason}",
            next_step="The results of this attempt are discarded; the current holder of the lease continues.",
        )


class ChunkTakenError(StateError):
    """A claimed chunk of a sweep was taken over, or has ended; nothing of the worker may become visible."""

    def __init__(self, *, sweep: str, chunk: int, holder: str, other: str | None) -> None:
        who = "nobody" if other is None else repr(other)
        super().__init__(
            reason=f"chunk {chunk} of the sweep {sweep} is no longer leased by {holder!r}, but by {who}",
            next_step="The next worker on the sweep continues from what this attempt has done.",
        )


class SweepDamagedError(StateError):
    """The stored sweep differs from the plan; nothing of it may be removed."""

    def __init__(self, *, sweep: str, chunk: int | None = None) -> None:
        part = "its list of chunks" if chunk is None else f"its chunk {chunk}"
        super().__init__(
            reason=f"the sweep {sweep} differs from its plan: {part} is missing or does not match its digest",
            next_step="Cancel it and plan again.",
        )


def _number_of(revision: str) -> int:
    """Return 22 of `0022-4f1b2c3d`: the number of a release, and a digest of its tables."""
    return int(revision.partition("-")[0])
