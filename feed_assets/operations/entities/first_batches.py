"""The batches that a change of the definitions would cut at once, by what is pending in the state."""

from collections.abc import Iterable, Iterator

from feed_assets.entities.bundle import Bundle
from feed_assets.entities.common import Kind
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey
from feed_assets.lifecycle.triggers.cuts import Share
from feed_assets.lifecycle.triggers.foresight import ForeseenBatches, foresee_batches
from feed_assets.operations.entities.context import EntityContext
from feed_assets.plan.compile import compile_process
from feed_assets.plan.difference_records import BatchesDifference, EntityDifference, InputDifference
from feed_assets.plan.differences import find_running
from feed_assets.plan.trigger_records import TriggerInput, compile_trigger
from feed_assets.state.queue_records import RangeUse


def find_first_batches(
    context: EntityContext, before: Bundle, after: Bundle, entities: Iterable[EntityDifference]
) -> tuple[BatchesDifference, ...]:
    """Return the batches that scheduled processes would cut at once after a valid change, and would not without it."""
    changed = {entity.key for entity in entities}
    schedules = context.schedules()
    old, new = [], []
    for name, cluster, was, process in _iter_changed(before, after, changed):
        if schedules.is_scheduled(Kind.PROCESS, name, cluster):
            new.append(compile_process(after, process, cluster))
            if was is not None and was.makes_batches:
                old.append(compile_process(before, was, cluster))
    if not new:
        return ()
    with context.database.read() as connection:
        anyhow = foresee_batches(connection, old, context.now)
        found = foresee_batches(connection, new, context.now)
    return tuple(_difference(each) for consumer, each in sorted(found.items()) if consumer not in anyhow)


def _iter_changed(
    before: Bundle, after: Bundle, changed: set[EntityKey]
) -> Iterator[tuple[str, str, Process | None, Process]]:
    """Yield the processes, on each of their clusters, whose batches may be others: they or their triggers differ."""
    has_feeds = any(kind == Kind.FEED for kind, _ in changed)
    for process in after.processes:
        if not process.makes_batches or not (process.key in changed or has_feeds):
            continue
        for cluster in process.clusters:
            old, new = (find_running(bundle, process.name, cluster) for bundle in (before, after))
            if new is not None and (
                process.key in changed
                or old is None
                or compile_trigger(before, old, cluster) != compile_trigger(after, new, cluster)
            ):
                yield process.name, cluster, old, new


def _difference(found: ForeseenBatches) -> BatchesDifference:
    record = found.record
    shares = {share.mark.input: share for share in found.first.shares}
    return BatchesDifference(
        process=record.process,
        cluster=record.cluster,
        batches=found.batches,
        are_more=found.are_more,
        busy=found.busy,
        first=tuple(
            _input(each, shares.get(each.name), found.pending.get(each.name, 0))
            for each in (record.trigger.inputs if record.trigger else ())
        ),
    )


def _input(each: TriggerInput, share: Share | None, pending: int) -> InputDifference:
    return InputDifference(
        input=each.name,
        feed=each.feed,
        taken=share.count(RangeUse.TAKEN) if share is not None else 0,
        passed=share.count(RangeUse.PASSED) if share is not None else 0,
        pending=pending,
    )
