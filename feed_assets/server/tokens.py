"""Tokens of a server: in whose name their holders ask, what they may, and until when.

Of a token only its digest is kept.
"""

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Column, Index, func, select

from feed_assets.command_lines import command_line
from feed_assets.context.errors import VerbRefusedError
from feed_assets.errors import WrongUsageError
from feed_assets.json_form import Hidden
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.masking import TOKEN_PREFIX, reveal
from feed_assets.operation import Does
from feed_assets.sql.column_types import Entries, Text, UtcDateTime
from feed_assets.sql.database import Database, lock_definitions
from feed_assets.sql.rows import RowMapper, TableStore
from feed_assets.sql.tables import define_table
from feed_assets.timing.dates import render_datetime

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,79}")  # loader, ann@example.com
_BYTES = 32

tokens = define_table(
    "fa_tokens",
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("may", Entries(str, Does), nullable=False),
    Column("author", Text, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("until", UtcDateTime),
    Column("revoked_at", UtcDateTime),
    Column("revoked_by", Text),
    Index("fa_tokens_by_digest", "digest", unique=True),
    key=("name",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is kept of a token. Its name is the author of what its holder changes."""

    name: str
    may: tuple[Does, ...]
    until: datetime | None = None
    author: str
    created_at: datetime
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    digest: Hidden[str]

    def is_valid(self, now: datetime) -> bool:
        """Return whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.until is None or now < self.until)


_T = tokens.c
_ROWS = RowMapper(tokens, Token)


class Tokens(TableStore):
    """The tokens as one transaction sees them."""

    def find(self, token: str) -> Token | None:
        """Return what is kept of a token."""
        return _ROWS.find_one(self._connection, _ROWS.select.where(_T.digest == digest_of(token)))

    def of_name(self, name: str) -> Token | None:
        """Return the newest token of a name."""
        return _ROWS.find_one(self._connection, _ROWS.select.where(_T.name == name))

    def all(self) -> list[Token]:
        """Return all tokens by name."""
        return _ROWS.find(self._connection, _ROWS.select.order_by(_T.name))

    def are_needed(self) -> bool:
        """Return whether there is a token that nobody has revoked, be it expired: what expires opens nothing."""
        is_there = select(func.count()).select_from(tokens).where(_T.revoked_at.is_(None))
        return bool(self._connection.scalar(is_there))

    def put(self, token: Token) -> None:
        """Write a token, in place of the one that has its name."""
        _ROWS.put(self._connection, [token])


def digest_of(token: str) -> str:
    """Return the digest of a token. One of 256 random bits needs no slow hash: nobody can try them all."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token, which is shown once, and what is kept of it; no token if nothing was made."""

    name: str
    may: tuple[Does, ...]
    until: datetime | None
    bearer: str | None
    """The token itself, by a name whose values are not hidden."""

    @property
    def sentence(self) -> str:
        """The token alone, so that a shell can take it."""
        return self.bearer or f"would make a token of {self.name!r}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What to do with it."""
        until = f"until {render_datetime(self.until)}" if self.until else "until it is revoked"
        kept = "It is shown this once: keep it where only its holder reads it."
        return (f"{self.name!r} may {', '.join(self.may)}, {until}. {kept}",) if self.bearer else ()


def create_token(
    database: Database,
    name: str,
    may: Sequence[Does],
    *,
    until: datetime | None,
    author: str,
    now: datetime,
    dry_run: bool = False,
) -> NewToken:
    """Make a token. One that is revoked or expired is replaced by another of its name.

    Raises:
        WrongUsageError: the name, the rights or the end are wrong.
        VerbRefusedError: a token of this name is valid.
    """
    if _NAME.fullmatch(name) is None:
        raise WrongUsageError(f"{name!r} is no name of a token. Write letters, digits and . _ @ + -, at most 80.")
    if not may:
        raise WrongUsageError(f"A token of {name!r} may nothing. Give it one of {', '.join(Does)}, or several.")
    if until is not None and until <= now:
        raise WrongUsageError(f"A token of {name!r} would have expired. Give a time after {render_datetime(now)}.")
    token = f"{TOKEN_PREFIX}{secrets.token_hex(_BYTES)}"
    kept = Token(
        name=name,
        may=tuple(each for each in Does if each in may),
        until=until,
        author=author,
        created_at=now,
        digest=digest_of(token),
    )
    with database.read() if dry_run else database.begin() as connection:
        if not dry_run:
            lock_definitions(connection)
        before = Tokens(connection).of_name(name)
        if before is not None and before.is_valid(now):
            next_step = f"Choose another name, or end it: {command_line('token', 'revoke', name)}"
            raise VerbRefusedError(
                subject=f"the token of {name!r}", reason="it exists and is valid", next_step=next_step
            )
        if not dry_run:
            details = {"may": ", ".join(kept.may), **({"until": render_datetime(until)} if until else {})}
            _note(Audit(connection), kept, "token create", author, now, **details)
            Tokens(connection).put(kept)
            reveal(token)
    return NewToken(name=name, may=kept.may, until=until, bearer=None if dry_run else token)


def revoke_token(database: Database, name: str, *, author: str, now: datetime, dry_run: bool = False) -> Token:
    """End a token: the next request with it is refused.

    Raises:
        VerbRefusedError: there is no such token, or it is revoked already.
    """
    with database.read() if dry_run else database.begin() as connection:
        token = Tokens(connection).of_name(name)
        if token is None or token.revoked_at is not None:
            reason = "it does not exist" if token is None else "it is revoked already"
            next_step = f"List the tokens: {command_line('token', 'list')}"
            raise VerbRefusedError(subject=f"the token of {name!r}", reason=reason, next_step=next_step)
        revoked = replace(token, revoked_at=now, revoked_by=author)
        if not dry_run:
            _note(Audit(connection), token, "token revoke", author, now)
            Tokens(connection).put(revoked)
    return revoked


def _note(audit: Audit, token: Token, action: str, author: str, now: datetime, **details: object) -> None:
    target = f"token {token.name}"
    audit.append(AuditEntry(recorded_at=now, author=author, action=action, target=target, details=details))
