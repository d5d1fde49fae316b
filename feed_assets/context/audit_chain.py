"""Chain the rows of the audit, so that one that was changed, removed or put in by hand is found.

The digest of a row is an HMAC of it and of the digest of the row before, keyed by a secret of the settings. Ticks chain
what was written, afterwards: writers never wait for a digest. Numbers grow by one in the order of commits (see
`lock_definitions`), so no row comes later than one with a larger number, and a number that is not there was removed.

One sealed record says up to where all is chained, and has the digest of the last row that the clean-up has removed. An
`entity rename` writes targets anew: a row may have the target that later renames, which are chained rows, have made.
"""

import hmac
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.errors import AuditChainError
from feed_assets.context.tick import Handler, Tick, tick_step, work_off
from feed_assets.errors import SettingsError, WrongUsageError
from feed_assets.log.audit import Audit, StoredEntry
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.masking import remember_unnamed
from feed_assets.setting_sections import AuditSettings
from feed_assets.settings import Settings, resolve_references
from feed_assets.sql.database import Database, lock_definitions

AUTHOR = "feed-assets"
AT_ONCE = 1_000
STEPS_A_TICK = 20
MOST_FAULTS = 1_000
_READ_AT_ONCE = 5_000
_SHORTEST, _BEFORE_ALL = 16, -(2**62)
_NAME = "audit/chain"
_LABEL = re.compile(r"(\w+) '(.*)'")  # feed 'clicks'
_render = json.JSONEncoder(separators=(",", ":")).encode


class _Key(NamedTuple):
    """A secret, and the name by which digests tell which one has made them."""

    secret: bytes
    name: str

    @classmethod
    def of(cls, secret: str) -> "_Key":
        key = secret.encode()
        return cls(key, hmac.digest(key, b"name", "sha256").hex()[:8])

    def digest(self, before: str, *values: object) -> str:
        made = hmac.digest(self.secret, _render([before, *values]).encode(), "sha256")
        return f"{self.name}:{made.hex()}"


class Keys(NamedTuple):
    """The secret that chains, and all that have, by name."""

    current: _Key
    known: Mapping[str, _Key]

    @classmethod
    def open(cls, settings: AuditSettings, tried: tuple[str, ...] = ()) -> "Keys | None":
        """Return the secrets of the settings; None if there is none.

        Raises:
            SettingsError: the environment lacks one, or one is short.
        """
        found = list[_Key]()
        for name in ("secret", "former_secret"):
            setting = f"audit.{name}"
            text = resolve_references(setting, getattr(settings, name), os.environ, tried)
            if text is not None:
                remember_unnamed(text)
                if len(text) < _SHORTEST:
                    reason, next_step = f"it has fewer than {_SHORTEST} characters", "Choose one that nobody can guess."
                    raise SettingsError(setting=setting, reason=reason, tried=tried, next_step=next_step)
                found.append(_Key.of(text))
        return cls(found[0], {key.name: key for key in found}) if settings.secret is not None else None


class _Chain(NamedTuple):
    """What is chained: the rows behind `anchor`, the last that was removed, up to `head`, with the digests of both."""

    anchor: int
    anchor_digest: str
    head: int
    digest: str

    @classmethod
    def find(cls, connection: Connection, keys: Keys) -> "_Chain | None":
        """Return what is on record; None if nothing is chained.

        Raises:
            AuditChainError: it was sealed with another secret, or written by hand.
        """
        text = Cursors(connection).get(_NAME)
        if text is None:
            return None
        try:
            *values, seal = json.loads(text)
            key = keys.known.get(seal.partition(":")[0])
            chain = cls(*values)
        except (ValueError, TypeError, AttributeError) as exc:
            raise AuditChainError(reason="the record of the chain was changed by hand") from exc
        if key is None:
            raise AuditChainError(reason="it was chained with another secret than those of the settings")
        if key.digest("", *chain) != seal:
            raise AuditChainError(reason="the record of the chain was changed by hand")
        return chain

    def put(self, connection: Connection, keys: Keys) -> None:
        Cursors(connection).put(_NAME, _render([*self, keys.current.digest("", *self)]))


@tick_step(TickStep.AUDIT, otherwise=None)
def apply_audit_chain(tick: Tick, settings: Settings) -> None:
    """Chain the rows that were written since the last tick. Without a secret nothing is read.

    Raises:
        SettingsError: the secret cannot be read.
    """
    if (keys := Keys.open(settings.audit, settings.tried)) is not None:
        work_off(tick, ChainHandler(keys))


