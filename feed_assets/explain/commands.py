"""Why instances are in their state."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.entities.common import Kind
from feed_assets.operation import Does, Param, later, operation
from feed_assets.parameters import SCHEDULABLE, Name

if TYPE_CHECKING:
    from feed_assets.context import operation as contexts
    from feed_assets.context.operation import OperationContext
    from feed_assets.explain import choosing, explanations, versions
    from feed_assets.triggers import queues

later(globals())

Some = Annotated[
    tuple[str, ...], Param("Only these clusters; by default all.", option="cluster", of=(Kind.CLUSTER,), commas=True)
]
KindOfTwo = Annotated[
    Kind | None, Param("For a feed and a process with the same name; by default the process.", of=SCHEDULABLE)
]
Which = Annotated[
    str | None, Param("The nominal time, or a day or a month that it is in.", argument=True, proposes="times")
]
Everything = Annotated[bool, Param("Show everything upstream, also what the short form leaves out.", option="all")]
Look = Annotated[bool, Param("Ask storage now, and record what has arrived and what is gone.", needs=Does.NOTIFIES)]


@operation("why", rows="instances", example="daily-delays 2013-11-03")
def why(
    context: "OperationContext",
    *,
    name: Name,
    instance: Which = None,
    clusters: Some = (),
    kind: KindOfTwo = None,
    everything: Everything = False,
    look: Look = False,
    author: str,
) -> "explanations.Explained | explanations.NextBatches":
    """Explain the state of INSTANCE of the process or feed NAME: the root causes, and the commands that end them.

    For a waiting instance: the missing data and their locations, the next poll, the process that should have produced
    them and why it has not; full slots, leases and suspensions. For an instance that has run: its cause and its inputs.
    For missing data: whether they were evicted. Without INSTANCE, or of a month or day that has several, it is the
    newest that waits or has failed; of a process that takes what comes, what its next batch waits for. Of a feed with a
    current instance INSTANCE is the time of a version: what it was, who made it and who has read it.
    """
    subject = contexts.resolve_subject(context, name, kind=kind, preferred=Kind.PROCESS, clusters=clusters)
    if instance is None and any(getattr(each, "trigger", None) for each in subject.records):
        return explanations.NextBatches.of(explanations.tell_held_back(context, queues.find_queues(context, subject)))
    chosen, remark = choosing.choose_instance(context, subject, instance)
    if chosen.version is not None:
        return versions.explain_version(context, chosen)
    return explanations.tell_why(context, chosen, remark, shows_all=everything, look=look, author=author)
