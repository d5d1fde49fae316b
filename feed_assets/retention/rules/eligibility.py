"""Decide which instances of a feed are too old, or too many, to be kept; and when a sweep needs approval: it would
remove too much, or everything, or the clock is implausible. Pure except for the walk of the storage.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import compress
from math import ceil
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from feed_assets.entities.common import LocationKind
from feed_assets.entities.fields import Size
from feed_assets.instances.arrival.instance_paths import PathMatcher
from feed_assets.log.removals.records import SweepObstacle
from feed_assets.plan.records import RetainedLocation, RetentionRecord
from feed_assets.storage.port import InstanceStore
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import Frequency, InstanceSequence

_EVER = datetime.min.replace(tzinfo=UTC)
Weight: TypeAlias = tuple[datetime, int | None]
"""The nominal time and the bytes of an instance; None means unknown and counts as 0."""


class Rule(StrEnum):
    """The rule that makes an instance eligible: older than the limit, or too many, or too large."""

    AGE = "age"
    COUNT = "count"
    SIZE = "size"


class Candidates(NamedTuple):
    """Existing paths, relative to the root of their store, and their nominal times.

    They are two columns, because a sweep has hundreds of thousands of them.
    """

    paths: list[str]
    times: list[datetime]

    def split(self, before: datetime) -> "tuple[Candidates, Candidates]":
        """Split into the candidates before a moment, and the others."""
        is_old = [time < before for time in self.times]
        if all(is_old):
            return self, Candidates([], [])
        return self.pick(is_old), self.pick([not old for old in is_old])

    def pick(self, is_picked: Iterable[bool]) -> "Candidates":
        """Return the candidates picked by a flag for each."""
        answers = list(is_picked)
        return Candidates(list(compress(self.paths, answers)), list(compress(self.times, answers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Instances before `before` are eligible by `rule`; `reason` is a clause that completes "it goes because"."""

    before: datetime
    rule: Rule
    reason: str


class Eligible(NamedTuple):
    """Eligible candidates of one kind, and the cut that takes them."""

    kind: LocationKind
    cut: Cut
    candidates: Candidates


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Pause the search for garbage cycles: it would traverse all tuples."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def cutoff(limit: Frequency, as_of: datetime) -> datetime:
    """Return the moment before which instances are older than the limit; a month counts as 31 days.

    >>> from feed_assets.timing.sequence import parse_frequency
    >>> cutoff(parse_frequency("months(1)"), datetime(2016, 3, 17, tzinfo=UTC)).isoformat()
    '2016-02-15T00:00:00+00:00'
    """
    try:
        return as_of - limit.as_duration()
    except OverflowError:
        return _EVER


def needs_all(policy: RetentionRecord) -> bool:
    """Return whether the policy needs instances that are not too old, because it keeps or counts the newest."""
    return bool(policy.keep_newest) or policy.max_instances is not None or policy.max_bytes is not None


def count_newest(policy: RetentionRecord) -> int:
    """Return how many of the newest instances with data the policy must know to keep or to count them."""
    return max(policy.keep_newest, policy.max_instances or 0)


def find_before(policy: RetentionRecord, as_of: datetime) -> datetime | None:
    """Return the moment before which candidates are needed; None for all."""
    return None if needs_all(policy) or policy.limit is None else _oldest_kept(policy, policy.limit, as_of)


def _oldest_kept(policy: RetentionRecord, limit: Frequency, as_of: datetime) -> datetime:
    """Return the moment before which instances are removed by age.

    A partition of a table is a whole period, and is removed when all of it is older. The moment is then the start of
    the period that contains the cutoff. Differs from Falcon: Falcon compares the values of the keys as strings, in the
    order of the table. With several dated keys, or with `${DAY}-${MONTH}-${YEAR}`, it therefore drops other partitions.
    """
    before = cutoff(limit, policy.judged_at(as_of))
    if policy.partition is None or before == _EVER:
        return before
    return policy.partition.parse(policy.partition.render(before)) or _EVER


def collect_candidates(
    store: InstanceStore, location: RetainedLocation, sequence: InstanceSequence, before: datetime | None
) -> Candidates:
    """Collect the paths of a location with nominal times before `before` (None: all), unordered.

    Walks the storage from the text before the first variable. Does not enter folders of years, months and days at or
    after `before`. A path counts only if it matches the location exactly. Its nominal time is that of the last instance
    of the sequence with this path, else the time that the path names. A location with an obstacle has no candidates.

    Raises:
        StorageError: the storage cannot be listed.
    """
    found = Candidates([], [])
    if location.obstacle is None:
        matcher = PathMatcher(location.template, sequence, before)
        for folder, names in store.walk_folders(matcher.base, matcher.depth, matcher.choose):
            paths, times = matcher.find_times(folder, names)
            found.paths.extend(paths)
            found.times.extend(times)
    return found


