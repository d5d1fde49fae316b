"""Match the paths of a location to instances: exactly, and fast for a million names.

All paths of a template have the same length, so a path is cut at a fixed position into date and time of day. Each date
is examined once. A regular date (no clock change nearby, all instances at the same offset in their period) resolves all
its times by a table. All other paths go through the template one by one.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import compress
from types import MappingProxyType
from zoneinfo import ZoneInfo

from feed_assets.timing.errors import InstanceError
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.template_syntax import Piece, TimeVariable, text_of
from feed_assets.timing.templates import PathTemplate, parse_path_template
from feed_assets.timing.zones import offset_changes, resolve_wall

_DATES = (TimeVariable.YEAR, TimeVariable.MONTH, TimeVariable.DAY)
_UTC = ZoneInfo("UTC")
_EVER = datetime.min.replace(tzinfo=UTC)
_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
_NO_TIME = timedelta(0)
_LONGEST = MappingProxyType(
    {
        TimeVariable.YEAR: timedelta(days=366),
        TimeVariable.MONTH: timedelta(days=31),
        TimeVariable.DAY: _DAY,
        TimeVariable.HOUR: _HOUR,
        TimeVariable.MINUTE: _MINUTE,
    }
)
_LAST_OF_MONTH = timedelta(days=30)
_NEAR = timedelta(days=2)
_CHANGES_KNOWN = (datetime(1901, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))
_SAMPLE = datetime(2000, 1, 1, tzinfo=UTC)


def plain_template(template: PathTemplate) -> PathTemplate:
    """Return the template of paths as a store lists them: relative to its root, without doubled or trailing slashes.

    >>> plain_template(parse_path_template("/clicks//${YEAR}/")).text
    'clicks/${YEAR}'
    """
    return parse_path_template("/".join(part for part in template.text.split("/") if part))


def find_nominal_time(template: PathTemplate, path: str, sequence: InstanceSequence) -> datetime | None:
    """Return the nominal time from which the age of a path counts; None if the path does not match the template
    exactly.

    This is the last instance of the sequence with this path: a path that several instances share is as old as the
    youngest. If there is none (outside of the validity, or of another grid), it is the time that the path names.
    Differs from Falcon: Falcon always takes the start of the period that the path names.
    """
    named = template.parse(path, sequence.timezone)
    if named is None:
        return None
    try:
        return _find_last(template, path, sequence, named) or named
    except (InstanceError, OverflowError, ValueError):
        return named


def _find_last(template: PathTemplate, path: str, sequence: InstanceSequence, named: datetime) -> datetime | None:
    """Return the last instance with this path, in the period that begins at `named` (its first reading)."""
    zone, granularity = sequence.timezone, template.granularity or TimeVariable.MINUTE
    wall = named.astimezone(zone).replace(fold=0)
    end = resolve_wall(wall.replace(tzinfo=None) + _LONGEST[granularity], zone)
    last = sequence.index_at_or_before(end)
    for index in range(last if sequence.size is None else min(last, sequence.size - 1), -1, -1):
        moment = sequence.at(index)
        if moment < min(named, wall.astimezone(UTC)):
            return None
        if template.render(moment, zone) == path:
            return moment
    return None


class PathMatcher:
    """Matches the paths of one template and finds their nominal times before a moment.

    Differs from Falcon: Falcon globs each variable as `*`, and its date parser rolls dates over that do not exist.

    >>> from feed_assets.timing.dates import parse_datetime
    >>> from feed_assets.timing.frequency import parse_frequency
    >>> start, before = parse_datetime("2015-01-01T00:00Z"), parse_datetime("2015-01-03T00:00Z")
    >>> daily = InstanceSequence(start=start, frequency=parse_frequency("days(1)"), timezone=_UTC)
    >>> matcher = PathMatcher(parse_path_template("/d/${YEAR}-${MONTH}-${DAY}"), daily, before)
    >>> matcher.find_times("d/", ["2015-01-01", "2015-01-01_backup", "2015-1-02", "2015-01-03", "2014-02-31"])[0]
    ['d/2015-01-01']
    """

    def __init__(self, template: PathTemplate, sequence: InstanceSequence, before: datetime | None) -> None:
        self._template = plain_template(template)
        self._sequence = sequence
        self._before = before
        self._until = None if before is None else _later_wall(before)
        self._levels = tuple(_iter_levels(self._template))
        self._calendar = _Calendar(self._template, sequence)
        self._date_level = next((level for level in self._levels if level == self._calendar.date), None)
        self._names: dict[str, Mapping[str, timedelta]] = {}
        self.base = self._template.base
        self._above = f"{self.base}/" if self.base else ""
        self.depth = len(self._levels)

    def choose(self, folder: str, names: Sequence[str]) -> Sequence[str]:
        """Return the names in a folder whose folders must be entered; in the last folder level all names.

        The folder is relative to `base`; "" is the base.
        """
        level = folder.count("/") + 1 if folder else 0
        if level == self.depth - 1:
            return names
        prefix, above = self._levels[level], f"{self._above}{folder}/" if folder else self._above
        return [name for name in names if self._can_match_below(prefix, above + name)]

    def find_time(self, path: str) -> datetime | None:
        """Return the nominal time of a path relative to the store's root; None if it does not match the template."""
        return find_nominal_time(self._template, path, self._sequence)

    def find_times(self, above: str, names: Sequence[str]) -> tuple[list[str], list[datetime]]:
        """Return the matching paths in a folder ("", or with a trailing slash), and their nominal times."""
        cut = self._calendar.cut
        moments: Sequence[datetime | None]
        if cut == 0:
            moments = [self.find_time(above + name) for name in names]
        elif cut <= len(above):
            moments = self._find_below(above, names)
        else:
            moments = self._find_dated(above, names, cut - len(above))
        before = self._before
        is_wanted = [moment is not None and (before is None or moment < before) for moment in moments]
        paths = [above + name for name in compress(names, is_wanted)]
        return paths, [moment for moment in compress(moments, is_wanted) if moment is not None]

    def _can_match_below(self, prefix: PathTemplate, path: str) -> bool:
        """Return whether a folder matches the template and can hold a path from before the moment."""
        if TimeVariable.YEAR not in prefix.variables:
            return prefix.matches(path)
        if prefix is self._date_level:
            day = self._calendar.start_of(path)
            if day is not None:
                return self._before is None or day < self._before
            if path not in self._calendar.odd:
                return False
        earliest = prefix.parse(path, _UTC)
        return earliest is not None and (self._until is None or earliest < self._until)

    def _find_below(self, above: str, names: Sequence[str]) -> Sequence[datetime | None]:
        """Match names in a folder that contains the whole date; the names hold a time or nothing more."""
        date, rest = above[: self._calendar.cut], above[self._calendar.cut :]
        times, day = self._times_below(rest), self._calendar.start_of(date)
        if day is not None:
            return [None if (time := times.get(name)) is None else day + time for name in names]
        is_odd = date in self._calendar.odd
        return [self.find_time(above + name) if is_odd and name in times else None for name in names]

    def _find_dated(self, above: str, names: Sequence[str], cut: int) -> Sequence[datetime | None]:
        """Match names in which the date ends, at `cut`."""
        times, days = self._calendar.times, _Days(lambda date: self._calendar.start_of(above + date))
        moments = [
            None if (day := days[name[:cut]]) is None or (time := times.get(name[cut:])) is None else day + time
            for name in names
        ]
        odd = {date for date in days if above + date in self._calendar.odd}
        if odd:
            for number, name in enumerate(names):
                if name[:cut] in odd and name[cut:] in times:
                    moments[number] = self.find_time(above + name)
        return moments

    def _times_below(self, above: str) -> Mapping[str, timedelta]:
        """Return the times of day whose text begins with `above`, by the rest of the text."""
        if above not in self._names:
            times = self._calendar.times.items()
            self._names[above] = {text[len(above) :]: time for text, time in times if text.startswith(above)}
        return self._names[above]


