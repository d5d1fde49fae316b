"""Why an instance is as it is: a tree of sentences with their facts, for people and as JSON."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import describe_process, is_flow
from feed_assets.timing.dates import render_datetime

VERSION = 1


class ReasonCode(StrEnum):
    """What a reason is about. The first ones keep an instance from being there or from running; see `Reason.blocks`."""

    NOT_DUE = "not-due"
    NOT_SCHEDULED = "not-scheduled"
    NOT_REACHED = "not-reached"
    INPUT_MISSING = "input-missing"
    INPUT_UNRESOLVED = "input-unresolved"
    SUSPENDED = "suspended"
    NO_SLOT = "no-slot"
    NOT_ITS_TURN = "not-its-turn"
    LEASE_HELD = "lease-held"
    NOT_THERE = "not-there"
    FLAG_MISSING = "flag-missing"
    EMPTY = "empty"
    EVICTED = "evicted"
    TRASHED = "trashed"
    ARCHIVED = "archived"
    PURGED = "purged"
    KEPT = "kept"
    EXPIRES = "expires"
    NEXT_SWEEP = "next-sweep"
    NOT_WRITTEN = "not-written"
    NO_WRITER = "no-writer"
    ENDED = "ended"
    RETRY = "retry"
    REQUESTED = "requested"
    NEXT_TICK = "next-tick"
    RUNNING = "running"
    TIMES_OUT = "times-out"
    OPTIONAL_INPUT = "optional-input"
    INPUT_READ = "input-read"
    OUTPUT = "output"
    GOVERNED_BY = "governed-by"
    TRIGGER = "trigger"
    LAST_CHANGE = "last-change"
    LATE_CHECK = "late-check"
    LATE_DATA = "late-data"
    SAFE_MODE = "safe-mode"
    LOOKS = "looks"
    EVENT = "event"
    SEE_ABOVE = "see-above"
    NOT_FOLLOWED = "not-followed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One sentence. `blocks` says that the instance would come further without it; `facts` are JSON values by name;
    `causes` explain the instances that it speaks of.
    """

    code: ReasonCode
    text: str
    blocks: bool = False
    facts: Mapping[str, object] = field(default_factory=dict)
    causes: tuple["Explanation", ...] = ()

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        found: dict[str, object] = {"code": self.code.value, "text": self.text, "blocks": self.blocks}
        if self.facts:
            found["facts"] = dict(self.facts)
        if self.causes:
            found["causes"] = [cause.to_json() for cause in self.causes]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One instance and the reasons for its state, those that block it first."""

    kind: Kind
    name: str
    cluster: str
    nominal_time: datetime
    status: str
    reasons: tuple[Reason, ...] = ()

    @property
    def headline(self) -> str:
        """The instance and its state in one sentence."""
        time = render_datetime(self.nominal_time)
        return f"{self._label} at {time} is {self.status}"

    @property
    def _label(self) -> str:
        if self.kind is Kind.PROCESS and is_flow(self.name):
            return f"{describe_process(self.name)} to {self.cluster}"
        return f"{self.kind.value} {self.name} on {self.cluster}"

    @property
    def blockers(self) -> tuple[Reason, ...]:
        """The reasons that keep it from coming further."""
        return tuple(reason for reason in self.reasons if reason.blocks)

    def root_causes(self) -> tuple["Explanation", ...]:
        """The instances at the ends of the tree: nothing upstream of them is to blame. Each is named once."""
        found: dict[tuple[Kind, str, str, datetime], Explanation] = {}
        for each in self._iter_ends():
            found.setdefault((each.kind, each.name, each.cluster, each.nominal_time), each)
        return tuple(found.values())

    def _iter_ends(self) -> Iterator["Explanation"]:
        causes = [cause for reason in self.blockers for cause in reason.causes]
        if self._is_pointer:
            return
        if not causes or any(not reason.causes for reason in self.blockers):
            yield self
        for cause in causes:
            yield from cause._iter_ends()

    @property
    def root_sentence(self) -> str:
        """The instance and the first thing that keeps it, followed to its end, in one short sentence."""
        root = self
        while (cause := root._first_cause()) is not None:
            root = cause
        reason = next(iter((*root.blockers, *root.reasons)), None)
        text = f"{self.name} {render_datetime(self.nominal_time)}"
        place = "" if root.cluster == self.cluster else f" on {root.cluster}"
        text += "" if root is self else f" for {root.name}{place} {render_datetime(root.nominal_time)}"
        return f"{text}: {reason.text}" if reason else text

    def _first_cause(self) -> "Explanation | None":
        causes = (cause for reason in self.blockers for cause in reason.causes)
        return next((cause for cause in causes if not cause._is_pointer), None)

    @property
    def _is_pointer(self) -> bool:
        return any(reason.code in _POINTERS for reason in self.reasons)

    @property
    def digest(self) -> str:
        """A digest of what keeps the instance and those upstream of it, for noticing that it has become something else.

        What only passes by itself is not in it: times of looks and of leases, numbers of others that go first.
        """
        lines = [repr(line) for line in self._iter_keeping()]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def _iter_keeping(self) -> Iterator[tuple[object, ...]]:
        yield self.kind.value, self.name, self.cluster, render_datetime(self.nominal_time), self.status
        for reason in self.blockers:
            yield reason.code.value, reason.facts.get("missing"), reason.facts.get("reason")
            for cause in reason.causes:
                yield from cause._iter_keeping()

    def to_json(self) -> dict[str, object]:
        """The JSON form of this instance and what is below it."""
        return {
            "kind": self.kind.value,
            "name": self.name,
            "cluster": self.cluster,
            "instance": render_datetime(self.nominal_time),
            "status": self.status,
            "reasons": [reason.to_json() for reason in self.reasons],
        }

    def render(self) -> str:
        """The tree as lines of text, each level two blanks further in."""
        return "\n".join(self._iter_lines(0))

    def _iter_lines(self, depth: int) -> Iterator[str]:
        mark = "- " if depth else ""
        yield f"{'  ' * depth}{mark}{self.headline}"
        for reason in self.reasons:
            yield f"{'  ' * (depth + 1)}- {reason.text}{':' if reason.causes else ''}"
            for cause in reason.causes:
                yield from cause._iter_lines(depth + 2)


_POINTERS = frozenset({ReasonCode.SEE_ABOVE})


def document(explanations: tuple[Explanation, ...]) -> dict[str, object]:
    """The JSON document of the explanations of one instance on several clusters, `version` 1."""
    return {
        "version": VERSION,
        "instances": [
            {
                **explanation.to_json(),
                "rootCauses": [
                    {
                        "kind": root.kind.value,
                        "name": root.name,
                        "cluster": root.cluster,
                        "instance": render_datetime(root.nominal_time),
                        "status": root.status,
                    }
                    for root in explanation.root_causes()
                ],
            }
            for explanation in explanations
        ],
    }
