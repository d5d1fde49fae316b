"""What can be asked about lineage."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.operation import Param, operation
from feed_assets.parameters import SCHEDULABLE, KindFirst

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.lineage.records import LineageGraph

GROUPS = {
    "lineage": """Show what data came of, and what came of them.

    KIND is feed or process. INSTANCE is a nominal time such as 2013-11-03T05:00Z, a day or a partition key.
    """
}

NameAndInstance = Annotated[
    tuple[str, ...],
    Param(
        "The feed or process, and the instance.",
        argument=True,
        of=SCHEDULABLE,
        proposes="names",
        metavar="[KIND] NAME [INSTANCE]",
    ),
]
On = Annotated[
    tuple[str, ...], Param("Only these clusters; by default all.", option="cluster", of=(Kind.CLUSTER,), commas=True)
]
Up = Annotated[bool, Param("Only what it came of.")]
Down = Annotated[bool, Param("Only what came of it.")]
AsOf = Annotated[datetime | None, Param("Only what was recorded at this time or before; by default now.")]


@operation("lineage show", text="text", forms=("dot",), example="daily-delays 2013-11-03 --up")
def show(
    context: "OperationContext",
    *,
    kind: KindFirst = None,
    names: NameAndInstance,
    clusters: On = (),
    up: Up = False,
    down: Down = False,
    as_of: AsOf = None,
) -> "LineageGraph":
    """Show the data and the attempts that INSTANCE of NAME came of, and those that came of it, with digests.

    Events are what happened to data: they arrived, were made by an attempt at a process, copied, evicted, restored or
    made again. Without --up and --down both directions are shown.
    """
    from feed_assets.context.operation import resolve_subject
    from feed_assets.lineage.recorded import show_lineage

    name, *instances = names
    if len(instances) != 1:
        raise WrongUsageError("Give one NAME and one INSTANCE.")
    subject = resolve_subject(context, name, instances[0], kind=kind, clusters=clusters)
    return show_lineage(context, subject, up=up, down=down, as_of=as_of)
