"""What triggers compile to: a condition on marks of inputs, and grids of times. Frozen, and read by ticks and views."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.conditions import condition_of, find_grids, find_named
from feed_assets.entities.process import Process
from feed_assets.entities.triggers import (
    GROUP_PREFIX,
    AllOf,
    AnyOf,
    Backlog,
    OnPause,
    StartFrom,
    Trigger,
    Unchanged,
)
from feed_assets.timing.sequence import Frequency, InstanceSequence


class TriggerInput(NamedTuple):
    """A feed whose events a trigger takes, under the name of the input that reads it, else its own.

    It has come with `at_least` events, and if there is `until`, with an event whose marking fits this pattern.
    """

    name: str
    feed: str
    feed_cluster: str
    at_least: int = 1
    until: str | None = None


class Name(NamedTuple):
    """Holds when an input has come; never if there is none any more. `text` is the name as it is written."""

    text: str
    input: str | None


class All(NamedTuple):
    """Holds when every part holds."""

    parts: "tuple[Condition, ...]"


class Any(NamedTuple):
    """Holds when one of the parts holds."""

    parts: "tuple[Condition, ...]"


Condition: TypeAlias = Name | All | Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRecord:
    """The trigger of a process on one cluster.

    A batch takes what is pending at all `inputs`. `or_every`, `and_every` and `by` are grids of times, `max_events` the
    most that a batch takes of an input. `sign` changes when other events or times count, or another condition: then the
    process is looked at again.
    """

    condition: Condition
    inputs: tuple[TriggerInput, ...]
    or_every: InstanceSequence | None = None
    and_every: InstanceSequence | None = None
    by: InstanceSequence | None = None
    max_age: timedelta | None = None
    max_events: int | None = None
    quiet: timedelta | None = None
    backlog: Backlog = Backlog.ALL
    start: StartFrom | datetime = StartFrom.NOW
    on_pause: OnPause = OnPause.QUEUE
    counts_unchanged: bool = False
    sign: str = field(init=False)

    def __post_init__(self) -> None:
        facts = (
            sorted((each.name, each.feed, each.feed_cluster, each.until) for each in self.inputs),
            self.counts_unchanged,
            (self.condition, [each.at_least for each in self.inputs], self.max_age, self.quiet),
            *(None if grid is None else (grid.frequency, grid.start, grid.timezone.key) for grid in self.grids),
        )
        object.__setattr__(self, "sign", hashlib.sha256(repr(facts).encode()).hexdigest()[:16])

    @property
    def grids(self) -> tuple[InstanceSequence | None, InstanceSequence | None]:
        """The times at which it may run whether or not something comes: `or_every` or `and_every`, and `by`."""
        return self.or_every or self.and_every, self.by


def compile_trigger(bundle: Bundle, process: Process, cluster: str) -> TriggerRecord | None:
    """Compile the trigger of a process on a cluster; None if its instances are no batches.

    A name that nothing has stays, and never holds.
    """
    if process.trigger is None or not process.makes_batches:
        return None
    trigger, names = process.trigger, _Names(bundle, process, cluster)
    new = [name for name, item in process.inputs.items() if item.takes_new]
    condition = _compile_condition(condition_of(process), names)
    for name in new:
        names.find(name)
    grids = find_grids(process, trigger, cluster)
    return TriggerRecord(
        condition=condition,
        inputs=names.inputs(trigger, frozenset(new)),
        or_every=grids.or_every,
        and_every=grids.and_every,
        by=grids.by,
        max_age=_duration(trigger.max_age),
        max_events=trigger.batch.max,
        quiet=_duration(trigger.batch.quiet),
        backlog=trigger.backlog,
        start=trigger.from_,
        on_pause=trigger.on_pause,
        counts_unchanged=trigger.unchanged is Unchanged.COUNT,
    )


class _Names:
    """The names of a condition, and the inputs that they stand for."""

    def __init__(self, bundle: Bundle, process: Process, cluster: str) -> None:
        self._bundle, self._process, self._cluster = bundle, process, cluster
        self._feeds: dict[str, str] = {}

    def find(self, text: str) -> Condition:
        """Return the condition that a name stands for."""
        found = find_named(self._bundle, self._process, self._cluster, text)
        self._feeds |= dict(found)
        if text.startswith(GROUP_PREFIX) and found:
            return Any(tuple(Name(each.feed, each.input) for each in found))
        return Name(text, found[0].input if found else None)

    def inputs(self, trigger: Trigger, new: frozenset[str]) -> tuple[TriggerInput, ...]:
        """Return the inputs that were found. Size and end of a batch are those of its data: of inputs that take what is
        new, if there are any.
        """
        return tuple(
            TriggerInput(name, feed, self._cluster, trigger.batch.min, trigger.batch.until)
            if name in new or not new
            else TriggerInput(name, feed, self._cluster)
            for name, feed in sorted(self._feeds.items())
        )


def _compile_condition(condition: str | AllOf | AnyOf, names: _Names) -> Condition:
    match condition:
        case AllOf():
            return All(tuple(_compile_condition(part, names) for part in condition.all))
        case AnyOf():
            return Any(tuple(_compile_condition(part, names) for part in condition.any))
        case _:
            return names.find(condition)


def _duration(frequency: Frequency | None) -> timedelta | None:
    return None if frequency is None else frequency.as_duration()


def iter_leaves(condition: Condition) -> Iterator[Name]:
    """Yield the names of a condition, in the order in which they are written."""
    if isinstance(condition, Name):
        yield condition
        return
    for part in condition.parts:
        yield from iter_leaves(part)
