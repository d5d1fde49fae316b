"""Append events of feed instances to a log, and read them."""

import hashlib
import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, exists, func, insert, or_, select, true, type_coerce, update

from feed_assets.entities.common import Kind
from feed_assets.log.messages.lineage import tell_data
from feed_assets.log.records import COLUMNS, CONTENT, FeedEvent, FeedEventKind, FeedKey, NewFeedEvent
from feed_assets.log.tables import HAS_KEY, feed_events, shared_payloads
from feed_assets.masking import encodable
from feed_assets.sql.column_types import Text, read_json
from feed_assets.sql.database import lock_log
from feed_assets.sql.names import Renaming
from feed_assets.sql.rows import (
    KEY_ROWS,
    RowMapper,
    TableStore,
    build_insert_if_absent,
    delete_keys,
    key_rows,
    render_rows,
    select_keys,
)
from feed_assets.sql.totals import Total, TotalKind, Totals, microseconds, totals

EVENTS_AT_ONCE = 500

SHARED = frozenset(
    {"sweep", "kind", "place", "store", "rule", "reason", "was", "process", "output", "attempt", COLUMNS}
)
"""The members of a payload that many events have in common: stored once, under a number that is made of them."""

_T = feed_events.c
_NEWEST = select(func.max(feed_events.alias("newest").c.seq)).scalar_subquery()
_PATH, _PROCESS, _FEED = "path", "process", "{feed}"
_PARTS = ("%Y", "%m", "%d", "%H", "%M")


class _EventRows(RowMapper[FeedEvent]):
    """Gives events the whole of their payloads."""

    def load(self, row: Sequence[Any], **others: Any) -> FeedEvent:
        found: dict[str, Any] = dict(zip(self._read, row, strict=True))
        if (shared := found.pop("shared")) is not None:
            origin, pattern, common = _read_shared(shared)
            found["origin"] = origin or found["origin"]
            path = {} if pattern is None else {_PATH: _render_path(pattern, found["nominal_time"], found["feed"])}
            found["payload"] = {**common, **path, **found["payload"]}
        return FeedEvent(**found, **others)


@lru_cache(1024)
def _read_shared(stored: str) -> tuple[str | None, str | None, Mapping[str, Any]]:
    """Return origin, pattern of the path and other members of what events have in common."""
    shared = read_json(stored)
    return shared.pop("origin", None), shared.pop(_PATH, None), shared


def _render_path(pattern: str, nominal_time: datetime, feed: str) -> str:
    return f"{nominal_time:{pattern}}".replace(_FEED, feed)


def _find_pattern(path: object, nominal_time: datetime, feed: str) -> str | None:
    """Return a path without the name of its feed and without its time, if all instances have that: as `{feed}/%Y`."""
    pattern, rest = "", str(path).replace("%", "%%").replace(feed, _FEED, 1)
    for part, value in zip(_PARTS, f"{nominal_time:{' '.join(_PARTS)}}".split(), strict=True):
        before, found, after = rest.partition(value)
        pattern, rest = (f"{pattern}{before}{part}", after) if found else (pattern, rest)
    pattern += rest
    is_safe = "%Y" in pattern and pattern.isascii() and pattern.isprintable()
    is_of_all = is_safe and not re.search(r"\d", pattern[pattern.index("%Y") :])
    return pattern if is_of_all and _render_path(pattern, nominal_time, feed) == path else None


_SHARED = select(type_coerce(shared_payloads.c.payload, Text)).where(shared_payloads.c.number == _T.shared)
EVENT_ROWS = _ROWS = _EventRows(feed_events, FeedEvent, shared=_SHARED.scalar_subquery())
_NEW_ROWS = RowMapper(feed_events, NewFeedEvent)


def digest_key(idempotency_key: str) -> str:
    """Return what the log keeps of an idempotency key, which may name a path."""
    return urlsafe_b64encode(hashlib.sha256(encodable(idempotency_key).encode()).digest()[:16]).decode().rstrip("=")


class EventHead(NamedTuple):
    """What an event is about."""

    seq: int
    cluster: str
    kind: FeedEventKind
    recorded_at: datetime


