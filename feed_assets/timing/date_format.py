"""Java's `SimpleDateFormat` patterns without the parts that depend on a locale; names are English."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType

from feed_assets.timing.errors import DateTimeError

_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|.", re.DOTALL)  # yyyy-MMM-dd'T'HH:mm, 'o''clock'
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = 3


def _number(value: int, width: int) -> str:
    return f"{value:0{width}d}"


def _name(name: str, width: int) -> str:
    return name if width > _SHORT else name[:_SHORT]


def _offset(moment: datetime) -> str:
    return moment.strftime("%z") or "+0000"


_LETTERS: Mapping[str, Callable[[datetime, int], str]] = MappingProxyType(
    {
        "G": lambda _, __: "AD",
        "y": lambda t, w: _number(t.year % 100, 2) if w == 2 else _number(t.year, w),
        "M": lambda t, w: _number(t.month, w) if w < _SHORT else _name(_MONTHS[t.month - 1], w),
        "D": lambda t, w: _number(t.timetuple().tm_yday, w),
        "d": lambda t, w: _number(t.day, w),
        "E": lambda t, w: _name(_WEEKDAYS[t.weekday()], w),
        "u": lambda t, w: _number(t.isoweekday(), w),
        "a": lambda t, _: "AM" if t.hour < 12 else "PM",
        "H": lambda t, w: _number(t.hour, w),
        "k": lambda t, w: _number(t.hour or 24, w),
        "K": lambda t, w: _number(t.hour % 12, w),
        "h": lambda t, w: _number(t.hour % 12 or 12, w),
        "m": lambda t, w: _number(t.minute, w),
        "s": lambda t, w: _number(t.second, w),
        "S": lambda t, w: _number(t.microsecond // 1000, w),
        "z": lambda t, _: t.tzname() or "UTC",
        "Z": lambda t, _: _offset(t),
        "X": lambda t, w: "Z" if _offset(t) == "+0000" else _iso_offset(_offset(t), w),
    }
)


def _iso_offset(offset: str, width: int) -> str:
    return {1: offset[:3], 2: offset[:5]}.get(width, f"{offset[:3]}:{offset[3:5]}")


def format_date(moment: datetime, pattern: str) -> str:
    """Format the wall-clock time of an aware datetime.

    Letters of a pattern: G y M D d E u a H k K h m s S z Z X, quoted 'text', and '' for a quote.

    Differs from Falcon: the letters for weeks (w, W, F), whose meaning depends on a locale, are refused.

    Raises:
        DateTimeError: another letter, or a quote that is not closed.

    >>> from datetime import UTC
    >>> format_date(datetime(2009, 9, 2, 10, tzinfo=UTC), "yyyy-MMM-dd'T'HH:mm")
    '2009-Sep-02T10:00'
    """
    return "".join(_part(moment, pattern, found) for found in _TOKEN.finditer(pattern))


def _part(moment: datetime, pattern: str, found: re.Match[str]) -> str:
    token, quoted, letter = found.group(), found.group(1), found.group(2)
    if quoted is not None:
        return quoted.replace("''", "'") if quoted else "'"
    if token == "'":
        raise DateTimeError(text=pattern, reason="a quote of the pattern is not closed")
    if letter is None:
        return token
    if letter not in _LETTERS:
        raise DateTimeError(text=pattern, reason=f"{letter} is not a letter of date patterns ({' '.join(_LETTERS)})")
    return _LETTERS[letter](moment, len(token))
