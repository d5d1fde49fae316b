"""`notify`: who is told of what happens, and what has not reached them."""

from typing import TYPE_CHECKING

import click

from feed_assets.cli.exit_codes import FAILED
from feed_assets.cli.groups import Verbs
from feed_assets.cli.instance_options import open_context_for
from feed_assets.cli.options import author_of, author_option, dry_run_option, name_argument, output_option
from feed_assets.cli.proposals import find_receivers
from feed_assets.cli.render import print_list, say
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.alerts.delivery.receivers import WayDesk


@click.group(cls=Verbs)
def notify() -> None:
    """Show, try and use the ways out: receivers of the settings, and those that entities name in notification."""


@notify.command("list")
@output_option
def list_(output: str) -> None:
    """Show the ways out: their receivers, what they get, and what has not reached them."""
    columns = "name, channel, receiver, gets=choice, pending, again, dead, state"
    print_list("ways", columns, _open_desk(None, dry_run=True).ways(), output)


@notify.command()
@name_argument("name", find_receivers)
@dry_run_option
@output_option
def test(name: str, dry_run: bool, output: str) -> None:
    """Send a letter that only tries a way out. The exit code is 1 if it was not taken."""
    tried = _open_desk(None, dry_run=dry_run).test(name)
    print_list("ways", "name, receiver, verdict, error", tried, output)
    if any(each.verdict not in ("delivered", "not sent") for each in tried):
        click.get_current_context().exit(FAILED)


@notify.command()
@name_argument("names", find_receivers, nargs=-1)
@dry_run_option
@output_option
def send(names: tuple[str, ...], dry_run: bool, output: str) -> None:
    """Deliver now, without waiting for the sensor, also what waits to be tried again: each message is tried once.

    The exit code is 1 if something was not taken.
    """
    done = _open_desk(None, dry_run=dry_run).send(names)
    delivered = "to deliver" if dry_run else "delivered"
    print_list("rounds", f"name=way, {delivered}=delivered, failed, dead, away=is_away:yes, error", done, output)
    for each in done:
        if each.is_busy:
            say(f"{each.way}: another worker delivers now", err=True)
    if any(each.failed or each.dead or each.error or each.is_busy for each in done):
        click.get_current_context().exit(FAILED)


@notify.command()
@name_argument("names", find_receivers, nargs=-1)
@author_option
@dry_run_option
@output_option
def retry(names: tuple[str, ...], author: str | None, dry_run: bool, output: str) -> None:
    """Let dead letters be tried again: by the next tick of the sensor, or by send."""
    print_list("ways", "name=way, letters, gone", _open_desk(author, dry_run=dry_run).retry(names), output)


def _open_desk(author: str | None, *, dry_run: bool) -> "WayDesk":
    from feed_assets.alerts.delivery.receivers import WayDesk
    from feed_assets.clock import SystemClock

    context = open_context_for()
    return WayDesk(
        settings=load_settings(),
        database=context.database,
        plan=context.plan,
        clock=SystemClock(),
        author=author_of(author),
        dry_run=dry_run,
    )
