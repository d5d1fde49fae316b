"""What can be asked about the receivers, and that they are tried and used now."""

from typing import TYPE_CHECKING, Annotated, Any

from feed_assets.operation import Does, Param, later, operation
from feed_assets.pages import Page

if TYPE_CHECKING:
    from feed_assets.alerts.delivery import notifier, rounds
    from feed_assets.context.operation import ChangeContext, OperationContext

later(globals())

GROUPS = {"notify": "Show, try and use the receivers of messages: those of the settings, and those that entities name."}
_DELIVERED = "name=way, delivered, failed, dead, away=is_away:yes, error"

Name = Annotated[str, Param("The receiver.", argument=True, proposes="receivers")]
Names = Annotated[tuple[str, ...], Param("The receivers; else all.", argument=True, proposes="receivers")]


@operation(
    "notify list",
    none="no receiver is declared: neither by the setting notify nor by an entity",
    table="name, channel, receiver, gets=choice, pending, again, dead, state",
    rows="ways",
)
def list_receivers(context: "OperationContext") -> "Page[notifier.ListedReceiver]":
    """Show the receivers: their channels and addresses, what they get, and what has not reached them."""
    return Page.of(_desk(context).receivers())


@operation("notify test", does=Does.NOTIFIES, table="name, receiver, verdict, error", rows="ways")
def try_receiver(context: "OperationContext", *, name: Name, dry_run: bool = False) -> "Page[notifier.TriedReceiver]":
    """Send a letter that only tries a receiver. The exit code is 1 if it was not taken."""
    return Page.of(_desk(context, dry_run=dry_run).test(name))


@operation("notify send", does=Does.NOTIFIES, table=_DELIVERED, rows="rounds")
def send(context: "OperationContext", *, names: Names = (), dry_run: bool = False) -> "Page[rounds.RoundResult]":
    """Deliver now, without waiting for the sensor, also what waits to be tried again: each message is tried once.

    The exit code is 1 if something was not taken. With --dry-run, what is delivered is what would be.
    """
    return Page.of(_desk(context, dry_run=dry_run).send(names))


@operation("notify retry", does=Does.ACTS, safe=True, table="name=way, letters, gone", rows="ways")
def retry(context: "ChangeContext", *, names: Names = ()) -> "Page[notifier.Retried]":
    """Let dead letters be tried again: by the next tick of the sensor, or by send."""
    return Page.of(_desk(context, author=context.author, dry_run=context.dry_run).retry(names))


def _desk(context: "OperationContext", **asked: Any) -> "notifier.ReceiverDesk":
    where: dict[str, Any] = {"settings": context.settings, "database": context.database, "plan": context.plan}
    return notifier.ReceiverDesk(**where, clock=context.real_clock, **asked)
