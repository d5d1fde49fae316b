"""Safe mode: a stored switch that allows only reading, stopping work, and changing clusters; and whether the state was
restored from a backup and has not been rebuilt since.

A restored state has forgotten what was done after the backup. It would run, copy and evict again what was done already,
so nothing is launched until a rebuild has recorded what lies on storage. Rebuilds are counted: a count that has not
grown since Dagster was last told something means that the restored state has not been rebuilt.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from sqlalchemy import Connection

from feed_assets.command_lines import command_line
from feed_assets.context.errors import SafeModeError
from feed_assets.log.audit import Audit
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.operation import Operation
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateError

SAFE_MODE = "safe_mode"
REBUILDS = "state/rebuilds"
RESTORED = "state/restored"
HELD = (
    f"the state was restored from a backup or replaced: nothing is launched until `{command_line('state', 'rebuild')}` "
    "has recorded what lies on storage"
)
_VERSION = 1
_CALLED: Mapping[str, str] = MappingProxyType(
    {
        "admin cleanup": "clean-up after runs",
        "batch init": "init of batches",
        "clone": "submit",
        "hold release": "release of holds",
        "instance rerun": "rerun of instances",
        "instance resume": "resume of instances",
        "replication repair": "repair of replicas",
        "retention approve": "approve of sweeps",
        "retention purge": "purge of sweeps",
        "retention run": "run of sweeps",
        "retention undo": "undo of sweeps",
    }
)
"""How messages call operations, if not by the verb of an entity or by their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeMode:
    """Whether safe mode is on, or would be (`dry_run`); who switched it last, when and why: None if nobody has."""

    is_on: bool
    author: str | None = None
    changed_at: datetime | None = None
    reason: str | None = None
    dry_run: bool = False

    @property
    def sentence(self) -> str:
        """Whether it is on, since when, by whom and why."""
        since = f" since {self.changed_at:%Y-%m-%dT%H:%M:%SZ}, by {self.author}" if self.changed_at else ""
        is_ = "would be" if self.dry_run else "is"
        return f"safe mode {is_} {'on' if self.is_on else 'off'}{since}{f': {self.reason}' if self.reason else ''}"


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
    if dry_run:
        return SafeMode(is_on=is_on, author=author, reason=reason, dry_run=True)
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
    return SafeMode(is_on=is_on, author=author, changed_at=now, reason=reason)


def require_allowed(database: Database, operation: Operation) -> None:
    """Refuse what an operation does, unless its declaration says that safe mode lets it go on. Whoever calls operations
    asks this first: the command line, and the job `operate`. Raises as `require_mode`."""
    if operation.stops_in_safe_mode:
        name = operation.name.removeprefix("entity ")
        require_mode(database, _CALLED.get(name, name))


def require_update_mode(database: Database, *, is_cluster: bool = False) -> None:
    """Refuse an update that the current mode does not allow: of a cluster outside of safe mode, of others in it."""
    require_mode(database, "update of a cluster" if is_cluster else "update", needs_safe_mode=is_cluster)


def require_mode(database: Database, subject: str, *, needs_safe_mode: bool = False) -> None:
    """Refuse what the current mode does not allow.

    Raises:
        SafeModeError: safe mode is on, or it is off and the subject needs it.
    """
    with database.read() as connection:
        mode = load_safe_mode(connection)
    if mode.is_on and not needs_safe_mode:
        by = f"{mode.author} has switched it on" + (f": {mode.reason}" if mode.reason else "")
        raise SafeModeError(
            subject=subject,
            reason=f"it is not allowed during safe mode ({by})",
            next_step=f"Wait, or switch it off: {command_line('admin', 'safemode', 'off')}",
        )
    if needs_safe_mode and not mode.is_on:
        raise SafeModeError(
            subject=subject,
            reason="it is only allowed during safe mode, while nothing else changes",
            next_step=f"Switch it on, and off again afterwards: {command_line('admin', 'safemode', 'on')}",
        )


def count_rebuilds(connection: Connection) -> int:
    """Return how often the state has been rebuilt."""
    return int(Cursors(connection).get(REBUILDS) or 0)


def record_rebuild(connection: Connection) -> None:
    """Record that the state has been rebuilt."""
    Cursors(connection).put(REBUILDS, str(count_rebuilds(connection) + 1))


def record_restore(connection: Connection) -> None:
    """Record that the state is another one than before, and that nobody has rebuilt it."""
    Cursors(connection).put(RESTORED, str(count_rebuilds(connection)))


def is_restored(connection: Connection) -> bool:
    """Return whether the state was restored and has not been rebuilt since; costs one read."""
    return parse_restored(Cursors(connection).get_many((REBUILDS, RESTORED)))


def parse_restored(found: Mapping[str, str]) -> bool:
    """Return the same from the values of `REBUILDS` and `RESTORED`."""
    return RESTORED in found and int(found[RESTORED]) >= int(found.get(REBUILDS, 0))
