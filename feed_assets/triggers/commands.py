"""What can be asked about queues and batches, and decided about what waits."""

from typing import TYPE_CHECKING

from feed_assets.entities.common import Kind
from feed_assets.operation import Does, later, operation
from feed_assets.pages import Page
from feed_assets.parameters import Feed, Instance, OnlyCluster, Process, ProcessCluster
from feed_assets.triggers.queries import BatchQuery, EventChoice
from feed_assets.triggers.queue.records import QueueAction

if TYPE_CHECKING:
    from feed_assets.context import operation as contexts
    from feed_assets.context.operation import ChangeContext, OperationContext
    from feed_assets.triggers import queues, waiting

later(globals())

GROUPS = {
    "batch": "Inspect batches of processes that take what comes, and do the work of those that runs elsewhere.",
    "queue": "Inspect and change what waits for processes that take what comes.",
}

_EVENTS = "event, input, feed, instance=nominal_time, kind, marking, origin, payload, decided"
_SPARE = ("origin", "payload")


@operation(
    "queue list", none="no process has a trigger", table="process, cluster, pending, condition=sentence", rows="queues"
)
def list_queues(context: "OperationContext") -> "Page[waiting.Queue]":
    """List the queues: how many events are pending, and what each condition still lacks."""
    return Page.of(queues.list_queues(context))


@operation("queue show", table=_EVENTS, rows="all_events", spare=_SPARE, example="load-orders")
def show_queue(
    context: "OperationContext", *, process: Process, cluster: ProcessCluster = None
) -> "queues.QueueContent":
    """Show the pending, held and dropped events of PROCESS, oldest first, and what its condition still lacks."""
    return queues.show_queue(context, process, cluster)


@operation(
    "queue consumers",
    none="no process takes its events",
    table="process, cluster, input, taken to=taken, pending, since, not routed=not_routed, held, dropped",
    rows="consumers",
    example="orders",
)
def list_consumers(
    context: "OperationContext", *, feed: Feed, cluster: OnlyCluster = None
) -> "Page[queues.QueueConsumer]":
    """Show which processes take the events of FEED, and how far each has come."""
    return Page.of(queues.list_consumers(context, feed, cluster))


@operation("queue add", does=Does.ACTS, safe=True, rows="changes", text="sentence")
def add_event(context: "ChangeContext", *, choice: EventChoice) -> "list[queues.ChangedEvent]":
    """Let a batch of PROCESS take events: held, dropped or passed ones, or some from before the trigger."""
    return queues.change_event(context, choice, QueueAction.ADD)


@operation("queue drop", does=Does.ACTS, safe=True, rows="changes", text="sentence")
def drop_event(context: "ChangeContext", *, choice: EventChoice) -> "list[queues.ChangedEvent]":
    """Drop pending events of PROCESS: no batch takes them, until they are added."""
    return queues.change_event(context, choice, QueueAction.DROP)


@operation("queue hold", does=Does.ACTS, safe=True, rows="changes", text="sentence")
def hold_event(context: "ChangeContext", *, choice: EventChoice) -> "list[queues.ChangedEvent]":
    """Hold pending events of PROCESS back: batches pass them by, until they are added."""
    return queues.change_event(context, choice, QueueAction.HOLD)


@operation("queue verify", table="process, cluster, input, fault=message", rows="faults")
def verify_queues(context: "OperationContext") -> "queues.QueueProof":
    """Prove that each event is in one batch, pending, passed over or dropped; exit with 1 if one is not."""
    return queues.prove_queues(context)


@operation(
    "batch list",
    none="no batch has been cut",
    table="process, cluster, batch, status, attempt, events, inputs=taken",
    rows="batches",
    example="load-orders --state FAILED",
)
def list_batches(context: "OperationContext", *, query: BatchQuery) -> "Page[waiting.ListedBatch]":
    """List batches, newest first: of PROCESS, or of all processes that take what comes."""
    return waiting.list_batches(context, query)


@operation("batch show", table=_EVENTS, rows="all_events", spare=_SPARE, example="load-orders 2026-03-01T06:00:04Z")
def show_batch(
    context: "OperationContext", *, process: Process, instance: Instance, cluster: ProcessCluster = None
) -> "queues.BatchContent":
    """Show the events that a batch of PROCESS has taken; its name is its time."""
    on = () if cluster is None else (cluster,)
    return queues.show_batch(
        context, contexts.resolve_subject(context, process, instance, kind=Kind.PROCESS, clusters=on)
    )