def decide_cuts(
    policy: RetentionRecord, weights: Iterable[Weight], present: Sequence[datetime], as_of: datetime
) -> tuple[Cut, ...]:
    """Return the cuts that the rules of the policy make; rules without effect are left out.

    `weights` has all data candidates, if the policy counts bytes. The newest instance is never removed because of its
    size. Instances later than `as_of` are not counted, and do not count as the newest.
    """
    moment = policy.judged_at(as_of)
    newest = sorted({time for time in present if time <= moment}, reverse=True) if count_newest(policy) else []
    if len(newest) < policy.keep_newest:
        return ()
    kept_from = newest[policy.keep_newest - 1] if policy.keep_newest else None
    cuts = []
    if policy.limit is not None:
        reason = f"it is older than {policy.limit} as of {render_datetime(moment)}"
        cuts.append(Cut(before=_oldest_kept(policy, policy.limit, moment), rule=Rule.AGE, reason=reason))
    if policy.max_instances is not None and len(newest) >= policy.max_instances:
        reason = f"{policy.max_instances:,} newer instances exist"
        cuts.append(Cut(before=newest[policy.max_instances - 1], rule=Rule.COUNT, reason=reason))
    if policy.max_bytes is not None:
        first = _first_within(policy.max_bytes, weights, moment)
        if first is not None:
            reason = f"it and the newer instances exceed {Size(policy.max_bytes)}"
            cuts.append(Cut(before=first, rule=Rule.SIZE, reason=reason))
    if kept_from is None:
        return tuple(cuts)
    return tuple(Cut(before=min(cut.before, kept_from), rule=cut.rule, reason=cut.reason) for cut in cuts)


def _first_within(limit: int, weights: Iterable[Weight], moment: datetime) -> datetime | None:
    """Return the oldest instance that fits the limit together with all newer ones, or the newest; None if all fit."""
    total, found = 0, None
    for time, size in sorted(weights, key=itemgetter(0), reverse=True):
        if time > moment:
            continue
        total += size or 0
        if total > limit and found is not None:
            return found
        found = time
    return None


def decide_eligible(
    policy: RetentionRecord,
    candidates: Mapping[LocationKind, Candidates],
    present: Sequence[datetime],
    as_of: datetime,
    weights: Iterable[Weight] = (),
) -> list[Eligible]:
    """Return the candidates that may be removed, in groups by kind and by the first rule that applies; no empty groups.

    Args:
        policy: the retention of the feed on the cluster.
        candidates: the candidates by kind of location: all, or only those before `find_before`.
        present: nominal times of the instances with data; the newest of them are counted and kept.
        as_of: the present. An instance is removed once it is older than the limit; at equal age it stays.
        weights: the weights of all existing data, if the policy counts bytes.
    """
    cuts = decide_cuts(policy, weights, present, as_of)
    found: list[Eligible] = []
    for kind in LocationKind:
        left = candidates.get(kind, Candidates([], []))
        for cut in cuts:
            taken, left = left.split(cut.before)
            if taken.paths:
                found.append(Eligible(kind, cut, taken))
    return found


_CADENCES = 2
_CLOCK_CADENCES = 3
_SILENT_PERIODS = 10
_LEAST_JUMP = timedelta(days=3)