class ChainHandler(Handler[StoredEntry, int]):
    """Chains rows, a batch at a time. Of two that do so at once, one does."""

    step = TickStep.AUDIT
    at_once = AT_ONCE
    most_steps = STEPS_A_TICK

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._chain: _Chain | None = None

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> list[StoredEntry]:  # noqa: ARG002
        self._chain = _Chain.find(connection, self._keys)
        found = Audit(connection).stored(self._chain.head if self._chain else 0, limit)
        if self._chain is None and any(each.digest for each in found):
            raise AuditChainError(reason="rows are chained, but the record of the chain is gone")
        return found

    def unit_of(self, entry: StoredEntry) -> str:  # noqa: ARG002
        return "rows"

    def handle(self, tick: Tick, entries: Sequence[StoredEntry]) -> list[int]:
        begin = entries[0].seq - 1
        chain = self._chain or _Chain(begin, "", begin, "")
        digests = list[tuple[int, str]]()
        for each in entries:
            digest = self._keys.current.digest(digests[-1][1] if digests else chain.digest, *each[:-1])
            digests.append((each.seq, digest))
        head, digest = digests[-1]
        with tick.database.begin() as connection:
            lock_definitions(connection)
            if _Chain.find(connection, self._keys) != self._chain:
                return []
            Audit(connection).put_digests(digests)
            chain._replace(head=head, digest=digest).put(connection, self._keys)
            if self._chain is None:
                details = {"from": begin + 1}
                begun = AuditEntry(recorded_at=tick.as_of, author=AUTHOR, action="audit chain", details=details)
                Audit(connection).append(begun)
        return [len(entries)]


def remove_old(
    connection: Connection, settings: AuditSettings, before: datetime, as_of: datetime, limit: int, *, dry_run: bool
) -> int:
    """Remove rows that are older than a time, and keep the digest of the last one; return how many. With a secret only
    those that are chained go. Without one, no digest is kept, and rows that were chained are missing.

    Raises:
        SettingsError: the secret cannot be read.
        AuditChainError: the chain has another secret.
    """
    if not dry_run:
        lock_definitions(connection)
    keys = Keys.open(settings)
    chain = None if keys is None else _Chain.find(connection, keys)
    audit, up_to = Audit(connection), None if keys is None else chain.head if chain else 0
    end = audit.find_old_end(before, as_of, limit, up_to)
    if dry_run:
        return audit.count_up_to(end)
    if end and chain is not None and keys is not None:
        chain._replace(anchor=end, anchor_digest=audit.stored(end - 1, 1)[0].digest or "").put(connection, keys)
    return audit.remove_up_to(end)


class ChainFault(StrEnum):
    """What is wrong with rows."""

    CHANGED = "changed"
    MISSING = "missing"
    INSERTED = "put in, or its digest removed"
    FOREIGN = "chained with a secret that the settings do not have"
    REWRITTEN = "another digest than was noted: it, or a row before it, was chained again"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRows:
    """Rows in a row with the same fault."""

    first: int
    last: int
    fault: ChainFault


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainProof:
    """What a look at the chain has found. `waiting` rows are not chained yet, and `noted` is what to note elsewhere."""

    faults: tuple[BrokenRows, ...] = ()
    first: int | None = None
    last: int | None = None
    waiting: int = 0
    noted: str | None = None
    has_secret: bool = True

    @property
    def has_failed(self) -> bool:
        """Whether a row is not as it was written."""
        return bool(self.faults)

    @property
    def summary(self) -> str:
        """Up to where all is chained, and what is not yet."""
        if not self.has_secret:
            return "nothing is chained: the settings have no audit.secret"
        waiting = f"{self.waiting:,} not yet chained; ticks do that"
        if self.last is None:
            return f"no row is chained, {waiting}"
        which = "not all is as it was written" if self.faults else "all as they were written"
        return f"rows {self.first:,} to {self.last:,} are chained, {which}; {waiting}. Note elsewhere: {self.noted}"


def verify_chain(
    database: Database, settings: Settings, noted: str | None, progress: Callable[[str, int, int], None]
) -> ChainProof:
    """Compute all digests again, in the order of rows; return what differs. With what an earlier proof had to be
    `noted`, also what somebody who has the secret has chained again.

    Raises:
        SettingsError: the secret cannot be read, or there is none, but rows are chained.
        AuditChainError: rows were chained with another secret, or the record of the chain was changed.
        WrongUsageError: what was noted is of a row that was removed, or is no such text.
    """
    keys = Keys.open(settings.audit, settings.tried)
    with database.read() as connection:
        if keys is None:
            if Cursors(connection).get(_NAME) is None:
                return ChainProof(has_secret=False)
            reason, next_step = "it is missing, but the audit is chained", "Set the secret that has chained it."
            raise SettingsError(setting="audit.secret", reason=reason, tried=settings.tried, next_step=next_step)
        chain = _Chain.find(connection, keys)
        walk = _Walk(connection, chain or _Chain(0, "", 0, ""), keys, _parse_noted(noted, chain), progress)
        faults = tuple(islice(_joined(walk.find_faults()), MOST_FAULTS))
        if chain is None:
            return ChainProof(faults=faults, waiting=walk.waiting)
        note, first = f"{chain.head}:{chain.digest}", chain.anchor + 1
        return ChainProof(faults=faults, first=first, last=chain.head, waiting=walk.waiting, noted=note)


