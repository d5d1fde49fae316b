"""What can be asked and switched for all who use a state: safe mode, the audit, and the messages for other programs."""

from collections.abc import Callable, Iterator
from time import sleep
from typing import TYPE_CHECKING, Annotated, Literal

from feed_assets.access.rights import find_hidden
from feed_assets.clock import open_clock
from feed_assets.operation import Does, Param, later, operation
from feed_assets.pages import Page
from feed_assets.parameters import Limit
from feed_assets.receivers import Topic
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.context import audit_chain, safe_mode
    from feed_assets.log import audit as audit_log
    from feed_assets.log.definitions import records as definition_records
    from feed_assets.log.definitions import store
    from feed_assets.log.messages import outbox
    from feed_assets.log.messages import records as message_records
    from feed_assets.sql.database import Database

later(globals())

GROUPS = {
    "admin": "Manage safe mode, show the audit and the messages for other programs, and clean up after runs.",
    "admin audit": "Show who changed what, and prove that no row was changed; without a command, show.",
}
MESSAGES = 1_000
FOLLOW_SECONDS = 1.0

Switch = Annotated[Literal["on", "off", "status"], Param("What to do.", argument=True)]
Reason = Annotated[str | None, Param("The reason, shown in refusals.")]
After = Annotated[int, Param("Only messages with a larger seq.", least=0)]
Oldest = Annotated[int, Param("How many, oldest first.", least=1)]
OnlyTopic = Annotated[Topic | None, Param("Only messages of this topic.")]
Follow = Annotated[bool, Param("Go on with new messages, until somebody ends it; one line each.", local=True)]


@operation("admin safemode", does=Does.ADMINISTERS, safe=True, text="sentence")
def safemode(
    database: "Database", *, switch: Switch = "status", reason: Reason = None, author: str, dry_run: bool = False
) -> "safe_mode.SafeMode":
    """Switch safe mode on or off, or show its status.

    In safe mode nothing can be declared, changed, scheduled, resumed or removed. Clusters are the exception: they can
    be changed in safe mode only.
    """
    if switch == "status":
        with database.read() as connection:
            return safe_mode.load_safe_mode(connection)
    now, is_on = open_clock(load_settings()).now(), switch == "on"
    return safe_mode.set_safe_mode(database, is_on=is_on, author=author, now=now, reason=reason, dry_run=dry_run)


@operation(
    "admin audit show",
    none="nobody has changed anything yet",
    table="seq, at=recorded_at:seconds, author, action, target, details:pairs",
    rows="audit",
)
def audit(database: "Database", *, limit: Limit = 50) -> "Page[definition_records.AuditEntry]":
    """Show who changed what and when, newest first."""
    with database.read() as connection:
        keys = {*find_hidden()}
        for each in reversed(store.Definitions(connection).renames() if keys else ()):  # rows keep the name that was
            keys |= {(each.kind, each.former)} if (each.kind, each.name) in keys else set()
        found = audit_log.Audit(connection)
        return Page(items=tuple(found.newest(limit, keys)), total=found.count(limit, keys), what="entries")


@operation("admin audit verify", table="first, last, fault", rows="faults", long=True)
def verify_audit(database: "Database", *, progress: Callable[..., None]) -> "audit_chain.ChainProof":
    """Prove that no row of the audit was changed, removed or put in; exit with 1 if one was.

    Ticks chain the rows by the secret in the setting audit.secret. The proof says up to which row that is done.
    """
    return audit_chain.verify_chain(database, load_settings().audit, progress)


@operation(
    "admin messages",
    none="there is no message",
    table="seq, at=recorded_at:seconds, topic, payload=members:pairs",
    rows="messages",
    text="sentence",
)
def list_messages(
    database: "Database", *, after: After = 0, limit: Oldest = MESSAGES, topic: OnlyTopic = None, follow: Follow = False
) -> "Page[message_records.OutboxMessage] | Iterator[message_records.OutboxMessage]":
    """Show the messages for other programs, oldest first.

    Topics are eviction (evicted and restored paths), metadata (changes), instance (ends of instances), sla, retry
    (used-up retries), sweep (asks for approval) and entity (changes). A reader remembers the largest seq it has seen,
    and requests later messages with --after. Messages never change.
    """
    if follow:
        return _follow(database, after, topic)
    asked = after, limit, topic, find_hidden()
    with database.read() as connection:
        found, total = outbox.Outbox(connection).read(*asked), outbox.Outbox(connection).count(*asked)
    return Page(items=tuple(found), total=total, what="messages", more="--after and --limit show more")


def _follow(database: "Database", after: int, topic: Topic | None) -> "Iterator[message_records.OutboxMessage]":
    """Yield messages as they come."""
    while True:
        with database.read() as connection:
            found = outbox.Outbox(connection).read(after, MESSAGES, topic)
        for each in found:
            yield each
            after = each.seq
        if not found:
            sleep(FOLLOW_SECONDS)
