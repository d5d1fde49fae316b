"""What of one feed may go, and what protects the rest: by its policy, of what lies in storage. Nothing is changed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from feed_assets.entities.common import LocationKind
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.retention.eligibility import (
    Candidate,
    Eligible,
    collect_candidates,
    decide_eligible,
    find_before,
    uncollected,
)
from feed_assets.lifecycle.retention.keepers import Asked, Keeper, Kept, find_keepers
from feed_assets.lifecycle.retention.locations import find_location
from feed_assets.lifecycle.retention.movers import Measurer
from feed_assets.lifecycle.stores import StorePool
from feed_assets.plan.records import FeedRecord, RetainedLocation, RetentionRecord
from feed_assets.state.database import Database
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.instance_pages import InstancePages
from feed_assets.state.records import FeedInstanceStatus, FeedKey
from feed_assets.state.sweep_records import SweepItem

_BATCH = 5_000
_KINDS = tuple(LocationKind)
_FOREVER = datetime.max.replace(tzinfo=UTC)


class Spared(NamedTuple):
    """An eligible path that stays, and why."""

    kind: LocationKind
    path: str
    nominal_time: datetime
    kept: tuple[Kept, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found of one feed: `taken` may go, by kind and oldest first; `spared` would, if nothing protected it.

    `present` is how many instances the feed has, those that may go included: all that were found, or, where only the
    old ones were looked for, those and the newer ones on record. `unswept` are locations that are left alone, and why.
    """

    record: FeedRecord
    taken: Mapping[LocationKind, tuple[SweepItem, ...]]
    spared: tuple[Spared, ...]
    unswept: tuple[RetainedLocation, ...]
    present: int

    @property
    def instances(self) -> int:
        """How many instances may go: paths of data."""
        return len(self.taken.get(LocationKind.DATA, ()))

    @property
    def paths(self) -> int:
        """How many paths of any kind may go."""
        return sum(map(len, self.taken.values()))

    @property
    def bytes(self) -> int:
        """How many bytes may go, of what is known."""
        return sum(item.bytes or 0 for items in self.taken.values() for item in items)

    @property
    def keepers(self) -> dict[str, int]:
        """How many paths each kind of protection spares, by its first reason."""
        return dict(Counter(spared.kept[0].keeper.value for spared in self.spared))


@uncollected()
def survey_feed(
    database: Database,
    stores: StorePool,
    governance: Governance,
    record: FeedRecord,
    asked: Asked,
    measurer: Measurer,
) -> Survey:
    """Find out what of a feed may go as of a moment.

    Storage is walked, and measured where sizes are not on record; nothing in it is changed.

    Raises:
        StorageError: it cannot be listed.
    """
    policy = record.retention
    assert policy is not None
    unswept = tuple(location for location in policy.locations if location.obstacle is not None)
    before = find_before(policy, asked.as_of)
    found = {
        location.kind: collect_candidates(stores.get(location.store), location, record.sequence, before)
        for location in policy.locations
        if location.obstacle is None
    }
    data = found.get(LocationKind.DATA, [])
    if policy.max_bytes is not None:
        found[LocationKind.DATA] = data = _measured(database, measurer, record, data)
    eligible = decide_eligible(policy, found, [candidate.nominal_time for candidate in data], asked.as_of)
    spared = _find_spared(database, governance, record, eligible, asked)
    protected = {(each.kind, each.path) for each in spared}
    free = [each for each in eligible if (each.candidate.kind, each.candidate.path) not in protected]
    taken, immovable = _sized(database, measurer, record, policy, free)
    return Survey(
        record=record,
        taken=taken,
        spared=(*spared, *immovable),
        unswept=unswept,
        present=len(data) + (0 if before is None else _newer_on_record(database, record, before)),
    )


def count_present(stores: StorePool, record: FeedRecord) -> int:
    """How many instances of a feed lie in storage, by a walk through all of them."""
    location = find_location(record, LocationKind.DATA)
    if location is None:
        return 0
    return len(collect_candidates(stores.get(location.store), location, record.sequence, None))


def _newer_on_record(database: Database, record: FeedRecord, since: datetime) -> int:
    with database.read() as connection:
        counts = InstancePages(connection).feed_counts(*record.key, since, _FOREVER)
    return counts.get(FeedInstanceStatus.AVAILABLE, 0)


