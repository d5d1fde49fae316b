"""Rules about what neighbouring instances of a process share: a window counts both its ends, clocks change, and one
instance has one writer; and about windows that end after the deadlines of the process.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, pairwise

from feed_assets.entities.process import OnTimeout, Process
from feed_assets.issues import Severity
from feed_assets.timing.dates import offset_changes, parse_timezone, render_datetime
from feed_assets.timing.errors import InstanceError
from feed_assets.timing.expressions import Truncation
from feed_assets.timing.sequence import Frequency, Unit
from feed_assets.validation.scope import Complaint, Scope, Use

_SAMPLE = range(25)
"""The instances that are looked at: a day of hours."""
_CHANGES = 2
"""Clock changes that are looked at: one in each direction."""
_CALL = re.compile(r"(\w+)\((.*?)([+-]?\d+)\s*\)")  # tomorrow(0,0)
_NEXT = {"today": "tomorrow", **{f"last{unit}": f"current{unit}" for unit in ("Week", "Month", "Year")}}
_NEXT |= {"yesterday": "today", "currentMonth": "nextMonth"}


def _iter_windows(scope: Scope, process: Process) -> Iterator[Use]:
    """Yield the inputs with a window that is counted in time, on the first cluster that has the feed, which is taken as
    endless. A batch has no neighbour that is known.
    """
    firsts: dict[tuple[str, str], Use] = {}
    for use in scope.iter_uses(process, "inputs") if not process.makes_batches else ():
        firsts.setdefault(use.path, use)
    for use in firsts.values():
        if use.feed.is_expected and not use.feed.is_current:
            yield use._replace(sequence=use.sequence.endless)


def _indices(use: Use, nominal_time: datetime) -> range:
    """Return the numbers of what is read or written; none outside of the calendar, which another rule refuses."""
    try:
        return use.window.indices(nominal_time, use.sequence)
    except InstanceError:
        return range(0)


def check_ends(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A window has both its ends, so one that ends where the next one begins reads an instance a second time.

    Windows that slide by one instance, and those that begin before a boundary, share what they read on purpose.
    """
    for use in _iter_windows(scope, process):
        start, times = use.window.start, [use.own.at(number) for number in use.own.clip(_SAMPLE)[:4]]
        is_begun_before = start.truncation is not Truncation.NONE and start.elapsed < timedelta(0)
        read = [_indices(use, time) for time in times]
        if len(times) < 3 or (is_begun_before and start.elapsed % timedelta(days=1)):
            continue
        if all(len(one) > 2 and other.start == one.stop - 1 for one, other in pairwise(read)):
            yield Complaint(
                path=(*use.path, "end"),
                message=f"{use.where} reads {len(read[0])} instances of feed {use.feed.name!r} for "
                f"{render_datetime(times[0])}, both ends included: the last one, "
                f"{render_datetime(use.sequence.at(read[1].start))}, is also the first one for "
                f"{render_datetime(times[1])}",
                remedy=_end_remedy(use.window.end.text, use.feed.frequency),
                severity=Severity.WARNING,
            )


