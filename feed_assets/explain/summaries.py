"""The short form of an explanation: one screen, the root causes first, and what a person can do."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice

from feed_assets.entities.common import Kind
from feed_assets.explain.records import Explanation, Reason, ReasonCode
from feed_assets.instances.lists.ranges import join_consecutive, render_range
from feed_assets.plan.rendering import counted
from feed_assets.timing.sequence import InstanceSequence

LINES = 20
"""The most lines of a summary, which leave room for the command and the prompt on a screen of 24."""

_ROOTS = 3
_BACKGROUND = frozenset(
    {
        ReasonCode.GOVERNED_BY,
        ReasonCode.INPUT_READ,
        ReasonCode.LAST_CHANGE,
        ReasonCode.OPTIONAL_INPUT,
        ReasonCode.OUTPUT,
        ReasonCode.TRIGGER,
    }
)
"""What the short form of a blocked instance leaves out."""

FindSequence = Callable[[Kind, str, str], InstanceSequence | None]
"""Returns the instances of a feed or process on a cluster; None if it is not declared."""


def render_summary(explanation: Explanation, find_sequence: FindSequence) -> str:
    """Return at most `LINES` lines: the instance and its state, its root causes, its own reasons, each with the command
    that ends it. Equal root causes of consecutive instances are one.
    """
    lines = [explanation.headline, *_iter_roots(explanation, find_sequence), *_iter_own(explanation)]
    if len(lines) <= LINES:
        return "\n".join(lines)
    return "\n".join([*lines[: LINES - 1], f"  … and {len(lines) - LINES + 1} more lines; --all shows everything"])


def _iter_roots(explanation: Explanation, find_sequence: FindSequence) -> Iterator[str]:
    roots = [root for root in explanation.root_causes() if root != explanation]
    groups = group_roots(roots, find_sequence)
    for first, last, root, count in groups[:_ROOTS]:
        number = f" ({counted(count, 'instance')})" if count > 1 else ""
        yield f"  because {root.label} at {render_range(first, last)} is {root.status}{number}"
        for reason in islice(_told(root), 2):
            yield from _lines(reason, "    ")
    if len(groups) > _ROOTS:
        yield f"  and {len(groups) - _ROOTS} more root causes; --all shows them"


def group_roots(
    roots: Sequence[Explanation], find_sequence: FindSequence
) -> list[tuple[datetime, datetime, Explanation, int]]:
    """Join root causes of consecutive instances that have the same state and the same kinds of reasons.

    Returns the first and last nominal time, the explanation of the first one, and the number of instances.
    """
    firsts: dict[tuple[object, datetime], Explanation] = {}
    rows = []
    for root in roots:
        cells = (root.label, root.status, tuple(reason.code for reason in root.reasons))
        firsts[cells, root.nominal_time] = root
        rows.append((root.nominal_time, find_sequence(root.kind, root.name, root.cluster), cells))
    groups = []
    for first, last, cells in join_consecutive(rows):
        count = sum(of == cells and first <= time <= last for of, time in firsts)
        groups.append((first, last, firsts[cells, first], count))
    return groups


def _iter_own(explanation: Explanation) -> Iterator[str]:
    for reason in _told(explanation):
        yield from _lines(reason, "  ")


def _told(explanation: Explanation) -> Iterator[Reason]:
    """Yield the reasons of an instance itself, of a blocked one without the background."""
    is_blocked = bool(explanation.blockers)
    for reason in explanation.reasons:
        if not (is_blocked and reason.code in _BACKGROUND):
            yield reason


def _lines(reason: Reason, indent: str) -> Iterator[str]:
    yield f"{indent}- {reason.text}"
    if reason.command is not None:
        yield f"{indent}  $ {reason.command}"
