"""The quality of feed instances, as the attempts that wrote them have found it, or the runs that judged what came from
outside; of those that were not published or let in, too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Any

from sqlalchemy import Connection

from feed_assets.catalog.run_metadata import CONDITION, HOLDS, QUALITY, RULE, Fact, Facts
from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext, Subject
from feed_assets.entities.flow_names import is_flow
from feed_assets.errors import Fault
from feed_assets.instances.late.quality_checks import QualityCheck, QualityChecks
from feed_assets.json_form import NominalTime
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.plan.edges import OutputEdge
from feed_assets.timing.dates import render_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceQuality:
    """What the newest attempt has found about the rows of an instance. `broken` has the rows that broke each rule,
    `failed` why conditions on all rows do not hold.

    `passed` says whether they were good enough. `quarantine` is the feed whose instance of this time has the bad ones.
    What comes from outside has no process; `accepted` says who has taken it as it is, and why.
    """

    feed: str
    cluster: str
    nominal_time: NominalTime
    passed: bool
    rows: int
    good: int
    rejected: int
    percent: float
    threshold: float
    broken: Mapping[str, int]
    quarantine: str | None
    process: str | None
    process_time: NominalTime | None
    attempt: int | None
    recorded_at: datetime
    failed: Mapping[str, str] = field(default_factory=dict)
    accepted: str | None = None

    @property
    def result(self) -> str:
        """The verdict in a word."""
        return "passed" if self.passed else "failed"

    @property
    def broken_rules(self) -> str:
        """The rules that rows broke, and how many; then the conditions that do not hold."""
        return ", ".join([*(f"{name} {number:,}" for name, number in self.broken.items() if number), *self.failed])

    @property
    def lines(self) -> Iterator[str]:
        """All of it for people."""
        verdict = "is good enough" if self.passed else "is not good enough"
        yield f"feed {self.feed} on {self.cluster} at {render_datetime(self.nominal_time)} {verdict}"
        shares = f"{self.percent:.12g} %, needed are {self.threshold:.12g} %"
        yield f"  {self.good:,} of {self.rows:,} rows are good: {shares}"
        for name, number in self.broken.items():
            yield f"  rule {name}: broken by {number:,}"
        for name, reason in self.failed.items():
            yield f"  condition {name}: {reason}"
        if self.quarantine is not None:
            yield f"  bad rows: feed {self.quarantine} at {render_datetime(self.nominal_time)}"
        if self.accepted is not None:
            yield f"  accepted by {self.accepted}"
        by = "by a run that judged it"
        if self.process_time is not None:
            by = f"by process {self.process} at {render_datetime(self.process_time)}, attempt {self.attempt}"
        yield f"  {by}, {render_datetime(self.recorded_at)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityTrend:
    """The newest instances whose rows were looked at, newest first, and the figures of all of them together."""

    feed: str
    instances: tuple[InstanceQuality, ...]
    rows: int
    good: int
    percent: float
    failed: int

    @property
    def summary(self) -> str:
        """The figures of all and the worst instance, for people; nothing without instances."""
        worst = min(self.instances, key=lambda each: each.percent, default=None)
        if worst is None:
            return ""
        return (
            f"{self.percent:.12g} % of {self.rows:,} rows are good; the worst instance is "
            f"{render_datetime(worst.nominal_time)} with {worst.percent:.12g} %; "
            f"{self.failed:,} of {len(self.instances):,} failed"
        )


def show_quality(context: OperationContext, feed: Subject) -> tuple[InstanceQuality, ...]:
    """Return the quality of an instance, or of the newest one, on each cluster where a process writes the feed, or
    where it comes from outside.

    Raises:
        InstanceQueryError: nothing was found about it, or it is not on the cluster.
    """
    found: list[InstanceQuality] = []
    nominal_time = feed.nominal_time
    with context.read() as connection:
        found += _judged(context, connection, feed, 1)
        for edge in _find_edges(context, feed):
            if nominal_time is None:
                found += _newest(context, connection, edge, 1)
                continue
            for time in context.plan.writer_times(edge, nominal_time):
                facts = Facts(connection).of(ProcessKey(*edge.process_key, time))
                found += _build(context, edge, [fact for fact in facts if fact.category == f"{QUALITY}{edge.name}"])
        known = [] if found or nominal_time is None else [*_checks(context, connection, feed, 1)]
    if not found:
        at = "" if nominal_time is None else f" at {render_datetime(nominal_time)}"
        reason, next_step = "no attempt has looked at its rows", "It does so when it writes the instance"
        if known:
            reason, next_step = known[0].sentence, "There are figures once a run has judged its rows"
        raise InstanceQueryError(
            subject=f"feed {feed.name!r}{at}",
            reason=reason,
            next_step=f"{next_step}, if quality is declared.",
            fault=Fault.MISSING,
        )
    return tuple(found)


def quality_history(context: OperationContext, feed: Subject, limit: int = 30) -> QualityTrend:
    """Return the quality of the newest instances of a feed.

    Raises:
        InstanceQueryError: no process is held to a quality of it, or it is not on the cluster.
    """
    with context.read() as connection:
        found = [each for edge in _find_edges(context, feed) for each in _newest(context, connection, edge, limit)]
        found += _judged(context, connection, feed, limit)
    newest = sorted(found, key=lambda each: each.nominal_time, reverse=True)[:limit]
    rows, good = (sum(getattr(each, name) for each in newest) for name in ("rows", "good"))
    return QualityTrend(
        feed=feed.name,
        instances=tuple(newest),
        rows=rows,
        good=good,
        percent=good * 100_000 // rows / 1_000 if rows else 100.0,
        failed=sum(not each.passed for each in newest),
    )


def _find_edges(context: OperationContext, feed: Subject) -> Sequence[OutputEdge]:
    """Return the outputs that write a feed, with a quality or facts of a former one."""
    on = [context.feed_on(feed.name, each).cluster for each in feed.asked]
    written = [edge for each in feed.on for edge in context.feed_on(feed.name, each).outputs_of]
    edges = [edge for edge in written if edge.quarantine_of is None and not is_flow(edge.process)]
    wanted = [edge for edge in edges if edge.cluster in on]
    if not wanted and not any(context.plan.feeds[feed.name, each].is_judged for each in on):
        places = ", ".join(sorted({edge.cluster for edge in edges}))
        raise InstanceQueryError(
            subject=f"feed {feed.name!r}" + (f" on {', '.join(on)}" if edges else ""),
            reason="no process writes it, so nobody has looked at its rows",
            next_step=f"One writes it on {places}: ask there."
            if edges
            else "Name a feed that declares quality, and that a process writes or that comes from outside.",
        )
    return wanted


def _checks(context: OperationContext, connection: Connection, feed: Subject, limit: int) -> Iterator[QualityCheck]:
    """Yield the check of an instance that came from outside, or those of the newest ones."""
    for cluster in feed.asked:
        if context.feed_on(feed.name, cluster).is_judged:
            checks, key = QualityChecks(connection), (feed.name, cluster)
            if feed.nominal_time is None:
                yield from checks.newest(*key, limit)
            else:
                yield from checks.of_instances([FeedKey(*key, feed.nominal_time)]).values()


def _judged(context: OperationContext, connection: Connection, feed: Subject, limit: int) -> Iterator[InstanceQuality]:
    """Yield what was found about an instance that came from outside, or about the newest ones."""
    for each in _checks(context, connection, feed, limit):
        if each.facts:
            yield InstanceQuality(
                feed=each.name,
                cluster=each.cluster,
                nominal_time=each.nominal_time,
                **_figures(each.facts),
                quarantine=None,
                process=None,
                process_time=None,
                attempt=None,
                recorded_at=each.planned_at,
                accepted=each.accepted,
            )


def _figures(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the figures of an instance from its facts."""
    conditions = {name.removeprefix(CONDITION): text for name, text in values.items() if name.startswith(CONDITION)}
    return {
        "passed": values["did.dq.pass"] == "true",
        "rows": int(values["records.count"]),
        "good": int(values["good.records.count"]),
        "rejected": int(values["rejected.records.count"]),
        "percent": float(Decimal(values["good.records.percent"])),
        "threshold": float(Decimal(values["good.records.threshold"])),
        "broken": {name.removeprefix(RULE): int(text) for name, text in values.items() if name.startswith(RULE)},
        "failed": {name: text for name, text in conditions.items() if text != HOLDS},
    }


