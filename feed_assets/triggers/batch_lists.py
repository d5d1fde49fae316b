"""`batch list`: the batches of processes that take what comes, a page at a time."""

from dataclasses import dataclass

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.json_form import Hidden, shown, shows
from feed_assets.log.records import EntityKey, ProcessInstance, ProcessInstanceStatus
from feed_assets.operation import PAGES, Page
from feed_assets.plan.records import ProcessRecord
from feed_assets.triggers.queries import BatchQuery
from feed_assets.triggers.queue.batch_pages import BatchFilter, BatchPages, TakenCount
from feed_assets.triggers.queue.store import QueueEnds


@shows("row", "process, cluster, batch=nominal_time, status, attempt, run_id, started_at, ended_at, reason")
@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBatch:
    """A batch: how far it is, and what it has taken; no `inputs` are known if its queue has ended since."""

    row: Hidden[ProcessInstance]
    inputs: tuple[TakenCount, ...] | None

    @shown
    def events(self) -> int | None:
        """How many events it has taken in all."""
        return None if self.inputs is None else sum(each.events for each in self.inputs)

    @property
    def taken(self) -> str:
        """What it has taken, for people: `orders 3`."""
        shares = self.inputs
        return "gone with the queue" if shares is None else ", ".join(f"{each.input} {each.events}" for each in shares)


def list_batches(context: OperationContext, query: BatchQuery) -> Page[ListedBatch]:
    """Return a page of batches.

    Raises:
        EntityNotFoundError: there is no such process.
        InstanceQueryError: a state is unknown, or the process makes no batches or is not on the cluster.
    """
    chosen = BatchFilter(
        consumers=[EntityKey(*record.key) for record in _records(context, query)],
        start=query.start,
        end=query.end,
        statuses=[_status(state.upper()) for state in query.states],
        feeds=frozenset(query.feeds),
    )
    with context.read() as connection:
        pages = BatchPages(connection)
        rows = pages.find(chosen, query.results, query.offset)
        total = pages.count(chosen)
        taken = pages.taken([row.key for row in rows])
        ends = {key: QueueEnds(connection).find(key) for key in {EntityKey(*row.key[:2]) for row in rows}}

    def shares(row: ProcessInstance) -> tuple[TakenCount, ...] | None:
        end = ends[EntityKey(*row.key[:2])]
        if end is not None and row.materialized_at is not None and row.materialized_at <= end:
            return None
        return tuple(taken.get(row.key, ()))

    listed = tuple(ListedBatch(row=row, inputs=shares(row)) for row in rows)
    return Page(items=listed, total=total, offset=query.offset, what="batches", more=PAGES)


def _records(context: OperationContext, query: BatchQuery) -> list[ProcessRecord]:
    if query.process is None:
        clusters = context.plan.clusters if query.cluster is None else [query.cluster]
        return [record for cluster in clusters for record in context.plan.triggered_on(cluster)]
    records = list(context.processes_of(query.process, query.cluster))
    if all(record.trigger is None for record in records):
        raise InstanceQueryError(
            subject=f"process {query.process!r}",
            reason="it has a frequency, and makes no batches",
            next_step="List its instances, or choose a process with a trigger.",
        )
    return records


def _status(state: str) -> ProcessInstanceStatus:
    if state in list(ProcessInstanceStatus):
        return ProcessInstanceStatus(state)
    known = ", ".join(ProcessInstanceStatus)
    raise InstanceQueryError(subject=f"state {state!r}", reason="no batch has it", next_step=f"States are {known}.")