def check_clock_changes(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Windows that meet on most days must meet where clocks change: a day of a zone has 23, 24 or 25 hours."""
    changes = offset_changes(parse_timezone(process.timezone))
    for use in _iter_windows(scope, process) if changes else ():
        window, feed, own = use.window, use.feed, use.own
        usual = [seam for seam in _iter_seams(use, 0) if not seam[2]]
        if feed.frequency.is_calendar or not usual:
            continue
        coming = islice((own.index_at_or_before(each.at) for each in changes if each.at > own.start), _CHANGES)
        seams = [seam for near in coming for seam in _iter_seams(use, near)]
        lost = next((seam for seam in seams if seam[2] > 0), None)
        shared = next((seam for seam in seams if seam[2] < 0), None)
        facts = [
            f"that of {render_datetime(found[0])} {verb} {abs(found[2])} of {whose}, {render_datetime(found[1])}"
            for found, verb, whose in ((lost, "leaves out", f"feed {feed.name!r}"), (shared, "reads", "the next one's"))
            if found is not None
        ]
        if facts:
            begins = _CALL.fullmatch(window.start.text)
            following = f"{_NEXT[begins[1]]}({begins[2]}{begins[3]})" if begins and begins[1] in _NEXT else ""
            yield Complaint(
                path=(*use.path, "end"),
                message=f"{use.where}: where the clocks of {process.timezone} change, neighbouring windows from "
                f"{window.start} to {window.end} do not meet: {', and '.join(facts)}",
                remedy=_end_remedy(following, feed.frequency),
                severity=Severity.WARNING,
            )


def _iter_seams(use: Use, near: int) -> Iterator[tuple[datetime, datetime, int]]:
    """Yield, for neighbours near an instance, the nominal time of the first one, the first feed instance that is left
    out or shared, and how many are left out; below 0 are those that are shared.
    """
    for one, other in pairwise(use.own.clip(range(near - 2, near + 3))):
        before, after = (_indices(use, use.own.at(number)) for number in (one, other))
        if before and after:
            yield use.own.at(one), use.sequence.at(min(before.stop, after.start)), after.start - before.stop


def _end_remedy(begins: str, frequency: Frequency) -> str:
    """Say where to end a window whose successor begins there.

    >>> _end_remedy("tomorrow(0,0)", Frequency(unit=Unit.HOURS, count=1))
    'End it one instance before the next one begins: end: tomorrow(0,-60).'
    """
    found = _CALL.fullmatch(begins)
    if found is None or frequency.unit is Unit.MONTHS:
        return "End it one instance before the next one begins."
    minutes = int(found[3]) - frequency.as_duration() // timedelta(minutes=1)
    return f"End it one instance before the next one begins: end: {found[1]}({found[2]}{minutes})."


def check_written_once(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Each instance of a feed has one writer, also among the instances of one process."""
    told: set[tuple[str, str]] = set()
    for use in scope.iter_uses(process, "outputs") if not process.makes_batches else ():
        if use.path in told or not use.feed.is_expected or use.feed.is_current:
            continue
        own, sequence = use.own, use.sequence
        written = [_indices(use, own.at(number)) for number in own.clip(_SAMPLE)[:3]]
        twice = next((one for one, other in pairwise(written) if one and one == other), None)
        if twice is not None:
            told.add(use.path)
            writers = use.window.consumers(twice.start, sequence, own)
            times = " and ".join(render_datetime(own.at(number)) for number in writers[:2])
            yield Complaint(
                path=(*use.path, "instance"),
                message=f"{use.where} writes {render_datetime(sequence.at(twice.start))} of feed "
                f"{use.feed.name!r} on {use.cluster} {len(writers)} times, for {times}"
                f"{' and so on' if len(writers) > 2 else ''}: each replaces what the one before has written",
                remedy=f"Write frequency: {use.feed.frequency} at the process, or give the feed that of the process, "
                f"{process.frequency}.",
            )


def check_deadlines(scope: Scope, process: Process) -> Iterator[Complaint]:
    """An instance must not be late, or given up, before the last instance that it reads can be there."""
    limits = {(*path, "should_end_in"): sla.should_end_in for path, sla in process.slas() if sla.should_end_in}
    if process.on_timeout is not OnTimeout.RUN:
        limits["timeout",] = process.effective_timeout()
    for use in _iter_windows(scope, process):
        window, item = use.window, process.inputs[use.path[1]]
        if all(window.end.bounds(use.own.timezone)[1] <= limit.as_duration() for limit in limits.values()):
            continue  # without a look at instances
        times = [use.own.at(number) for number in use.own.clip(_SAMPLE)]
        read = [(time, use.sequence.at(found.stop - 1)) for time in times if (found := _indices(use, time))]
        if not read or item.optional or item.at_least is not None:
            continue
        time, last = max(read, key=lambda pair: pair[1] - pair[0])
        hours, rest = divmod(last - time, timedelta(hours=1))
        wait = f"minutes({(last - time) // timedelta(minutes=1)})" if rest else f"hours({hours})"
        for path in [path for path, limit in limits.items() if last - time > limit.as_duration()]:
            is_timeout, is_default = path == ("timeout",), path == ("timeout",) and process.timeout is None
            yield Complaint(
                path=path,
                message=f"{'.'.join(path)} is {limits.pop(path)}{' by default' * is_default}, but "
                f"{use.where} of {render_datetime(time)} ends with {render_datetime(last)} of feed {use.feed.name!r}, "
                f"{wait} later: it is {'given up' if is_timeout else 'late'} before that can be there",
                remedy=f"Write more than {wait}, or end the window earlier.",
                severity=Severity.WARNING if is_default else Severity.ERROR,
            )