def _find_spared(
    database: Database, governance: Governance, record: FeedRecord, eligible: Sequence[Eligible], asked: Asked
) -> list[Spared]:
    """What protects eligible paths: that of their instances, also of paths that only belong to them. Oldest first."""
    times = sorted({each.candidate.nominal_time for each in eligible})
    kept: dict[datetime, list[Kept]] = {}
    for start in range(0, len(times), _BATCH):
        with database.read() as connection:
            kept |= find_keepers(connection, governance, record, times[start : start + _BATCH], asked)
    spared = [
        Spared(each.kind, each.path, each.nominal_time, tuple(kept[each.nominal_time]))
        for each in (entry.candidate for entry in eligible)
        if each.nominal_time in kept
    ]
    return sorted(spared, key=lambda each: (_KINDS.index(each.kind), each.nominal_time, each.path))


def _sized(
    database: Database,
    measurer: Measurer,
    record: FeedRecord,
    policy: RetentionRecord,
    eligible: Sequence[Eligible],
) -> tuple[dict[LocationKind, tuple[SweepItem, ...]], list[Spared]]:
    """The items of what may go, with sizes as far as they are on record or few enough to measure; and what storage says
    must not be moved.
    """
    by_kind: dict[LocationKind, list[Eligible]] = {}
    for each in eligible:
        by_kind.setdefault(each.candidate.kind, []).append(each)
    taken: dict[LocationKind, tuple[SweepItem, ...]] = {}
    immovable: list[Spared] = []
    for kind, entries in by_kind.items():
        sizes = _sizes_on_record(database, record, entries) if kind is LocationKind.DATA else {}
        items = {each.candidate.path: _item(each, sizes.get(each.candidate.nominal_time)) for each in entries}
        unknown = [path for path, item in items.items() if item.bytes is None]
        location = find_location(record, kind)
        is_worth = policy.sweep_limits.bytes is not None or len(unknown) <= measurer.at_most
        if location is not None and is_worth:
            for measure in measurer.measure(location.store, unknown):
                item = items.pop(measure.path)
                if measure.obstacle is not None:
                    kept = Kept(Keeper.STORAGE, measure.obstacle)
                    immovable.append(Spared(kind, item.path, item.nominal_time, (kept,)))
                elif measure.exists:
                    items[item.path] = item._replace(bytes=measure.bytes, files=measure.files, sign=measure.sign)
        if items:
            taken[kind] = tuple(sorted(items.values(), key=lambda item: (item.nominal_time, item.path)))
    return taken, immovable


def _item(eligible: Eligible, size: tuple[int | None, int | None] | None) -> SweepItem:
    candidate = eligible.candidate
    size_in_bytes, files = size or (None, None)
    return SweepItem(
        path=candidate.path,
        nominal_time=candidate.nominal_time,
        bytes=size_in_bytes,
        files=files,
        rule=eligible.rule.value,
        reason=eligible.reason,
    )


def _measured(
    database: Database, measurer: Measurer, record: FeedRecord, candidates: Sequence[Candidate]
) -> list[Candidate]:
    """Candidates of the data with their sizes: those on record, and the others measured."""
    sizes = _sizes_of(database, record, [candidate.nominal_time for candidate in candidates])
    location = find_location(record, LocationKind.DATA)
    unknown = [candidate.path for candidate in candidates if candidate.nominal_time not in sizes]
    answers = measurer.measure(location.store, unknown) if location is not None else []
    measured = {measure.path: measure for measure in answers}
    found = []
    for candidate in candidates:
        if candidate.path in measured:
            measure = measured[candidate.path]
            found.append(candidate._replace(bytes=measure.bytes, files=measure.files))
        else:
            size_in_bytes, files = sizes.get(candidate.nominal_time, (None, None))
            found.append(candidate._replace(bytes=size_in_bytes, files=files))
    return found


def _sizes_on_record(
    database: Database, record: FeedRecord, eligible: Iterable[Eligible]
) -> dict[datetime, tuple[int | None, int | None]]:
    return _sizes_of(database, record, [each.candidate.nominal_time for each in eligible])


def _sizes_of(
    database: Database, record: FeedRecord, times: Sequence[datetime]
) -> dict[datetime, tuple[int | None, int | None]]:
    """Bytes and files of the instances that are AVAILABLE on record; the others are left out."""
    found: dict[datetime, tuple[int | None, int | None]] = {}
    for start in range(0, len(times), _BATCH):
        keys = [FeedKey(*record.key, time) for time in times[start : start + _BATCH]]
        with database.read() as connection:
            rows = FeedInstances(connection).get_many(keys)
        for row in rows.values():
            if row.status is FeedInstanceStatus.AVAILABLE and row.bytes is not None:
                found[row.nominal_time] = (row.bytes, row.files)
    return found