def _parse_noted(noted: str | None, chain: _Chain | None) -> tuple[int, str]:
    if noted is None:
        return 0, ""
    number, _, digest = noted.partition(":")
    if not (number.isascii() and number.isdigit() and digest):
        raise WrongUsageError(f"{noted!r} is not what a proof had to be noted: write it as 1200:1f2e3d4c:…")
    if chain is not None and int(number) < chain.anchor:
        raise WrongUsageError(f"Row {number} was removed by the clean-up. Give what was noted of a later one.")
    return int(number), digest


def _joined(found: Iterable[BrokenRows]) -> Iterator[BrokenRows]:
    last: BrokenRows | None = None
    for each in found:
        if last is not None and (last.fault, last.last + 1) == (each.fault, each.first):
            last = replace(last, last=each.last)
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


@dataclass
class _Walk:
    """A look at all rows, a batch at a time."""

    connection: Connection
    chain: _Chain
    keys: Keys
    noted: tuple[int, str]
    progress: Callable[[str, int, int], None]
    waiting: int = 0
    _renames: list[tuple[int, str, str, str]] | None = None

    def find_faults(self) -> Iterator[BrokenRows]:
        chain, number = self.chain, self.noted[0]
        due, before = chain.anchor + 1, str(chain.anchor_digest) or None
        before = before if before is not None or chain.anchor_digest is None else ""
        for each in self._rows():
            if each.seq <= chain.anchor:
                yield _broken(each.seq, ChainFault.INSERTED)
                continue
            if each.seq > due:
                yield BrokenRows(first=due, last=each.seq - 1, fault=ChainFault.MISSING)
                before = None
            if (fault := self._judge(each, before)) is not None:
                yield _broken(each.seq, fault)
            due, before = each.seq + 1, each.digest
        last = max(chain.head, number)
        if due <= last:
            yield BrokenRows(first=due, last=last, fault=ChainFault.MISSING)
        if number == chain.anchor != 0 and self.noted[1] != chain.anchor_digest:
            yield _broken(number, ChainFault.REWRITTEN)

    def _rows(self) -> Iterator[StoredEntry]:
        after, done, last = _BEFORE_ALL, 0, Audit(self.connection).last_seq()
        while found := Audit(self.connection).stored(after, _READ_AT_ONCE):
            yield from found
            after, done = found[-1].seq, done + len(found)
            self.progress("rows of the audit", done, done + last - after)

    def _judge(self, each: StoredEntry, before: str | None) -> ChainFault | None:
        """Return what is wrong with a row; `before` is the digest of the one before, None if that is gone."""
        chain, digest = self.chain, each.digest
        if each.seq == self.noted[0] and digest != self.noted[1]:
            return ChainFault.REWRITTEN
        if each.seq > chain.head:
            self.waiting += 1
            return ChainFault.INSERTED if digest else None
        if digest is None:
            return ChainFault.INSERTED
        if (key := self.keys.known.get(digest.partition(":")[0])) is None:
            return ChainFault.FOREIGN
        if each.seq == chain.head and digest != chain.digest:
            return ChainFault.CHANGED
        if before is None or digest == key.digest(before, *each[:-1]):
            return None
        others = self._former_targets(each)
        is_renamed = any(digest == key.digest(before, *each._replace(target=other)[:-1]) for other in others)
        return None if is_renamed else ChainFault.CHANGED

    def _former_targets(self, each: StoredEntry) -> Iterator[str]:
        """Yield what the target of a row was called before each rename since, the last first."""
        if self._renames is None:
            self._renames = []
            for seq, target, details in Audit(self.connection).of_action("rename"):
                for _, *rename in self._renames:
                    target = _called_before(target, *rename)
                if found := _LABEL.fullmatch(target or ""):
                    self._renames.append((seq, found[1], found[2], str(details.get("former"))))
        target = each.target or ""
        for seq, *rename in self._renames:
            if seq > each.seq and (former := _called_before(target, *rename)) != target:
                target = former
                yield target


def _called_before(target: str, kind: str, name: str, former: str) -> str:
    """Return what a target was called before a rename.

    >>> _called_before("feed/new/column/user", "feed", "new", "old"), _called_before("feed 'new'", "feed", "new", "old")
    ('feed/old/column/user', "feed 'old'")
    >>> _called_before("process/new@east", "feed", "new", "old"), _called_before("feed/newer", "feed", "new", "old")
    ('process/old@east', 'feed/newer')
    """
    its = rf"(?<=^{kind} '){re.escape(name)}(?='$)|(?<=^{kind}/){re.escape(name)}(?=/|$)"
    of_feed = rf"|(?<=^process/){re.escape(name)}(?=@|\.import|\.export)" if kind == "feed" else ""
    return re.sub(its + of_feed, lambda _: former, target)


def _broken(seq: int, fault: ChainFault) -> BrokenRows:
    return BrokenRows(first=seq, last=seq, fault=fault)
