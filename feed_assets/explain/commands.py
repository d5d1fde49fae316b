"""Why instances are in their state."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.operation import Does, Param, operation
from feed_assets.parameters import SCHEDULABLE, MaybeInstance, Name

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.explain.explanations import Explained, NextBatches

Some = Annotated[
    tuple[str, ...], Param("Only these clusters; by default all.", option="cluster", of=(Kind.CLUSTER,), commas=True)
]
KindOfTwo = Annotated[
    Kind | None, Param("For a feed and a process with the same name; by default the process.", of=SCHEDULABLE)
]
Everything = Annotated[bool, Param("Show everything upstream, also what the short form leaves out.", option="all")]
Look = Annotated[bool, Param("Ask storage now, and record what has arrived and what is gone.", needs=Does.NOTIFIES)]


@operation("why", rows="instances", example="daily-delays 2013-11-03")
def why(
    context: "OperationContext",
    *,
    name: Name,
    instance: MaybeInstance = None,
    clusters: Some = (),
    kind: KindOfTwo = None,
    everything: Everything = False,
    look: Look = False,
    author: str,
) -> "Explained | NextBatches":
    """Explain the state of INSTANCE of the process or feed NAME: the root causes, and the commands that end them.

    For a waiting instance: the missing data and their locations, the next poll, the process that should have produced
    them and why it has not; full slots, leases and suspensions. For an instance that has run: its cause and its inputs.
    For missing data: whether they were evicted. Without INSTANCE, of a process that takes what comes: what its next
    batch waits for.
    """
    from feed_assets.context.operation import resolve_subject
    from feed_assets.explain.explanations import NextBatches, tell_why
    from feed_assets.triggers.queues import find_queues

    subject = resolve_subject(context, name, instance, kind=kind, preferred=Kind.PROCESS, clusters=clusters)
    if instance is not None:
        return tell_why(context, subject, shows_all=everything, look=look, author=author)
    if subject.kind is Kind.FEED:
        raise WrongUsageError("Missing argument 'INSTANCE': name an instance of the feed.")
    return NextBatches.of(find_queues(context, subject))
