"""Times as people write them: in UTC or with an offset, as days, months and partition keys in the zone of a feed or
process, or from now on.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.errors import DateTimeError
from feed_assets.timing.sequence import InstanceSequence

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


def zone_of_keys(sequence: InstanceSequence) -> ZoneInfo:
    """Return the zone for days and partition keys of a sequence: UTC for elapsed time, else its own."""
    return sequence.timezone if sequence.frequency.is_calendar else UTC_KEYS
