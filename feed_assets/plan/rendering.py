"""The difference between two sets of definitions: its records, and its text form: added, changed and removed entities,
the consequences, and a line of counts.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import assert_never

from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.differences import FieldChange
from feed_assets.entities.flow_names import describe_process
from feed_assets.errors import shorten
from feed_assets.issues import Source
from feed_assets.json_form import Hidden, NominalTime, ShownKey, shown
from feed_assets.plan.edges import Key
from feed_assets.plan.release_fingerprint import Step, Weight
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence

FOREVER = datetime.max.replace(tzinfo=UTC)
_MOMENT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The times `start <= t < stop`; empty if `stop` is not after `start`."""

    start: datetime
    stop: datetime

    @property
    def is_empty(self) -> bool:
        """Whether it contains no time."""
        return self.stop <= self.start

    def upto(self, moment: datetime) -> "Span":
        """Return the part at or before a moment."""
        return Span(start=self.start, stop=min(self.stop, moment + _MOMENT))

    def before(self, moment: datetime) -> "Span":
        """Return the part before a moment."""
        return Span(start=self.start, stop=min(self.stop, moment))

    def within(self, other: "Span") -> "Span":
        """Return the part that is also in `other`."""
        return Span(start=max(self.start, other.start), stop=min(self.stop, other.stop))

    def without(self, other: "Span | None") -> tuple["Span", ...]:
        """Return the part outside `other`: at most two spans.

        >>> from datetime import datetime
        >>> day = lambda n: datetime(2015, 1, n, tzinfo=UTC)
        >>> [part.start.day for part in Span(start=day(1), stop=day(9)).without(Span(start=day(3), stop=day(5)))]
        [1, 5]
        """
        if other is None or self.within(other).is_empty:
            parts = [self]
        else:
            parts = [Span(start=self.start, stop=other.start), Span(start=other.stop, stop=self.stop)]
        return tuple(part for part in parts if not part.is_empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRange:
    """A range of consecutive instances of one sequence: the first, the last, and their number."""

    first: NominalTime
    last: NominalTime
    count: int


def validity_of(sequence: InstanceSequence) -> Span:
    """Return the span in which a sequence has instances."""
    return Span(start=sequence.start, stop=sequence.end or FOREVER)


def count_ranges(sequence: InstanceSequence, spans: tuple[Span, ...]) -> tuple[InstanceRange, ...]:
    """Return the instances in each of some spans; spans without any are left out."""
    ranges = []
    for span in spans:
        indices = sequence.indices_between(span.start, span.stop)
        if indices:
            ranges.append(
                InstanceRange(first=sequence.at(indices[0]), last=sequence.at(indices[-1]), count=len(indices))
            )
    return tuple(ranges)


class EntityChange(StrEnum):
    """The change of an entity."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class Effect(StrEnum):
    """The effect on instances: due, skipped at once, dropped, expired (older than their limit), copied, or the next
    that is imported or exported.
    """

    DUE = "due"
    SKIPPED = "skipped"
    DROPPED = "dropped"
    EXPIRED = "expired"
    COPIED = "copied"
    NEXT = "next"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """A field that differs, and its weight for the processes that see it."""

    change: FieldChange
    weight: Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDifference:
    """An entity that is added, changed or removed; `joined` and `left` are the clusters that it enters and leaves."""

    key: ShownKey
    change: EntityChange
    fields: tuple[FieldDifference, ...]
    joined: tuple[str, ...]
    left: tuple[str, ...]
    source: Source | None

    @property
    def label(self) -> str:
        """The entity's name in messages."""
        return label_of(self.key)

    @property
    def is_versioned(self) -> bool:
        """Whether it is a cluster with another version.

        Processes see the change when they are updated to that version.
        """
        is_cluster = self.key[0] == Kind.CLUSTER
        return is_cluster and any(field.change.path == ("version",) for field in self.fields)

    def hard_fields(self, cluster: str) -> tuple[str, ...]:
        """Return the fields that cause a new release of the processes that see the entity on a cluster."""
        elsewhere = {"clusters"} if self.key[0] in (Kind.FEED, Kind.PROCESS) else frozenset()
        return tuple(
            field.change.field
            for field in self.fields
            if field.weight is Weight.RELEASE
            and not (field.change.path[0] in elsewhere and field.change.path[1] != cluster)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """An entity or a file of the workflow whose change affects a process, and the entity's fields that do.

    There are no fields if the entity was added or removed.
    """

    key: ShownKey
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """The recorded state of a process on a cluster.

    `is_active` is False for a process that is not scheduled: changes are only stored. `governed_from` is the start of
    the first release, `newest_from` the start of the newest. `unended` counts the instances that exist and have not
    ended. With `governs_all` a change applies to all instances that have not begun; `first_unstarted` is the first of
    these.
    """

    is_active: bool = True
    is_suspended: bool = False
    release: int = 0
    governed_from: datetime | None = None
    newest_from: datetime | None = None
    has_begun: bool = False
    governs_all: bool = False
    first_unstarted: datetime | None = None
    unended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDifference:
    """The next release of a process on a cluster: its new definition governs from `effective_from`.

    `release` is the number of the release that governs then. Instances that have ended never change. A change of a
    process whose new end is past is refused. If it `is_enumerated`, its instances are known beforehand; else something
    makes each: a batch.
    """

    process: str
    cluster: str
    step: Step
    effective_from: NominalTime | None
    ends_at: NominalTime | None
    release: int
    state: Hidden[ProcessState]
    causes: tuple[Cause, ...]
    is_refused: bool = False
    is_enumerated: bool = True

    @property
    def key(self) -> Key:
        return (self.process, self.cluster)

    @shown
    def is_scheduled(self) -> bool:
        """Whether changes affect it; otherwise they are only stored."""
        return self.state.is_active

    @shown
    def is_suspended(self) -> bool:
        """Whether it is suspended."""
        return self.state.is_suspended

    @shown
    def unended(self) -> int:
        """How many of its instances have not ended."""
        return self.state.unended


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesDifference:
    """The immediate effect on some instances of a feed or process on a cluster; `of` is the source of copies."""

    effect: Effect
    kind: Kind
    name: str
    cluster: str
    ranges: tuple[InstanceRange, ...]
    of: str | None = None

    @shown
    def count(self) -> int:
        """The number of instances."""
        return sum(run.count for run in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputDifference:
    """What the first batch would take at an input, of so many `pending` events, and what it would pass over."""

    input: str
    feed: str
    taken: int
    passed: int
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesDifference:
    """The batches that a process would cut at once of what is pending, and would not cut without the change.

    There are so many of them, or more if there `are_more`. The next tick cuts the first, and each other one is cut when
    there is room for it. If `busy` batches are under way and no more may be, the first waits, too.
    """

    process: str
    cluster: str
    batches: int
    are_more: bool
    busy: int
    first: tuple[InputDifference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionDifference:
    """A retention that becomes stricter by some fields; the schedule acts on it from `acts_from` on."""

    feed: str
    cluster: str
    fields: tuple[str, ...]
    acts_from: NominalTime


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDifference:
    """The whole difference. No change of a definition runs instances again that have ended."""

    as_of: datetime
    entities: tuple[EntityDifference, ...]
    processes: tuple[ProcessDifference, ...]
    instances: tuple[InstancesDifference, ...]
    retention: tuple[RetentionDifference, ...] = ()
    batches: tuple[BatchesDifference, ...] = ()

    @shown
    def is_empty(self) -> bool:
        """Whether there is no difference."""
        return not self.entities and not self.processes

    @shown
    def counts(self) -> dict[str, int]:
        """How many entities have each change, and how many instances each effect."""
        changes = {change.value: len(self.with_change(change)) for change in EntityChange}
        return changes | {f"instances_{effect.value}": self.count(effect) for effect in Effect}

    def count(self, effect: Effect, kind: Kind | None = None) -> int:
        """Return how many instances have an effect."""
        return sum(
            each.count for each in self.instances if each.effect is effect and (kind is None or each.kind is kind)
        )

    def with_change(self, change: EntityChange) -> tuple[EntityDifference, ...]:
        """Return the entities with a change."""
        return tuple(entity for entity in self.entities if entity.change is change)


_SIGNS = {EntityChange.ADDED: "+", EntityChange.CHANGED: "~", EntityChange.REMOVED: "-"}
_SHOWN_RANGES = 3
_WIDTH = 100


def render_difference(difference: PlanDifference) -> str:
    """Return the whole difference for people, without a trailing line break."""
    return "\n".join(_lines(difference))


def render_counts(difference: PlanDifference) -> str:
    """Return the last line, with all counts."""
    entities = ", ".join(f"{len(difference.with_change(change))} {change.value}" for change in EntityChange)
    releases = sum(process.step is Step.SUCCEEDED for process in difference.processes)
    follows = [
        (releases, counted(releases, "new release")),
        *(
            (count, f"{counted(count, 'instance')} {text}")
            for count, text in (
                (difference.count(Effect.DUE, Kind.PROCESS), "newly due"),
                (difference.count(Effect.SKIPPED), "skipped"),
                (difference.count(Effect.DUE, Kind.FEED), "newly expected"),
                (difference.count(Effect.DROPPED), "dropped"),
                (difference.count(Effect.EXPIRED), "expired"),
                (difference.count(Effect.COPIED), "to copy"),
            )
        ),
    ]
    return f"{entities}; {', '.join([*(text for count, text in follows if count), 'none repeated'])}."


def render_length(length: timedelta) -> str:
    """Return a length of time for people.

    >>> render_length(timedelta(seconds=119)), render_length(timedelta(minutes=119)), render_length(timedelta(hours=2))
    ('119 seconds', '119 minutes', '2 hours')
    """
    seconds = int(length.total_seconds())
    size, noun = (1, "second") if seconds < 120 else (60, "minute") if seconds < 7200 else (3600, "hour")
    return counted(seconds // size, noun)


def counted(count: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "instance"), counted(2000, "instance")
    ('1 instance', '2,000 instances')
    """
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def render_first(texts: Sequence[str], limit: int = 20) -> str:
    """Return the first texts as a list in Markdown, and how many more there are.

    >>> render_first(["one", "two", "three"], limit=1)
    '- one\\n- and 2 more'
    """
    more = [f"and {len(texts) - limit:,} more"] if len(texts) > limit else []
    return "\n".join(f"- {text}" for text in [*texts[:limit], *more])


def _lines(difference: PlanDifference) -> Iterator[str]:
    if difference.is_empty:
        yield "Nothing would change."
        return
    for entity in difference.entities:
        yield from _entity_lines(entity)
    follows = [_process_line(process) for process in difference.processes]
    paths = {(entity.key[1], field.change.path[:2]) for entity in difference.entities for field in entity.fields}
    moved = sorted({name for name, path in paths if len(path) > 1 and path[0] == "late_process"})
    follows += [f"process {name!r}: late checks that are scheduled stay, those after them follow" for name in moved]
    follows += [_instances_line(each) for each in difference.instances]
    follows += [_batches_line(each) for each in difference.batches]
    follows += [_retention_line(each) for each in difference.retention]
    if follows:
        yield from [""] if difference.entities else []
        yield "Consequences:"
        yield from (f"  {line}" for line in follows)
    yield ""
    yield render_counts(difference)


def _entity_lines(entity: EntityDifference) -> Iterator[str]:
    place = f"  ({entity.source.render()})" if entity.source else ""
    yield f"{_SIGNS[entity.change]} {entity.label}{place}"
    if entity.change is not EntityChange.CHANGED:
        return
    for cluster in entity.joined:
        yield f"    + cluster {cluster}"
    for cluster in entity.left:
        yield f"    - cluster {cluster}"
    moved = {("clusters", cluster) for cluster in (*entity.joined, *entity.left)}
    for field in entity.fields:
        if field.change.path[:2] not in moved:
            note = "  (new release)" if field.weight is Weight.RELEASE and not entity.is_versioned else ""
            yield f"    {_field_text(field)}{note}"
    if entity.is_versioned:
        yield "    Apply it to feeds and processes with update-cluster-dependents."


def _field_text(field: FieldDifference) -> str:
    change = field.change
    if change.before is None:
        return f"+ {change.field}: {_value(change.after)}"
    if change.after is None:
        return f"- {change.field}: {_value(change.before)}"
    return f"~ {change.field}: {_value(change.before)} -> {_value(change.after)}"


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return shorten(text, _WIDTH)


def _process_line(process: ProcessDifference) -> str:
    where = f"process {process.process!r} on {process.cluster}"
    return f"{where}: {_step_text(process)}{_causes_text(process)}"


def _step_text(process: ProcessDifference) -> str:
    if process.is_refused and process.ends_at is not None:
        return (
            f"refused: its new end {render_datetime(process.ends_at)} is in the past. Set a later end, or delete the "
            "process and submit it again"
        )
    since = render_datetime(process.effective_from) if process.effective_from else "never"
    waiting = process.state.unended
    match process.step:
        case Step.BEGINS if not process.state.is_active:
            return "is only stored until it is scheduled"
        case Step.BEGINS if not process.is_enumerated:
            return "begins to take what comes"
        case Step.BEGINS:
            return f"starts with the instance of {since}"
        case Step.IN_PLACE:
            return "changes in place; its releases continue"
        case Step.EXTENDED:
            return f"starts earlier, with the instance of {since}; its release continues"
        case Step.CORRECTED:
            return f"corrects the definition from {since} on, for all instances that have not begun"
        case Step.SUCCEEDED:
            old = f"; the old definition applies to {counted(waiting, 'instance')} before it" if waiting else ""
            return f"release {process.release} starts at {since}{old}"
        case Step.OVER:
            return "the new definition has no instance left; existing instances keep the old one"
        case Step.ENDS:
            killed = (
                "1 instance that has not ended is" if waiting == 1 else f"{waiting} instances that have not ended are"
            )
            return f"stops; {killed} killed" if waiting else "stops"
        case _:
            assert_never(process.step)


def _causes_text(process: ProcessDifference) -> str:
    others = [cause for cause in process.causes if cause.key != (Kind.PROCESS, process.process)]
    return f" (touched by {' and '.join(map(_cause_text, others))})" if others else ""


def _cause_text(cause: Cause) -> str:
    return f"{label_of(cause.key)}: {', '.join(cause.fields)}" if cause.fields else label_of(cause.key)


def _instances_line(each: InstancesDifference) -> str:
    what = describe_process(each.name) if each.kind is Kind.PROCESS else label_of((each.kind, each.name))
    where = f"{what} on {each.cluster}"
    shown = [
        f"{render_datetime(run.first)} to {render_datetime(run.last)}" if run.count > 1 else render_datetime(run.first)
        for run in each.ranges[:_SHOWN_RANGES]
    ]
    return f"{where}: {counted(each.count, 'instance')} {_effect_text(each)}: {', '.join(shown)}"


def _batches_line(each: BatchesDifference) -> str:
    batches = "1 batch" if each.batches == 1 else f"{each.batches} batches{' or more' if each.are_more else ''}"
    when = "at the next tick" if each.batches == 1 else "from the next tick on"
    when = "once one under way has ended" if each.busy else when
    taken = " and ".join(map(_input_text, filter(lambda item: item.pending, each.first))) or "no events"
    first = "" if each.batches == 1 else "the first "
    return f"process {each.process!r} on {each.cluster}: would cut {batches} {when}, {first}with {taken}"


def _input_text(item: InputDifference) -> str:
    passed = f" ({item.passed:,} passed over)" if item.passed else ""
    return f"{item.taken:,} of {counted(item.pending, 'pending event')} of {item.input}{passed}"


def _retention_line(each: RetentionDifference) -> str:
    where, fields = f"feed {each.feed!r} on {each.cluster}", ", ".join(each.fields)
    acts = f"the schedule acts on it from {render_datetime(each.acts_from)}, commands at once"
    return f"{where}: retention becomes stricter ({fields}); {acts}"


def _effect_text(each: InstancesDifference) -> str:
    match each.effect:
        case Effect.DUE if each.kind is Kind.FEED:
            return "newly expected"
        case Effect.DUE:
            return "newly due"
        case Effect.SKIPPED:
            return "skipped from the start because of catch_up and order"
        case Effect.DROPPED:
            return "dropped, unless they have ended"
        case Effect.EXPIRED:
            return "beyond the new limits of retention"
        case Effect.COPIED:
            return f"to copy from {each.of}"
        case Effect.NEXT:
            changed = label_of((Kind.DATASOURCE, each.of or ""))
            return f"is the next by {changed} as it will be, beside what waits or runs again"
        case _:
            assert_never(each.effect)
