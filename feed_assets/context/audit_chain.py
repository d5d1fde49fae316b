"""Chain the rows of the audit, so that one that was changed, removed or put in by hand is found.

The digest of a row is an HMAC of it and of the digest of the row before, keyed by a secret of the settings. Ticks chain
what was written, afterwards: no writer waits for a digest. Numbers grow by one in the order of commits (see
`lock_definitions`), so no row comes later than one with a larger number, and a number that is not there was removed.
One sealed record says up to where all is chained, and has the digest of the last row that the clean-up has removed.
"""

import hmac
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.tick import Handler, Tick, tick_step, work_off
from feed_assets.errors import SettingsError
from feed_assets.log.audit import Audit
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.masking import get_logger, remember_unnamed
from feed_assets.setting_sections import AuditSettings
from feed_assets.settings import resolve_references
from feed_assets.sql.database import Database, lock_definitions

AUTHOR = "feed-assets"
MOST_FAULTS = 1_000
_READ_AT_ONCE = 5_000
_SHORTEST = 16
_NAME = "audit/chain"
_logger = get_logger(__name__)
_render = json.JSONEncoder(separators=(",", ":"), default=list).encode  # a blob, put in by hand, as its bytes


def open_keys(settings: AuditSettings) -> tuple[bytes, ...]:
    """Return the secret that chains, and the one that has chained older rows; nothing without a secret.

    Raises:
        SettingsError: the environment lacks one, or one is short.
    """
    if settings.secret is None:
        return ()
    texts = {"audit.secret": settings.secret, "audit.former_secret": settings.former_secret}
    found = {setting: resolve_references(setting, text, os.environ) for setting, text in texts.items()}
    for setting, text in found.items():
        remember_unnamed(text or "")
        if text is not None and len(text) < _SHORTEST:
            reason = f"it has fewer than {_SHORTEST} characters"
            raise SettingsError(setting=setting, reason=reason, tried=(), next_step="Choose one that nobody can guess.")
    return tuple(text.encode() for text in found.values() if text is not None)


def _digest(key: bytes, before: str, values: Iterable[object]) -> str:
    return hmac.digest(key, _render([before, *values]).encode(), "sha256").hex()


def _wrong(reason: str) -> SettingsError:
    next_step = "Set the secret that has chained the audit, or beside a new one as audit.former_secret."
    return SettingsError(setting="audit.secret", reason=reason, tried=(), next_step=next_step)


class _Chain(NamedTuple):
    """What is chained: the rows behind `anchor`, the last that was removed, up to `head`, with the digests of both."""

    anchor: int
    anchor_digest: str
    head: int
    digest: str

    @classmethod
    def find(cls, connection: Connection, keys: Sequence[bytes]) -> "_Chain | None":
        """Return what is on record; None if nothing is chained. Raises SettingsError if no key has sealed it."""
        if (text := Cursors(connection).get(_NAME)) is None:
            return None
        try:
            *values, seal = json.loads(text)
            chain = cls(*values)
        except (ValueError, TypeError):
            chain, seal = cls(0, "", 0, ""), None
        if not any(_digest(key, "", chain) == seal for key in keys):
            raise _wrong("it is not the one that has chained the audit, or the record of the chain was changed by hand")
        return chain

    def put(self, connection: Connection, key: bytes) -> None:
        Cursors(connection).put(_NAME, _render([*self, _digest(key, "", self)]))


@tick_step(TickStep.AUDIT, otherwise=None)
def apply_audit_chain(tick: Tick, settings: AuditSettings) -> None:
    """Chain the rows that were written since the last tick. Without a secret nothing is read."""
    if keys := open_keys(settings):
        work_off(tick, ChainHandler(keys))


class ChainHandler(Handler[Row[Any], int]):
    """Chains rows, a batch at a time. Of two that do so at once, one does."""

    step = TickStep.AUDIT
    at_once = 1_000
    most_steps = 20

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = keys
        self._chain: _Chain | None = None

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> Sequence[Row[Any]]:  # noqa: ARG002
        self._chain = _Chain.find(connection, self._keys)
        found = Audit(connection).stored(self._chain.head if self._chain else 0, limit)
        if self._chain is None and any(each.digest for each in found):
            raise _wrong("rows are chained, but the record of the chain was removed by hand")
        return found

    def unit_of(self, entry: Row[Any]) -> str:  # noqa: ARG002
        return "rows"

    def handle(self, tick: Tick, entries: Sequence[Row[Any]]) -> list[int]:
        begin = entries[0].seq - 1
        chain, digests = self._chain or _Chain(begin, "", begin, ""), list[tuple[int, str]]()
        digest = chain.digest
        for each in entries:
            digest = _digest(self._keys[0], digest, each[:-1])
            digests.append((each.seq, digest))
        with tick.database.begin() as connection:
            lock_definitions(connection)
            if _Chain.find(connection, self._keys) != self._chain:
                return []
            Audit(connection).put_digests(digests)
            chain._replace(head=entries[-1].seq, digest=digest).put(connection, self._keys[0])
            if self._chain is None:
                Audit(connection).append(AuditEntry(recorded_at=tick.as_of, author=AUTHOR, action="audit chain"))
        return [len(entries)]


