"""Dates as entities write them (`2015-02-28T06:30Z`, always UTC), and time zones: their names, and whether the offset
of one ever changes, by how much, and at which clock times.

The standard library answers only for one moment. Changes from 1900 to 2100 are found once per zone by bisection; later
changes repeat the rules in force then.
"""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from io import BytesIO
from types import MappingProxyType
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from feed_assets.errors import find_similar
from feed_assets.timing.errors import DateTimeError, TimeZoneError

_FIXED_NAMES = frozenset({"UTC", "GMT", "Zulu", "UCT", "Universal", "Greenwich", "GMT0", "GMT+0", "GMT-0"})
_UTC_NAMES = _FIXED_NAMES | {f"Etc/{name}" for name in _FIXED_NAMES}
_FROM = datetime(1900, 1, 1, tzinfo=UTC)
_UNTIL = datetime(2101, 1, 1, tzinfo=UTC)
_SAMPLE_STEP = timedelta(days=7)
_RESOLUTION = timedelta(seconds=1)
_DAY = timedelta(days=1)
_NO_TIME = timedelta(0)
_OFFSET = re.compile(r"(?:GMT|UTC)([+-])([01]?[0-9]|2[0-3])(?::?([0-5][0-9]))?")  # GMT+08:00, GMT-03:50, UTC+8
_NAMED_HOURS = range(-12, 15)
"""East of Greenwich, of the names `Etc/GMT+12` to `Etc/GMT-14`."""
_ONE_OFFSET = ">4s16x6l lBB"
"""The head of a time zone file of version 1 with one offset, and that offset."""


class FixedOffset(ZoneInfo):
    """An offset for ever that the time zone database has no name for, such as `GMT-03:50`."""

    def __reduce__(self) -> tuple[Callable[[str], ZoneInfo | None], tuple[str]]:
        return find_offset, (self.key,)


@cache
def find_offset(name: str) -> ZoneInfo | None:
    """Return the offset that Java and Falcon's form write as `GMT+08:00`: 8 hours ahead of UTC; None of another name.

    Whole hours get their names in the database, where the sign is the other way round: Dagster knows only those.

    >>> [find_offset(name).key for name in ("GMT+08:00", "UTC-3", "GMT-3:50", "GMT+00:00")]
    ['Etc/GMT-8', 'Etc/GMT+3', 'GMT-03:50', 'UTC']
    """
    found = _OFFSET.fullmatch(name)
    if found is None:
        return None
    minutes = int(found[1] + "1") * (60 * int(found[2]) + int(found[3] or 0))
    if minutes % 60 == 0 and minutes // 60 in _NAMED_HOURS:
        return ZoneInfo(f"Etc/GMT{-minutes // 60:+d}" if minutes else "UTC")
    key = f"GMT{found[1]}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    if name != key:
        return find_offset(key)
    abbreviation = key.encode() + b"\0"
    content = struct.pack(_ONE_OFFSET, b"TZif", 0, 0, 0, 0, 1, len(abbreviation), 60 * minutes, 0, 0)
    return FixedOffset.from_file(BytesIO(content + abbreviation), key=key)


