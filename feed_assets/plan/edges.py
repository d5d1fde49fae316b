"""The edges between feeds and processes: what a process reads and writes, with the windows of each; and what triggers
compile to: a condition on marks of inputs, and grids of times. Frozen, and read by ticks and views.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple, Self, TypeAlias

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.conditions import condition_of, find_grids, find_named
from feed_assets.entities.content.column_lineage import ColumnSource
from feed_assets.entities.maps import EMPTY
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
from feed_assets.timing.windows import Window

Key: TypeAlias = tuple[str, str]
"""(entity name, cluster name): the identity of a feed record or a process record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What has come and this process has not taken yet: the events that its next batch freezes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEdge:
    """Instances of a feed on `feed_cluster` that a process on `cluster` reads; the clusters differ for a replication.

    It takes a window of them, or what is pending. `at_least` instances of a window, and all but `missing_at_most`, must
    be there; None of both: all. `shifts` are the first and last instance that the window always contains, counted from
    the instance of the process's own nominal time; None if that varies or there is no such instance.
    """

    name: str
    feed: str
    feed_cluster: str
    process: str
    cluster: str
    takes: Window | Pending
    shifts: tuple[int, int] | None
    optional: bool
    partition: str | None
    is_late: bool
    at_least: int | None = None
    missing_at_most: int | None = None

    @property
    def window(self) -> Window | None:
        """The window; None if it takes what is pending."""
        return self.takes if isinstance(self.takes, Window) else None

    @property
    def is_data_driven(self) -> bool:
        """Whether what has come decides which instances it takes, and not the nominal time alone."""
        return self.window is None or self.window.is_data_driven

    @property
    def taken(self) -> str:
        """The instances that it takes, for people: `today(0,0) to now(0,0)`, `what is new`."""
        return "what is new" if self.window is None else f"{self.window.start} to {self.window.end}"

    @property
    def feed_key(self) -> Key:
        return (self.feed, self.feed_cluster)

    @property
    def process_key(self) -> Key:
        return (self.process, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEdge:
    """An instance of a feed that a process writes, both on one cluster: `window` is from one expression to itself.

    `shift` is the number of instances after that of the process's own nominal time; None if that varies. An `optional`
    one may be left out. A quarantine is written with the output `quarantine_of`, whose bad rows it takes; no work names
    it, and its instance has the time of theirs. `column_lineage` are the sources that are declared of its columns.
    """

    name: str
    feed: str
    process: str
    cluster: str
    window: Window
    shift: int | None
    optional: bool = False
    quarantine_of: str | None = None
    column_lineage: Mapping[str, tuple[ColumnSource, ...]] = EMPTY

    @property
    def feed_key(self) -> Key:
        return (self.feed, self.cluster)

    @property
    def process_key(self) -> Key:
        return (self.process, self.cluster)

    def to_quarantine(self, feed: str) -> Self:
        """Return the output that takes the bad rows of this one: the instance of `feed` of the same time."""
        return replace(self, name=f"{self.name}@quarantine", feed=feed, optional=True, quarantine_of=self.name)


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
