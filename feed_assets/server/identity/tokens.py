"""Tokens of a server: in whose name their holders ask, what they may, and until when. Only their digests are kept."""

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Column, Connection, Index, delete

from feed_assets.access.principals import Principal
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
SESSION = timedelta(hours=10)
_NOT_IN_NAMES = (",", " via ", "\N{REPLACEMENT CHARACTER}")  # two names, or bytes that are no UTF-8
_OURS = ("feed-assets", "unknown")
"""Who is no person: the author of what the system does by itself, and of a log-in that is refused."""
LONGEST_NAME = 200

tokens = define_table(
    "fa_tokens",
    Column("name", Text, nullable=False),
    Column("session_of", Text),
    Column("digest", Text, nullable=False),
    Column("may", Entries(str, Does), nullable=False),
    Column("groups", Entries(str, str)),
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
    """What is kept of a token, and `bearer`, the token itself, only as it is made. That of a browser is a `session_of`
    who has logged in by the issuer.
    """

    name: str
    session_of: str | None = None
    may: tuple[Does, ...]
    groups: tuple[str, ...] = ()
    until: datetime | None = None
    author: str
    created_at: datetime
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    digest: Hidden[str]
    said: Hidden[str] = ""
    bearer: str | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.until is None or now < self.until)

    @property
    def principal(self) -> Principal:
        """Its holder."""
        return Principal(name=self.session_of or self.name, groups=frozenset(self.groups), may=self.may)

    @property
    def sentence(self) -> str:
        """The token alone, so that a shell can take it."""
        return self.bearer or f"would make a token of {self.name!r}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What has been done; what the holder of a new one may, and what to do with it."""
        if self.said:
            return (self.said,)
        until = f"until {render_datetime(self.until)}" if self.until else "until it is revoked"
        of = f" as one of {', '.join(self.groups)}" if self.groups else ""
        kept = "It is shown this once: keep it where only its holder reads it."
        return (f"{self.name!r} may {', '.join(self.may)}{of}, {until}. {kept}",) if self.bearer else ()


_ROWS = RowMapper(tokens, Token)


class Tokens(TableStore):
    """The tokens as one transaction sees them."""

    def find(self, token: str) -> Token | None:
        """Return what is kept of a token."""
        return _ROWS.find_one(self._connection, _ROWS.select.where(tokens.c.digest == _digest_of(token)))

    def find_valid(self, token: str, now: datetime) -> Token | None:
        """Return what is kept of a token that lets in; None of any other."""
        found = self.find(token)
        return found if found is not None and found.is_valid(now) else None

    def find_person(self, name: str, now: datetime) -> Principal | None:
        """Return what is proven of a person by the newest log-in, else by a token of that name; None without one."""
        is_proof = (tokens.c.session_of == name) | (tokens.c.name == name) & tokens.c.session_of.is_(None)
        newest = _ROWS.select.where(is_proof).order_by(tokens.c.session_of.is_(None), tokens.c.created_at.desc())
        found = _ROWS.find(self._connection, newest)
        return next((each.principal for each in found if each.is_valid(now)), None)

    def all(self) -> list[Token]:
        """Return the newest token of each name."""
        return _ROWS.find(self._connection, _ROWS.select.order_by(tokens.c.name))


def is_name(text: str) -> bool:
    """Return whether a text is the name of a group."""
    is_plain = text.isprintable() and text == text.strip() and not any(each in text for each in _NOT_IN_NAMES)
    return is_plain and 0 < len(text) <= LONGEST_NAME


def is_person(text: str) -> bool:
    """Return whether a text is the name of a person."""
    return is_name(text) and text.lower() not in _OURS


def _digest_of(token: str) -> str:
    """Return the digest. A token of 256 random bits needs no slow one: nobody can try them all."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def create_token(
    database: Database,
    name: str,
    may: Sequence[Does],
    until: datetime | None,
    groups: Sequence[str] = (),
    *,
    author: str,
    now: datetime,
    dry_run: bool,
    session_of: str | None = None,
) -> Token:
    """Make a token, in place of one of its name that is not valid any more. Sessions that have expired are forgotten.

    Raises:
        WrongUsageError: the name, the rights, the groups or the end are wrong.
        VerbRefusedError: a token of this name is valid.
    """
    if _NAME.fullmatch(name) is None or not is_person(name):
        others = f"at most 80, and neither {' nor '.join(_OURS)}"
        raise WrongUsageError(f"{name!r} is no name of a token. Write letters, digits and . _ @ + -, {others}.")
    if not may:
        raise WrongUsageError(f"A token of {name!r} may nothing. Give it one of {', '.join(Does)}, or several.")
    if wrong := [each for each in groups if not is_name(each)]:
        raise WrongUsageError(f"{wrong[0]!r} is no name of a group. Write it without a comma, at most {LONGEST_NAME}.")
    if until is not None and until <= now:
        raise WrongUsageError(f"A token of {name!r} would have expired. Give a time after {render_datetime(now)}.")
    token = f"{TOKEN_PREFIX}{secrets.token_hex(_BYTES)}"
    rights = tuple(each for each in Does if each in may)
    of: dict[str, Any] = {"session_of": session_of, "groups": tuple(dict.fromkeys(groups)), "may": rights}
    made = Token(name=name, until=until, author=author, created_at=now, digest=_digest_of(token), **of)
    with database.begin() as connection:
        before = _find_locked(connection, name)
        if before is not None and before.is_valid(now):
            next_step = f"Choose another name, or end it: {command_line('token', 'revoke', name)}"
            raise VerbRefusedError(subject=f"the token of {name!r}", reason="it is valid", next_step=next_step)
        if dry_run:
            return made
        connection.execute(delete(tokens).where(tokens.c.session_of.is_not(None), tokens.c.until <= now))
        _write(connection, made, "log in" if session_of else "token create", author, now)
    reveal(token)
    return replace(made, bearer=token)


def revoke_token(database: Database, name: str, *, author: str, now: datetime, dry_run: bool) -> Token:
    """End a token: the next request with it is refused.

    Raises:
        VerbRefusedError: there is no such token, or it is revoked already.
    """
    with database.begin() as connection:
        token = _find_locked(connection, name)
        if token is None or token.revoked_at is not None:
            reason = "it does not exist" if token is None else "it is revoked already"
            next_step = f"List the tokens: {command_line('token', 'list')}"
            raise VerbRefusedError(subject=f"the token of {name!r}", reason=reason, next_step=next_step)
        said = f"{'would end' if dry_run else 'ended'} the token of {name!r}"
        revoked = replace(token, revoked_at=now, revoked_by=author, said=said)
        if not dry_run:
            _write(connection, revoked, "log out" if author == token.session_of else "token revoke", author, now)
    return revoked


def _find_locked(connection: Connection, name: str) -> Token | None:
    lock_definitions(connection)
    return _ROWS.find_one(connection, _ROWS.select.where(tokens.c.name == name))


def _write(connection: Connection, token: Token, action: str, author: str, now: datetime) -> None:
    details = {"may": ", ".join(token.may)} | ({"groups": ", ".join(token.groups)} if token.groups else {})
    details |= {"until": render_datetime(token.until)} if token.until else {}
    target = f"token {token.name}"
    entry = AuditEntry(recorded_at=now, author=author, action=action, target=target, details=details)
    Audit(connection).append(entry)
    _ROWS.put(connection, [token])