def resolve_wall(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the UTC instant of a wall-clock time (without a time zone), by Java's rule: the later reading.

    A time in a gap moves forward by the length of the gap; a repeated time means its second occurrence.

    >>> resolve_wall(datetime(2015, 3, 8, 2, 30), ZoneInfo("America/Los_Angeles")).isoformat()
    '2015-03-08T10:30:00+00:00'
    """
    local = wall.replace(tzinfo=zone)
    offset = zone.utcoffset(local) or _NO_TIME
    other = zone.utcoffset(local.replace(fold=1)) or _NO_TIME
    return wall.replace(tzinfo=UTC) - min(offset, other)


def is_fixed(zone: ZoneInfo) -> bool:
    """Return whether the zone's name promises one offset for ever (`UTC`, `Etc/GMT+5`, `GMT-03:50`)."""
    return zone.key in _FIXED_NAMES or zone.key.startswith("Etc/") or isinstance(zone, FixedOffset)


def is_utc(zone: ZoneInfo) -> bool:
    """Return whether the zone is UTC under one of its names."""
    return zone.key in _UTC_NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """A moment at which the UTC offset of a zone changes."""

    at: datetime
    before: timedelta
    after: timedelta


@lru_cache(maxsize=256)
def offset_changes(zone: ZoneInfo) -> tuple[OffsetChange, ...]:
    """Return every change of the zone's UTC offset from 1900 to 2100, oldest first."""
    return () if is_fixed(zone) else tuple(_iter_changes(zone))


@lru_cache(maxsize=256)
def find_leapt_day(zone: ZoneInfo) -> date | None:
    """Return the day that a zone leapt, going to the other side of the date line; None if there is none.

    >>> find_leapt_day(ZoneInfo("Pacific/Apia")), find_leapt_day(ZoneInfo("Europe/Berlin"))
    (datetime.date(2011, 12, 30), None)
    """
    offsets = [_offset(zone, _FROM.replace(year=year)) for year in range(_FROM.year, _UNTIL.year)]
    if max(offsets) - min(offsets) < _DAY:
        return None  # without a look at each change
    leaps = [change for change in offset_changes(zone) if change.after - change.before >= _DAY]
    return (leaps[0].at + leaps[0].before).date() if leaps else None


def offset_spread(zone: ZoneInfo, since: datetime | None = None) -> timedelta:
    """Return the difference between the greatest and the smallest UTC offset in force from `since` (default 1900).

    >>> offset_spread(ZoneInfo("America/New_York"), datetime(2000, 1, 1, tzinfo=UTC))
    datetime.timedelta(seconds=3600)
    """
    since = since or _FROM
    offsets = [_offset(zone, since)]
    offsets += [change.after for change in offset_changes(zone) if change.at >= since]
    return max(offsets) - min(offsets)


def is_regular(zone: ZoneInfo, time_of_day: timedelta, since: datetime) -> bool:
    """Return whether this wall-clock time exists exactly once on every day from `since` on.

    Such a time is never skipped and never repeated.

    >>> new_york, since = ZoneInfo("America/New_York"), datetime(2000, 1, 1, tzinfo=UTC)
    >>> is_regular(new_york, timedelta(0), since), is_regular(new_york, timedelta(hours=2, minutes=30), since)
    (True, False)
    """
    for change in offset_changes(zone):
        if change.at < since:
            continue
        low, high = sorted((change.at + change.before, change.at + change.after))
        midnight = low.replace(hour=0, minute=0, second=0, microsecond=0)
        while midnight < high:
            if low <= midnight + time_of_day < high:
                return False
            midnight += _DAY
    return True


def is_undisturbed(zone: ZoneInfo, time_of_day: timedelta, elapsed: timedelta, since: datetime) -> bool:
    """Return whether from `since` on clocks never change between this wall-clock time and `elapsed` later (or earlier).

    >>> new_york, since = ZoneInfo("America/New_York"), datetime(2000, 1, 1, tzinfo=UTC)
    >>> [is_undisturbed(new_york, timedelta(0), timedelta(hours=n), since) for n in (-1, 1, 2)]
    [True, True, False]
    """
    if not elapsed:
        return True
    around = range(-1 - abs(elapsed) // _DAY, abs(elapsed) // _DAY + 2)
    for change in offset_changes(zone):
        if change.at < since:
            continue
        midnight = change.at.astimezone(zone).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0, fold=0)
        for days in around:
            moment = resolve_wall(midnight + days * _DAY + time_of_day, zone)
            low, high = sorted((moment, moment + elapsed))
            if low < change.at <= high:
                return False
    return True


def _iter_changes(zone: ZoneInfo) -> Iterator[OffsetChange]:
    low, before = _FROM, _offset(zone, _FROM)
    while low < _UNTIL:
        high = low + _SAMPLE_STEP
        after = _offset(zone, high)
        if after != before:
            left, right = low, high
            while right - left > _RESOLUTION:
                middle = left + (right - left) // 2
                left, right = (middle, right) if _offset(zone, middle) == before else (left, middle)
            at = right.replace(microsecond=0)
            yield OffsetChange(at=at, before=before, after=_offset(zone, at))
            low, before = at, _offset(zone, at)
        else:
            low = high


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or _NO_TIME


NEVER = datetime(9999, 4, 16, tzinfo=UTC)
"""End of a validity without an end; the value that Falcon stores."""

_SYNTAX = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?Z")  # 2015-02-28T06:30Z
_FIRST_YEAR, _LAST_YEAR = 1900, 2999

_JAVA_SHORT_NAMES = MappingProxyType(
    {
        "ACT": "Australia/Darwin",
        "AET": "Australia/Sydney",
        "AGT": "America/Argentina/Buenos_Aires",
        "ART": "Africa/Cairo",
        "AST": "America/Anchorage",
        "BET": "America/Sao_Paulo",
        "BST": "Asia/Dhaka",
        "CAT": "Africa/Harare",
        "CNT": "America/St_Johns",
        "CST": "America/Chicago",
        "CTT": "Asia/Shanghai",
        "EAT": "Africa/Addis_Ababa",
        "ECT": "Europe/Paris",
        "IET": "America/Indiana/Indianapolis",
        "IST": "Asia/Kolkata",
        "JST": "Asia/Tokyo",
        "MIT": "Pacific/Apia",
        "NET": "Asia/Yerevan",
        "NST": "Pacific/Auckland",
        "PLT": "Asia/Karachi",
        "PNT": "America/Phoenix",
        "PRT": "America/Puerto_Rico",
        "PST": "America/Los_Angeles",
        "SST": "Pacific/Guadalcanal",
        "VST": "Asia/Ho_Chi_Minh",
    }
)
_MACHINE_DEPENDENT = ("localtime", "posixrules", "Factory")
_OTHER_DATABASES = ("posix/", "right/")


def parse_datetime(text: str, *, seconds: bool = False) -> datetime:
    """Parse `yyyy-MM-ddTHH:mmZ` into an aware UTC datetime; accepts years 1900 to 2999, and the text of `NEVER`.

    With `seconds`, `yyyy-MM-ddTHH:mm:ssZ` too: the time of an instance that comes as it comes.
    Differs from Falcon: 29 February of a year that is not a leap year, such as 2100, is refused, not rolled over.

    Raises:
        DateTimeError: another form, or a day or hour that does not exist.

    >>> parse_datetime("2016-02-29T00:00Z")
    datetime.datetime(2016, 2, 29, 0, 0, tzinfo=datetime.timezone.utc)
    """
    found = _SYNTAX.fullmatch(text)
    if found is None or (found[6] and not seconds):
        raise DateTimeError(text=text, reason="it does not have the form yyyy-MM-ddTHH:mmZ")
    year, month, day, hour, minute, second = map(int, found.groups(default="0"))
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as exc:
        raise DateTimeError(text=text, reason=str(exc)) from exc
    if not _FIRST_YEAR <= year <= _LAST_YEAR and moment != NEVER:
        raise DateTimeError(text=text, reason=f"the year is not between {_FIRST_YEAR} and {_LAST_YEAR}")
    return moment


def render_datetime(moment: datetime) -> str:
    """Return the entity form of an aware datetime, in UTC, to the minute, or to the second if there are seconds.

    >>> render_datetime(NEVER), render_datetime(datetime(2026, 1, 1, 6, 0, 5, tzinfo=UTC))
    ('9999-04-16T00:00Z', '2026-01-01T06:00:05Z')
    """
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    second = f":{moment.second:02d}" if moment.second else ""
    return f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}T{moment.hour:02d}:{moment.minute:02d}{second}Z"


