"""What can be asked about a server: it is started, and who may ask it gets a token."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from feed_assets.clock import open_clock
from feed_assets.operation import Does, Param, operation
from feed_assets.pages import Page
from feed_assets.settings import load_settings

if TYPE_CHECKING:
    from feed_assets.server.serving import Serving
    from feed_assets.server.tokens import NewToken, Token
    from feed_assets.sql.database import Database

GROUPS = {"token": "Manage the tokens with which others ask a server: what they may, and until when."}

_TOKENS = "name, may, until, created=created_at:seconds, by=author, revoked=revoked_at"

Name = Annotated[str, Param("Its name, which is the author of what its holder changes.", argument=True)]


@operation("serve", text="sentence", plain=True, example="--port 3030 --read-only", no_route="It is the server.")
def serve(
    database: "Database",
    *,
    host: Annotated[str, Param("The host; by default only this machine reaches it.")] = "127.0.0.1",
    port: Annotated[int, Param("The port; 0 is any that is free.", least=0)] = 3030,
    read_only: Annotated[bool, Param("Refuse whatever does not only read.")] = False,
    certificate: Annotated[Path | None, Param("A file with the certificate for HTTPS, and those it rests on.")] = None,
    key: Annotated[Path | None, Param("The file with its key, if that is not in the same one.")] = None,
    insecure: Annotated[bool, Param("Serve plain HTTP to other machines, which tells tokens to the network.")] = False,
) -> "Iterator[Serving]":
    """Answer requests by HTTP with what the commands print, until SIGINT or SIGTERM.

    Without tokens, it serves only this machine, in the name of whoever has started it, or proxies. A certificate that
    is replaced is read again.
    """
    from feed_assets.cli.options import author_of
    from feed_assets.errors import WrongUsageError
    from feed_assets.server import serving

    if key is not None and certificate is None:
        raise WrongUsageError("A key is of no use alone: give its certificate with --certificate.")
    address = serving.Address(host=host, port=port, certificate=certificate, key=key, insecure=insecure)
    return serving.serve(load_settings(), database, address, author=author_of(None), read_only=read_only)


@operation(
    "token create",
    does=Does.ADMINISTERS,
    safe=True,
    text="sentence",
    answers=201,
    example="loader --may reads,notifies --until 2027-01-01T00:00Z",
)
def create_token(
    database: "Database",
    *,
    name: Name,
    may: Annotated[tuple[Does, ...], Param("What its holder may, separated by commas.", commas=True)],
    until: Annotated[datetime | None, Param("When it expires; by default never.")] = None,
    author: str,
    dry_run: bool = False,
) -> "NewToken":
    """Make a token for a server, and print it, this once.

    Each right is given by itself, and none has another in it: who acts and reads has both. `admin operations` lists
    the right that each operation needs. Only a digest of the token is kept. Whoever sends it as `Authorization: Bearer
    TOKEN` asks in its name.
    """
    from feed_assets.server import tokens

    now = open_clock(load_settings()).now()
    return tokens.create_token(database, name, may, until=until, author=author, now=now, dry_run=dry_run)


@operation("token list", table=_TOKENS, rows="tokens")
def list_tokens(database: "Database") -> "Page[Token]":
    """List the tokens, also those that have expired or are revoked. None is shown itself."""
    from feed_assets.server.tokens import Tokens

    with database.read() as connection:
        return Page.of(Tokens(connection).all())


@operation("token revoke", does=Does.ADMINISTERS, safe=True, table=_TOKENS, rows="tokens")
def revoke_token(database: "Database", *, name: Name, author: str, dry_run: bool = False) -> "Page[Token]":
    """End a token at once: the next request with it is refused."""
    from feed_assets.server import tokens

    now = open_clock(load_settings()).now()
    revoked = tokens.revoke_token(database, name, author=author, now=now, dry_run=dry_run)
    return Page.of([revoked])