class EventLog(TableStore):
    """The log as one transaction sees it. Nothing in it is ever changed; a clean-up removes what is long past."""

    def append(self, events: Sequence[NewFeedEvent]) -> list[int]:
        """Append events and return their sequence numbers, in the given order.

        An event whose idempotency key is in the log already, or twice in `events`, is not written again; its first
        number is returned. Numbers have no gaps, and a reader that has seen n will never find a new row below n. On
        PostgreSQL the log stays locked for appending until the transaction ends (`lock_log`).
        """
        if not events:
            return []
        lock_log(self._connection)
        known = self._find_keys({digest_key(key) for event in events if (key := event.idempotency_key) is not None})
        last = self.last_seq()
        seqs: list[int] = []
        rows: list[dict[str, Any]] = []
        new: list[NewFeedEvent] = []
        for event in events:
            key = None if event.idempotency_key is None else digest_key(event.idempotency_key)
            seq = None if key is None else known.get(key)
            if seq is None:
                last += 1
                seq = last
                rows.append(_NEW_ROWS.values(event) | {"seq": seq, "idempotency_key": key, "shared": None})
                new.append(event)
                if key is not None:
                    known[key] = seq
            seqs.append(seq)
        if rows:
            self._share(rows, new)
            self._connection.execute(insert(feed_events), rows)
            tell_data(self._connection, new, last - len(new) + 1)
            Totals(self._connection).add(total for event in new for total in _totals_of(event))
        return seqs

    def read(
        self, after: int, limit: int, feeds: Collection[str] | None = None, *, clusters: Collection[str] | None = None
    ) -> list[FeedEvent]:
        """Return at most `limit` events with a number above `after`, in order; only of `feeds` and of `clusters` if
        given. With `clusters`, the event after `after` and the newest of the log come along, whatever theirs is: a
        reader continues after its last event, and walks but once over those of other clusters.

        A reader of a few feeds that got less than `limit` must continue after `last_seq()` of the same transaction, not
        after its last event; else it scans the events of other feeds again and again.
        """
        statement = _ROWS.select.where(_T.seq > after)
        if feeds is not None:
            # Concatenated, so that SQLite searches from `after` on, and not through all events of the feeds.
            statement = statement.where(_T.feed.concat("").in_(sorted(feeds)))
        if clusters is not None:
            of_ends = or_(_T.seq == after + 1, _T.seq == _NEWEST)
            statement = statement.where(or_(_T.cluster.in_(sorted(clusters)), of_ends))
        return _ROWS.find(self._connection, statement.order_by(_T.seq).limit(limit))

    def of_feed(
        self, feed: str, cluster: str, first: int, last: int, kinds: Collection[FeedEventKind]
    ) -> list[FeedEvent]:
        """Return the events of some kinds of a feed from `first` to `last`, both inclusive, in order."""
        is_one = (_T.feed == feed, _T.cluster == cluster, _T.seq.between(first, last), _T.kind.in_(sorted(kinds)))
        return _ROWS.find(self._connection, _ROWS.select.where(*is_one).order_by(_T.seq))

    def iter_newest(self, feed: str, cluster: str, start: datetime | None, end: datetime | None) -> Iterator[FeedEvent]:
        """Yield the events of the instances of a feed from `start` to before `end`, if given; the newest first."""
        is_one = [_T.feed == feed, _T.cluster == cluster]
        is_one += [_T.nominal_time >= start] if start is not None else []
        is_one += [_T.nominal_time < end] if end is not None else []
        # Added to, so that a range is found by the index of instances, and not among all events of the feed.
        seq = _T.seq if start is None and end is None else _T.seq + 0
        before = self.last_seq() + 1
        while before > 0:
            statement = _ROWS.select.where(*is_one, seq < before).order_by(seq.desc()).limit(EVENTS_AT_ONCE)
            found = _ROWS.find(self._connection, statement)
            yield from found
            before = found[-1].seq if len(found) == EVENTS_AT_ONCE else 0

    def times_made_again(self, feed: str, cluster: str, first: datetime, last: datetime) -> list[datetime]:
        """Return the nominal times from `first` to `last`, both inclusive, whose content came more than once; what is
        brought back from the trash is no other content.
        """
        is_one = (_T.feed == feed, _T.cluster == cluster, _T.nominal_time.between(first, last))
        made = _T.kind.in_(sorted(CONTENT - {FeedEventKind.RESTORED}))
        statement = select(_T.nominal_time).where(*is_one, made).group_by(_T.nominal_time)
        return list(self._connection.scalars(statement.having(func.count() > 1)))

    def count_removed(self, feed: str, cluster: str) -> int:
        """Return how many events of a feed a clean-up has removed."""
        is_there = (_T.feed == feed, _T.cluster == cluster)
        there = self._connection.scalar(select(func.count()).select_from(feed_events).where(*is_there)) or 0
        return max(0, Totals(self._connection).occurrences(TotalKind.EVENTS, feed, cluster) - there)

    def heads(self, after: int, limit: int, as_of: datetime) -> list[EventHead]:
        """Return what at most `limit` events above `after` are about, in order; none recorded later than `as_of`."""
        columns = [_T[name] for name in EventHead._fields]
        statement = select(*columns).where(_T.seq > after, _T.recorded_at <= as_of).order_by(_T.seq).limit(limit)
        return [EventHead(*row) for row in self._connection.execute(statement)]

    def count_kind(self, kind: FeedEventKind, after: int, before: datetime, as_of: datetime) -> int:
        """Return how many events of a kind follow a number, up to the first that was recorded between two times."""
        young = select(_T.seq).where(_T.seq > after, _T.recorded_at.between(before, as_of)).order_by(_T.seq).limit(1)
        end = func.coalesce(young.scalar_subquery(), self.last_seq() + 1)
        is_one = (_T.seq > after, _T.seq < end, _T.kind == kind, _T.recorded_at < before)
        statement = select(func.count()).select_from(feed_events).where(*is_one)
        return self._connection.scalar(statement) or 0

    def remove(self, seqs: Iterable[int]) -> None:
        """Remove the events with some numbers. Never the newest, so that numbers are not used again."""
        delete_keys(self._connection, feed_events, ("seq",), [(seq,) for seq in seqs])

    def last_seq(self) -> int:
        """Return the sequence number of the newest event; 0 for an empty log."""
        return self._connection.scalar(select(func.max(_T.seq))) or 0

    def find_seen(self, feeds: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return those of some feeds, by name and cluster, that ever had an event, as it is committed: also one that a
        clean-up has removed.
        """
        wanted, of = key_rows(self._dialect, ("feed", "cluster")), totals.c
        is_its = exists().where(of.kind == TotalKind.EVENTS, of.entity == wanted.c.feed, of.cluster == wanted.c.cluster)
        statement = select(wanted.c.feed, wanted.c.cluster).where(is_its)
        return {
            (feed, cluster) for feed, cluster in self._connection.execute(statement, {KEY_ROWS: render_rows(feeds)})
        }

    def for_instances(self, keys: Collection[tuple[str, str, datetime]]) -> dict[FeedKey, list[FeedEvent]]:
        """Return all events of several instances in one statement, oldest first; instances without one are left out."""
        found: dict[FeedKey, list[FeedEvent]] = {}
        for event in _ROWS.of_keys(self._connection, FeedKey._fields, keys):
            found.setdefault(event.key, []).append(event)
        return {key: sorted(events, key=lambda event: event.seq) for key, events in found.items()}

    def beside(self, seqs: Iterable[int]) -> dict[FeedKey, list[FeedEvent]]:
        """Return as `for_instances` all events of the instances of which some numbers are events, in one statement."""
        statement = _select_beside(self._dialect)
        found: dict[FeedKey, list[FeedEvent]] = {}
        for event in _ROWS.find(self._connection, statement, {KEY_ROWS: render_rows([(seq,) for seq in seqs])}):
            found.setdefault(event.key, []).append(event)
        return found

    def of_numbers(self, seqs: Iterable[int]) -> dict[int, FeedEvent]:
        """Return the events with some numbers in one statement, in order."""
        found = _ROWS.of_keys(self._connection, ("seq",), [(seq,) for seq in seqs])
        return {event.seq: event for event in sorted(found, key=lambda event: event.seq)}

    def newest(
        self,
        feed: str,
        cluster: str,
        kinds: Collection[FeedEventKind],
        *,
        besides: Collection[datetime] = (),
        until: datetime | None = None,
    ) -> FeedEvent | None:
        """Return the newest event of some kinds of a feed on a cluster, not one of the instances `besides`, recorded at
        `until` or before.
        """
        is_one = [_T.feed == feed, _T.cluster == cluster, _T.kind.in_(sorted(kinds)), _T.nominal_time.not_in(besides)]
        is_one += [_T.recorded_at <= until] if until is not None else []
        return _ROWS.find_one(self._connection, _ROWS.select.where(*is_one).order_by(_T.seq.desc()).limit(1))

    def find_key(self, idempotency_key: str) -> FeedEvent | None:
        """Return the event with an idempotency key."""
        return _ROWS.find_one(
            self._connection, _ROWS.select.where(_T.idempotency_key == digest_key(idempotency_key), HAS_KEY)
        )

    def for_feed(self, feed: str, cluster: str, kind: FeedEventKind) -> list[FeedEvent]:
        """Return all events of one kind of a feed on a cluster, oldest first; for reports, not for ticks."""
        statement = _ROWS.select.where(_T.feed == feed, _T.cluster == cluster, _T.kind == kind)
        # Sorted here: with ORDER BY, SQLite would scan all events of the cluster.
        found = _ROWS.find(self._connection, statement)
        return sorted(found, key=lambda event: event.seq)

    def _share(self, rows: Iterable[dict[str, Any]], events: Iterable[NewFeedEvent]) -> None:
        """Store what the payloads of events have in common with others, and leave its number in their rows."""
        common: dict[int, dict[str, object]] = {}
        pattern: str | None = None
        for row, event in zip(rows, events, strict=True):
            row["payload"] = payload = dict(event.payload)
            shared = {name: payload.pop(name) for name in sorted(payload.keys() & SHARED)}
            if pattern is None or _render_path(pattern, event.nominal_time, event.feed) != payload.get(_PATH):
                pattern = _find_pattern(payload.get(_PATH), event.nominal_time, event.feed)
            if pattern is not None:
                del payload[_PATH]
                shared[_PATH] = pattern
            if not re.search(r"\d", event.origin):  # no run, nor another program
                shared["origin"], row["origin"] = encodable(event.origin), None
            if shared:
                row["shared"] = _number_of(shared)
                common[row["shared"]] = shared
        if common:
            found = [{"number": number, "payload": shared} for number, shared in common.items()]
            self._connection.execute(build_insert_if_absent(self._dialect, shared_payloads), found)

    def rename(self, renaming: Renaming) -> None:
        """Write a new name into the shared payloads of events whose own columns have it; paths stay what they are."""
        by_name = _T.feed == renaming.new
        of_feed = set(self._connection.scalars(select(_T.shared).where(by_name).distinct()))
        shared = select(shared_payloads.c.number, shared_payloads.c.payload)
        for number, payload in self._connection.execute(shared).all():
            renamed = dict(payload)
            if _PROCESS in payload:
                renamed[_PROCESS] = renaming.replace(Kind.PROCESS, payload[_PROCESS])
            if renaming.kind is Kind.FEED and number in of_feed and _FEED in str(payload.get(_PATH)):
                literal = {**renamed, _PATH: str(payload[_PATH]).replace(_FEED, renaming.old)}
                self._share_instead(number, literal, by_name)
            if renamed != payload:
                self._share_instead(number, renamed, true())

    def _share_instead(self, number: int, payload: dict[str, Any], which: ColumnElement[bool]) -> None:
        """Let events share another payload than that with a number."""
        new = {"number": _number_of(payload), "payload": payload}
        self._connection.execute(build_insert_if_absent(self._dialect, shared_payloads), [new])
        self._connection.execute(update(feed_events).where(_T.shared == number, which).values(shared=new["number"]))

    def _find_keys(self, keys: Collection[str]) -> dict[str, int]:
        names, columns = ("idempotency_key",), (_T.idempotency_key, _T.seq)
        found = select_keys(self._connection, feed_events, names, columns, [(key,) for key in keys])
        return {row.idempotency_key: row.seq for row in found}


def _number_of(shared: Mapping[str, object]) -> int:
    """Return the number of a shared payload, which is made of it."""
    return int.from_bytes(hashlib.sha256(json.dumps(shared).encode()).digest()[:8]) >> 2


@cache
def _select_beside(dialect: str) -> Select[Any]:
    wanted, its = key_rows(dialect, ("seq",)), feed_events.alias("its").c
    columns = [its[name] for name in FeedKey._fields]
    keys = select(*columns).distinct().where(its.seq == wanted.c.seq).subquery("keys")
    return _ROWS.select.where(*(_T[name] == keys.c[name] for name in FeedKey._fields)).order_by(_T.seq)


def _totals_of(event: NewFeedEvent) -> list[Total]:
    counted = Total(TotalKind.EVENTS, event.feed, event.cluster, event.kind, amount=event.bytes or 0)
    if event.kind is not FeedEventKind.ARRIVED:
        return [counted]
    delay = microseconds(event.recorded_at - event.nominal_time)
    return [counted, Total(TotalKind.ARRIVAL_DELAY, event.feed, event.cluster, amount=delay)]
