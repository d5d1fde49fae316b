"""What `why` tells: in its short form one screen, the root causes first, and what a person can do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from feed_assets.context.consolidation import Consolidated
from feed_assets.context.operation import OperationContext
from feed_assets.context.subjects import Subject
from feed_assets.entities.common import Kind
from feed_assets.explain.explanations import explain
from feed_assets.explain.records import Explanation, Reason, ReasonCode
from feed_assets.explain.tick_failures import find_silence
from feed_assets.instances.lists.ranges import join_consecutive, render_range
from feed_assets.log.records import FeedKey
from feed_assets.operation import Page
from feed_assets.plan.rendering import counted
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.triggers.waiting import Queue

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained(Consolidated[Explanation]):
    """What is told of an instance on each of its clusters, in `rows` for people; `silence` says that no ticks come."""

    silence: str | None
    rows: tuple[str, ...]

    def document(self, name: str) -> Mapping[str, object]:
        """Return the members of the JSON form."""
        causes = [root for each in self.items for root in each.root_causes()]
        return {**Consolidated.document(self, name), "root_causes": causes, "no_ticks": self.silence}


def tell_why(context: OperationContext, subject: Subject, *, shows_all: bool, look: bool, author: str) -> Explained:
    """Explain an instance in the short form, or with `shows_all` in the whole one. With `look`, storage is asked first,
    and what has arrived or is gone is recorded in the name of `author`.
    """
    found, remarks = explain(context, subject), list[str]()
    if look:
        from feed_assets.instances.lists.polled_ranges import poll_instances_now, record_vanished_now

        if lost := record_vanished_now(context, subject, {each.cluster for each in found.items}, author):
            remarks.append(f"{counted(lost, 'instance')} lost by storage, and recorded as missing")
            found = explain(context, subject)
        roots = [root for each in found.items for root in each.root_causes() if root.kind is Kind.FEED]
        missing = [FeedKey(root.name, root.cluster, root.nominal_time) for root in roots]
        if arrived := poll_instances_now(context, missing, author):
            remarks.append(f"{counted(arrived, 'instance')} found in storage and recorded")
            found = explain(context, subject)
    undone = {each.cluster for each in found.items if each.status not in ("AVAILABLE", "SUCCEEDED")}
    silence = find_silence(context, undone)
    told = (each.render() if shows_all else render_summary(each, context.find_sequence) for each in found.items)
    rows = (*filter(None, [silence]), *told)
    return Explained(parts=found.parts, remarks=tuple(remarks), silence=silence, rows=rows)


class NextBatches(Page[Queue]):
    """What the next batch of a process waits for, on each of its clusters."""

    def document(self, name: str) -> Mapping[str, object]:  # noqa: ARG002
        """Return the members of the JSON form."""
        return Page.document(self, "queues")

    @property
    def rows(self) -> tuple[str, ...]:
        """What it lacks and waits for, of each queue."""
        return tuple("\n  - ".join((each.headline, each.lacks, *each.waits)) for each in self.items)
