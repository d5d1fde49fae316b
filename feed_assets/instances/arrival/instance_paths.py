"""Match the paths of a location to instances, exactly, without entering folders that are too new or too old."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from feed_assets.timing.dates import resolve_wall
from feed_assets.timing.errors import InstanceError
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.templates import LONGEST, PathTemplate, TimeVariable, parse_path_template

_UTC = ZoneInfo("UTC")
_DAY = timedelta(days=1)
_NO_TIME = timedelta(0)


def plain_template(template: PathTemplate) -> PathTemplate:
    """Return the template of paths as a store lists them: relative to its root, without doubled or trailing slashes.

    >>> plain_template(parse_path_template("/clicks//${YEAR}/")).text
    'clicks/${YEAR}'
    """
    return parse_path_template("/".join(part for part in template.text.split("/") if part)).in_zone(template.zone)


def find_nominal_time(template: PathTemplate, path: str, sequence: InstanceSequence) -> datetime | None:
    """Return the nominal time from which the age of a path counts; None unless the path matches the template exactly.

    This is the last instance of the sequence with this path: a path that several instances share is as old as the
    youngest. If there is none (outside of the validity, or of another grid), it is the time that the path names.
    Differs from Falcon: Falcon always takes the start of the period that the path names.
    """
    named = template.parse(path)
    if named is None:
        return None
    try:
        return _find_last(template, path, sequence, named) or named
    except (InstanceError, OverflowError, ValueError):
        return named


def _find_last(template: PathTemplate, path: str, sequence: InstanceSequence, named: datetime) -> datetime | None:
    """Return the last instance with this path, in the period that begins at `named` (its first reading)."""
    zone, granularity = template.zone, template.granularity or TimeVariable.SECOND
    wall = named.astimezone(zone).replace(fold=0)
    end = resolve_wall(wall.replace(tzinfo=None) + LONGEST[granularity], zone)
    last = sequence.index_at_or_before(end)
    for index in range(last if sequence.size is None else min(last, sequence.size - 1), -1, -1):
        moment = sequence.at(index)
        if moment < min(named, wall.astimezone(UTC)):
            return None
        if template.render(moment) == path:
            return moment
    return None


class PathMatcher:
    """Matches the paths of one template and finds their nominal times before a moment, and since another.

    Differs from Falcon: Falcon globs each variable as `*`, and its date parser rolls over nonexistent dates.

    >>> from feed_assets.timing.dates import parse_datetime
    >>> from feed_assets.timing.sequence import parse_frequency
    >>> start, before = parse_datetime("2015-01-01T00:00Z"), parse_datetime("2015-01-03T00:00Z")
    >>> daily = InstanceSequence(start=start, frequency=parse_frequency("days(1)"), timezone=_UTC)
    >>> matcher = PathMatcher(parse_path_template("/d/${YEAR}-${MONTH}-${DAY}"), daily, before)
    >>> matcher.find_times("d/", ["2015-01-01", "2015-01-01_backup", "2015-1-02", "2015-01-03", "2014-02-31"])[0]
    ['d/2015-01-01']
    """

    def __init__(
        self,
        template: PathTemplate,
        sequence: InstanceSequence,
        before: datetime | None,
        since: datetime | None = None,
    ) -> None:
        self._template = plain_template(template)
        self._sequence = sequence
        self._before = before
        self._since = since
        self._until = None if before is None else _wall_beyond(before, _DAY)
        self._from = None if since is None else _wall_beyond(since, -_DAY)
        self._levels = tuple(_iter_levels(self._template))
        self.base = self._template.base
        self._above = f"{self.base}/" if self.base else ""
        self.depth = len(self._levels)

    def choose(self, folder: str, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the folders to enter in a folder; at the last level, all names.

        The folder is relative to `base`; "" is the base.
        """
        level = folder.count("/") + 1 if folder else 0
        if level == self.depth - 1:
            return names
        prefix, above = self._levels[level], f"{self._above}{folder}/" if folder else self._above
        return [name for name in names if self._can_match_below(prefix, above + name)]

    def find_times(self, above: str, names: Sequence[str]) -> tuple[list[str], list[datetime]]:
        """Return the matching paths in a folder ("", or with a trailing slash), and their nominal times."""
        paths, moments = [], []
        for name in names:
            moment = find_nominal_time(self._template, above + name, self._sequence)
            if moment is not None and self._is_between(moment):
                paths.append(above + name)
                moments.append(moment)
        return paths, moments

    def find_instances(self, above: str, names: Sequence[str]) -> Iterator[datetime]:
        """Yield the instances of the sequence that have a path in a folder ("", or with a trailing slash)."""
        for name in names:
            moment = self._template.find_instance(above + name, self._sequence)
            if moment is not None and self._is_between(moment):
                yield moment

    def _is_between(self, moment: datetime) -> bool:
        return (self._before is None or moment < self._before) and (self._since is None or moment >= self._since)

    def _can_match_below(self, prefix: PathTemplate, path: str) -> bool:
        """Return whether a folder matches the template and can hold a path between the moments."""
        if prefix.granularity is None:
            return prefix.matches(path)
        earliest = prefix.parse(path)
        if earliest is None or (self._until is not None and earliest >= self._until):
            return False
        return self._from is None or _wall_beyond(earliest, LONGEST[prefix.granularity]) > self._from


def _wall_beyond(moment: datetime, span: timedelta) -> datetime:
    """Return a wall-clock time, as if in UTC, that is a span away; a day away it is so in every time zone."""
    try:
        return moment + span
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC) if span > _NO_TIME else datetime.min.replace(tzinfo=UTC)


def _iter_levels(template: PathTemplate) -> Iterator[PathTemplate]:
    """Yield the templates of the folder levels, from the first with a variable to the whole path, as if in UTC."""
    parts = template.text.split("/")
    above = template.base.count("/") + 1 if template.base else 0
    for depth in range(above, len(parts)):
        yield parse_path_template("/".join(parts[: depth + 1]))
