"""Which paths of a location are paths of instances, and of which: exactly, and fast for a million names.

All paths of a template are equally long, so a path is cut at a fixed place into its date and its time of day. Dates are
looked at once each; one on which nothing is special (no clock change near, every instance at the same place of its
period) answers for all its times by a table. Everything else goes through the template, path by path.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
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
    """The template of the paths as a store lists them: relative to its root, no slash doubled or at an end.

    >>> plain_template(parse_path_template("/clicks//${YEAR}/")).text
    'clicks/${YEAR}'
    """
    return parse_path_template("/".join(part for part in template.text.split("/") if part))


def find_nominal_time(template: PathTemplate, path: str, sequence: InstanceSequence) -> datetime | None:
    """The nominal time that the age of a path is counted from; None if it is not exactly a path of the template.

    Of the instances of the sequence that have exactly this path it is the last: a path that several share is as old as
    the youngest of them. Where there is none (outside of the validity, or of another grid) it is the time that the path
    names. Differs from Falcon: it is always the start of the period that the path names.
    """
    named = template.parse(path, sequence.timezone)
    if named is None:
        return None
    try:
        return _find_last(template, path, sequence, named) or named
    except (InstanceError, OverflowError, ValueError):
        return named


def _find_last(template: PathTemplate, path: str, sequence: InstanceSequence, named: datetime) -> datetime | None:
    """The last instance with this path; they all lie in the period that `named` begins, or in its first reading."""
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
    """The paths of one template, and the nominal times of those that are of instances before a moment.

    Differs from Falcon: it globs each variable as `*`, and lets a date parser roll over what does not exist.

    >>> from feed_assets.timing.dates import parse_datetime
    >>> from feed_assets.timing.frequency import parse_frequency
    >>> start, before = parse_datetime("2015-01-01T00:00Z"), parse_datetime("2015-01-03T00:00Z")
    >>> daily = InstanceSequence(start=start, frequency=parse_frequency("days(1)"), timezone=_UTC)
    >>> matcher = PathMatcher(parse_path_template("/d/${YEAR}-${MONTH}-${DAY}"), daily, before)
    >>> matcher.choose("", ["2015-01-01", "2015-01-01_backup", "2015-1-02", "2015-01-03", "2014-02-31"])
    ['2015-01-01']
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

    def choose(self, folder: str, names: Sequence[str]) -> list[str]:
        """Of the names in a folder (relative to `base`; "" is the base) those that lead to, or are, wanted paths."""
        level = folder.count("/") + 1 if folder else 0
        above = f"{self._above}{folder}/" if folder else self._above
        if level < self.depth - 1:
            prefix = self._levels[level]
            return [name for name in names if self._leads_on(prefix, above + name)]
        cut = self._calendar.cut
        if cut == 0:
            return [name for name in names if self._is_wanted(above + name)]
        if cut <= len(above):
            return self._choose_times(above, names)
        return self._choose_dates(above, names, cut - len(above))

    def find_time(self, path: str) -> datetime | None:
        """The nominal time of a path, relative to the root of the store; None if it is no path of the template."""
        return find_nominal_time(self._template, path, self._sequence)

    def find_times(self, above: str, names: Sequence[str]) -> tuple[Sequence[str], Sequence[datetime]]:
        """The wanted paths of some names in a folder ("", or with a slash at its end), and their nominal times."""
        cut, days, times = self._calendar.cut, self._calendar.days, self._calendar.times
        paths = [above + name for name in names]
        try:
            if cut <= len(above):
                day, below = days[above[:cut]], self._times_below(above[cut:])
                moments = [day + below[name] for name in names]
            else:
                moments = [days[path[:cut]] + times[path[cut:]] for path in paths]
        except KeyError:  # the tables don't tell of all
            return self._find_times(paths)
        if self._before is None or max(moments, default=_EVER) < self._before:
            return paths, moments
        return self._find_times(paths)

    def _find_times(self, paths: Sequence[str]) -> tuple[Sequence[str], Sequence[datetime]]:
        """The same, path by path."""
        cut, days, times, before = self._calendar.cut, self._calendar.days, self._calendar.times, self._before
        wanted, moments = [], []
        for path in paths:
            day, time = days.get(path[:cut]), times.get(path[cut:])
            moment = self.find_time(path) if day is None or time is None else day + time
            if moment is not None and (before is None or moment < before):
                wanted.append(path)
                moments.append(moment)
        return wanted, moments

    def _leads_on(self, prefix: PathTemplate, path: str) -> bool:
        """Whether a folder is one of the template, and can hold something from before the moment."""
        if TimeVariable.YEAR not in prefix.variables:
            return prefix.matches(path)
        if prefix is self._date_level:
            if not self._calendar.is_date(path):
                return False
            day = self._calendar.days.get(path)
            if day is not None:
                return self._before is None or day < self._before
        earliest = prefix.parse(path, _UTC)
        return earliest is not None and (self._until is None or earliest < self._until)

    def _is_wanted(self, path: str) -> bool:
        moment = self.find_time(path)
        return moment is not None and (self._before is None or moment < self._before)

    def _choose_times(self, above: str, names: Sequence[str]) -> list[str]:
        """The date stands in the folder, only a time, or nothing more, in the names."""
        cut = self._calendar.cut
        if not self._calendar.is_date(above[:cut]):
            return []
        times = self._times_below(above[cut:])
        day = self._calendar.days.get(above[:cut])
        if day is None:
            return [name for name in names if name in times and self._is_wanted(above + name)]
        if self._before is None or day + _DAY <= self._before:
            return [name for name in names if name in times]
        left = self._before - day
        return [name for name in names if name in times and times[name] < left]

    def _choose_dates(self, above: str, names: Sequence[str], cut: int) -> list[str]:
        """The date ends in the names, at `cut`."""
        whole: set[str] = set()
        partly: dict[str, timedelta] = {}
        odd: set[str] = set()
        for date in {name[:cut] for name in names}:
            if self._calendar.is_date(above + date):
                day = self._calendar.days.get(above + date)
                if day is None:
                    odd.add(date)
                elif self._before is None or day + _DAY <= self._before:
                    whole.add(date)
                elif day < self._before:
                    partly[date] = self._before - day
        times = self._calendar.times
        chosen = [name for name in names if name[:cut] in whole and name[cut:] in times]
        others = partly.keys() | odd
        if others:
            for name in [name for name in names if name[:cut] in others and name[cut:] in times]:
                date = name[:cut]
                if times[name[cut:]] < partly[date] if date in partly else self._is_wanted(above + name):
                    chosen.append(name)
        return chosen

    def _times_below(self, above: str) -> Mapping[str, timedelta]:
        """The times of day whose text begins with `above`, by the rest of their text."""
        if above not in self._names:
            times = self._calendar.times.items()
            self._names[above] = {text[len(above) :]: time for text, time in times if text.startswith(above)}
        return self._names[above]


