"""Which instance people mean: nominal times as entities write them, as partition keys, or as a day."""

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import parse_flow
from feed_assets.operations.scene import Scene
from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.errors import DateTimeError
from feed_assets.timing.sequence import InstanceSequence

_UTC = ZoneInfo("UTC")
_LOCAL = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[-T ](\d{2}):?(\d{2}))?")  # 2013-11-03, 2013-11-03-05:00


def parse_instance(text: str, zone: ZoneInfo) -> datetime:
    """A nominal time: `2013-11-03T05:00Z` in UTC, or a day or a partition key of Dagster in a time zone.

    Raises:
        DateTimeError: it is neither.

    >>> parse_instance("2013-11-03", ZoneInfo("America/New_York")).isoformat()
    '2013-11-03T04:00:00+00:00'
    >>> parse_instance("2013-11-03-05:00", ZoneInfo("UTC")) == parse_instance("2013-11-03T05:00Z", ZoneInfo("UTC"))
    True
    """
    if text.endswith("Z"):
        return parse_datetime(text)
    found = _LOCAL.fullmatch(text)
    if found is None:
        raise DateTimeError(text=text, reason="it has neither that form nor that of a day or partition key")
    day, hour, minute = found.groups(default="00")
    local = parse_datetime(f"{day}T{hour}:{minute}Z")
    return local.replace(tzinfo=zone).astimezone(UTC)


def zone_of_keys(sequence: InstanceSequence) -> ZoneInfo:
    """The zone in which people write days and partition keys of a sequence: UTC for minutes and hours, else its own."""
    return sequence.timezone if sequence.frequency.is_calendar else _UTC


def resolve_instance(scene: Scene, kind: Kind, name: str, text: str) -> datetime:
    """The nominal time that a text means for a feed or process.

    Raises:
        EntityNotFoundError: nothing of that name is declared.
        DateTimeError: the text is no time.
    """
    kind = kind if parse_flow(name) is None else Kind.PROCESS
    cluster = scene.clusters_of(kind, name)[0]
    return parse_instance(text, zone_of_keys(scene.sequence(kind, name, cluster)))
