"""The failures of ticks and runs that keep an instance waiting."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from sqlalchemy import Connection

from feed_assets.context.bulkheads import CHECKS_OF, TickFailure, TickStep
from feed_assets.entities.common import Kind
from feed_assets.explain.records import Reason, ReasonCode
from feed_assets.instances.lists.rows import rendered
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.records import ProcessRecord

_OF_PROCESSES = (
    TickStep.INSTANCES,
    TickStep.GATES,
    TickStep.REQUESTS,
    TickStep.RETRIES,
    TickStep.PAST_ARRIVALS,
    TickStep.REPLICATION,
)
"""The steps whose units are processes; a step that fails as a whole has no subject."""
_COMING = (TickStep.MATERIALIZATIONS, TickStep.WATCHES, TickStep.INBOXES)
"""The steps whose units are feeds, without which no instance of theirs comes."""


def explain_process_failures(
    failures: Iterable[TickFailure], key: ProcessKey, record: ProcessRecord | None
) -> Iterator[Reason]:
    """Yield what fails in the ticks and runs of a process, and in the late checks of its instances."""
    subjects = {step: {"", key.process} for step in (*_OF_PROCESSES, TickStep.UPDATES)}
    if record is not None and record.late is not None:
        late = {edge.feed for edge in record.inputs if edge.is_late}
        subjects[TickStep.LATE_DATA] = {"", f"{Kind.PROCESS.value} {key.process}", *late}
    for failure in failures:
        if failure.cluster == key.cluster and _is_of(failure, subjects):
            yield _reason(failure, key.process, blocks=failure.step in _OF_PROCESSES)


def explain_feed_failures(connection: Connection, failures: Iterable[TickFailure], key: FeedKey) -> Iterator[Reason]:
    """Yield what fails in the late checks and in the retention of a feed."""
    subjects = {step: {"", key.feed, f"{CHECKS_OF}{key.feed}"} for step in _COMING}
    subjects[TickStep.LATE_DATA] = {"", key.feed, f"{Kind.FEED.value} {key.feed}"}
    subjects[TickStep.REGISTRATIONS] = {""}
    for failure in (each for each in failures if each.cluster == key.cluster):
        is_kept = failure.step is TickStep.RETENTION and _concerns(connection, failure.subject, key.feed)
        if is_kept or _is_of(failure, subjects):
            yield _reason(failure, key.feed, blocks=failure.step in _COMING)


def _is_of(failure: TickFailure, subjects: Mapping[TickStep, Collection[str]]) -> bool:
    return failure.step is TickStep.DEFINITIONS or failure.subject in subjects.get(failure.step, ())


def _concerns(connection: Connection, subject: str, feed: str) -> bool:
    """Return whether a unit of retention is a feed, everything, or a sweep of the feed."""
    if subject in ("", feed):
        return True
    sweep = Sweeps(connection).find(subject.removeprefix("sweep ")) if subject.startswith("sweep ") else None
    return sweep is not None and any(count.feed == feed for count in sweep.counts)


def _reason(failure: TickFailure, explained: str, *, blocks: bool) -> Reason:
    since, again = rendered(failure.since), rendered(failure.next_try_at)
    name = f"{failure.step} of {failure.subject}" if failure.subject not in ("", explained) else str(failure.step)
    text = f"{name} fails since {since}, next try at {again}: {failure.reason}"
    facts = {"step": failure.step.value, "since": since, "next_try_at": again, "reason": failure.reason}
    return Reason(code=ReasonCode.TICK_FAILURE, text=text, blocks=blocks, facts=facts)
