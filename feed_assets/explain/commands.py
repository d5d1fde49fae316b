"""Why instances are in their state, and what people do to them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.instances.lists.commands import Named
from feed_assets.operation import Does, Param, operation
from feed_assets.parameters import SCHEDULABLE, MaybeInstance, Name

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.explain.summaries import Explained, NextBatches
    from feed_assets.instances.lists.control import Controlled

_CHANGES = "instance, cluster, was, is, copied from"
_WITH = "A property; may be repeated."

Some = Annotated[
    tuple[str, ...], Param("Only these clusters; by default all.", option="cluster", of=(Kind.CLUSTER,), commas=True)
]
KindOfTwo = Annotated[
    Kind | None, Param("For a feed and a process with the same name; by default the process.", of=SCHEDULABLE)
]
Everything = Annotated[bool, Param("Show everything upstream, also what the short form leaves out.", option="all")]
Look = Annotated[bool, Param("Ask storage now, and record what has arrived and what is gone.")]
PropertyFile = Annotated[dict[str, str] | None, Param("A file of properties, name=value.", file=True)]
Properties = Annotated[dict[str, str] | None, Param(_WITH, option="property")]
Force = Annotated[bool, Param("Discard the properties of earlier re-runs.")]
Adopt = Annotated[bool, Param("Adopt foreign content that stands in the place of an output.")]
FromStart = Annotated[bool, Param("Repeat the steps that have finished, too.")]


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
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.explain.summaries import NextBatches, tell_why
    from feed_assets.triggers.queues import find_queues

    subject = resolve_subject(context, name, instance, kind=kind, preferred=Kind.PROCESS, clusters=clusters)
    if instance is not None:
        return tell_why(context, subject, shows_all=everything, look=look, author=author)
    if subject.kind is Kind.FEED:
        raise WrongUsageError("Missing argument 'INSTANCE': name an instance of the feed.")
    return NextBatches.of(find_queues(context, subject))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(Named):
    """The instances on which somebody acts: those of a range, or one."""

    start: Annotated[datetime | None, Param("From this nominal time on.")] = None
    end: Annotated[datetime | None, Param("Before this nominal time.")] = None
    instance: Annotated[datetime | None, Param("This instance, instead of a range.")] = None

    def __post_init__(self) -> None:
        missing = (self.start is None, self.end is None, self.instance is None)
        if missing not in ((False, False, True), (True, True, False)):
            raise WrongUsageError("Give either --instance, or --start and --end.")

    def act(self, context: "OperationContext", action: str, **how: Any) -> "Controlled":
        """Apply an action. If ticks are to carry it on, the result says if none come."""
        from feed_assets.explain.tick_failures import find_silence
        from feed_assets.instances.gates.actions import InstanceAction
        from feed_assets.instances.lists.control import control_instances

        subject = self.resolve(context, self.instance, preferred=Kind.PROCESS)
        done = control_instances(context, InstanceAction(action), subject, self.start, self.end, **how)
        waiting = {each.instance.cluster for each in done.instances if action in ("resume", "rerun")}
        return replace(done, silence=find_silence(context, waiting))


@operation("instance kill", does=Does.ACTS, table=_CHANGES, rows="ranges")
def kill(context: "OperationContext", *, query: Chosen, author: str, dry_run: bool = False) -> "Controlled":
    """Kill waiting, running, suspended and failed instances of NAME.

    They stay KILLED: only `rerun` runs them again. Their runs in Dagster are cancelled. SUCCEEDED instances stay so.
    """
    return query.act(context, "kill", author=author, dry_run=dry_run)


@operation("instance suspend", does=Does.ACTS, table=_CHANGES, rows="ranges")
def suspend(context: "OperationContext", *, query: Chosen, author: str, dry_run: bool = False) -> "Controlled":
    """Suspend instances of NAME until they are resumed.

    Dagster cannot pause a run: the run of a running instance is cancelled, and the instance starts anew when it is
    resumed. Its partial results never become visible.
    """
    return query.act(context, "suspend", author=author, dry_run=dry_run)


@operation("instance resume", does=Does.ACTS, table=_CHANGES, rows="ranges")
def resume(context: "OperationContext", *, query: Chosen, author: str, dry_run: bool = False) -> "Controlled":
    """Resume suspended instances of NAME: they wait for their inputs, or run at once if those are available."""
    return query.act(context, "resume", author=author, dry_run=dry_run)


@operation(
    "instance rerun", does=Does.ACTS, table=_CHANGES, rows="ranges", example="daily-delays --instance 2013-11-03"
)
def rerun(
    context: "OperationContext",
    *,
    query: Chosen,
    file: PropertyFile = None,
    properties: Properties = None,
    force: Force = False,
    adopt: Adopt = False,
    from_start: FromStart = False,
    author: str,
    dry_run: bool = False,
) -> "Controlled":
    """Run ended instances of NAME again, whatever their outcome.

    An instance of which a step has failed goes on behind its finished steps, if inputs and definition are the same.
    The new outputs replace the old ones once they are complete. The given properties override those of the process, for
    this run and all later ones, until others are given or `--force` discards them. `--adopt` is such a property:
    content that no record and no manifest knows becomes the instance as it is.
    """
    from feed_assets.entities.copies.options import EXISTING, Existing

    adopting = {EXISTING: Existing.ADOPT.value} if adopt else {}
    given: Mapping[str, str] = {**(file or {}), **(properties or {}), **adopting}
    overrides = given if given or file is not None else None
    how = {"overrides": overrides, "force": force, "from_start": from_start}
    return query.act(context, "rerun", author=author, dry_run=dry_run, **how)
