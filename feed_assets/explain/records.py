"""Explanations: trees of sentences with their facts, for people and as JSON."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from feed_assets.access.rights import reads
from feed_assets.entities.common import Kind
from feed_assets.entities.flow_names import describe_process, is_flow, is_of_feed
from feed_assets.entities.maps import EMPTY
from feed_assets.json_form import NominalTime
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.timing.dates import render_datetime


class ReasonCode(StrEnum):
    """The subject of a reason. The first codes are of reasons that block an instance; see `Reason.blocks`."""

    NOT_DUE = "not-due"
    NOT_SCHEDULED = "not-scheduled"
    NOT_REACHED = "not-reached"
    INPUT_MISSING = "input-missing"
    INPUT_UNRESOLVED = "input-unresolved"
    SUSPENDED = "suspended"
    NO_SLOT = "no-slot"
    NOT_ITS_TURN = "not-its-turn"
    EARLIER_UNREAD = "earlier-unread"
    LEASE_HELD = "lease-held"
    OBSTRUCTED = "obstructed"
    TICK_FAILURE = "tick-failure"
    NOT_THERE = "not-there"
    VANISHED = "vanished"
    FORMER_PLACE = "former-place"
    NOT_POLLED = "not-polled"
    NOT_MATERIALIZED = "not-materialized"
    FLAG_MISSING = "flag-missing"
    QUALITY = "quality"
    EMPTY = "empty"
    EVICTED = "evicted"
    TRASHED = "trashed"
    ARCHIVED = "archived"
    PURGED = "purged"
    KEPT = "kept"
    EXPIRES = "expires"
    NEXT_SWEEP = "next-sweep"
    NOT_WRITTEN = "not-written"
    LEFT_OUT = "left-out"
    NO_WRITER = "no-writer"
    ENDED = "ended"
    STOPS = "stops"
    RETRY = "retry"
    REQUESTED = "requested"
    NEXT_TICK = "next-tick"
    NEXT_BATCH = "next-batch"
    RUNNING = "running"
    TIMES_OUT = "times-out"
    DEADLINE = "deadline"
    OPTIONAL_INPUT = "optional-input"
    INPUT_READ = "input-read"
    OUTPUT = "output"
    GOVERNED_BY = "governed-by"
    TRIGGER = "trigger"
    LAST_CHANGE = "last-change"
    LATE_CHECK = "late-check"
    LATE_DATA = "late-data"
    UPDATE = "update"
    RERUN = "rerun"
    RERUN_AWAITED = "rerun-awaited"
    BEHIND = "behind"
    REGISTRATION = "registration"
    SAFE_MODE = "safe-mode"
    RESTORED = "restored"
    POLLS = "polls"
    EVENT = "event"
    SEE_ABOVE = "see-above"
    NOT_FOLLOWED = "not-followed"
    TOLD = "told"
    NOT_TOLD = "not-told"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One sentence. `blocks` says that the reason holds the instance back; `facts` are JSON values by name; `causes`
    explain the instances that the sentence mentions. `command` is a command line that ends the reason, if one can.
    """

    code: ReasonCode
    text: str
    blocks: bool = False
    facts: Mapping[str, object] = field(default_factory=dict)
    causes: tuple["Explanation", ...] = ()
    command: str | None = None


