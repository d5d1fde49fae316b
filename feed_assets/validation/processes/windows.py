"""Rules about inputs and outputs of processes: expressions, windows, grids, triggers, and the validity of the feeds.

Differs from Falcon: days, weeks, months and years of an expression start in the time zone of the process.
"""

from collections.abc import Collection, Iterator
from datetime import MAXYEAR, UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import combinations, islice

from feed_assets.entities.common import Kind
from feed_assets.entities.conditions import condition_of, find_grids, find_named, holds_if
from feed_assets.entities.feed import ClusterRole
from feed_assets.entities.process import Process
from feed_assets.entities.triggers import GROUP_PREFIX, Trigger, iter_names
from feed_assets.errors import find_similar
from feed_assets.issues import FieldPath, Severity
from feed_assets.timing.dates import NEVER, render_datetime
from feed_assets.timing.errors import ExpressionError, InstanceError, WindowError
from feed_assets.timing.expressions import DataDriven, TimeExpression, parse_time_expression
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.windows import parse_window
from feed_assets.validation.feeds.retention import find_retention_period
from feed_assets.validation.scope import Complaint, Scope, Use, Writer, complain

_MOMENT = timedelta(microseconds=1)
_DAY = timedelta(days=1)
SAMPLE = 500
"""The number of instances that are compared to find two outputs that write the same one."""


def check_expressions(_: Scope, process: Process) -> Iterator[Complaint]:
    """Every expression must be valid, and each pair must form a window."""
    windows = ((name, item) for name, item in process.inputs.items() if not item.takes_new)
    for name, item in windows:
        faults = [*_faults(("inputs", name, "start"), item.start), *_faults(("inputs", name, "end"), item.end)]
        yield from faults
        if not faults:
            try:
                parse_window(item.start, item.end)
            except WindowError as exc:
                yield complain(("inputs", name), exc)
    for name, output in process.outputs.items():
        path = ("outputs", name, "instance")
        faults = _faults(path, output.instance)
        yield from faults
        if not faults and parse_time_expression(output.instance).is_data_driven:
            yield Complaint(
                path=path,
                message=f"outputs.{name}.instance {output.instance!r} depends on available data",
                remedy="Write a function of the nominal time, for example now(0,0).",
            )


