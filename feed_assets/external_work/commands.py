"""What programs that work elsewhere say about the batches that they take."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.external_work.queries import AtWork
from feed_assets.instances.steps.records import StepStatus
from feed_assets.operation import Does, Param, later, operation
from feed_assets.parameters import Process, ProcessCluster

if TYPE_CHECKING:
    from feed_assets.context.operation import ChangeContext, OperationContext
    from feed_assets.external_work import called_batches, calls

later(globals())

_FACTS = 'A file with {"facts": {"rows": 12}, "metadata": …}: counted, and said of entities; - is standard input.'
_MARKING = "A short word for the events of the outputs, by which others may end their batches."

Facts = Annotated[bytes | None, Param(_FACTS, file=True)]
Key = Annotated[str | None, Param("A key of the call; given again with it, it takes nothing, and has the same answer.")]
Marking = Annotated[str | None, Param(_MARKING)]
Most = Annotated[int | None, Param("A new batch takes so many of the oldest events.", option="max", least=1)]
Reason = Annotated[str | None, Param("Why it has failed, for people.")]
Step = Annotated[str, Param("The step.", argument=True)]


@operation("batch init", does=Does.ACTS, text="lines", answers=201, example="load-orders --max 100 --output json")
def init(
    context: "ChangeContext", *, process: Process, most: Most = None, key: Key = None, cluster: ProcessCluster = None
) -> "called_batches.InitBatch":
    """Take a batch of PROCESS: the oldest that is to be done again, with the same events, else a new one."""
    return calls.init_batch(context, process, cluster=cluster, most=most, key=key)


@operation("batch step-start", does=Does.NOTIFIES, text="lines", example="load-orders extract")
def start_step(
    context: "OperationContext", *, at: AtWork, step: Step, dry_run: bool = False
) -> "called_batches.CalledBatch":
    """Say that STEP of the batch of PROCESS under way begins."""
    return calls.call_step(context, at, step, StepStatus.RUNNING, dry_run=dry_run)


@operation("batch step-end", does=Does.NOTIFIES, text="lines", example="load-orders extract")
def end_step(
    context: "OperationContext", *, at: AtWork, step: Step, dry_run: bool = False
) -> "called_batches.CalledBatch":
    """Say that STEP of the batch of PROCESS under way has been done."""
    return calls.call_step(context, at, step, StepStatus.SUCCEEDED, dry_run=dry_run)


@operation("batch step-fail", does=Does.NOTIFIES, text="lines", example="load-orders extract --reason 'no space left'")
def fail_step(
    context: "OperationContext", *, at: AtWork, step: Step, reason: Reason = None, dry_run: bool = False
) -> "called_batches.CalledBatch":
    """Say that STEP of the batch of PROCESS under way has failed: it may begin again, or the batch fails."""
    return calls.call_step(context, at, step, StepStatus.FAILED, reason=reason, dry_run=dry_run)


@operation("batch end", does=Does.ACTS, safe=True, text="lines", example="load-orders --marking 2026-03-01_DAILY_END")
def end(
    context: "ChangeContext", *, at: AtWork, marking: Marking = None, facts: Facts = None
) -> "called_batches.EndedBatch":
    """Say that the batch of PROCESS under way has been done: its outputs are published."""
    return calls.end_batch(context, at, marking=marking, facts=facts or b"")


@operation(
    "batch fail", does=Does.ACTS, safe=True, text="lines", example="load-orders --reason 'the warehouse is away'"
)
def fail(context: "ChangeContext", *, at: AtWork, reason: Reason = None) -> "called_batches.CalledBatch":
    """Say that the batch of PROCESS under way has failed: the next init takes the same events."""
    return calls.terminate_batch(context, at, reason=reason)
