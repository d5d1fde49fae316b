"""Errors of queues and batches."""

from feed_assets.entities.flow_names import describe_process
from feed_assets.errors import Fault, LifecycleError


class QueueChangeError(LifecycleError):
    """Nothing can be decided about an event of a consumer's queue, because of where it is; nothing was changed."""

    def __init__(self, *, process: str, event: int, place: str, action: str) -> None:
        again = " To read it again, run its batch again." if place.startswith("taken") else ""
        queue = f"the queue of {describe_process(process)}"
        super().__init__(f"event {event} in {queue} is {place}: {action} changes nothing there.{again}")


class BatchRefusedError(LifecycleError):
    """A call about a batch of work elsewhere comes out of turn; nothing was moved."""

    def __init__(self, *, process: str, cluster: str, reason: str, next_step: str, fault: Fault = Fault.STATE) -> None:  # noqa: ARG002 - a fact
        super().__init__(f"{describe_process(process)} on {cluster}: {reason}. {next_step}")
