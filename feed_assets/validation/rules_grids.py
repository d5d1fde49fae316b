"""Rules about days that mean different hours: the days of a feed and those of a process that reads or writes it."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.issues import FieldPath, Severity
from feed_assets.timing.dates import parse_timezone, render_datetime
from feed_assets.timing.errors import InstanceError
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.windows import Window
from feed_assets.validation.scope import Complaint, Scope

_HALF_A_YEAR = timedelta(days=183)
"""Zones that agree in one half of the year may differ in the other."""
_MOST = timedelta(hours=47)


def check_days(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A day or month that a process reads or writes must not be one of another time zone.

    Windows are floored to instances, so nothing refuses such a pair: it reads or writes a neighbour.
    """
    zone = process.timezone
    used: list[tuple[FieldPath, str, Window | None]] = [
        (("inputs", name, "start"), item.feed, scope.find_window(process, name))
        for name, item in process.inputs.items()
    ]
    used += [
        (("outputs", name, "instance"), item.feed, scope.find_output(process, name))
        for name, item in process.outputs.items()
    ]
    for path, name, window in used:
        for cluster in process.clusters:
            feed = scope.find_feed_on(name, cluster)
            if feed is None or window is None or feed.timezone == zone or not feed.frequency.is_calendar:
                continue
            sequence, own = scope.sequence_on(feed, cluster), scope.sequence_on(process, cluster)
            found = _first_difference(window, sequence, own)
            if found is not None:
                at_feed = f"Write timezone: {feed.timezone} at the process, or timezone: {zone} at the feed"
                more = ", or read a feed of hours, whose instances are the same in all zones"
                yield Complaint(
                    path=path,
                    message=f"{'.'.join(map(str, path))}: {_explain(path, process, feed, window, sequence, *found)}",
                    remedy=f"{at_feed}{more if path[0] == 'inputs' else ''}.",
                    severity=Severity.WARNING,
                )
                break


def _first_difference(
    window: Window, feed: InstanceSequence, process: InstanceSequence
) -> tuple[datetime, datetime] | None:
    """Return the nominal time of a process instance and the time at which its window begins, if the feed means another
    day: that time is no instance, but the same clock time in the feed's zone is one, or it is one in the other half of
    the year.
    """
    zone = window.zone or feed.timezone
    begun: dict[datetime, datetime] = {}
    for since in (process.start, process.start + _HALF_A_YEAR):
        nominal_time = process.ceil(since)
        if nominal_time is not None:
            try:
                begun[nominal_time] = window.start.evaluate(nominal_time, zone)
            except InstanceError:
                return None
    apart = {at: start for at, start in begun.items() if not _has(feed, start)}
    is_drifting = len(apart) < len(begun)
    return next(
        (
            (at, start)
            for at, start in apart.items()
            if is_drifting or _has(feed, start.astimezone(zone).replace(tzinfo=feed.timezone))
        ),
        None,
    )


def _has(feed: InstanceSequence, moment: datetime) -> bool:
    return feed.at(feed.index_at_or_before(moment)) == moment


def _explain(
    path: FieldPath,
    process: Process,
    feed: Feed,
    window: Window,
    sequence: InstanceSequence,
    nominal_time: datetime,
    begun: datetime,
) -> str:
    """Return which hours are meant, and which are read or written."""
    zone = parse_timezone(process.timezone)
    ends = (window.start, window.end)
    first, last = (sequence.index_at_or_before(each.evaluate(nominal_time, zone)) for each in ends)
    start, stop = sequence.at(first), sequence.at(last + 1)
    unit, hours = feed.frequency.unit.value.removesuffix("s"), _hours(begun - start)
    what = f"the {unit} of {process.timezone} that begins at {render_datetime(begun)}"
    other = f"the {unit} of feed {feed.name!r} in {feed.timezone}"
    covers = f"from {render_datetime(start)} to {render_datetime(stop)}"
    if path[0] == "outputs":
        return f"{what} is written as {other}, {covers}: {hours} too early"
    return (
        f"for {what} it reads {other}, {covers}: the first {hours} of that are before it, and its own last {hours}, "
        f"from {render_datetime(stop)} on, fall out"
    )


def _hours(duration: timedelta) -> str:
    if duration > _MOST:
        return f"{duration / timedelta(days=1):.3g} days"
    hours = duration / timedelta(hours=1)
    return f"{hours:g} hour{'' if hours == 1 else 's'}"
