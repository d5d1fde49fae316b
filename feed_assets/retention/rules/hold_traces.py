"""Keep a trace of each hold beside the data that it protects, so that it outlives the state database.

A trace is written after the row of its hold, and removed after the release is recorded. So whatever breaks off leaves
at most a trace too many, and a trace without a row is a hold that the state has lost: it comes back, and is never
removed because the state lacks it.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel

from feed_assets.context.operation import TimelineContext
from feed_assets.entities.locations.overlaps import Places
from feed_assets.log.removals.holds import Holds
from feed_assets.log.removals.records import Hold
from feed_assets.masking import get_logger
from feed_assets.plan.copy_records import StoreAddress
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.retention.rules.locations import iter_data
from feed_assets.storage.copy_port import Documents
from feed_assets.storage.errors import StorageError
from feed_assets.timing.overlaps import find_nesting

_logger = get_logger(__name__)


class HoldTrace(BaseModel, frozen=True):
    """A hold as it was placed, readable without a state database, with the `locations` of its feed in that store when
    the trace was written: templates of paths; none if it is on every feed.
    """

    version: Literal[1] = 1
    name: str
    feed: str | None
    cluster: str | None
    first: AwareDatetime | None
    last: AwareDatetime | None
    reason: str
    author: str
    created_at: AwareDatetime
    expires_at: AwareDatetime | None
    locations: tuple[str, ...] = ()

    @classmethod
    def of(cls, hold: Hold, locations: Sequence[str] = ()) -> Self:
        """Return the trace of a hold."""
        return cls(locations=tuple(locations), **{name: getattr(hold, name) for name in _PLACED})

    @property
    def hold(self) -> Hold:
        """The hold as it was placed."""
        return Hold(**{name: getattr(self, name) for name in _PLACED})

    def render(self) -> bytes:
        """Return the content of the trace."""
        return self.model_dump_json(indent=1).encode()

    @property
    def key(self) -> str:
        """The name of the trace in its store, which follows from its content."""
        return hashlib.sha256(self.render()).hexdigest()[:32]


_PLACED = tuple(name for name in HoldTrace.model_fields if name not in ("version", "locations"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDecision:
    """What makes the traces of one store and the holds of the record equal."""

    write: tuple[HoldTrace, ...] = ()
    remove: tuple[str, ...] = ()
    lost: tuple[Hold, ...] = ()


def decide_traces(
    known: Collection[Hold],
    wanted: Mapping[str, HoldTrace],
    found: Mapping[str, HoldTrace | None],
    resolve: Callable[[HoldTrace], Collection[Hold]],
    as_of: datetime,
) -> TraceDecision:
    """Decide which traces to write and to remove, and which holds the record has lost.

    `found` are the names in the store, with those traces that are not `wanted`. `resolve` returns what a trace holds
    by the present definitions. A trace is removed only if the record knows that its hold was released or has expired.
    """
    recorded = {hold.as_placed() for hold in known}
    active = {hold.as_placed() for hold in known if hold.is_active(as_of)}
    remove: list[str] = []
    lost: dict[Hold, None] = {}
    for name, trace in found.items():
        if trace is None:
            continue
        holds = [trace.hold] if trace.hold in recorded else resolve(trace)
        lost |= dict.fromkeys(hold for hold in holds if hold not in recorded and hold.is_active(as_of))
        if holds and recorded.issuperset(holds) and active.isdisjoint(holds):
            remove.append(name)
    write = tuple(trace for name, trace in wanted.items() if name not in found)
    return TraceDecision(write=write, remove=tuple(remove), lost=tuple(lost))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsettledStore:
    """A store whose traces are unknown or not up to date, and why. The next retention there tries again."""

    store: str
    reason: str

    @property
    def sentence(self) -> str:
        """What people are told of it."""
        return f"the traces of holds in {self.store} are not up to date: {self.reason}; the next retention tries again"


@dataclass(slots=True, kw_only=True)
class HoldTraces:
    """Makes the traces in stores equal to the record, once for each store, and gives lost holds back to the record.

    `lost` are the holds that came back, or would without `dry_run`.
    """

    context: TimelineContext
    as_of: datetime
    dry_run: bool = False
    lost: list[Hold] = field(default_factory=list)
    unsettled: list[UnsettledStore] = field(default_factory=list)
    _settled: dict[StoreAddress, StorageError | None] = field(default_factory=dict)
    _data: dict[StoreAddress, list[tuple[FeedRecord, str]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for record in self.context.plan.feeds.values():
            for address, text in iter_data(record):
                self._data[address].append((record, text))

    def settle(self, records: Iterable[FeedRecord]) -> None:
        """Settle the stores with the data of feeds.

        Raises:
            StorageError: traces cannot be read, so it is unknown what they protect.
        """
        for address in dict.fromkeys(address for record in records for address, _ in iter_data(record)):
            if address not in self._settled:
                self._settled[address] = self._try(address)
            if (error := self._settled[address]) is not None:
                raise error

    def settle_reachable(self, holds: Collection[Hold] | None = None) -> None:
        """Settle the stores of all data, or of what holds cover; those that cannot be reached remain `unsettled`."""
        for address, data in self._data.items():
            if holds is None or any(_is_on(hold, record) for hold in holds for record, _ in data):
                error = self._try(address)
                self.unsettled += [UnsettledStore(store=address.url, reason=error.reason)] if error else []

    def _try(self, address: StoreAddress) -> StorageError | None:
        try:
            self._settle(address)
        except StorageError as exc:
            return exc
        return None

    def _settle(self, address: StoreAddress) -> None:
        store = self.context.stores.get(address)
        traces = store.traces()
        with self.context.database.read() as connection:
            known = Holds(connection).newest()
        active = [hold for hold in known if hold.is_readable and hold.is_active(self.as_of)]
        wanted = {trace.key: trace for trace in self._wanted(address, active)}
        found = {name: None if name in wanted else _read(traces, store.root_url, name) for name in traces.names()}
        decided = decide_traces(known, wanted, found, partial(self._resolve, address), self.as_of)
        self._give_back(decided.lost, store.root_url)
        if not self.dry_run:
            self._change(traces, decided, store.root_url)

    def _wanted(self, address: StoreAddress, active: Sequence[Hold]) -> Iterator[HoldTrace]:
        for hold in active:
            held = sorted({text for record, text in self._data[address] if _is_on(hold, record)})
            if held:
                yield HoldTrace.of(hold, () if hold.feed is None else held)

    def _resolve(self, address: StoreAddress, trace: HoldTrace) -> list[Hold]:
        """Return the hold of a trace; if its feed or cluster is not declared, holds of what is now at its place."""
        hold, plan = trace.hold, self.context.plan
        is_feed_known = hold.feed is None or any(feed == hold.feed for feed, _ in plan.feeds)
        if is_feed_known and (hold.cluster is None or hold.cluster in plan.clusters):
            return [hold]
        if hold.feed is None:
            return [replace(hold, cluster=name) for name in sorted({each.cluster for each, _ in self._data[address]})]
        return [replace(hold, feed=feed, cluster=cluster) for feed, cluster in self._find_at(address, trace)]

    def _find_at(self, address: StoreAddress, trace: HoldTrace) -> list[Key]:
        """Return the feeds whose data overlap the locations of a trace."""
        places = Places()
        former = [places.canonical(_url(address, text)) for text in trace.locations]
        found = {
            record.key
            for at, data in self._data.items()
            for record, text in data
            if any(find_nesting(places.canonical(_url(at, text)), each) is not None for each in former)
        }
        return sorted(found)

    def _give_back(self, lost: Sequence[Hold], url: str) -> None:
        new = [hold for hold in lost if hold not in self.lost]
        if new and not self.dry_run:
            with self.context.database.begin() as connection:
                new = [hold.as_placed() for hold in Holds(connection).add_lost(new)]
            for hold in new:
                _logger.warning("hold '%s' of %s is back from its trace in %s", hold.name, hold.author, url)
        self.lost += new

    def _change(self, traces: Documents, decided: TraceDecision, url: str) -> None:
        try:
            for trace in decided.write:
                traces.keep(trace.key, trace.render())
            for name in decided.remove:
                traces.drop(name)
        except StorageError as exc:
            self.unsettled.append(UnsettledStore(store=url, reason=exc.reason))
            _logger.warning("traces of holds in %s are not up to date: %s", url, exc.reason)


def _is_on(hold: Hold, record: FeedRecord) -> bool:
    return hold.feed in (None, record.feed) and hold.cluster in (None, record.cluster)


def _url(address: StoreAddress, text: str) -> str:
    return f"{address.url}/{text}"


def _read(traces: Documents, url: str, name: str) -> HoldTrace | None:
    content = traces.find(name)
    try:
        return None if content is None else HoldTrace.model_validate_json(content)
    except ValueError as exc:
        raise StorageError(
            store=url,
            path=".feed-assets/holds",
            reason=f"this release cannot read {name}.json, the trace of a hold",
            next_step="Use the release that wrote it; or remove it, if nothing here needs its protection.",
        ) from exc