class ObstacleCode(StrEnum):
    """The reason why a sweep needs approval."""

    SHARE = "share"
    INSTANCES = "instances"
    BYTES = "bytes"
    EVERYTHING = "everything"
    CLOCK_BACK = "clock-back"
    CLOCK_JUMP = "clock-jump"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The effect of a sweep on one feed: removed instances and bytes (None: not measured), and instances that stay.

    Only instances with data are removed in this sense; none stays if no instance that stays has data. `newest` is the
    nominal time of the newest known instance.
    """

    instances: int
    stay: int
    bytes: int | None = None
    newest: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTimes:
    """The known times: the last sweep, and the newest time in any record; None if there is none yet."""

    last_sweep: datetime | None = None
    newest: datetime | None = None


def decide_limits(
    policy: RetentionRecord, taking: Amounts, frequency: Frequency, as_of: datetime, clock: KnownTimes
) -> tuple[SweepObstacle, ...]:
    """Return all obstacles of one feed that make its sweep ask for approval; empty if it may run.

    Args:
        policy: the retention of the feed, with the limits of a sweep.
        taking: the amounts that the sweep would remove and leave.
        frequency: the frequency of the feed.
        as_of: the present time of the sweep.
        clock: the known times.
    """
    of_clock = decide_clock(policy.cadence, as_of, clock)
    if not of_clock and clock.last_sweep is None:
        of_clock = _first_obstacles(policy.cadence, frequency, as_of, taking.newest)
    return (*of_clock, *_iter_amounts(policy, taking, frequency))


def decide_clock(cadence: Frequency, as_of: datetime, clock: KnownTimes) -> tuple[SweepObstacle, ...]:
    """Return why the clock is implausible.

    It is before the last sweep, or after the newest recorded time by more than three cadences and three days.
    """
    found, stands = [], f"The clock stands at {render_datetime(as_of)}"
    if clock.last_sweep is not None and as_of < clock.last_sweep:
        sentence = f"{stands}, before the last sweep at {render_datetime(clock.last_sweep)}."
        found.append(_obstacle(ObstacleCode.CLOCK_BACK, sentence))
    if clock.newest is not None and as_of - clock.newest > _longest_jump(cadence):
        sentence = f"{stands}, and the newest time on record is {render_datetime(clock.newest)}: it has jumped, or "
        found.append(_obstacle(ObstacleCode.CLOCK_JUMP, f"{sentence}nothing has run in between."))
    return tuple(found)


def count_usual(cadence: Frequency, frequency: Frequency) -> int:
    """Return the number of instances that expire within two cadences, which any sweep may remove.

    Feeds whose frequency is below the cadence need this minimum.

    >>> from feed_assets.timing.sequence import parse_frequency
    >>> count_usual(parse_frequency("hours(6)"), parse_frequency("hours(1)"))
    12
    """
    return -(-_CADENCES * cadence.as_duration() // frequency.as_duration())


def count_enough(policy: RetentionRecord, instances: int, frequency: Frequency) -> int:
    """Return how many instances with data must stay at least, so that a sweep of others asks for no approval.

    At least one, and as many as the share demands.
    """
    share = policy.sweep_limits.share
    if instances <= count_usual(policy.cadence, frequency) or share >= 1:
        return 1
    return max(1, ceil(instances / share) - instances)


def _first_obstacles(
    cadence: Frequency, frequency: Frequency, as_of: datetime, newest: datetime | None
) -> tuple[SweepObstacle, ...]:
    """Return why the clock of a cluster's first sweep may be wrong, although it agrees with what it has recorded."""
    if newest is None or as_of - newest <= max(_SILENT_PERIODS * frequency.as_duration(), _longest_jump(cadence)):
        return ()
    sentence = f"The clock stands at {render_datetime(as_of)}, and the newest instance of the feed is that of "
    sentence += f"{render_datetime(newest)}: it has jumped, or nothing has arrived since."
    return (_obstacle(ObstacleCode.CLOCK_JUMP, sentence),)


def _longest_jump(cadence: Frequency) -> timedelta:
    return max(_CLOCK_CADENCES * cadence.as_duration(), _LEAST_JUMP)


def _iter_amounts(policy: RetentionRecord, taking: Amounts, frequency: Frequency) -> Iterator[SweepObstacle]:
    limits, count, total = policy.sweep_limits, taking.instances, taking.instances + taking.stay
    of_all = f"{count:,} of the {total:,} instances would be removed"
    if count and not taking.stay:
        yield _obstacle(ObstacleCode.EVERYTHING, f"All {total:,} instances of the feed would be removed.")
    elif count > limits.share * total and count > count_usual(policy.cadence, frequency):
        yield _obstacle(ObstacleCode.SHARE, f"{of_all}, more than the share {limits.share:g}.")
    if count > limits.instances:
        yield _obstacle(ObstacleCode.INSTANCES, f"{of_all}, more than {limits.instances:,}.")
    if limits.bytes is not None and count and (taking.bytes is None or taking.bytes > limits.bytes.bytes):
        size = "an unknown size" if taking.bytes is None else f"{taking.bytes:,} bytes"
        yield _obstacle(ObstacleCode.BYTES, f"{size[0].upper()}{size[1:]} would be removed, more than {limits.bytes}.")


def _obstacle(code: ObstacleCode, sentence: str) -> SweepObstacle:
    return SweepObstacle(code=code.value, sentence=sentence)
