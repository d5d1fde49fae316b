"""Rules about triggers: what the names of their conditions stand for, and whether their times ever come."""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from difflib import get_close_matches

from feed_assets.entities.common import Kind
from feed_assets.entities.conditions import condition_of, find_grids, find_named, holds_if
from feed_assets.entities.process import Process
from feed_assets.entities.triggers import GROUP_PREFIX, Trigger, iter_names
from feed_assets.issues import Severity
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.errors import InstanceError
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.validation.scope import Complaint, Scope

_MOMENT = timedelta(microseconds=1)


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
        yield Complaint(path=("trigger", "when"), message=message, remedy=remedy, severity=severity)


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
    close = get_close_matches(text, dict.fromkeys(known), n=2)
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
