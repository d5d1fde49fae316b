"""Survey one feed: find the paths that may be removed by its policy, and those that are protected. Change nothing."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias

from feed_assets.context.operation import TimelineContext
from feed_assets.entities.common import LocationKind
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.instances.instance_pages import InstancePages
from feed_assets.log.records import FeedInstanceStatus, FeedKey
from feed_assets.log.removals.records import SweepItem
from feed_assets.plan.records import FeedRecord, RetainedLocation
from feed_assets.retention.rules.eligibility import (
    Candidates,
    Cut,
    Eligible,
    Weight,
    collect_candidates,
    count_enough,
    count_newest,
    decide_eligible,
    find_before,
    garbage_collection_paused,
)
from feed_assets.retention.rules.former_places import At, find_differing
from feed_assets.retention.rules.locations import find_location
from feed_assets.retention.rules.protections import (
    Protection,
    ProtectionKind,
    ProtectionQuery,
    find_all_protections,
    find_meant,
)
from feed_assets.retention.sweeps.movers import Measurer

_BATCH = 5_000
_AT_LEAST = 16
"""The smallest number of paths that are measured together."""
_KINDS = tuple(LocationKind)
_FIRST = datetime.min.replace(tzinfo=UTC)
_FOREVER = datetime.max.replace(tzinfo=UTC)
_NONE = Candidates([], [])

Group: TypeAlias = tuple[LocationKind, int | None]
"""Paths of one kind of location, at a former place with this number; None for the present one."""


class ProtectedPath(NamedTuple):
    """An eligible path that stays, with its protections."""

    kind: LocationKind
    path: str
    nominal_time: datetime
    kept: tuple[Protection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSurvey:
    """The survey of one feed.

    `taken` are the paths that may be removed, oldest first. `protected` are eligible but protected. `elsewhere` are all
    data on record at former places that are swept.
    `present` counts the feed's instances, including those that may be removed: all that were found; or, if only old
    ones were searched, those plus the newer ones on record. `stay` counts those that would stay, or only those of them
    that have data if these are too few for a sweep. `unswept` has the locations that are not swept, with obstacles.
    `newest` is the newest nominal time that is known.
    """

    record: FeedRecord
    taken: Mapping[Group, tuple[SweepItem, ...]]
    protected: tuple[ProtectedPath, ...]
    unswept: tuple[RetainedLocation, ...]
    present: int
    stay: int
    newest: datetime | None = None
    elsewhere: Sequence[At] = ()

    @property
    def data(self) -> list[SweepItem]:
        """The paths of data that may be removed."""
        return [item for (kind, _), items in self.taken.items() if kind is LocationKind.DATA for item in items]

    @property
    def instances(self) -> int:
        """The number of instances that may be removed: paths of data."""
        return len(self.data)

    @property
    def filled(self) -> int:
        """The number of these instances that are not known to be empty."""
        return sum(item.files != 0 or not item.fingerprint for item in self.data)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyor:
    """Surveys feeds by one query, each at its place and at former ones; changes nothing."""

    context: TimelineContext
    query: ProtectionQuery
    measurer: Measurer

    @garbage_collection_paused()
    def survey(self, record: FeedRecord, former: Sequence[At] = ()) -> FeedSurvey:
        """Find the paths of a feed that may be removed as of a moment, at its place and at `former` ones.

        Walks the storage, and measures what goes and, until enough is found to have data, what stays. Of former places
        it looks only at what the record has there, which counts neither as newest nor as large.

        Raises:
            StorageError: storage cannot be listed.
        """
        policy, as_of = record.retention, self.query.as_of
        assert policy is not None
        before = find_before(policy, as_of)
        found = {
            location.kind: collect_candidates(
                self.context.stores.get(location.store), location, record.sequence, before
            )
            for location in policy.locations
            if location.obstacle is None
        }
        if LocationKind.DATA in found:
            found[LocationKind.DATA] = _without(found[LocationKind.DATA], record, former)
        data = found.get(LocationKind.DATA, _NONE)
        weights = [] if policy.max_bytes is None else self._weigh(record, data)
        present = self._find_newest([(record, data)], count_newest(policy), policy.judged_at(as_of))
        elsewhere = [(there, each) for there, each in former if find_location(there, LocationKind.DATA) is not None]
        taken: dict[Group, tuple[SweepItem, ...]] = {}
        protected: list[ProtectedPath] = []
        for there, each in [*((there, {LocationKind.DATA: each}) for there, each in elsewhere), (record, found)]:
            goes = {item.nominal_time for items in taken.values() for item in items}
            if goes and LocationKind.DATA in each:  # what is there twice goes with two sweeps
                left = each[LocationKind.DATA]
                each[LocationKind.DATA] = left.pick(time not in goes for time in left.times)
            eligible = decide_eligible(policy, each, present, as_of, weights)
            place = None if there is record else there.place
            if place is not None:
                meant = find_meant(record, there, [time for _, _, old in eligible for time in old.times])
                eligible = [
                    Eligible(kind, cut, old.pick(meant.get(time, time) < cut.before for time in old.times))
                    for kind, cut, old in eligible
                ]
            items_of, stay = self._take(there, eligible, place)
            taken |= {(kind, place): items for kind, items in items_of.items()}
            protected += stay
        newer = 0 if before is None else self._newer_on_record(record, before)
        all_data = [data, *(each if before is None else each.split(before)[0] for _, each in elsewhere)]
        places = [at.retention for at in (record, *(there for there, _ in former)) if at.retention]
        survey = FeedSurvey(
            record=record,
            taken=taken,
            protected=tuple(protected),
            unswept=tuple(each for at in places for each in at.locations if each.obstacle is not None),
            present=sum(len(each.paths) for each in all_data) + newer,
            stay=0,
            newest=max([*data.times, *self._newest_on_record(record, _FIRST, 1).times], default=None),
            elsewhere=elsewhere,
        )
        if not survey.paths:
            return replace(survey, stay=survey.present)
        newest = self._newest_on_record(record, before, self._count_enough(survey)) if before and newer else _NONE
        return replace(survey, stay=self._count_staying(survey, [(record, newest), (record, data), *elsewhere]))

    def with_all_present(self, survey: FeedSurvey) -> FeedSurvey:
        """Return a survey with all instances in storage counted, by a walk through all of them.

        The record may lack instances that a survey of old ones does not see.
        """
        record = survey.record
        location = find_location(record, LocationKind.DATA)
        if location is None:
            return survey
        data = collect_candidates(self.context.stores.get(location.store), location, record.sequence, None)
        everywhere = [(record, _without(data, record, survey.elsewhere)), *survey.elsewhere]
        survey = replace(survey, present=sum(len(each.paths) for _, each in everywhere))
        return replace(survey, stay=self._count_staying(survey, everywhere))

    def _take(
        self, record: FeedRecord, eligible: Sequence[Eligible], place: int | None
    ) -> tuple[dict[LocationKind, tuple[SweepItem, ...]], list[ProtectedPath]]:
        """Return what of the eligible paths at one place may be removed, and what stays."""
        protected = self._find_protected(record, eligible)
        if place is not None:
            stay = {each.nominal_time for each in protected}
            times = [time for each in eligible for time in each.candidates.times if time not in stay]
            for time, reason in sorted(find_differing(self.context, record, times).items()):
                kept = (Protection(ProtectionKind.PLACE, reason),)
                protected.append(ProtectedPath(LocationKind.DATA, record.path(time), time, kept))
        out = {(each.kind, each.path) for each in protected}
        if out:
            eligible = [
                Eligible(kind, cut, candidates.pick((kind, path) not in out for path in candidates.paths))
                for kind, cut, candidates in eligible
            ]
        taken, immovable = self._sized(record, eligible, is_former=place is not None)
        return taken, [*protected, *immovable]

    def _count_staying(self, survey: FeedSurvey, everywhere: Sequence[At]) -> int:
        """Count the instances that stay: all, if enough for a sweep have data, else those that have data."""
        going = {item.path for item in survey.data}
        staying = [(there, each.pick(path not in going for path in each.paths)) for there, each in everywhere]
        enough = self._count_enough(survey)
        found = len(self._find_newest(staying, enough, _FOREVER))
        return survey.present - survey.instances if found >= enough else found

    def _count_enough(self, survey: FeedSurvey) -> int:
        assert survey.record.retention is not None
        enough = count_enough(survey.record.retention, survey.filled, survey.record.sequence.frequency)
        return min(enough, self.measurer.at_most)

    def _newest_on_record(self, record: FeedRecord, since: datetime, count: int) -> Candidates:
        """Return paths and times of the newest instances on record that a search of old ones does not find."""
        with self.context.database.read() as connection:
            found = FeedInstances(connection).latest_available(*record.key, _FOREVER, count)
        times = [time for time in found if time >= since]
        return Candidates([record.path(time) for time in times], times)

    def _find_newest(self, everywhere: Sequence[At], count: int, moment: datetime) -> list[datetime]:
        """Return the nominal times of the newest instances with data that are not after a moment, at most `count`.

        A directory without files has no data. Measures no more paths than needed, newest first.
        """
        newest = [
            (time, path, number)
            for number, (there, data) in enumerate(everywhere if count else ())
            if find_location(there, LocationKind.DATA) is not None
            for path, time in zip(*data, strict=True)
            if time <= moment
        ]
        newest.sort(reverse=True)
        found: set[datetime] = set()
        size = max(count, _AT_LEAST)
        for start in range(0, len(newest), size):
            batch = newest[start : start + size]
            for number, (there, _) in enumerate(everywhere):
                at = [(time, path) for time, path, where in batch if where == number]
                measures = self.measurer.measure(there.store, [path for _, path in at])
                found |= {time for (time, _), measure in zip(at, measures, strict=True) if measure.files}
            if len(found) >= count:
                break
        return sorted(found, reverse=True)[:count]

    def _newer_on_record(self, record: FeedRecord, since: datetime) -> int:
        with self.context.database.read() as connection:
            span = (*record.key, since, _FOREVER)
            counts = InstancePages(connection).feed_counts([span]).get(span, {})
        return counts[FeedInstanceStatus.AVAILABLE].number if FeedInstanceStatus.AVAILABLE in counts else 0

    def _find_protected(self, record: FeedRecord, eligible: Sequence[Eligible]) -> list[ProtectedPath]:
        """Return eligible paths that are protected, oldest first.

        The protections of an instance apply to its paths of all kinds.
        """
        times = sorted({time for each in eligible for time in each.candidates.times})
        kept: dict[datetime, list[Protection]] = {}
        for start in range(0, len(times), _BATCH):
            kept |= find_all_protections(self.context, record, times[start : start + _BATCH], self.query)
        protected = [
            ProtectedPath(kind, path, time, tuple(kept[time]))
            for kind, _, candidates in eligible
            for path, time in zip(*candidates, strict=True)
            if time in kept
        ]
        return sorted(protected, key=lambda each: (_KINDS.index(each.kind), each.nominal_time, each.path))

    def _sized(
        self, record: FeedRecord, eligible: Sequence[Eligible], *, is_former: bool
    ) -> tuple[dict[LocationKind, tuple[SweepItem, ...]], list[ProtectedPath]]:
        """Return the items that may be removed, measured if they are few enough, else with the sizes on record; those
        of a former place are always measured.

        Also return the paths that storage must not move.
        """
        taken: dict[LocationKind, tuple[SweepItem, ...]] = {}
        immovable: list[ProtectedPath] = []
        for kind in dict.fromkeys(each.kind for each in eligible):
            groups = [(cut, candidates) for of, cut, candidates in eligible if of is kind]
            times = [time for _, candidates in groups for time in candidates.times] if kind is LocationKind.DATA else []
            sizes = self._sizes_of(record, times)
            items = {
                path: _item(path, time, cut, sizes.get(time))
                for cut, candidates in groups
                for path, time in zip(*candidates, strict=True)
            }
            location = find_location(record, kind)
            wanted = list(items)  # sizes on record lack fingerprints, which show what changes before the sweep runs
            if len(wanted) > self.measurer.at_most and not is_former:
                wanted = [path for path, item in items.items() if item.bytes is None]
            assert record.retention is not None
            is_worth = is_former or record.retention.sweep_limits.bytes is not None
            if location is not None and (is_worth or len(wanted) <= self.measurer.at_most):
                for measure in self.measurer.measure(location.store, wanted):
                    item = items.pop(measure.path)
                    if measure.obstacle is not None:
                        kept = Protection(ProtectionKind.STORAGE, measure.obstacle)
                        immovable.append(ProtectedPath(kind, item.path, item.nominal_time, (kept,)))
                    elif measure.exists:
                        if item.bytes is None:
                            item = item._replace(bytes=measure.bytes, files=measure.files)
                        items[item.path] = item._replace(fingerprint=measure.fingerprint)
            if items:
                taken[kind] = tuple(sorted(items.values(), key=lambda item: (item.nominal_time, item.path)))
        return taken, immovable

    def _weigh(self, record: FeedRecord, data: Candidates) -> list[Weight]:
        """Return the nominal times and bytes of the data; the bytes are from the record, else measured."""
        sizes = self._sizes_of(record, data.times)
        location = find_location(record, LocationKind.DATA)
        unknown = [path for path, time in zip(*data, strict=True) if time not in sizes]
        answers = self.measurer.measure(location.store, unknown) if location is not None else []
        measured = {measure.path: measure.bytes for measure in answers}
        return [
            (time, measured[path] if path in measured else sizes.get(time, (None, None))[0])
            for path, time in zip(*data, strict=True)
        ]

    def _sizes_of(self, record: FeedRecord, times: Sequence[datetime]) -> dict[datetime, tuple[int | None, int | None]]:
        """Return bytes and files of the instances that are AVAILABLE on record; the others are left out."""
        found: dict[datetime, tuple[int | None, int | None]] = {}
        for start in range(0, len(times), _BATCH):
            keys = [FeedKey(*record.key, time) for time in times[start : start + _BATCH]]
            with self.context.database.read() as connection:
                rows = FeedInstances(connection).get_many(keys)
            for row in rows.values():
                if row.status is FeedInstanceStatus.AVAILABLE and row.bytes is not None:
                    found[row.nominal_time] = (row.bytes, row.files)
        return found


def _without(data: Candidates, record: FeedRecord, former: Sequence[At]) -> Candidates:
    """Return the data at the place of a feed without the paths that the record gives to instances at former ones."""
    others = {path for there, each in former if there.store == record.store for path in each.paths}
    return data.pick(path not in others for path in data.paths)


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
