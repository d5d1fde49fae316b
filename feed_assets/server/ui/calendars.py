"""The page with the calendar of a feed or process: squares of days or hours that lead to their instances."""

from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from itertools import groupby
from zoneinfo import ZoneInfo

from feed_assets.entities.common import Kind
from feed_assets.instances.lists.calendars import Calendar, CalendarCell
from feed_assets.instances.lists.ranges import UNSCHEDULED
from feed_assets.server.ui.addresses import address_of, instance_address, question_address
from feed_assets.server.ui.records import Asked, View
from feed_assets.timing.dates import render_datetime

_SIGNS = {"FAILED": "F", "TIMEDOUT": "T", "KILLED": "K", "MISSING": "M", "PARTIAL": "P", "EMPTY": "E", "SUSPENDED": "U"}
_SIGNS |= {"WAITING": "W", "READY": "Y", "RUNNING": "R", UNSCHEDULED: "·", "EVICTED": "X", "SKIPPED": "O"}
_SIGNS |= {"AVAILABLE": "A", "SUCCEEDED": "S"}
"""The sign of each state, the worst first."""
_MARKS = {"late": "!", "made again": "↻", "with bad rows": "≠"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """A cell as it is drawn: in a column, with its worst state, signs beside the colour, and all of it in words."""

    name: str
    column: int
    state: str
    sign: str
    words: str
    href: str


def show_calendar(asked: Asked) -> View:
    """Show a year by day, or a day by hour, of each cluster."""
    given = {name: asked.one(name) for name in ("kind", "name", "year", "day")}
    found: Calendar = asked.ask("instance calendar", **given)
    find_group = partial(_find_group, found)
    cells = sorted(found.cells, key=find_group)
    groups = [(key, [_draw(found, each) for each in group]) for key, group in groupby(cells, find_group)]
    totals = sum((Counter(cell.counts) + Counter(cell.marks) for cell in cells), Counter[str]())
    legend = [(sign, name, totals[name]) for name, sign in (_SIGNS | _MARKS).items() if totals[name]]
    at = found.day or str(found.year)
    zone = ZoneInfo(found.timezone)
    first, last = (each.astimezone(zone).isoformat()[: len(at)] for each in (found.since, found.until))
    around = [each for each in _around(found) if first <= each <= last]
    parts = {"found": found, "at": at, "groups": groups, "legend": legend, "around": around}
    return View(template="calendar.html", title=f"{found.name} {at}", parts=parts)


def _find_group(found: Calendar, cell: CalendarCell) -> tuple[str, bool, str]:
    return found.day or cell.label[:7], cell.source_cluster is not None, cell.cluster


def _around(found: Calendar) -> list[str]:
    if found.day is None:
        return [f"{found.year + n:04}" for n in (-1, 1)]
    return [(date.fromisoformat(found.day) + timedelta(days=n)).isoformat() for n in (-1, 1)]


def _draw(found: Calendar, cell: CalendarCell) -> Square:
    state = next(each for each in _SIGNS if each in cell.counts)
    number, *more = [f"{count:,} {name.lower()}" for name, count in cell.counts.items()]
    words = ", ".join([number.replace(" ", f" of {cell.expected:,} ", 1), *more])
    marks = ", ".join(f"{count:,} {name}" for name, count in cell.marks.items())
    return Square(
        name=cell.label if found.day else cell.label[-2:],
        column=0 if found.day else date.fromisoformat(cell.label).isoweekday(),
        state=state,
        sign=_SIGNS[state] + (f"{cell.counts[state]}" if more else "") + "".join(_MARKS[each] for each in cell.marks),
        words=f"{cell.label}: {words}" + (f"; {marks}" if marks else ""),
        href="" if {*cell.counts} == {UNSCHEDULED} else _address_of(found, cell),
    )


def _address_of(found: Calendar, cell: CalendarCell) -> str:
    if cell.instance is not None:
        return instance_address(found.kind, found.name, cell.instance)
    if found.day is None:
        return address_of(found.kind, found.name, "calendar", day=cell.label)
    span = {"start": render_datetime(cell.start), "end": render_datetime(cell.start + timedelta(hours=1))}
    if found.kind is Kind.FEED:
        return question_address("instance listing", feed=found.name, **span)
    return question_address("instance list", kind=found.kind, name=found.name, **span)
