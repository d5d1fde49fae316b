"""Safe mode: a stored switch that allows only reading, stopping work, and changing clusters."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.context.errors import SafeModeError
from feed_assets.log.audit import Audit
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateError

SAFE_MODE = "safe_mode"
_VERSION = 1


class Operation(StrEnum):
    """The operations of commands on entities and instances, as messages name them."""

    SUBMIT = "submit"
    SCHEDULE = "schedule"
    SUBMIT_AND_SCHEDULE = "submit-and-schedule"
    VALIDATE = "validate"
    UPDATE = "update"
    UPDATE_CLUSTER = "update of a cluster"
    UPDATE_CLUSTER_DEPENDENTS = "update-cluster-dependents"
    TOUCH = "touch"
    DELETE = "delete"
    SUSPEND = "suspend"
    RESUME = "resume"
    INSTANCE_KILL = "kill of instances"
    INSTANCE_SUSPEND = "suspend of instances"
    INSTANCE_RESUME = "resume of instances"
    INSTANCE_RERUN = "rerun of instances"
    BATCH_INIT = "init of batches"
    FEED_TAKE = "take from inboxes"
    REPLICATION_REPAIR = "repair of replicas"
    RETENTION_RUN = "run of sweeps"
    RETENTION_APPROVE = "approve of sweeps"
    RETENTION_UNDO = "undo of sweeps"
    RETENTION_PURGE = "purge of sweeps"
    RETENTION_RELEASE = "release of holds"
    CLEANUP = "clean-up after runs"


ALLOWED = frozenset(
    {
        Operation.VALIDATE,
        Operation.SUSPEND,
        Operation.UPDATE_CLUSTER,
        Operation.INSTANCE_KILL,
        Operation.INSTANCE_SUSPEND,
    }
)
"""The operations that safe mode allows, besides reading."""

ONLY_IN_SAFE_MODE = frozenset({Operation.UPDATE_CLUSTER})


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeMode:
    """Whether safe mode is on, who switched it last, when and why; None if it was never switched."""

    is_on: bool
    author: str | None = None
    changed_at: datetime | None = None
    reason: str | None = None

    @property
    def sentence(self) -> str:
        """Whether it is on, since when, by whom and why."""
        since = f" since {self.changed_at:%Y-%m-%dT%H:%M:%SZ}, by {self.author}" if self.changed_at else ""
        return f"safe mode is {'on' if self.is_on else 'off'}{since}{f': {self.reason}' if self.reason else ''}"


def load_safe_mode(connection: Connection) -> SafeMode:
    """Return the state of the switch.

    Raises:
        StateError: it was written by a newer release.
    """
    return parse_safe_mode(Cursors(connection).get(SAFE_MODE))


def parse_safe_mode(text: str | None) -> SafeMode:
    """Parse the value of the cursor `SAFE_MODE`; None is a switch that was never used.

    Raises:
        StateError: it was written by a newer release.
    """
    if text is None:
        return SafeMode(is_on=False)
    fields = json.loads(text)
    if fields["version"] > _VERSION:
        raise StateError(
            reason=f"safe mode is recorded in version {fields['version']}, but this release reads up to {_VERSION}",
            next_step="Upgrade feed-assets here to the release that wrote it.",
        )
    return SafeMode(
        is_on=fields["is_on"],
        author=fields["author"],
        changed_at=datetime.fromisoformat(fields["changed_at"]),
        reason=fields["reason"],
    )


def is_safe_mode(connection: Connection) -> bool:
    """Return whether safe mode is on. Late re-runs are deferred while it is."""
    return load_safe_mode(connection).is_on


def set_safe_mode(
    database: Database, *, is_on: bool, author: str, now: datetime, reason: str | None = None, dry_run: bool = False
) -> SafeMode:
    """Switch safe mode on or off, and return the resulting state. Nothing happens if it is already so."""
    with database.read() as connection:
        before = load_safe_mode(connection)
    if before.is_on is is_on:
        return before
    after = SafeMode(is_on=is_on, author=author, changed_at=now, reason=reason)
    if dry_run:
        return after
    fields = {
        "version": _VERSION,
        "is_on": is_on,
        "author": author,
        "changed_at": now.isoformat(),
        "reason": reason,
    }
    with database.begin() as connection:
        Cursors(connection).put(SAFE_MODE, json.dumps(fields))
        details = {"reason": reason} if reason else {}
        action = f"safemode {'on' if is_on else 'off'}"
        Audit(connection).append(AuditEntry(recorded_at=now, author=author, action=action, details=details))
    return after


def require_mode(database: Database, operation: Operation) -> None:
    """Refuse an operation that the current mode does not allow.

    Raises:
        SafeModeError: safe mode is on and forbids the operation, or is off and the operation needs it.
    """
    with database.read() as connection:
        mode = load_safe_mode(connection)
    if mode.is_on and operation not in ALLOWED:
        by = f"{mode.author} has switched it on" + (f": {mode.reason}" if mode.reason else "")
        raise SafeModeError(
            subject=operation.value,
            reason=f"it is not allowed during safe mode ({by})",
            next_step=f"Wait, or switch it off: {command_line('admin', 'safemode', 'off')}",
        )
    if not mode.is_on and operation in ONLY_IN_SAFE_MODE:
        raise SafeModeError(
            subject=operation.value,
            reason="it is only allowed during safe mode, while nothing else changes",
            next_step=f"Switch it on, and off again afterwards: {command_line('admin', 'safemode', 'on')}",
        )
