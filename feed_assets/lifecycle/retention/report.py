"""What an eviction says in Falcon's words: the file with the evicted paths, and the line with their times."""

from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

_PATHS = "instancePaths="
_TIMES = "instances="
_NOTHING = "NULL"
_SEPARATOR = ","
_STANDS_FOR_SEPARATOR = ";"


def render_evicted_paths(paths: Iterable[str]) -> str:
    """The content of Falcon's `evicted-instancePaths.csv`; a comma in a path is written as a semicolon.

    >>> render_evicted_paths(["/clicks/2013/11/01", "clicks/ds=1,region=eu"])
    'instancePaths=/clicks/2013/11/01,clicks/ds=1;region=eu'
    """
    return _PATHS + _SEPARATOR.join(path.replace(_SEPARATOR, _STANDS_FOR_SEPARATOR) for path in paths)


def parse_evicted_paths(text: str) -> list[str]:
    """The paths in the content of such a file, also of Falcon's own, which ends with a comma.

    >>> parse_evicted_paths("instancePaths=/clicks/2013/11/01,")
    ['/clicks/2013/11/01']
    """
    return [path for path in text.strip().removeprefix(_PATHS).split(_SEPARATOR) if path]


def render_evicted_times(times: Iterable[datetime], zone: ZoneInfo) -> str:
    """The line that Falcon prints: nominal times as `yyyyMMddHHmm` in the time zone of the feed.

    >>> render_evicted_times([], ZoneInfo("UTC"))
    'instances=NULL'
    """
    walls = (time.astimezone(zone) for time in times)
    written = [f"{wall.year:04d}{wall.month:02d}{wall.day:02d}{wall.hour:02d}{wall.minute:02d}" for wall in walls]
    return _TIMES + (_SEPARATOR.join(written) or _NOTHING)
