"""What can be asked about a server: it is started, and who may ask it gets a token."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from feed_assets.access.principals import Principal
from feed_assets.access.rights import Needs, find_rights, is_superuser
from feed_assets.cli.options import author_of
from feed_assets.clock import open_clock
from feed_assets.operation import Does, Param, later, operation
from feed_assets.pages import Page
from feed_assets.server.records import Address
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.server import serving
    from feed_assets.server.identity import tokens, users
    from feed_assets.sql.database import Database

later(globals())

GROUPS = {"token": "Manage the tokens with which others ask a server: what they may, and until when."}

_TOKENS = "name, session_of, may, groups, until, created=created_at:seconds, by=author, revoked=revoked_at"
_LOADER = "loader --may reads,notifies"

Name = Annotated[str, Param("Its name, which is the author of what its holder changes.", argument=True)]
May = Annotated[tuple[Does, ...], Param("What its holder may, separated by commas.", commas=True)]
Groups = Annotated[tuple[str, ...], Param("The groups that its holder is in, separated by commas.", commas=True)]
Until = Annotated[datetime | None, Param("When it expires; by default never.")]


@operation("serve", text="sentence", plain=True, example="--port 3030 --read-only", no_route="It is the server.")
def serve(database: "Database", *, address: Address) -> Iterator[Address]:
    """Answer requests by HTTP with what the commands print, until SIGINT or SIGTERM.

    Without tokens, it serves only this machine, in the name of whoever has started it, or proxies. A certificate that
    is replaced is read again.
    """
    return serving.serve(load_settings(), database, address, author_of(None))


@operation(
    "admin users", none="nobody is known by name", table="what, name, roles, may, groups, entities", rows="users"
)
def list_users(context: "OperationContext") -> "Page[users.KnownUser]":
    """List users and groups with their roles: in the settings, with valid tokens or log-ins, and as owners of entities.

    Who logs in by a proxy or an issuer, and is named nowhere, is not among them.
    """
    return Page.of(users.find_users(context))


@operation("token create", does=Does.ADMINISTERS, safe=True, text="sentence", answers=201, example=_LOADER)
def create_token(
    database: "Database",
    *,
    name: Name,
    may: May,
    groups: Groups = (),
    until: Until = None,
    author: str,
    dry_run: bool = False,
) -> "tokens.Token":
    """Make a token for a server, and print it, this once.

    Each right is given by itself, and none has another in it: who acts and reads has both. `admin operations` lists
    the right that each operation needs. Only a digest of the token is kept. Whoever sends it as `Authorization: Bearer
    TOKEN` asks in its name. One with the rights of superusers is made by superusers.
    """
    made, rights = Principal(name=name, groups=frozenset(groups)), find_rights()
    if rights is not None and is_superuser(rights.settings, made):
        rights.require((), Needs.SUPERUSER)
    now = open_clock(load_settings()).now()
    return tokens.create_token(database, name, may, until, groups, author=author, now=now, dry_run=dry_run)


@operation("token list", none="no token has been made", table=_TOKENS, rows="tokens")
def list_tokens(database: "Database") -> "Page[tokens.Token]":
    """List the tokens, also those that have expired or are revoked. None is shown itself."""
    with database.read() as connection:
        return Page.of(tokens.Tokens(connection).all())


@operation("token revoke", does=Does.ADMINISTERS, safe=True, table=_TOKENS, rows="tokens")
def revoke_token(database: "Database", *, name: Name, author: str, dry_run: bool = False) -> "Page[tokens.Token]":
    """End a token at once: the next request with it is refused."""
    now = open_clock(load_settings()).now()
    return Page.of([tokens.revoke_token(database, name, author=author, now=now, dry_run=dry_run)])