class _Calendar:
    """The dates and times of day of a template's paths.

    `date` is the template of a path up to its date, `cut` where it ends; 0 where it cannot be cut so. `times` has all
    texts that can follow. Of the dates that were asked for `days` has those for which the table answers, with the
    nominal time that it counts from; `odd` has those of which each path must be looked at by itself.
    """

    def __init__(self, template: PathTemplate, sequence: InstanceSequence) -> None:
        self._sequence = sequence
        self._changes = [change.at for change in offset_changes(sequence.timezone)]
        self._months: dict[tuple[int, int], timedelta | None] = {}
        self.days: dict[str, datetime] = {}
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

    def is_date(self, text: str) -> bool:
        """Whether the text, up to `cut`, is of a date that exists; if so, it is in `days` or `odd` then."""
        if text in self.days or text in self.odd:
            return True
        wall = self.date.parse_wall(text)
        if wall is None:
            return False
        start = self._find_start(wall)
        if start is None:
            self.odd.add(text)
        else:
            self.days[text] = start
        return True

    def _find_start(self, wall: datetime) -> datetime | None:
        """The nominal time of midnight's path, if all others of the date follow it as the clock does."""
        moment, sequence = wall.replace(tzinfo=UTC), self._sequence
        offset = self._find_offset(moment) if self._is_even else None
        if offset is None:
            return None
        start = moment - offset
        phase = (sequence.start - start) % self._period
        if phase == _NO_TIME:
            return start
        is_inside = sequence.start <= start and (sequence.end is None or start + _DAY <= sequence.end)
        return start + phase if is_inside and self._step == self._period else None

    def _find_offset(self, date: datetime) -> timedelta | None:
        """The offset from UTC all around a date, mostly that of its month; None if it is not known to be one."""
        month = (date.year, date.month)
        if month not in self._months:
            first = date.replace(day=1)
            self._months[month] = self._offset_within(first, first + _LAST_OF_MONTH)
        offset = self._months[month]
        return self._offset_within(date, date) if offset is None else offset

    def _offset_within(self, first: datetime, last: datetime) -> timedelta | None:
        """The one offset from `first` to `last` and near them; None if the clocks change, or may."""
        known_from, known_until = _CHANGES_KNOWN
        if not known_from <= first <= last < known_until:
            return None
        if bisect_left(self._changes, first - _NEAR) != bisect_left(self._changes, last + _NEAR):
            return None
        return first.astimezone(self._sequence.timezone).utcoffset()


def _later_wall(before: datetime) -> datetime:
    """A wall-clock time, as if of UTC, that in every zone is later than `before`."""
    try:
        return before + _DAY
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _iter_levels(template: PathTemplate) -> Iterator[PathTemplate]:
    """The beginnings of the paths, one folder longer each, from the first that has a variable to the whole."""
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
