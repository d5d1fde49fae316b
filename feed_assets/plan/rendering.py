"""A difference as text: what is added, changed and removed, then what follows from it, then one line of counts."""

import json
from collections.abc import Iterator
from typing import assert_never

from feed_assets.entities.common import Kind, label_of
from feed_assets.plan.difference_records import (
    Cause,
    Effect,
    EntityDifference,
    FieldDifference,
    InstancesDifference,
    PlanDifference,
    ProcessDifference,
    Turn,
)
from feed_assets.plan.signs import Step, Weight
from feed_assets.timing.dates import render_datetime

_SIGNS = {Turn.ADDED: "+", Turn.CHANGED: "~", Turn.REMOVED: "-"}
_SHOWN_RANGES = 3
_WIDTH = 100


def render_difference(difference: PlanDifference) -> str:
    """The whole difference for people; ends without a line break."""
    return "\n".join(_lines(difference))


def render_counts(difference: PlanDifference) -> str:
    """The last line: how much of what."""
    entities = ", ".join(f"{len(difference.of_turn(turn))} {turn.value}" for turn in Turn)
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
                (difference.count(Effect.COPIED), "to be copied"),
            )
        ),
    ]
    return f"{entities}; {', '.join([*(text for count, text in follows if count), 'none run again'])}."


def counted(count: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "instance"), counted(2000, "instance")
    ('1 instance', '2,000 instances')
    """
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def _lines(difference: PlanDifference) -> Iterator[str]:
    if difference.is_empty:
        yield "Nothing would change."
        return
    for entity in difference.entities:
        yield from _entity_lines(entity)
    follows = [_process_line(process) for process in difference.processes]
    follows += [_instances_line(each) for each in difference.instances]
    if follows:
        yield ""
        yield "What follows:"
        yield from (f"  {line}" for line in follows)
    yield ""
    yield render_counts(difference)


def _entity_lines(entity: EntityDifference) -> Iterator[str]:
    place = f"  ({entity.source.render()})" if entity.source else ""
    yield f"{_SIGNS[entity.turn]} {entity.label}{place}"
    if entity.turn is not Turn.CHANGED:
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
        yield "    Feeds and processes follow by update-cluster-dependents."


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
            f"refused: its new end {render_datetime(process.ends_at)} is past. Set a later end, or delete the process "
            "and submit it anew"
        )
    since = render_datetime(process.effective_from) if process.effective_from else "never"
    waiting = process.standing.unended
    match process.step:
        case Step.BEGINS if not process.standing.is_active:
            return "is only stored until it is scheduled"
        case Step.BEGINS:
            return f"begins with the instance of {since}"
        case Step.IN_PLACE:
            return "changes in place; its releases go on"
        case Step.EXTENDED:
            return f"begins earlier, with the instance of {since}; its release goes on"
        case Step.CORRECTED:
            return f"the definition is corrected from {since} on, for all that was not begun"
        case Step.SUCCEEDED:
            old = f", {counted(waiting, 'instance')} before it stay with the old definition" if waiting else ""
            return f"release {process.release} begins at {since}{old}"
        case Step.OVER:
            return "no instance of the new definition is left; the old one stands for what there is"
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
        for run in each.runs[:_SHOWN_RANGES]
    ]
    return f"{where}: {counted(each.count, 'instance')} {_effect_text(each)}: {', '.join(shown)}"


def _effect_text(each: InstancesDifference) -> str:
    match each.effect:
        case Effect.DUE if each.kind is Kind.FEED:
            return "newly expected"
        case Effect.DUE:
            return "newly due"
        case Effect.SKIPPED:
            return "skipped from the start, as catch_up and order have it"
        case Effect.DROPPED:
            return "dropped, unless they have ended"
        case Effect.EXPIRED:
            return "older than the retention limit at once"
        case Effect.COPIED:
            return f"to be copied from {each.of}"
        case _:
            assert_never(each.effect)
