"""The text form of a difference: added, changed and removed entities, the consequences, and a line of counts."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import assert_never

from feed_assets.entities.common import Kind, label_of
from feed_assets.plan.difference_records import (
    BatchesDifference,
    Cause,
    Effect,
    EntityChange,
    EntityDifference,
    FieldDifference,
    InputDifference,
    InstancesDifference,
    PlanDifference,
    ProcessDifference,
    RetentionDifference,
)
from feed_assets.plan.release_fingerprint import Step, Weight
from feed_assets.timing.dates import render_datetime

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
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


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
    where = f"{each.kind.value} {each.name!r} on {each.cluster}"
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
        case _:
            assert_never(each.effect)