def blocking(
    code: ReasonCode,
    text: str,
    facts: Mapping[str, object] = EMPTY,
    command: str | None = None,
    causes: "Iterable[Explanation]" = (),
) -> Reason:
    """Return a reason that holds the instance back."""
    return Reason(code=code, text=text, blocks=True, facts={**facts}, causes=tuple(causes), command=command)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One instance and the reasons for its state, blocking ones first; of one that who asks may not read, what kind of
    reasons these are, and their causes.
    """

    kind: Kind
    name: str
    cluster: str
    nominal_time: NominalTime
    status: str
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def of(cls, key: ProcessKey | FeedKey, status: str, *reasons: Reason) -> "Explanation":
        """Return why an instance of a process or feed has a status."""
        kind = Kind.FEED if isinstance(key, FeedKey) else Kind.PROCESS
        name, cluster, time = key
        return cls(kind=kind, name=name, cluster=cluster, nominal_time=time, status=status, reasons=reasons)

    def __post_init__(self) -> None:
        if not reads(self.kind, self.name):
            found = (replace(each, text=each.code.replace("-", " "), facts={}, command=None) for each in self.reasons)
            object.__setattr__(self, "reasons", tuple(found))

    @property
    def headline(self) -> str:
        """The instance and its state in one sentence."""
        time = render_datetime(self.nominal_time)
        is_due = all(reason.code is not ReasonCode.NOT_DUE for reason in self.reasons)
        return f"{self.label} at {time} is {self.status if is_due else 'not due yet'}"

    @property
    def summary(self) -> str:
        """The headline and the first reason."""
        return f"{self.headline}: {self.reasons[0].text}" if self.reasons else self.headline

    @property
    def label(self) -> str:
        """The process, feed, flow or transfer, and its cluster, in messages."""
        if self.kind is Kind.PROCESS and is_of_feed(self.name):
            return f"{describe_process(self.name)} {'to' if is_flow(self.name) else 'on'} {self.cluster}"
        return f"{self.kind.value} {self.name} on {self.cluster}"

    @property
    def blockers(self) -> tuple[Reason, ...]:
        """The blocking reasons."""
        return tuple(reason for reason in self.reasons if reason.blocks)

    def root_causes(self) -> tuple["Explanation", ...]:
        """Return the instances at the ends of the tree, with no cause upstream of them. Each occurs once."""
        found: dict[tuple[Kind, str, str, datetime], Explanation] = {}
        for each in self._iter_ends():
            found.setdefault((each.kind, each.name, each.cluster, each.nominal_time), each)
        return tuple(found.values())

    def _iter_ends(self) -> Iterator["Explanation"]:
        followed = [reason for reason in self.blockers if reason.command is None]
        causes = [cause for reason in followed for cause in reason.causes]
        if self._is_pointer:
            return
        if not causes or any(not reason.causes or reason.command is not None for reason in self.blockers):
            yield self
        for cause in causes:
            yield from cause._iter_ends()

    @property
    def root_sentence(self) -> str:
        """The root cause of the first blocking reason, in one short sentence."""
        root = self
        while (cause := root._first_cause()) is not None:
            root = cause
        reason = next(iter((*root.blockers, *root.reasons)), None)
        text = f"{self.name} {render_datetime(self.nominal_time)}"
        place = "" if root.cluster == self.cluster else f" on {root.cluster}"
        text += "" if root is self else f" for {root.name}{place} {render_datetime(root.nominal_time)}"
        return f"{text}: {reason.text}" if reason else text

    def _first_cause(self) -> "Explanation | None":
        causes = (cause for reason in self.blockers if reason.command is None for cause in reason.causes)
        return next((cause for cause in causes if not cause._is_pointer), None)

    @property
    def _is_pointer(self) -> bool:
        return any(reason.code is ReasonCode.SEE_ABOVE for reason in self.reasons)

    @property
    def digest(self) -> str:
        """A digest of the blocking reasons of the instance and of everything upstream of it, to detect changes. It
        leaves out values that change by themselves: times of polls and leases, and positions in the launch order.
        """
        lines = [repr(line) for line in self._iter_keeping()]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def _iter_keeping(self) -> Iterator[tuple[object, ...]]:
        yield self.kind.value, self.name, self.cluster, render_datetime(self.nominal_time), self.status
        for reason in self.blockers:
            yield reason.code.value, reason.facts.get("missing"), reason.facts.get("reason")
            for cause in reason.causes:
                yield from cause._iter_keeping()

    def render(self) -> str:
        """Return the tree as lines of text, each level indented by two more blanks."""
        return "\n".join(self._iter_lines(0))

    def _iter_lines(self, depth: int) -> Iterator[str]:
        mark = "- " if depth else ""
        yield f"{'  ' * depth}{mark}{self.headline}"
        for reason in self.reasons:
            yield f"{'  ' * (depth + 1)}- {reason.text}{':' if reason.causes else ''}"
            if reason.command is not None:
                yield f"{'  ' * (depth + 1)}  $ {reason.command}"
            for cause in reason.causes:
                yield from cause._iter_lines(depth + 2)
