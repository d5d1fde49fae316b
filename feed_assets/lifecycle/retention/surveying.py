"""Survey one feed: find the paths that may be removed by its policy, and those that are protected. Change nothing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from feed_assets.entities.common import LocationKind
from feed_assets.lifecycle.releases.timeline import ReleaseTimeline
from feed_assets.lifecycle.retention.eligibility import (
    Candidates,
    Cut,
    Eligible,
    Weight,
    collect_candidates,
    count_newest,
    decide_eligible,
    find_before,
    garbage_collection_paused,
)
from feed_assets.lifecycle.retention.limits import count_enough
from feed_assets.lifecycle.retention.locations import find_location
from feed_assets.lifecycle.retention.movers import Measurer
from feed_assets.lifecycle.retention.protections import (
    Protection,
    ProtectionKind,
    ProtectionQuery,
    find_protections,
    find_replica_protections,
)
from feed_assets.plan.records import FeedRecord
from feed_assets.plan.retention_records import RetainedLocation, RetentionRecord
from feed_assets.state.database import Database
from feed_assets.state.feed_instances import FeedInstances
from feed_assets.state.feed_places import FeedPlaces, describe_staying
from feed_assets.state.instance_pages import InstancePages
from feed_assets.state.records import FeedInstanceStatus, FeedKey
from feed_assets.state.sweep_records import SweepItem
from feed_assets.storage.pool import StorePool

_BATCH = 5_000
_AT_LEAST = 16
"""The smallest number of paths that are measured together."""
_KINDS = tuple(LocationKind)
_FIRST = datetime.min.replace(tzinfo=UTC)
_FOREVER = datetime.max.replace(tzinfo=UTC)
_NONE = Candidates([], [])


class ProtectedPath(NamedTuple):
    """An eligible path that stays, with its protections."""

    kind: LocationKind
    path: str
    nominal_time: datetime
    kept: tuple[Protection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSurvey:
    """The survey of one feed.

    `taken` are the paths that may be removed, by kind and oldest first. `protected` are eligible but protected.
    `present` counts the feed's instances, including those that may be removed: all that were found; or, if only old
    ones were searched, those plus the newer ones on record. `stay` counts those that would stay, or only those of them
    that have data if these are too few for a sweep. `unswept` has the locations that are not swept, with obstacles.
    `newest` is the newest nominal time that is known.
    """

    record: FeedRecord
    taken: Mapping[LocationKind, tuple[SweepItem, ...]]
    protected: tuple[ProtectedPath, ...]
    unswept: tuple[RetainedLocation, ...]
    present: int
    stay: int
    newest: datetime | None = None

    @property
    def instances(self) -> int:
        """The number of instances that may be removed: paths of data."""
        return len(self.taken.get(LocationKind.DATA, ()))

    @property
    def filled(self) -> int:
        """The number of these instances that are not known to be empty."""
        return sum(item.files != 0 or not item.fingerprint for item in self.taken.get(LocationKind.DATA, ()))

    @property
    def paths(self) -> int:
        """The number of paths of any kind that may be removed."""
        return sum(map(len, self.taken.values()))

    @property
    def bytes(self) -> int:
        """The number of bytes that may be removed, as far as known."""
        return sum(item.bytes or 0 for items in self.taken.values() for item in items)

    @property
    def protected_by(self) -> dict[str, int]:
        """The number of paths that each kind of protection keeps, by the first protection of each path."""
        return dict(Counter(protected.kept[0].kind.value for protected in self.protected))


@garbage_collection_paused()
def survey_feed(
    database: Database,
    stores: StorePool,
    timeline: ReleaseTimeline,
    record: FeedRecord,
    query: ProtectionQuery,
    measurer: Measurer,
) -> FeedSurvey:
    """Find the paths of a feed that may be removed as of a moment.

    Walks the storage, and measures what goes and, until enough is found to have data, what stays; changes nothing.

    Raises:
        StorageError: storage cannot be listed.
    """
    policy = record.retention
    assert policy is not None
    unswept = tuple(location for location in policy.locations if location.obstacle is not None)
    before = find_before(policy, query.as_of)
    found = {
        location.kind: collect_candidates(stores.get(location.store), location, record.sequence, before)
        for location in policy.locations
        if location.obstacle is None
    }
    former, elsewhere = _find_former(database, record)
    if LocationKind.DATA in found:
        paths = found[LocationKind.DATA].paths
        found[LocationKind.DATA] = found[LocationKind.DATA].pick(path not in elsewhere for path in paths)
    data = found.get(LocationKind.DATA, Candidates([], []))
    weights = [] if policy.max_bytes is None else _weigh(database, measurer, record, data)
    present = _find_newest(measurer, record, data, count_newest(policy), policy.judged_at(query.as_of))
    eligible = decide_eligible(policy, found, present, query.as_of, weights)
    protected = _find_protected(database, stores, timeline, record, eligible, query)
    stays = {(each.kind, each.path) for each in protected}
    if stays:
        eligible = [
            Eligible(kind, cut, candidates.pick((kind, path) not in stays for path in candidates.paths))
            for kind, cut, candidates in eligible
        ]
    taken, immovable = _sized(database, measurer, record, policy, eligible)
    newer = 0 if before is None else _newer_on_record(database, record, before)
    survey = FeedSurvey(
        record=record,
        taken=taken,
        protected=(*protected, *immovable),
        unswept=(*unswept, *former),
        present=len(data.paths) + newer,
        stay=0,
        newest=max([*data.times, *_newest_on_record(database, record, _FIRST, 1).times], default=None),
    )
    if not survey.paths:
        return replace(survey, stay=survey.present)
    newest = _newest_on_record(database, record, before, _count_enough(measurer, survey)) if before and newer else _NONE
    return replace(survey, stay=_count_staying(measurer, survey, data, newest, newer))


def with_all_present(stores: StorePool, survey: FeedSurvey, measurer: Measurer) -> FeedSurvey:
    """Return a survey with all instances in storage counted, by a walk through all of them.

    The record may lack instances that a survey of old ones does not see.
    """
    record = survey.record
    location = find_location(record, LocationKind.DATA)
    if location is None:
        return survey
    data = collect_candidates(stores.get(location.store), location, record.sequence, None)
    return replace(survey, present=len(data.paths), stay=_count_staying(measurer, survey, data))


def _find_former(database: Database, record: FeedRecord) -> tuple[list[RetainedLocation], frozenset[str]]:
    """Return the former places of a feed at which instances are, as not swept, and the paths of those in its store.

    Such a path is of the instance that the record has there, whichever has it by the present zone of the paths. What is
    at a former place may be anybody's by now, so nothing is removed there.
    """
    with database.read() as connection:
        elsewhere = list(FeedPlaces(connection).find_elsewhere(record))
    counts = Counter((other.store, other.template) for _, other in elsewhere)
    former = [
        RetainedLocation(kind=LocationKind.DATA, store=store, template=template, obstacle=describe_staying(count))
        for (store, template), count in counts.items()
    ]
    return former, frozenset(other.path(time) for time, other in elsewhere if other.store == record.store)


def _count_staying(
    measurer: Measurer, survey: FeedSurvey, data: Candidates, newest: Candidates = _NONE, newer: int = 0
) -> int:
    """Count the instances that stay: all, if as many as it takes for a sweep have data, else those that have data.

    Besides those found, `newer` instances on record stay, of which `newest` has some.
    """
    going = {item.path for item in survey.taken.get(LocationKind.DATA, ())}
    staying = data.pick(path not in going for path in data.paths)
    sample = Candidates([*newest.paths, *staying.paths], [*newest.times, *staying.times])
    enough = _count_enough(measurer, survey)
    found = len(_find_newest(measurer, survey.record, sample, enough, _FOREVER))
    return len(staying.paths) + newer if found >= enough else found


def _count_enough(measurer: Measurer, survey: FeedSurvey) -> int:
    assert survey.record.retention is not None
    enough = count_enough(survey.record.retention, survey.filled, survey.record.sequence.frequency)
    return min(enough, measurer.at_most)


def _newest_on_record(database: Database, record: FeedRecord, since: datetime, count: int) -> Candidates:
    """Return paths and times of the newest instances on record that a search of old ones does not find."""
    with database.read() as connection:
        found = FeedInstances(connection).latest_available(*record.key, _FOREVER, count)
    times = [time for time in found if time >= since]
    return Candidates([record.path(time) for time in times], times)


def _find_newest(
    measurer: Measurer, record: FeedRecord, data: Candidates, count: int, moment: datetime
) -> list[datetime]:
    """Return the nominal times of the newest instances with data that are not after a moment, at most `count`.

    A directory without files has no data. Measures no more paths than needed, newest first.
    """
    location = find_location(record, LocationKind.DATA)
    if location is None or not count:
        return []
    newest = sorted((pair for pair in zip(data.times, data.paths, strict=True) if pair[0] <= moment), reverse=True)
    found: dict[datetime, None] = {}
    size = max(count, _AT_LEAST)
    for start in range(0, len(newest), size):
        batch = newest[start : start + size]
        measures = measurer.measure(location.store, [path for _, path in batch])
        found |= {time: None for (time, _), measure in zip(batch, measures, strict=True) if measure.files}
        if len(found) >= count:
            break
    return list(found)[:count]


def _newer_on_record(database: Database, record: FeedRecord, since: datetime) -> int:
    with database.read() as connection:
        counts = InstancePages(connection).feed_counts(*record.key, since, _FOREVER)
    return counts.get(FeedInstanceStatus.AVAILABLE, 0)


def _find_protected(
    database: Database,
    stores: StorePool,
    timeline: ReleaseTimeline,
    record: FeedRecord,
    eligible: Sequence[Eligible],
    query: ProtectionQuery,
) -> list[ProtectedPath]:
    """Return eligible paths that are protected, oldest first.

    The protections of an instance apply to its paths of all kinds.
    """
    times = sorted({time for each in eligible for time in each.candidates.times})
    kept: dict[datetime, list[Protection]] = {}
    for start in range(0, len(times), _BATCH):
        batch = times[start : start + _BATCH]
        with database.read() as connection:
            kept |= find_protections(connection, timeline, record, batch, query)
        unprotected = [time for time in batch if time not in kept]
        kept |= find_replica_protections(database, stores, timeline, record, unprotected, query)
    protected = [
        ProtectedPath(kind, path, time, tuple(kept[time]))
        for kind, _, candidates in eligible
        for path, time in zip(*candidates, strict=True)
        if time in kept
    ]
    return sorted(protected, key=lambda each: (_KINDS.index(each.kind), each.nominal_time, each.path))


def _sized(
    database: Database,
    measurer: Measurer,
    record: FeedRecord,
    policy: RetentionRecord,
    eligible: Sequence[Eligible],
) -> tuple[dict[LocationKind, tuple[SweepItem, ...]], list[ProtectedPath]]:
    """Return the items that may be removed, measured if they are few enough, else with the sizes on record.

    Also return the paths that storage must not move.
    """
    taken: dict[LocationKind, tuple[SweepItem, ...]] = {}
    immovable: list[ProtectedPath] = []
    for kind in dict.fromkeys(each.kind for each in eligible):
        groups = [(cut, candidates) for of, cut, candidates in eligible if of is kind]
        times = [time for _, candidates in groups for time in candidates.times] if kind is LocationKind.DATA else []
        sizes = _sizes_of(database, record, times)
        items = {
            path: _item(path, time, cut, sizes.get(time))
            for cut, candidates in groups
            for path, time in zip(*candidates, strict=True)
        }
        location = find_location(record, kind)
        wanted = list(items)  # sizes on record come without fingerprints, which show what changes before the sweep runs
        if len(wanted) > measurer.at_most:
            wanted = [path for path, item in items.items() if item.bytes is None]
        is_worth = policy.sweep_limits.bytes is not None or len(wanted) <= measurer.at_most
        if location is not None and is_worth:
            for measure in measurer.measure(location.store, wanted):
                item = items.pop(measure.path)
                if measure.obstacle is not None:
                    kept = Protection(ProtectionKind.STORAGE, measure.obstacle)
                    immovable.append(ProtectedPath(kind, item.path, item.nominal_time, (kept,)))
                elif measure.exists:
                    sized = item if item.bytes is not None else item._replace(bytes=measure.bytes, files=measure.files)
                    items[item.path] = sized._replace(fingerprint=measure.fingerprint)
        if items:
            taken[kind] = tuple(sorted(items.values(), key=lambda item: (item.nominal_time, item.path)))
    return taken, immovable


def _item(path: str, time: datetime, cut: Cut, size: tuple[int | None, int | None] | None) -> SweepItem:
    size_in_bytes, files = size or (None, None)
    return SweepItem(
        path=path,
        nominal_time=time,
        bytes=size_in_bytes,
        files=files,
        rule=cut.rule.value,
        reason=cut.reason,
    )


def _weigh(database: Database, measurer: Measurer, record: FeedRecord, data: Candidates) -> list[Weight]:
    """Return the nominal times and bytes of the data; the bytes are from the record, else measured."""
    sizes = _sizes_of(database, record, data.times)
    location = find_location(record, LocationKind.DATA)
    unknown = [path for path, time in zip(*data, strict=True) if time not in sizes]
    answers = measurer.measure(location.store, unknown) if location is not None else []
    measured = {measure.path: measure.bytes for measure in answers}
    return [
        (time, measured[path] if path in measured else sizes.get(time, (None, None))[0])
        for path, time in zip(*data, strict=True)
    ]


def _sizes_of(
    database: Database, record: FeedRecord, times: Sequence[datetime]
) -> dict[datetime, tuple[int | None, int | None]]:
    """Return bytes and files of the instances that are AVAILABLE on record; the others are left out."""
    found: dict[datetime, tuple[int | None, int | None]] = {}
    for start in range(0, len(times), _BATCH):
        keys = [FeedKey(*record.key, time) for time in times[start : start + _BATCH]]
        with database.read() as connection:
            rows = FeedInstances(connection).get_many(keys)
        for row in rows.values():
            if row.status is FeedInstanceStatus.AVAILABLE and row.bytes is not None:
                found[row.nominal_time] = (row.bytes, row.files)
    return found
