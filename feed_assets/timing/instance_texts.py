"""Nominal times as people write them: in UTC, or as days and partition keys in the zone of a feed or process."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.errors import DateTimeError
from feed_assets.timing.sequence import InstanceSequence

_UTC = ZoneInfo("UTC")
_LOCAL = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[-T ](\d{2}):?(\d{2})(?::(\d{2}))?)?")  # 2013-11-03, 2013-11-03-05:00


def parse_instance(text: str, zone: ZoneInfo) -> datetime:
    """Parse a nominal time: `2013-11-03T05:00Z` in UTC, or a day or a Dagster partition key in a time zone.

    Raises:
        DateTimeError: the text is neither.

    >>> parse_instance("2013-11-03", ZoneInfo("America/New_York")).isoformat()
    '2013-11-03T04:00:00+00:00'
    >>> parse_instance("2013-11-03-05:00", ZoneInfo("UTC")) == parse_instance("2013-11-03T05:00Z", ZoneInfo("UTC"))
    True
    """
    if text.endswith("Z"):
        return parse_datetime(text, seconds=True)
    found = _LOCAL.fullmatch(text)
    if found is None:
        raise DateTimeError(text=text, reason="it has neither that form nor that of a day or partition key")
    day, hour, minute, second = found.groups(default="00")
    local = parse_datetime(f"{day}T{hour}:{minute}:{second}Z", seconds=True)
    moment = local.replace(tzinfo=zone).astimezone(UTC)
    if moment.astimezone(zone).date() != local.date():
        raise DateTimeError(text=text, reason=f"{zone.key} leapt that day")
    return moment


def zone_of_keys(sequence: InstanceSequence) -> ZoneInfo:
    """Return the zone for days and partition keys of a sequence: UTC for elapsed time, else its own."""
    return sequence.timezone if sequence.frequency.is_calendar else _UTC
