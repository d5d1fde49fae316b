"""Decide whether a batch runs, when a consumer is looked at next, and what its inputs still lack."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from feed_assets.plan.edges import All, Any, Condition, Name, TriggerInput, TriggerRecord
from feed_assets.plan.records import ProcessRecord
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.triggers.input_windows import InputState
from feed_assets.triggers.queue.records import Mark, TriggerState

_MOMENT = timedelta(microseconds=1)


class Fire(StrEnum):
    """Why a batch runs: its condition holds, its grid says so, or it may not wait longer."""

    CONDITION = "condition"
    EVERY = "every"
    BY = "by"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What is pending at one input. Only `fresh` of its events count for the condition; others are too old."""

    mark: Mark
    fresh: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether and why a batch runs now; and if it does not, or once it has been cut, the times of the consumer.

    `quiet_at` is the end of the silence that a condition which holds still waits for.
    """

    fire: Fire | None
    next_at: datetime | None
    by_at: datetime | None
    wake_at: datetime | None
    quiet_at: datetime | None = None


def has_come(each: TriggerInput, pending: Pending | None) -> bool:
    """Return whether an input has come: enough events that still count, and the one that ends a batch."""
    if pending is None or pending.fresh < each.at_least:
        return False
    return each.until is None or pending.mark.marker_seq is not None


def holds(condition: Condition, come: Mapping[str, bool]) -> bool:
    """Return whether a condition holds; `come` says of each input whether it has come.

    >>> condition = All((Name("orders", "orders"), Name("rates", "rates")))
    >>> holds(condition, {"orders": True, "rates": True}), holds(condition, {"orders": True})
    (True, False)
    """
    match condition:
        case Name():
            return condition.input is not None and come.get(condition.input, False)
        case All():
            return all(holds(part, come) for part in condition.parts)
        case Any():
            return any(holds(part, come) for part in condition.parts)


def decide_fire(
    record: ProcessRecord, pending: Mapping[str, Pending], state: TriggerState, as_of: datetime
) -> Decision:
    """Decide whether a batch of a consumer runs at `as_of`, by what is pending at its inputs.

    A time of a grid that has passed counts once, however many have passed. The grid of `and_every` waits for the
    condition, and `by` for nothing: if nothing is pending then, it is over until the next day.
    """
    trigger, start, end = record.trigger, record.sequence.start, record.sequence.end
    assert trigger is not None
    if as_of < start or (end is not None and as_of >= end):
        return Decision(fire=None, next_at=state.next_at, by_at=state.by_at, wake_at=start if as_of < start else None)
    is_every = _is_due(state.next_at, as_of)
    is_by = _is_due(state.by_at, as_of)
    condition = holds(trigger.condition, {each.name: has_come(each, pending.get(each.name)) for each in trigger.inputs})
    quiet_at = _quiet_from(trigger, pending)
    fire: Fire | None = None
    if trigger.or_every is not None and is_every:
        fire = Fire.EVERY
    elif is_by and any(each.mark.pending for each in pending.values()):
        fire = Fire.BY
    elif condition and (trigger.and_every is None or is_every) and (quiet_at is None or quiet_at <= as_of):
        fire = Fire.CONDITION
    grid, by = trigger.grids
    next_at = (
        _following(grid, as_of) if is_every and (fire is not None or trigger.or_every is not None) else state.next_at
    )
    by_at = _following(by, as_of) if is_by else state.by_at
    if fire is not None or not condition or (quiet_at is not None and quiet_at <= as_of):
        quiet_at = None
    waiting = [each for each in (next_at, by_at, quiet_at) if each is not None and each > as_of]
    wake_at = min(waiting, default=None)
    return Decision(fire=fire, next_at=next_at, by_at=by_at, wake_at=wake_at, quiet_at=quiet_at)


def first_times(
    trigger: TriggerRecord, known: TriggerState | None, as_of: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return the next times of a trigger's grids: those that are known, as far as they are on its grids."""
    grid, by = trigger.grids
    old = (None, None) if known is None else (known.next_at, known.by_at)
    return _kept(grid, old[0], as_of), _kept(by, old[1], as_of)


def _kept(grid: InstanceSequence | None, known: datetime | None, as_of: datetime) -> datetime | None:
    return known if grid is not None and known is not None and grid.contains(known) else _following(grid, as_of)


def _is_due(moment: datetime | None, as_of: datetime) -> bool:
    return moment is not None and moment <= as_of


def _following(grid: InstanceSequence | None, as_of: datetime) -> datetime | None:
    return None if grid is None else grid.ceil(as_of + _MOMENT)


def _quiet_from(trigger: TriggerRecord, pending: Mapping[str, Pending]) -> datetime | None:
    times = [each.mark.last_at for each in pending.values() if each.mark.last_at is not None]
    return max(times) + trigger.quiet if trigger.quiet is not None and times else None


def render_lacking(trigger: TriggerRecord, pending: Mapping[str, Pending]) -> str:
    """Return how many conditions hold, and what those lack that do not: `2 of 3; approval lacks an event`."""
    inputs = {each.name: each for each in trigger.inputs}
    come = {name: has_come(each, pending.get(name)) for name, each in inputs.items()}
    parts = trigger.condition.parts if isinstance(trigger.condition, All) else (trigger.condition,)
    unmet = [part for part in parts if not holds(part, come)]
    lacks = (" or ".join(_lacks(part, inputs, pending, come)) for part in unmet)
    return "; ".join((f"{len(parts) - len(unmet)} of {len(parts)}", *lacks))


def _lacks(
    condition: Condition, inputs: Mapping[str, TriggerInput], pending: Mapping[str, Pending], come: Mapping[str, bool]
) -> Iterator[str]:
    match condition:
        case Name(text, None):
            yield f"{text} is not declared"
        case Name(text, str() as name):
            yield f"{text} lacks {_lack(inputs[name], pending.get(name))}"
        case All():
            unmet = [part for part in condition.parts if not holds(part, come)]
            yield " and ".join(text for part in unmet for text in _lacks(part, inputs, pending, come))
        case Any():
            for part in condition.parts:
                yield from _lacks(part, inputs, pending, come)


def _lack(each: TriggerInput, pending: Pending | None) -> str:
    fresh = 0 if pending is None else pending.fresh
    old = 0 if pending is None else pending.mark.pending - fresh
    too_old = f" ({old} pending too old)" if old else ""
    if fresh < each.at_least:
        return (
            f"an event{too_old}"
            if each.at_least == 1
            else f"{each.at_least - fresh} of {each.at_least} events{too_old}"
        )
    return f"an event marked {each.until}"


def describe_lacking(closed: Sequence[InputState]) -> str:
    """Return what the inputs lack that keep a batch from running."""
    return "; ".join(f"input {state.edge.name!r} lacks {_describe(state)}" for state in closed)


def _describe(state: InputState) -> str:
    feed = f"feed {state.edge.feed!r}"
    if not state.missing:
        return f"an instance of {feed}"
    first = render_datetime(state.missing[0])
    return f"{len(state.missing)} of {len(state.expected or ())} instances of {feed}, the first {first}"