def remove_old(
    connection: Connection, settings: AuditSettings, before: datetime, as_of: datetime, limit: int, *, dry_run: bool
) -> int:
    """Remove rows that are older than a time; return how many. Once rows are chained, only those go that are, up to the
    first that is not as it was written, and the digest of the last one is kept.

    Raises:
        SettingsError: the secret is missing, cannot be read, or is another one.
    """
    if not dry_run:
        lock_definitions(connection)
    audit, (keys, chain) = Audit(connection), _open_chain(connection, settings)
    end = audit.find_old_end(before, as_of, limit, (chain.head if chain else 0) if keys else None)
    if chain is not None and (fault := next(_find_faults(audit, keys, chain, end), None)) is not None:
        _logger.warning("from row %d on the audit stays: %d to %d: %s", fault[0], *fault)
        end = max(fault[0] - 1, 0)
    if dry_run or not end:
        return audit.count_up_to(end) if end else 0
    if chain is not None:
        digest = audit.stored(end - 1, 1)[0].digest or ""
        chain._replace(anchor=end, anchor_digest=digest).put(connection, keys[0])
    return audit.remove_up_to(end)


class ChainFault(StrEnum):
    """What is wrong with rows."""

    CHANGED = "changed, or chained with another secret"
    MISSING = "missing"
    INSERTED = "put in, or its digest removed"


@dataclass(slots=True, kw_only=True)
class BrokenRows:
    """Rows in a row with the same fault."""

    first: int
    last: int
    fault: ChainFault


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainProof:
    """What a look at the chain from row `first` to `last` has found; `waiting` rows are not chained yet."""

    faults: tuple[BrokenRows, ...] = ()
    first: int | None = None
    last: int | None = None
    waiting: int | None = None

    @property
    def has_failed(self) -> bool:
        """Whether a row is not as it was written."""
        return bool(self.faults)

    @property
    def summary(self) -> str:
        """Up to where all is chained, and what is not yet."""
        if self.waiting is None:
            return "nothing is chained: the settings have no audit.secret"
        found = "not all is as it was written" if self.faults else "all as they were written"
        chained = f"rows {self.first} to {self.last} are chained, {found}" if self.last else "no row is chained"
        return f"{chained}; {self.waiting} not yet chained, which ticks do"


def verify_chain(database: Database, settings: AuditSettings, progress: Callable[[str, int, int], None]) -> ChainProof:
    """Compute all digests again, in the order of rows; return what differs, at most `MOST_FAULTS`.

    Raises:
        SettingsError: the secret cannot be read, is another one, or is missing, and rows are chained.
    """
    faults = list[BrokenRows]()
    with database.read() as connection:
        audit, (keys, known) = Audit(connection), _open_chain(connection, settings)
        if not keys:
            return ChainProof()
        chain, last = known or _Chain(0, "", 0, ""), audit.last_seq()
        for first, end, fault in _find_faults(audit, keys, chain, max(chain.head, last), progress):
            if faults and (faults[-1].fault, faults[-1].last + 1) == (fault, first):
                faults[-1].last = end
            elif len(faults) == MOST_FAULTS:
                break
            else:
                faults.append(BrokenRows(first=first, last=end, fault=fault))
        waiting = audit.count_up_to(last) - audit.count_up_to(chain.head)
    of = {"first": chain.anchor + 1, "last": chain.head} if known else {}
    return ChainProof(faults=tuple(faults), waiting=waiting, **of)


def _open_chain(connection: Connection, settings: AuditSettings) -> tuple[tuple[bytes, ...], _Chain | None]:
    """Return the secrets, and what is chained. Raises SettingsError if it cannot be known."""
    if keys := open_keys(settings):
        return keys, _Chain.find(connection, keys)
    if Cursors(connection).get(_NAME) is None:
        return (), None
    raise _wrong("it is missing, but the audit is chained")


def _find_faults(
    audit: Audit,
    keys: Sequence[bytes],
    chain: _Chain,
    end: int,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Iterator[tuple[int, int, ChainFault]]:
    """Yield the first and the last row with a fault, up to `end`, in the order of rows; reads a batch at a time."""
    if (first := audit.first_seq()) is not None and first <= chain.anchor:
        yield first, chain.anchor, ChainFault.INSERTED
    before: str | None = chain.anchor_digest
    after = chain.anchor
    while after < end and (found := audit.stored(after, min(_READ_AT_ONCE, end - after))):
        for each in found:
            if each.seq > after + 1:
                yield after + 1, min(each.seq - 1, end), ChainFault.MISSING
                before = None
            if each.seq > end:
                return
            if (fault := _judge(each, before, keys, chain)) is not None:
                yield each.seq, each.seq, fault
            after, before = each.seq, each.digest
        progress("rows of the audit", after - chain.anchor, end - chain.anchor)
    if after < min(chain.head, end):
        yield after + 1, min(chain.head, end), ChainFault.MISSING


def _judge(each: Row[Any], before: str | None, keys: Sequence[bytes], chain: _Chain) -> ChainFault | None:
    """Return what is wrong with a row; `before` is the digest of the one before, None if that is gone."""
    if each.seq > chain.head:
        return ChainFault.INSERTED if each.digest else None
    if each.digest is None:
        return ChainFault.INSERTED
    is_other = each.seq == chain.head and each.digest != chain.digest
    is_made = before is None or any(each.digest == _digest(key, before, each[:-1]) for key in keys)
    return ChainFault.CHANGED if is_other or not is_made else None
