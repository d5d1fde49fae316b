"""Errors about texts and times: frequencies, dates, time zones, expressions and path templates."""

import re
from types import MappingProxyType

from feed_assets.errors import Fault, FeedAssetsError, find_similar

_MEANT = MappingProxyType({"hourly": "hours(1)", "daily": "days(1)", "weekly": "days(7)", "monthly": "months(1)"})
_WORDED = re.compile(r"([1-9]\d{0,4}) *([a-z]+)|([a-z]+)(?: *\( *| +)([1-9]\d{0,4})(?: *\))?", re.ASCII)  # 40d, day(1)
_UNITS = MappingProxyType(
    {"m": "minutes", "min": "minutes", "h": "hours", "hr": "hours", "d": "days", "w": "weeks", "mo": "months"}
)
_CRON = re.compile(  # 0 5 * * *, cron(0 5 * * 1), */15 * * * *, @daily
    r"(?:cron\()?(?:(\d{1,2}) (\d{1,2}) \* \* (\*|\w+)|[\d*/,-]+(?: [\w*/,?#-]+){4,5}|@\w+)\)?", re.ASCII
)
_BEGUN = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2})(?::00)?)?", re.ASCII)  # 2015-02-28, 2015-02-28 06:30


class TimingError(FeedAssetsError):
    """A text that is not a frequency, date, time zone, expression or path template, or a time that does not fit."""

    fault = Fault.ASKED


def _translate(text: str) -> str | None:
    """Return the frequency that is meant by a number and a unit in another form.

    >>> [_translate(text) for text in ("40d", "5 min", "day(1)", "2 weeks", "5 apples")]
    ['days(40)', 'minutes(5)', 'days(1)', 'days(14)', None]
    """
    found = _WORDED.fullmatch(text)
    if found is None:
        return None
    count, written = int(found[1] or found[4]), found[2] or found[3]
    unit = _UNITS.get(written) or f"{written.removesuffix('s')}s"
    if unit == "weeks":
        unit, count = "days", 7 * count
    return f"{unit}({count})" if unit in ("minutes", "hours", "days", "months") else None


class FrequencyError(TimingError):
    """A text that is not `unit(count)`."""

    def __init__(self, *, text: str, reason: str) -> None:
        word = text.strip().lower()
        meant = _MEANT.get(word) or _translate(word)
        suggestion = f"Did you mean {meant}? " if meant else ""
        if cron := _CRON.fullmatch(word):
            time = f"{int(cron[2]):02}:{int(cron[1]):02}" if cron[1] else "the time of day"
            step = "days(7)" if cron[3] not in (None, "*") else "days(1)"
            suggestion = f"There is no cron: for example {step} with a validity that starts at {time} in the timezone. "
        super().__init__(
            f"{text!r} is not a frequency: {reason}. {suggestion}"
            f"Write minutes(n), hours(n), days(n) or months(n) with n at least 1, for example {meant or 'hours(1)'}."
        )


class DateTimeError(TimingError):
    """A text that is not a date and time in entity syntax."""

    def __init__(self, *, text: str, reason: str) -> None:
        begun = _BEGUN.fullmatch(text)
        example = f"{begun[1]}T{begun[2] or '00:00'}Z" if begun else "2015-02-28T06:30Z"
        super().__init__(
            f"{text!r} is not a date and time: {reason}. Write it in UTC as yyyy-MM-ddTHH:mmZ, for example {example}."
        )


class TimeZoneError(TimingError):
    """A name that the time zone database does not know."""

    def __init__(self, *, name: str, suggestions: tuple[str, ...] = ()) -> None:
        hint = "Write UTC, an area and a city such as Europe/Berlin, or an offset from GMT-23:59 to GMT+23:59."
        if suggestions:
            hint = f"Did you mean {' or '.join(suggestions)}?"
        super().__init__(f"{name!r} is not in the time zone database. {hint}")


class InstanceError(TimingError):
    """A time that is not an instance of its sequence, or an instance outside the calendar."""

    def __init__(self, *, subject: str, reason: str, next_step: str) -> None:
        super().__init__(f"{subject}: {reason}. {next_step}")


class ExpressionError(TimingError):
    """A text that is not an expression; carries the position (counted from 0) and, if known, suggestions."""

    def __init__(self, *, text: str, position: int, reason: str, suggestions: tuple[str, ...] = ()) -> None:
        self.text = text
        self.position = position
        self.reason = reason
        self.suggestions = suggestions
        hint = f" Did you mean {' or '.join(suggestions)}?" if suggestions else ""
        super().__init__(f"expression {text!r}, character {position + 1}: {reason}.{hint}")


class UnknownNameError(ExpressionError):
    """An unknown variable, function or input in an expression."""

    def __init__(self, *, text: str, position: int, name: str, kind: str, known: tuple[str, ...]) -> None:
        close = tuple(find_similar(name, known, n=1))
        reason = f"{name} is not a known {kind} (known: {', '.join(known) or 'none'})"
        super().__init__(text=text, position=position, reason=reason, suggestions=close)


class WindowError(TimingError):
    """Two expressions that do not form a window."""

    def __init__(self, *, start: str, end: str, reason: str, next_step: str) -> None:
        super().__init__(f"window from {start} to {end}: {reason}. {next_step}")


class TemplateError(TimingError):
    """A text that is not a path template, or a template that cannot be used in this way."""

    def __init__(self, *, text: str, reason: str, next_step: str) -> None:
        self.reason = reason
        super().__init__(f"template {text!r}: {reason}. {next_step}")


class TableAddressError(TimingError):
    """A text that is not the address of a table in a catalog."""

    def __init__(self, *, text: str, reason: str) -> None:
        super().__init__(
            f"table {text!r}: {reason}. Write catalog:database:table#key=value, "
            "for example catalog:sales:clicks#ds=${YEAR}-${MONTH}-${DAY}."
        )
