"""Dates as entities write them (`2015-02-28T06:30Z`, always UTC), and time zone names."""

import re
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from feed_assets.timing.errors import DateTimeError, TimeZoneError
from feed_assets.timing.zones import find_offset

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
    return tuple((same_city or get_close_matches(name, known, n=2))[:2])