class _Days(dict[str, datetime | None]):
    """The results of `find` for dates, computed at the first lookup."""

    def __init__(self, find: Callable[[str], datetime | None]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, date: str) -> datetime | None:
        found = self[date] = self._find(date)
        return found


class _Calendar:
    """The dates and times of day in a template's paths.

    `date` is the template of a path up to its date, and `cut` its length; 0 if the path cannot be cut there. `times`
    has all texts that can follow the date. `odd` has those of the dates looked up so far whose paths must be matched
    one by one.
    """

    def __init__(self, template: PathTemplate, sequence: InstanceSequence) -> None:
        self._sequence = sequence
        self._changes = [change.at for change in offset_changes(sequence.timezone)]
        self._months: dict[tuple[int, int], datetime | None] = {}
        self._days = _Days(self._find_day)
        self.odd: set[str] = set()
        last = max((n for n, piece in enumerate(template.pieces) if piece in _DATES), default=0)
        date, time = template.pieces[: last + 1], template.pieces[last + 1 :]
        self.date = _template_of(date)
        is_cut = self.date.variables == _DATES and _template_of(time).variables in (
            (),
            (TimeVariable.HOUR,),
            (TimeVariable.HOUR, TimeVariable.MINUTE),
        )
        self.cut = len(self.date.render(_SAMPLE, _UTC)) if is_cut else 0
        self.times = _times_of(_template_of(time))
        self._period = _period_of(template)
        self._step = sequence.frequency.as_duration()
        self._is_even = sequence.is_elapsed and self._step % self._period == _NO_TIME

    def start_of(self, date: str) -> datetime | None:
        """Return the nominal time to which the offsets in `times` are added on a date; None if it is odd or invalid."""
        return self._days[date]

    def _find_day(self, date: str) -> datetime | None:
        wall = self.date.parse_wall(date)
        start = None if wall is None else self._find_start(wall)
        if wall is not None and start is None:
            self.odd.add(date)
        return start

    def _find_start(self, wall: datetime) -> datetime | None:
        """Return the nominal time of midnight's path, if all other paths of the date follow by the clock."""
        sequence, start = self._sequence, self._find_midnight(wall) if self._is_even else None
        if start is None:
            return None
        phase = (sequence.start - start) % self._period
        if phase == _NO_TIME:
            return start
        is_inside = sequence.start <= start and (sequence.end is None or start + _DAY <= sequence.end)
        return start + phase if is_inside and self._step == self._period else None

    def _find_midnight(self, wall: datetime) -> datetime | None:
        """Return when a date begins, counted from the first of its month if the offset is constant; None if it may
        change.
        """
        month = (wall.year, wall.month)
        if month not in self._months:
            first = wall.replace(day=1, tzinfo=UTC)
            self._months[month] = self._without_change(first, first + _LAST_OF_MONTH)
        first_day = self._months[month]
        if first_day is not None:
            return first_day + _DAY * (wall.day - 1)
        date = wall.replace(tzinfo=UTC)
        return self._without_change(date, date)

    def _without_change(self, first: datetime, last: datetime) -> datetime | None:
        """Return when `first` begins, both given as if in UTC; None if the offset may change between or near `first`
        and `last`.
        """
        known_from, known_until = _CHANGES_KNOWN
        if not known_from <= first <= last < known_until:
            return None
        if bisect_left(self._changes, first - _NEAR) != bisect_left(self._changes, last + _NEAR):
            return None
        return first.replace(tzinfo=self._sequence.timezone).astimezone(UTC)


def _later_wall(before: datetime) -> datetime:
    """Return a wall-clock time, as if in UTC, that is later than `before` in every time zone."""
    try:
        return before + _DAY
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _iter_levels(template: PathTemplate) -> Iterator[PathTemplate]:
    """Yield the templates of the folder levels, from the first with a variable to the whole path."""
    parts = template.text.split("/")
    above = template.base.count("/") + 1 if template.base else 0
    for depth in range(above, len(parts)):
        yield parse_path_template("/".join(parts[: depth + 1]))


def _template_of(pieces: Sequence[Piece]) -> PathTemplate:
    return PathTemplate(text="".join(map(text_of, pieces)), pieces=tuple(pieces))


def _times_of(template: PathTemplate) -> dict[str, timedelta]:
    step = {0: _DAY, 1: _HOUR, 2: _MINUTE}[len(template.variables)]
    moments = (_SAMPLE + step * n for n in range(_DAY // step))
    return {template.render(moment, _UTC): moment - _SAMPLE for moment in moments}


def _period_of(template: PathTemplate) -> timedelta:
    if TimeVariable.MINUTE in template.variables:
        return _MINUTE
    return _HOUR if TimeVariable.HOUR in template.variables else _DAY
