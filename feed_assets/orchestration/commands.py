"""What can be done after runs of Dagster."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from feed_assets.operation import WORKS_LONG, Does, operation
from feed_assets.parameters import Clusters

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.orchestration.runs.retention import CleanUp


@operation(
    "admin cleanup",
    does=Does.ADMINISTERS,
    table="what=leftover, cluster, frequency=unit, kept for=limit, before:seconds, removed=amount",
    rows="cleaned",
    long=True,
    no_route=WORKS_LONG,
)
def clean_up(
    context: "OperationContext",
    *,
    clusters: Clusters = (),
    author: str,
    dry_run: bool = False,
    progress: Callable[..., None],
) -> "CleanUp":
    """Remove the captured logs of old runs, old messages that everybody was told, and records of long ago.

    How long logs are kept depends on the frequency of the process: the settings `cleanup`. The retention job does the
    same once a day. Runs, instances with their last attempt, partitions and materializations stay. With
    --dry-run it shows what would go.
    """
    from feed_assets.orchestration.runs.retention import clean_up

    return clean_up(context, clusters, author=author, dry_run=dry_run, progress=progress)
