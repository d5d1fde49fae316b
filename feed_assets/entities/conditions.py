"""What the condition of a trigger means: the inputs and feeds that its names stand for, and the times of its grids."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.process import Process
from feed_assets.entities.triggers import GROUP_PREFIX, AllOf, AnyOf, Trigger
from feed_assets.timing.dates import parse_timezone
from feed_assets.timing.sequence import Frequency, InstanceSequence, Unit

_DAILY = Frequency(unit=Unit.DAYS, count=1)


class NamedInput(NamedTuple):
    """An input of a trigger, and the feed whose events it takes."""

    input: str
    feed: str


class Grids(NamedTuple):
    """The times at which a batch runs in any case, or if the condition holds, or of what is pending."""

    or_every: InstanceSequence | None
    and_every: InstanceSequence | None
    by: InstanceSequence | None


def condition_of(process: Process) -> str | AllOf | AnyOf:
    """Return the condition of a process that makes batches: by default, all mandatory inputs that take what is new."""
    if process.trigger is not None and process.trigger.when is not None:
        return process.trigger.when
    mandatory = (name for name, item in process.inputs.items() if item.takes_new and not item.optional)
    return AllOf.model_construct(all=tuple(mandatory))


def find_named(bundle: Bundle, process: Process, cluster: str, text: str) -> tuple[NamedInput, ...]:
    """Return what a name in a condition stands for on a cluster; nothing if there is no such name.

    It is an input, else the input that takes what is new of this feed, else the feed. The name of a group stands for
    any feed of the group.
    """
    if text.startswith(GROUP_PREFIX):
        group = text.removeprefix(GROUP_PREFIX)
        return tuple(
            _of_feed(process, feed.name) for feed in bundle.feeds if group in feed.groups and cluster in feed.clusters
        )
    item = process.inputs.get(text)
    if item is not None:
        return (NamedInput(text, item.feed),)
    found = bundle.find_feed(text)
    return (_of_feed(process, text),) if found is not None and cluster in found.clusters else ()


def _of_feed(process: Process, feed: str) -> NamedInput:
    taking = (name for name, item in process.inputs.items() if item.takes_new and item.feed == feed)
    return NamedInput(next(taking, feed), feed)


def holds_if(condition: str | AllOf | AnyOf, is_true: Callable[[str], bool]) -> bool:
    """Return whether a condition holds if those of its names are true.

    >>> holds_if(AllOf(all=["orders", {"any": ["rates", "approval"]}]), {"orders", "approval"}.__contains__)
    True
    """
    match condition:
        case AllOf():
            return all(holds_if(part, is_true) for part in condition.all)
        case AnyOf():
            return any(holds_if(part, is_true) for part in condition.any)
        case _:
            return is_true(condition)


def find_grids(process: Process, trigger: Trigger, cluster: str) -> Grids:
    """Return the times of a trigger within the validity; the time of day is that of the process's time zone."""
    validity, zone = process.sequence_on(cluster), parse_timezone(process.timezone)

    def grid(frequency: Frequency | None, start: datetime = validity.start) -> InstanceSequence | None:
        if frequency is None:
            return None
        return InstanceSequence(start=start, frequency=frequency, timezone=zone, end=validity.end)

    by = trigger.by_time()
    first = None if by is None else datetime.combine(validity.start.astimezone(zone).date(), by, tzinfo=zone)
    return Grids(
        or_every=grid(trigger.or_every),
        and_every=grid(trigger.and_every),
        by=None if first is None else grid(_DAILY, first),
    )