def _newest(
    context: OperationContext, connection: Connection, edge: OutputEdge, limit: int
) -> Iterable[InstanceQuality]:
    facts = Facts(connection).newest(*edge.process_key, f"{QUALITY}{edge.name}", limit)
    for _, found in groupby(facts, key=lambda fact: fact.nominal_time):
        yield from _build(context, edge, list(found))


def _build(context: OperationContext, edge: OutputEdge, facts: Sequence[Fact]) -> Iterable[InstanceQuality]:
    """Yield the quality of an instance from the facts of its attempts: that of the newest; nothing without facts."""
    attempt = max((fact.attempt for fact in facts), default=None)
    of_attempt = [fact for fact in facts if fact.attempt == attempt]
    if not of_attempt:
        return
    values, first = {fact.name: fact.value for fact in of_attempt}, of_attempt[0]
    quality = context.plan.feeds[edge.feed_key].quality
    time = context.plan.output_time(edge, first.nominal_time)
    if time is None:
        return
    yield InstanceQuality(
        feed=edge.feed,
        cluster=edge.cluster,
        nominal_time=time,
        **_figures(values),
        quarantine=quality.quarantine if quality is not None else None,
        process=edge.process,
        process_time=first.nominal_time,
        attempt=first.attempt,
        recorded_at=first.recorded_at,
    )
