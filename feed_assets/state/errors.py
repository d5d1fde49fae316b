"""What goes wrong in the state database, and what it must not allow."""

from datetime import datetime

from feed_assets.errors import FeedAssetsError


class StateError(FeedAssetsError):
    """The state database refused, or holds something we do not understand."""

    def __init__(self, *, reason: str, next_step: str, database: str | None = None) -> None:
        self.database = database
        self.reason = reason
        where = f"state database {database}" if database else "state database"
        super().__init__(f"{where}: {reason}. {next_step}")


class LeaseHeldError(StateError):
    """Somebody else works on this instance."""

    def __init__(
        self, *, database: str, entity: str, cluster: str, nominal_time: datetime, holder: str, expires_at: datetime
    ) -> None:
        self.entity = entity
        self.cluster = cluster
        self.nominal_time = nominal_time
        self.holder = holder
        self.expires_at = expires_at
        super().__init__(
            database=database,
            reason=(
                f"{entity!r} on {cluster!r} at {nominal_time.isoformat()} is being worked on by {holder!r}, "
                f"whose lease runs until {expires_at.isoformat()}"
            ),
            next_step="Wait for it to finish, or end it and wait until its lease has expired.",
        )


class FencedOutError(StateError):
    """Our lease was taken over, released or has expired; nothing of ours may become visible."""

    def __init__(
        self, *, database: str, entity: str, cluster: str, nominal_time: datetime, token: int, reason: str
    ) -> None:
        self.entity = entity
        self.cluster = cluster
        self.nominal_time = nominal_time
        self.token = token
        super().__init__(
            database=database,
            reason=f"the lease {token} on {entity!r} on {cluster!r} at {nominal_time.isoformat()} {reason}",
            next_step="What this attempt has made is discarded; whoever holds the instance now goes on.",
        )


class ChunkTakenError(StateError):
    """A part of a sweep that we claimed is somebody else's now, or has ended; nothing of ours may become visible."""

    def __init__(self, *, sweep: str, chunk: int, holder: str, other: str | None) -> None:
        self.sweep = sweep
        self.chunk = chunk
        self.holder = holder
        self.other = other
        who = "nobody" if other is None else repr(other)
        super().__init__(
            reason=f"chunk {chunk} of the sweep {sweep} is not worked on by {holder!r} any more, but by {who}",
            next_step="What this attempt has done of it is taken up by whoever works on the sweep next.",
        )


class SweepDamagedError(StateError):
    """What is stored of a sweep is not what was planned; nothing of it may be removed."""

    def __init__(self, *, sweep: str, chunk: int | None = None) -> None:
        self.sweep = sweep
        self.chunk = chunk
        part = "its list of chunks" if chunk is None else f"its chunk {chunk}"
        super().__init__(
            reason=f"the sweep {sweep} is not what was planned: {part} is missing or differs from its digest",
            next_step="Cancel it and plan anew.",
        )