def check_window_range(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P8: at the start of the process on each cluster, every window must lie inside the feed's validity."""
    for use in scope.iter_uses(process, "inputs"):
        start, end = _evaluated(use.window.start, use.own), _evaluated(use.window.end, use.own)
        if start is None or end is None:
            yield _out_of_calendar(use)
        else:
            yield from _range_complaints(use, end if use.feed.is_current else start, end)


def check_window_counts(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A window that never has as many instances as it must have lets no instance run before its time-out."""
    for use in scope.iter_uses(process, "inputs"):
        name, least, most = use.path[1], process.inputs[use.path[1]].at_least, 0
        for moment in _extreme_moments(use.own) if least is not None else ():
            start, end = (_evaluated(each, use.own, moment) for each in (use.window.start, use.window.end))
            if start is not None and end is not None:
                most = max(most, use.sequence.index_at_or_before(end) - use.sequence.index_at_or_before(start) + 1)
        if least is not None and most < least:
            yield Complaint(
                path=(*use.path, "at_least"),
                message=f"inputs.{name} waits for {least} instances of feed {use.feed.name!r} on {use.cluster}, "
                f"but its window has {most} at most",
                remedy="Lower at_least, or widen the window.",
                severity=Severity.WARNING,
            )


def check_scheduled_windows(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A window counts instances that are due; where they come as they come, only what has come can be read."""
    for name, item in process.inputs.items():
        feed = scope.bundle.find_feed(item.feed)
        if feed is None or feed.is_expected or scope.find_window(process, name) is None:
            continue
        yield Complaint(
            path=("inputs", name, "start"),
            message=f"inputs.{name} reads a window of feed {item.feed!r}, whose instances come as they come: "
            "nobody knows which are due",
            remedy="Write take: new for each instance once, or latest(0) for the newest.",
        )


def check_current_windows(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A feed with a current instance has no former and no later ones to wait for."""
    for name, item in process.inputs.items():
        feed = scope.bundle.find_feed(item.feed)
        if feed is None or not feed.is_current or item.takes_new or _faults((), item.start):
            continue
        start = parse_time_expression(item.start)
        if start.data_driven is DataDriven.FUTURE or (start.data_driven is DataDriven.LATEST and start.n != 0):
            yield Complaint(
                path=("inputs", name, "start"),
                message=f"inputs.{name} reads {item.start} to {item.end} of feed {item.feed!r}, which has one "
                "instance: others never come",
                remedy="Write latest(0) as start and end: it is the version that stands there.",
            )


def check_batch_outputs(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Two batches within one instance of a regular feed would replace each other."""
    for name, item in process.outputs.items() if process.makes_batches else ():
        feed = scope.bundle.find_feed(item.feed)
        if feed is not None and feed.is_expected and not feed.is_current:
            yield Complaint(
                path=("outputs", name, "feed"),
                message=f"outputs.{name} writes feed {item.feed!r}, whose instances are on schedule: batches that come "
                "within one of them would replace each other",
                remedy="Write a feed with instances: as-they-come.",
            )


def check_output_data(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A process writes data: a signal has none, and the asset of somebody else is not written here."""
    for name, item in process.outputs.items():
        feed = scope.bundle.find_feed(item.feed)
        if feed is not None and not feed.has_data:
            what = "a signal" if feed.signal else "the asset of somebody else"
            yield Complaint(
                path=("outputs", name, "feed"),
                message=f"outputs.{name} writes feed {item.feed!r}, which is {what}, without data of its own",
                remedy="Write a feed with locations or a table.",
            )


def check_window_retention(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P7: the inputs of an instance must not be evicted at its nominal time.

    Exempt are latest and future, and instances that are kept until this process has read them. Differs from Falcon:
    that asks about the present alone, so the answer depends on the day on which it is asked.
    """
    for use in scope.iter_uses(process, "inputs"):
        kept, retention = find_retention_period(use.feed, use.cluster), use.feed.clusters[use.cluster].retention
        if kept is None or (retention is not None and process.name in retention.until_read_by):
            continue
        reach = find_longest_reach(use.window.start, use.own)
        if reach is not None and reach > kept.duration:
            yield Complaint(
                path=(*use.path, "start"),
                message=f"{use.where}.start {use.window.start} reaches up to {_rounded(reach)} back, but feed "
                f"{use.feed.name!r} on {use.cluster} keeps {kept.text}",
                remedy=f"Start the window later, raise retention.{kept.key} of the feed, or write "
                f"until_read_by: [{process.name}] there.",
            )


def check_window_outlives_feed(scope: Scope, process: Process) -> Iterator[Complaint]:
    """The feed must last as long as the process, or instances wait for data that never come."""
    for use in scope.iter_uses(process, "inputs"):
        end, size = use.sequence.end, use.own.size
        if process.inputs[use.path[1]].optional or end is None or size == 0:
            continue
        last = None if size is None else _evaluated(use.window.end, use.own, use.own.at(size - 1))
        if size is None or (last is not None and last >= end):
            yield Complaint(
                path=use.path,
                message=f"on {use.cluster} feed {use.feed.name!r} ends at {render_datetime(end)}, before the process: "
                "its later instances read less and less of it, then nothing",
                remedy="End the process with the feed, or extend the feed's validity.",
                severity=Severity.WARNING,
            )


def check_output_range(scope: Scope, process: Process) -> Iterator[Complaint]:
    """P11: at the start of the process, the written instance must lie inside the feed's validity."""
    for use in scope.iter_uses(process, "outputs"):
        validity, written = use.feed.clusters[use.cluster].validity, _evaluated(use.window.start, use.own)
        if written is None:
            yield _out_of_calendar(use)
        elif not validity.start <= written <= validity.end:
            is_early = written < validity.start
            side = "before the start" if is_early else "after the end"
            bound = render_datetime(validity.start if is_early else validity.end)
            yield Complaint(
                path=(*use.path, "instance"),
                message=f"the first instance on {use.cluster}, {render_datetime(use.own.start)}, writes "
                f"{render_datetime(written)}, {side} of feed {use.feed.name!r} at {bound}",
                remedy="Correct the instance expression, or the validity of the process or the feed.",
            )


def check_output_target(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A process must not write where replication writes."""
    for name, item in process.outputs.items():
        for cluster in process.clusters:
            feed = scope.find_feed_on(item.feed, cluster)
            if feed is not None and feed.clusters[cluster].type is ClusterRole.TARGET:
                yield Complaint(
                    path=("outputs", name, "feed"),
                    message=f"feed {item.feed!r} is replicated to {cluster}, but the process also writes it there",
                    remedy="Write it at a source, or remove type: target.",
                )


def check_one_writer(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Several outputs may write one feed, but never the same instance of it. Quarantines have a rule of their own."""
    feeds = {output.feed for output in process.outputs.values()} - scope.quarantined.keys()
    pairs = {(feed, cluster) for feed in feeds for cluster in process.clusters}
    for feed, cluster in sorted(pairs):
        for one, other in combinations(scope.writers[feed, cluster], 2):
            if other.process is not process:
                continue
            first, second = (scope.find_use(each.process, "outputs", each.output, cluster) for each in (one, other))
            if first is None or second is None or _is_shared(one, other, first, second):
                continue
            moment = _common_instance(first, second)
            if moment is not None:
                who = f"output {one.output!r}" + ("" if one.process is process else f" of {one.process.label}")
                yield Complaint(
                    path=("outputs", other.output),
                    message=f"{who} writes the same instances of feed {feed!r} on {cluster}, "
                    f"such as {render_datetime(moment)}",
                    remedy="Give each instance one writer: another instance expression, validity, feed or cluster. "
                    "Processes with a trigger can share a feed whose instances come as they come, by the second: "
                    "now(0,0).",
                )


def _is_shared(one: Writer, other: Writer, first: Use, second: Use) -> bool:
    """Return whether two processes write a feed as they come to it: no two batches of them are of one second, and those
    of two seconds write two instances.
    """
    are_batches = one.process is not other.process and one.process.makes_batches and other.process.makes_batches
    if first.feed.is_expected or not are_batches or first.window != second.window:
        return False
    batches = islice(first.own.between(max(first.own.start, first.sequence.start) + _DAY, NEVER), 2)
    written = [first.window.indices(batch, first.sequence) for batch in batches]
    return len(written) == len(set(written))


def _common_instance(first: Use, second: Use) -> datetime | None:
    begin = max(first.own.start, second.own.start)
    for moment in islice(first.own.between(begin, NEVER), SAMPLE):
        for index in first.window.indices(moment, first.sequence):
            if second.window.consumers(index, first.sequence, second.own):
                return first.sequence.at(index)
    return None


def _faults(path: tuple[str, ...], text: str) -> list[Complaint]:
    try:
        parse_time_expression(text)
    except ExpressionError as exc:
        complaint = complain(path, exc)
        remedy = complaint.remedy or "Write for example now(0,0) or today(0,-60)."
        return [Complaint(path=path, message=complaint.message, remedy=remedy)]
    return []


@lru_cache(maxsize=4096)
def find_longest_reach(expression: TimeExpression, sequence: InstanceSequence) -> timedelta | None:
    """Return how far an expression reaches back from the nominal time of an instance at most; None if it never does."""
    moments = _extreme_moments(sequence)
    reaches = [moment - start for moment in moments if (start := _evaluated(expression, sequence, moment)) is not None]
    return max(reaches, default=None)


def _extreme_moments(sequence: InstanceSequence) -> set[datetime]:
    """Return the nominal times at which windows are longest and reach furthest: the last ones of days, weeks, months
    and years. Those of the first four years and the last year are looked at.
    """
    zone, moments = sequence.timezone, {sequence.start}
    first = sequence.start.astimezone(zone)
    days = [first.date() + timedelta(days=number) for number in range(1, 9)]
    months = [(first.year + number // 12, number % 12 + 1) for number in range(first.month, first.month + 50)]
    ends = [*days, *(date(year, month, 1) for year, month in months if year <= MAXYEAR)]
    if sequence.size:
        moments.add(sequence.at(sequence.size - 1))
    for end in ends:
        midnight = datetime.combine(end, time(), zone).astimezone(UTC)
        index = sequence.index_at_or_before(midnight - _MOMENT)
        if index >= 0 and (sequence.size is None or index < sequence.size):
            moments.add(sequence.at(index))
    return moments


def _evaluated(
    expression: TimeExpression, process: InstanceSequence, nominal_time: datetime | None = None
) -> datetime | None:
    """Return the time that an expression names for an instance, by default the first; None outside of the calendar."""
    try:
        return expression.evaluate(nominal_time or process.start, process.timezone)
    except InstanceError:
        return None


def _out_of_calendar(use: Use) -> Complaint:
    ends = " to ".join(dict.fromkeys((use.window.start.text, use.window.end.text)))
    return Complaint(
        path=use.path,
        message=f"{use.where}: {ends} is outside the calendar",
        remedy="Use smaller numbers.",
    )


def _range_complaints(use: Use, start: datetime, end: datetime) -> Iterator[Complaint]:
    begun, sequence = render_datetime(use.own.start), use.sequence
    first = f"the first instance on {use.cluster}, {begun}, reads feed {use.feed.name!r} "
    if start < sequence.start:
        yield Complaint(
            path=(*use.path, "start"),
            message=f"{first}from {render_datetime(start)}, before the start of the feed at "
            f"{render_datetime(sequence.start)}",
            remedy="Start the process later, the window later, or the feed earlier.",
        )
    if end < start:
        yield Complaint(
            path=(*use.path, "end"),
            message=f"{first}from {render_datetime(start)} to {render_datetime(end)}: the end is before the start",
            remedy="Swap start and end, or correct them.",
        )
    elif sequence.end is not None and end > sequence.end:
        yield Complaint(
            path=(*use.path, "end"),
            message=f"{first}to {render_datetime(end)}, after the end of the feed at {render_datetime(sequence.end)}",
            remedy="End the window earlier, start the process earlier, or extend the feed's validity.",
        )


def _rounded(duration: timedelta) -> str:
    days, rest = divmod(duration, timedelta(days=1))
    hours = rest / timedelta(hours=1)
    parts = [f"{days} days"] if days else []
    return " ".join([*parts, f"{hours:g} hours"] if hours or not parts else parts)


_HALF_A_YEAR = timedelta(days=183)
"""Zones that agree in one half of the year may differ in the other."""
_MOST = timedelta(hours=47)


def check_days(scope: Scope, process: Process) -> Iterator[Complaint]:
    """A day or month that a process reads or writes must not be one of another time zone.

    Windows are floored to instances, so nothing refuses such a pair: it reads or writes a neighbour.
    """
    zone = process.timezone
    told: set[tuple[str, str]] = set()
    for use in (*scope.iter_uses(process, "inputs"), *scope.iter_uses(process, "outputs")):
        feed, is_read = use.feed, use.path[0] == "inputs"
        if use.path in told or feed.timezone == zone or feed.is_current or not feed.frequency.is_calendar:
            continue
        found = _first_difference(use)
        if found is not None:
            told.add(use.path)
            path = (*use.path, "start" if is_read else "instance")
            at_feed = f"Write timezone: {feed.timezone} at the process, or timezone: {zone} at the feed"
            more = ", or read a feed of hours, whose instances are the same in all zones"
            yield Complaint(
                path=path,
                message=f"{'.'.join(path)}: {_explain(use, zone, *found)}",
                remedy=f"{at_feed}{more if is_read else ''}.",
                severity=Severity.WARNING,
            )


def _first_difference(use: Use) -> tuple[datetime, datetime] | None:
    """Return the nominal time of a process instance and the time at which its window begins, if the feed means another
    day: that time is no instance, but the same clock time in the feed's zone is one, or it is one in the other half of
    the year.
    """
    feed, process, begun = use.sequence, use.own, dict[datetime, datetime]()
    for since in (process.start, process.start + _HALF_A_YEAR):
        nominal_time = process.ceil(since)
        if nominal_time is not None:
            start = _evaluated(use.window.start, process, nominal_time)
            if start is None:
                return None
            begun[nominal_time] = start
    apart = {at: start for at, start in begun.items() if not _has(feed, start)}
    is_drifting = len(apart) < len(begun)
    return next(
        (
            (at, start)
            for at, start in apart.items()
            if is_drifting or _has(feed, start.astimezone(process.timezone).replace(tzinfo=feed.timezone))
        ),
        None,
    )


def _has(feed: InstanceSequence, moment: datetime) -> bool:
    return feed.at(feed.index_at_or_before(moment)) == moment


def _explain(use: Use, zone: str, nominal_time: datetime, begun: datetime) -> str:
    """Return which hours are meant, and which are read or written."""
    feed, sequence = use.feed, use.sequence
    ends = (each.evaluate(nominal_time, use.own.timezone) for each in (use.window.start, use.window.end))
    first, last = map(sequence.index_at_or_before, ends)
    start, stop = sequence.at(first), sequence.at(last + 1)
    unit, hours = feed.frequency.unit.value.removesuffix("s"), _hours(begun - start)
    what = f"the {unit} of {zone} that begins at {render_datetime(begun)}"
    other = f"the {unit} of feed {feed.name!r} in {feed.timezone}"
    covers = f"from {render_datetime(start)} to {render_datetime(stop)}"
    if use.path[0] == "outputs":
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


def check_names(scope: Scope, process: Process) -> Iterator[Complaint]:
    """Each name of a condition must be an input, a feed on every cluster of the process, or a group of such feeds.

    A name that nothing has is a warning while the process can run without it.
    """
    trigger = process.trigger
    for text in dict.fromkeys(iter_names(trigger.when)) if trigger and trigger.when else ():
        without = [cluster for cluster in process.clusters if not _is_known(scope, process, cluster, text)]
        if trigger is None or not without:
            continue
        can_run = all(_can_run(scope, process, trigger, cluster) for cluster in without)
        consequence = "this part of the condition never holds" if can_run else "no batch can ever run"
        severity = Severity.WARNING if can_run else Severity.ERROR
        what, remedy = _describe_unknown(scope, process, text, without)
        message = f"trigger.when names {text!r}, {what}: {consequence}"
        place: FieldPath = ("trigger", "when")
        yield Complaint(path=place, message=message, remedy=remedy, severity=severity, is_absence=True)


def _is_known(scope: Scope, process: Process, cluster: str, text: str) -> bool:
    """Return whether something has a name, or may have it once a feed that has errors is corrected."""
    if find_named(scope.bundle, process, cluster, text):
        return True
    if text.startswith(GROUP_PREFIX):
        return any(kind == Kind.FEED and scope.bundle.find((kind, name)) is None for kind, name in scope.sources)
    return scope.bundle.find_feed(text) is None and scope.is_declared((Kind.FEED, text))


def _can_run(scope: Scope, process: Process, trigger: Trigger, cluster: str) -> bool:
    def is_known(text: str) -> bool:
        return _is_known(scope, process, cluster, text)

    takes = any(item.takes_new for item in process.inputs.values())
    can_pend = takes or any(map(is_known, iter_names(condition_of(process))))
    return (
        trigger.or_every is not None
        or (trigger.by is not None and can_pend)
        or holds_if(condition_of(process), is_known)
    )


def _describe_unknown(scope: Scope, process: Process, text: str, without: Collection[str]) -> tuple[str, str]:
    """Return what is wrong with a name, and the remedy."""
    where = " and ".join(without)
    group = text.removeprefix(GROUP_PREFIX)
    feed = scope.bundle.find_feed(text)
    if feed is not None:
        what = f"a feed that is not defined on cluster {where}, only on {', '.join(feed.clusters)}"
        return what, "Add the cluster to the feed, or remove it from the process."
    if text.startswith(GROUP_PREFIX) and group in scope.groups:
        names = ", ".join(each.name for each in scope.groups[group])
        return f"of whose feeds none is on cluster {where}: {names}", "Add the cluster to one of these feeds."
    known = [*process.inputs, *(each.name for each in scope.bundle.feeds)]
    known += [f"{GROUP_PREFIX}{name}" for name in scope.groups]
    close = find_similar(text, dict.fromkeys(known), n=2)
    what = "a group that no feed is in" if text.startswith(GROUP_PREFIX) else "which is no input and no feed"
    remedy = f"Did you mean {' or '.join(map(repr, close))}?" if close else "Name an input, a feed, or group:NAME."
    return what, remedy


def check_times(_: Scope, process: Process) -> Iterator[Complaint]:
    """The times of a trigger must come within the validity.

    Its start is no time of `or_every` or `and_every`: whoever declares the process later has missed it.
    """
    trigger = process.trigger
    for cluster, entry in process.clusters.items():
        start, end = entry.validity.start, entry.validity.end
        if trigger is None or not process.makes_batches or entry.validity.is_endless or end <= start:
            continue
        span = f"in the validity on {cluster}, from {render_datetime(start)} to {render_datetime(end)}"
        if isinstance(trigger.from_, datetime) and trigger.from_ >= end:
            yield Complaint(
                path=("trigger", "from"),
                message=f"trigger.from {render_datetime(trigger.from_)} never comes {span}: no event counts",
                remedy="Write an earlier time, or extend the validity.",
            )
        grids = find_grids(process, trigger, cluster)
        for name, grid, first in (
            ("or_every", grids.or_every, start + _MOMENT),
            ("and_every", grids.and_every, start + _MOMENT),
            ("by", grids.by, start),
        ):
            if grid is not None and not _comes(grid, first):
                yield Complaint(
                    path=("trigger", name),
                    message=f"trigger.{name} {getattr(trigger, name)} never comes {span}",
                    remedy=f"Write another time, remove {name}, or extend the validity.",
                    severity=Severity.WARNING,
                )


def _comes(grid: InstanceSequence, first: datetime) -> bool:
    try:
        return grid.ceil(first) is not None
    except InstanceError:
        return False
