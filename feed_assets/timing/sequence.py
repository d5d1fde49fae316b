"""Frequencies, and instance sequences: instance n of (start, frequency, time zone), computed from the anchor, never
enumerated; and instances as people write them: in UTC or with an offset, as days, months and partition keys in the zone
of a feed or process, or from now on.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from feed_assets.timing.dates import find_leapt_day, is_fixed, is_regular, parse_datetime, render_datetime
from feed_assets.timing.errors import DateTimeError, FrequencyError, InstanceError


class Unit(StrEnum):
    """Units of a frequency. Seconds, minutes and hours are elapsed time, days and months are calendar steps."""

    SECONDS = "seconds"
    MINUTES = "minutes"
    HOURS = "hours"
    DAYS = "days"
    MONTHS = "months"


_SYNTAX = re.compile(r"(\w*)\((.*)\)", re.ASCII)  # hours(2)
_COUNT = re.compile(r"[1-9][0-9]*")  # 2, 30, not 0, 02 or -1
_LENGTHS = {
    Unit.SECONDS: timedelta(seconds=1),
    Unit.MINUTES: timedelta(minutes=1),
    Unit.HOURS: timedelta(hours=1),
    Unit.DAYS: timedelta(days=1),
    Unit.MONTHS: timedelta(days=31),
}
_LONGEST = date.max - date.min
_LONGEST_COUNT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequency:
    """`count` units.

    Equality is textual, as in Falcon: `hours(24)` is not `days(1)`; compare lengths by `as_duration()`.

    >>> Frequency(unit=Unit.HOURS, count=24) == Frequency(unit=Unit.DAYS, count=1)
    False
    """

    unit: Unit
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise FrequencyError(text=self.render(), reason="the count is below 1")

    def __str__(self) -> str:
        return self.render()

    @property
    def is_calendar(self) -> bool:
        """Whether a step keeps wall-clock time (days, months) instead of being elapsed time."""
        return self.unit is Unit.DAYS or self.unit is Unit.MONTHS

    def render(self) -> str:
        """Return the text form, `hours(2)`."""
        return f"{self.unit.value}({self.count})"

    def as_duration(self) -> timedelta:
        """Return the nominal length of one step; a month counts as 31 days, a day as 24 hours.

        Raises:
            FrequencyError: the length exceeds what a duration can hold (about 2.7 million years).

        >>> parse_frequency("months(1)").as_duration()
        datetime.timedelta(days=31)
        """
        try:
            return _LENGTHS[self.unit] * self.count
        except OverflowError as exc:
            raise FrequencyError(text=self.render(), reason="it is longer than any calendar") from exc


def parse_frequency(text: str, *, finest: Unit = Unit.MINUTES) -> Frequency:
    """Parse `minutes(n)`, `hours(n)`, `days(n)` or `months(n)`, with n at least 1; surrounding blanks are ignored.

    With SECONDS as `finest` unit, `seconds(n)` too, which Falcon does not know.

    Raises:
        FrequencyError: anything else, such as `hours(0)`, `weeks(1)`, `Hours(1)` or `hours( 1 )`, and more than the
            calendar's 9,999 years.

    >>> parse_frequency("hours(2)").render()
    'hours(2)'
    """
    found = _SYNTAX.fullmatch(text.strip())
    if found is None:
        raise FrequencyError(text=text, reason="it does not have the form unit(count)")
    unit_name, count = found.groups()
    try:
        unit = Unit(unit_name)
    except ValueError as exc:
        raise FrequencyError(text=text, reason=f"{unit_name!r} is not a unit of frequencies") from exc
    if unit is Unit.SECONDS and finest is not Unit.SECONDS:
        raise FrequencyError(text=text, reason="seconds are too fine here; the finest unit is minutes")
    if _COUNT.fullmatch(count) is None:
        raise FrequencyError(text=text, reason=f"{count!r} is not a whole number of at least 1 without leading zeros")
    frequency = Frequency(unit=unit, count=int(count)) if len(count) <= _LONGEST_COUNT else None
    if frequency is None or frequency.as_duration() > _LONGEST:
        raise FrequencyError(text=text, reason="it is longer than any calendar")
    return frequency


_NO_TIME = timedelta(0)
_DAY = timedelta(days=1)
_AGE = timedelta(days=365_000)
_FAR = datetime(9000, 1, 1, tzinfo=UTC)
_FIRST = datetime.min.replace(tzinfo=UTC)


def find_longest(start: datetime) -> Frequency:
    """Return the frequency of an instance that has no successor: the next one is later than any time that is asked for,
    and early enough for windows around it.
    """
    return Frequency(unit=Unit.MINUTES, count=(_FAR - start) // timedelta(minutes=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSequence:
    """The instances `start + n × frequency` with n ≥ 0 and before `end` (exclusive; None means never).

    Minutes and hours are elapsed time. Days and months keep the wall-clock time that `start` has in `timezone`, and
    instance n is always computed from the anchor, so months from the 31st clip (28 February) and come back (31 March).
    If a wall-clock time does not exist or exists twice, Java's calendar decides, as in Falcon:

    - days: n × 24 hours, corrected once by the difference of the UTC offsets, never leaving the target date. A time in
      the spring gap moves one hour back on the clock (02:30 → 01:30) for an anchor in winter time, and one hour forward
      for an anchor in summer time. A repeated time is the one with the anchor's offset.
      A day that the zone leaps, such as 30 December 2011 in Pacific/Apia, has no instance of `days(1)`.
    - months: the later of the two readings: 02:30 in the gap is 03:30, a repeated 01:30 is the second.

    Differs from Falcon: Falcon steps from instance to instance in places, so its months drift (31 → 28 → 28).

    Raises:
        InstanceError: `start` or `end` has no time zone.

    >>> from feed_assets.timing.dates import parse_datetime, parse_timezone
    >>> from feed_assets.timing.sequence import parse_frequency
    >>> daily = InstanceSequence(start=parse_datetime("2015-03-07T10:00Z"), frequency=parse_frequency("days(1)"),
    ...                          timezone=parse_timezone("America/New_York"))
    >>> [render_datetime(daily.at(n)) for n in (-1, 0, 1, 2)]
    ['2015-03-06T10:00Z', '2015-03-07T10:00Z', '2015-03-08T09:00Z', '2015-03-09T09:00Z']
    """

    start: datetime
    frequency: Frequency
    timezone: ZoneInfo
    end: datetime | None = None
    size: int | None = field(init=False, repr=False, compare=False)
    """The number of instances in the validity; None if it has no end."""
    is_elapsed: bool = field(init=False, repr=False, compare=False)
    """Whether every step lasts equally long: minutes, hours, and days in a zone of one fixed offset."""
    wall_start: datetime = field(init=False, repr=False, compare=False)
    """The wall-clock time of the anchor in `timezone`, without a time zone."""
    _step: timedelta = field(init=False, repr=False, compare=False)
    _offset: timedelta = field(init=False, repr=False, compare=False)
    _leapt: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, moment in (("start", self.start), ("end", self.end)):
            if moment is not None and moment.tzinfo is None:
                raise InstanceError(
                    subject=f"{name} {moment.isoformat()}",
                    reason="it has no time zone",
                    next_step="Pass an aware datetime.",
                )
        wall = self.start.astimezone(self.timezone)
        unit = self.frequency.unit
        step = self.frequency.as_duration()
        is_elapsed = not self.frequency.is_calendar or (unit is Unit.DAYS and is_fixed(self.timezone))
        leapt = None if is_elapsed or unit is not Unit.DAYS or step > _DAY else find_leapt_day(self.timezone)
        fields: dict[str, object] = {
            "start": self.start.astimezone(UTC),
            "end": None if self.end is None else self.end.astimezone(UTC),
            "_step": step,
            "is_elapsed": is_elapsed,
            "_leapt": None if leapt is None else leapt.toordinal() - wall.toordinal(),
            "wall_start": wall.replace(tzinfo=None, fold=0),
            "_offset": wall.utcoffset(),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "size", None if self.end is None else max(0, self.index_at_or_after(self.end)))

    @property
    def is_single(self) -> bool:
        """Whether it has one instance, which has no successor."""
        return self._step > _AGE

    @property
    def pace(self) -> str:
        """The frequency as text for people; `current` if there is one instance."""
        return "current" if self.is_single else self.frequency.render()

    @property
    def endless(self) -> "InstanceSequence":
        """The same sequence without an end; cheaper than to make it anew."""
        found: InstanceSequence = object.__new__(InstanceSequence)
        for name in self.__slots__:
            object.__setattr__(found, name, None if name in ("end", "size") else getattr(self, name))
        return found

    def at(self, n: int) -> datetime:
        """Return the nominal time of instance n, also outside the validity (n may be negative).

        Raises:
            InstanceError: the time is outside the years 1 to 9999.
        """
        try:
            if self.is_elapsed:
                return self.start + self._step * n
            if self.frequency.unit is Unit.DAYS:
                return self._day_at(n)
            return self._month_at(n)
        except (OverflowError, ValueError) as exc:
            raise InstanceError(
                subject=f"instance {n} of {self.frequency} from {render_datetime(self.start)}",
                reason="it is outside the years 1 to 9999",
                next_step="Use a shorter range.",
            ) from exc

    def index_at_or_before(self, moment: datetime) -> int:
        """Return the greatest n with `at(n) <= moment`; it is below 0 before the start and not clipped at the end."""
        if self.is_elapsed:
            return (moment - self.start) // self._step
        return self._locate(moment)[0]

    def index_at_or_after(self, moment: datetime) -> int:
        """Return the smallest n with `at(n) >= moment`; it is below 0 before the start and not clipped at the end."""
        if self.is_elapsed:
            return -((self.start - moment) // self._step)
        n, found = self._locate(moment)
        return n if found == moment else n + 1

    def ceil(self, moment: datetime) -> datetime | None:
        """Return the first instance at or after `moment`; None if there is none before the end."""
        n = max(0, self.index_at_or_after(moment))
        return None if self.size is not None and n >= self.size else self.at(n)

    def contains(self, moment: datetime) -> bool:
        """Return whether `moment` is an instance inside the validity."""
        n, found = self._locate(moment)
        return found == moment and n >= 0 and (self.size is None or n < self.size)

    def index(self, moment: datetime) -> int:
        """Return the number of an instance, counted from 0.

        Raises:
            InstanceError: `moment` is outside the validity, or between two instances.
        """
        n, found = self._locate(moment)
        if n < 0 or (self.end is not None and moment >= self.end):
            raise self._refusal(moment, "it is outside the validity")
        if found != moment:
            raise self._refusal(moment, f"it is between two instances, the earlier is {render_datetime(found)}")
        return n

    def between(self, start: datetime, stop: datetime) -> Iterator[datetime]:
        """Iterate over the instances with `start <= t < stop` inside the validity, oldest first."""
        return map(self.at, self.indices_between(start, stop))

    def indices_between(self, start: datetime, stop: datetime) -> range:
        """Return the numbers of the instances with `start <= t < stop` inside the validity; no enumeration."""
        return self.clip(range(self.index_at_or_after(start), self.index_at_or_after(stop)))

    def clip(self, indices: range) -> range:
        """Return the part of a range of instance numbers (step 1) that is inside the validity."""
        first = max(0, indices.start)
        return range(first, max(first, indices.stop if self.size is None else min(indices.stop, self.size)))

    def _locate(self, moment: datetime) -> tuple[int, datetime]:
        if self.is_elapsed:
            n = (moment - self.start) // self._step
            return n, _FIRST if n < 0 and self.is_single else self.start + self._step * n
        wall, anchor = moment.astimezone(self.timezone), self.wall_start
        if self.frequency.unit is Unit.DAYS:
            n = (wall.toordinal() - anchor.toordinal()) // self.frequency.count
            n += self._leapt is not None and self._leapt < 0
        else:
            n = ((wall.year - anchor.year) * 12 + wall.month - anchor.month) // self.frequency.count
        while (found := self.at(n)) > moment:
            n -= 1
        return n, found

    def _day_at(self, n: int) -> datetime:
        if self._leapt is not None:
            n += (0 < self._leapt <= n) - (n <= self._leapt < 0)
        elapsed = self.start + self._step * n
        offset = elapsed.astimezone(self.timezone).utcoffset()
        if offset == self._offset:
            return elapsed
        corrected = elapsed + (self._offset - (offset or _NO_TIME))
        target = (self.wall_start + self._step * n).toordinal()
        return corrected if corrected.astimezone(self.timezone).toordinal() == target else elapsed

    def _month_at(self, n: int) -> datetime:
        anchor, zone = self.wall_start, self.timezone
        year, month = divmod(anchor.year * 12 + anchor.month - 1 + n * self.frequency.count, 12)
        day = anchor.day if anchor.day <= 28 else min(anchor.day, monthrange(year, month + 1)[1])
        wall = (year, month + 1, day, anchor.hour, anchor.minute, anchor.second, anchor.microsecond)
        first = zone.utcoffset(datetime(*wall, tzinfo=zone)) or _NO_TIME
        second = zone.utcoffset(datetime(*wall, tzinfo=zone, fold=1)) or _NO_TIME
        return datetime(*wall, tzinfo=UTC) - min(first, second)

    def _refusal(self, moment: datetime, reason: str) -> InstanceError:
        end = "" if self.end is None else f" before {render_datetime(self.end)}"
        if self.is_single:
            next_step = f"There is one instance, {render_datetime(self.start)}."
            return InstanceError(subject=render_datetime(moment), reason="it is another time", next_step=next_step)
        return InstanceError(
            subject=f"{render_datetime(moment)}",
            reason=reason,
            next_step=f"Instances are every {self.frequency} from {render_datetime(self.start)}{end} "
            f"({self.timezone.key}).",
        )


def contiguous(indices: Iterable[int]) -> list[range]:
    """Return ascending numbers as ranges without gaps.

    >>> contiguous([1, 2, 3, 7, 8])
    [range(1, 4), range(7, 9)]
    """
    runs: list[range] = []
    for index in indices:
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return runs


def is_same_grid(one: InstanceSequence, other: InstanceSequence) -> bool:
    """Return whether two sequences have the same instances while both are valid.

    Months from the 31st and months from 28 February differ: they meet in February only. Days from 02:30 in winter and
    days from 02:30 in summer differ if clocks change at that time: they part on that day.

    >>> from feed_assets.timing.dates import parse_datetime, parse_timezone
    >>> from feed_assets.timing.sequence import parse_frequency
    >>> monthly = [InstanceSequence(start=parse_datetime(f"2015-{day}T00:00Z"), frequency=parse_frequency("months(1)"),
    ...                             timezone=parse_timezone("UTC")) for day in ("01-31", "02-28", "03-31")]
    >>> is_same_grid(monthly[0], monthly[1]), is_same_grid(monthly[0], monthly[2])
    (False, True)
    """
    if (one.frequency, one.timezone.key) != (other.frequency, other.timezone.key):
        return False
    if not one.is_elapsed and not _steps_alike(one, other):
        return False
    return one.at(one.index_at_or_before(other.start)) == other.start


def _steps_alike(one: InstanceSequence, other: InstanceSequence) -> bool:
    """Return whether both anchors lead to the same clock times, within the month and at clock changes."""
    first, second = one.wall_start, other.wall_start
    if first.time() != second.time():
        return False
    if one.frequency.unit is Unit.MONTHS:
        return first.day == second.day
    time_of_day = timedelta(hours=first.hour, minutes=first.minute, seconds=first.second)
    same_offset = first - second == one.start.replace(tzinfo=None) - other.start.replace(tzinfo=None)
    return same_offset or is_regular(one.timezone, time_of_day, max(one.start, other.start))


UTC_KEYS = ZoneInfo("UTC")
"""The zone of days and keys where no entity is named."""

_LOCAL = re.compile(r"(\d{4}-\d{2})(-\d{2})?(?:(?<=-\d\d-\d\d)[-T ](\d{2}):?(\d{2})(?::(\d{2}))?)?")  # 2013-11-03-05:00
_OFFSET = re.compile(r"(\S+T[\d:]+)([+-])(0\d|1[0-4]):?([0-5]\d)")  # 2013-11-03T05:00+01:00
_RELATIVE = re.compile(r"now(?:([+-]\d{1,4})([mhdw]))?")  # now, now-7d
FORMS = "that of a day, a month or a partition key"
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_time(text: str, find_now: Callable[[], datetime], find_zone: Callable[[], ZoneInfo]) -> datetime:
    """Parse a time in any form: those of `parse_instance`, or `now`, `now-7d`, `now+90m`, with minutes, hours, days and
    weeks. Now and the zone are asked for only if the form needs them.

    Raises:
        DateTimeError: the text has none of these forms, or is too far away.

    >>> parse_time("now-7d", lambda: datetime(2013, 11, 8, 5, tzinfo=UTC), lambda: UTC_KEYS).isoformat()
    '2013-11-01T05:00:00+00:00'
    """
    found = _RELATIVE.fullmatch(text)
    if found is None:
        is_utc = text.endswith("Z") or _OFFSET.fullmatch(text)
        return parse_instance(text, UTC_KEYS if is_utc else find_zone(), f"{FORMS}, or of now-7d")
    shift = timedelta(**{_UNITS[found[2]]: int(found[1])}) if found[1] else timedelta(0)
    return find_now().replace(microsecond=0) + shift


def parse_instance(text: str, zone: ZoneInfo, forms: str = FORMS) -> datetime:
    """Parse a nominal time: `2013-11-03T05:00Z` in UTC, `2013-11-03T05:00+01:00`, or a day, a month or a Dagster
    partition key in a time zone. A day and a month are their first moment.

    Raises:
        DateTimeError: the text has none of these forms, which `forms` names, or clocks have leapt over the time.

    >>> parse_instance("2013-11-03", ZoneInfo("America/New_York")).isoformat()
    '2013-11-03T04:00:00+00:00'
    >>> parse_instance("2013-11-03-05:00", ZoneInfo("UTC")) == parse_instance("2013-11-03T06:00+01:00", ZoneInfo("UTC"))
    True
    """
    if text.endswith("Z"):
        return parse_datetime(text, seconds=True)
    if found := _OFFSET.fullmatch(text):
        local, sign, hours, minutes = found.groups()
        ahead = timedelta(hours=int(hours), minutes=int(minutes))
        return parse_datetime(f"{local}Z", seconds=True) - (ahead if sign == "+" else -ahead)
    found = _LOCAL.fullmatch(text)
    if found is None:
        raise DateTimeError(text=text, reason=f"it has neither that form nor {forms}")
    month, day, *clock = found.groups(default="00")
    hour, minute, second = clock
    local = parse_datetime(f"{month}{'-01' if day == '00' else day}T{hour}:{minute}:{second}Z", seconds=True)
    moment = local.replace(tzinfo=zone).astimezone(UTC)
    there = moment.astimezone(zone)
    if there.date() != local.date() or (found[3] and there.time() != local.time()):
        raise DateTimeError(text=text, reason=f"the clocks of {zone.key} leapt over it")
    return moment


def parse_span(text: str, zone: ZoneInfo) -> tuple[datetime, datetime | None]:
    """Parse the time of an instance as `parse_instance`: of a day or a month its first moment, and that of the next.

    >>> [moment.isoformat() for moment in parse_span("2013-11", ZoneInfo("America/New_York"))]
    ['2013-11-01T04:00:00+00:00', '2013-12-01T05:00:00+00:00']
    """
    start, found = parse_instance(text, zone), _LOCAL.fullmatch(text)
    if found is None or found[3]:
        return start, None
    first = start.astimezone(zone).date()
    until = first + timedelta(days=1 if found[2] else monthrange(first.year, first.month)[1])
    return start, datetime(until.year, until.month, until.day, tzinfo=zone).astimezone(UTC)


def zone_of_keys(sequence: InstanceSequence) -> ZoneInfo:
    """Return the zone for days and partition keys of a sequence: UTC for elapsed time, else its own."""
    return sequence.timezone if sequence.frequency.is_calendar else UTC_KEYS


def key_format(sequence: InstanceSequence) -> str:
    """Return the form of the partition keys of a sequence, for `strftime`."""
    if sequence.frequency.unit is Unit.SECONDS:
        return "%Y-%m-%d-%H:%M:%S"
    wall = sequence.wall_start
    is_daily = sequence.frequency.is_calendar and (wall.hour, wall.minute) == (0, 0)
    return "%Y-%m-%d" if is_daily else "%Y-%m-%d-%H:%M"


def render_key(sequence: InstanceSequence, nominal_time: datetime) -> str:
    """Return the partition key of an instance."""
    return nominal_time.astimezone(zone_of_keys(sequence)).strftime(key_format(sequence))
