"""The failures of ticks and runs that keep an instance waiting."""

from collections.abc import Collection, Iterable, Iterator

from sqlalchemy import Connection

from feed_assets.context.bulkheads import CHECKS_OF, TickFailure, TickStep
from feed_assets.entities.common import Kind
from feed_assets.explain.records import Reason, ReasonCode
from feed_assets.instances.lists.rows import rendered
from feed_assets.log.records import FeedKey, ProcessKey
from feed_assets.log.removals.store import Sweeps
from feed_assets.plan.records import ProcessRecord

_STEPS = frozenset(
    {
        TickStep.INSTANCES,
        TickStep.GATES,
        TickStep.REQUESTS,
        TickStep.RETRIES,
        TickStep.PAST_ARRIVALS,
        TickStep.REPLICATION,
    }
)
"""The steps whose units are processes; a step that fails as a whole has no subject."""
_COMING = frozenset({TickStep.MATERIALIZATIONS, TickStep.WATCHES, TickStep.INBOXES})
"""The steps whose units are feeds, without which no instance of theirs comes."""


def explain_process_failures(
    failures: Iterable[TickFailure], key: ProcessKey, record: ProcessRecord | None
) -> Iterator[Reason]:
    """Yield what fails in the ticks and runs of a process, and in the late checks of its instances."""
    late: set[str] = set()
    if record is not None and record.late is not None:
        late = {"", f"{Kind.PROCESS.value} {key.process}", *(edge.feed for edge in record.inputs if edge.is_late)}
    for failure in failures:
        if failure.cluster != key.cluster:
            continue
        if failure.step in _STEPS and failure.subject in ("", key.process):
            yield _reason(failure, key.process, blocks=True)
        elif (
            failure.step is TickStep.DEFINITIONS
            or _is_of(failure, TickStep.LATE_DATA, late)
            or _is_of(failure, TickStep.UPDATES, ("", key.process))
        ):
            yield _reason(failure, key.process, blocks=False)


def explain_feed_failures(connection: Connection, failures: Iterable[TickFailure], key: FeedKey) -> Iterator[Reason]:
    """Yield what fails in the late checks and in the retention of a feed."""
    late = {"", key.feed, f"{Kind.FEED.value} {key.feed}"}
    for failure in failures:
        if failure.cluster != key.cluster:
            continue
        if failure.step in _COMING and failure.subject in ("", key.feed, f"{CHECKS_OF}{key.feed}"):
            yield _reason(failure, key.feed, blocks=True)
        is_late = failure.step is TickStep.DEFINITIONS or _is_of(failure, TickStep.LATE_DATA, late)
        is_late = is_late or _is_of(failure, TickStep.REGISTRATIONS, ("",))
        if is_late or (failure.step is TickStep.RETENTION and _concerns(connection, failure.subject, key.feed)):
            yield _reason(failure, key.feed, blocks=False)


def _is_of(failure: TickFailure, step: TickStep, subjects: Collection[str]) -> bool:
    return failure.step is step and failure.subject in subjects


def _concerns(connection: Connection, subject: str, feed: str) -> bool:
    """Return whether a unit of retention is a feed, everything, or a sweep of the feed."""
    if subject in ("", feed):
        return True
    sweep = Sweeps(connection).find(subject.removeprefix("sweep ")) if subject.startswith("sweep ") else None
    return sweep is not None and any(count.feed == feed for count in sweep.counts)


def _reason(failure: TickFailure, explained: str, *, blocks: bool) -> Reason:
    since, again = rendered(failure.since), rendered(failure.next_try_at)
    name = f"{failure.step} of {failure.subject}" if failure.subject not in ("", explained) else str(failure.step)
    return Reason(
        code=ReasonCode.TICK_FAILURE,
        text=f"{name} fails since {since}, next try at {again}: {failure.reason}",
        blocks=blocks,
        facts={"step": failure.step.value, "since": since, "next_try_at": again, "reason": failure.reason},
    )