@lru_cache(maxsize=1024)
def parse_timezone(name: str) -> ZoneInfo:
    """Parse a time zone: a name in the time zone database, a short name of Java (`PST` is America/Los_Angeles), or an
    offset (`GMT+08:00`, see `find_offset`).

    Differs from Falcon: an unknown name is refused; Falcon (Java) silently uses GMT.

    Raises:
        TimeZoneError: the database does not know the name.

    >>> parse_timezone("America/New_York").key
    'America/New_York'
    """
    key = _JAVA_SHORT_NAMES.get(name, name)
    try:
        if key in _MACHINE_DEPENDENT or key.startswith(_OTHER_DATABASES):
            raise ZoneInfoNotFoundError(key)
        return find_offset(key) or ZoneInfo(key)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise TimeZoneError(name=name, suggestions=_similar_names(name)) from exc


def _similar_names(name: str) -> tuple[str, ...]:
    known = sorted(available_timezones().difference(_MACHINE_DEPENDENT))
    city = name.strip().replace(" ", "_").casefold()
    same_city = [key for key in known if key.casefold() == city or key.casefold().rsplit("/", 1)[-1] == city]
    if not same_city and (re.search("[0-9]", name) or (name.isalpha() and name.isupper())):
        return ()  # CEST is close to EST, GMT+24:00 to GMT+0, and never mean it
    return tuple((same_city or find_similar(name, known, n=2))[:2])
