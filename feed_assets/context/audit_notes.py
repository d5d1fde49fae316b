"""Audit entries about sweeps and holds."""

from feed_assets.context.operation import OperationContext
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.log.removals.records import Sweep


def note(context: OperationContext, author: str, action: str, sweep: Sweep, **details: object) -> None:
    """Write an audit entry about a sweep."""
    note_target(context, author, action, f"sweep {sweep.sweep_id}", cluster=sweep.cluster, **details)


def note_target(context: OperationContext, author: str, action: str, target: str, **details: object) -> None:
    """Write an audit entry about any target."""
    entry = AuditEntry(recorded_at=context.as_of, author=author, action=action, target=target, details=details)
    with context.database.begin() as connection:
        Audit(connection).append(entry)
