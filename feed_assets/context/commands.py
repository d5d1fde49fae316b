"""What can be asked and switched for all who use a state: safe mode, and the audit."""

from typing import TYPE_CHECKING, Annotated, Literal

from feed_assets.clock import open_clock
from feed_assets.operation import Does, Page, Param, operation
from feed_assets.parameters import Limit
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.context.safe_mode import SafeMode
    from feed_assets.log.definitions.records import AuditEntry
    from feed_assets.sql.database import Database

Switch = Annotated[Literal["on", "off", "status"], Param("What to do.", argument=True)]
Reason = Annotated[str | None, Param("The reason, shown in refusals.")]


@operation("admin safemode", does=Does.ADMINISTERS, text="sentence")
def safemode(
    database: "Database", *, switch: Switch = "status", reason: Reason = None, author: str, dry_run: bool = False
) -> "SafeMode":
    """Switch safe mode on or off, or show its status.

    In safe mode nothing can be declared, changed, scheduled, resumed or removed. Clusters are the exception: they can
    be changed in safe mode only.
    """
    from feed_assets.context.safe_mode import load_safe_mode, set_safe_mode

    if switch == "status":
        with database.read() as connection:
            return load_safe_mode(connection)
    now, is_on = open_clock(load_settings()).now(), switch == "on"
    return set_safe_mode(database, is_on=is_on, author=author, now=now, reason=reason, dry_run=dry_run)


@operation("admin audit", table="at=recorded_at:seconds, author, action, target, details:pairs", rows="audit")
def audit(database: "Database", *, limit: Limit = 50) -> "Page[AuditEntry]":
    """Show who changed what and when, newest first."""
    from feed_assets.log.audit import Audit

    with database.read() as connection:
        found = Audit(connection)
        return Page(items=tuple(found.newest(limit)), total=found.count(), what="entries")
