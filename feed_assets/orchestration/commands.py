"""What can be asked of the code location, and done after its runs."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from feed_assets.operation import WORKS_LONG, Does, later, operation
from feed_assets.parameters import Clusters, KindFirst, MaybeInstance, Name

if TYPE_CHECKING:
    from feed_assets.context import operation as contexts
    from feed_assets.context.operation import ChangeContext, OperationContext
    from feed_assets.orchestration.location import asset_places
    from feed_assets.orchestration.runs import retention

later(globals())


@operation(
    "admin cleanup",
    does=Does.ADMINISTERS,
    table="what=leftover, cluster, frequency=unit, kept for=limit, before:seconds, removed=amount",
    rows="cleaned",
    long=True,
    no_route=WORKS_LONG,
)
def clean_up(
    context: "ChangeContext", *, clusters: Clusters = (), progress: Callable[..., None]
) -> "retention.CleanUp":
    """Remove the captured logs of old runs, old messages that everybody was told, and records of long ago.

    How long logs are kept depends on the frequency of the process: the settings `cleanup`. The retention job does the
    same once a day. Runs, instances with their last attempt, partitions and materializations stay. With
    --dry-run it shows what would go.
    """
    return retention.clean_up(context, clusters, progress=progress)


@operation("instance asset", table="cluster, asset, partition, url", rows="assets", example="flights 2013-11-03T05:00Z")
def find_assets(
    context: "OperationContext",
    *,
    kind: KindFirst = None,
    name: Name,
    instance: MaybeInstance = None,
    clusters: Clusters = (),
) -> "tuple[asset_places.ShownAsset, ...]":
    """Show the assets of NAME in Dagster, or their partitions for INSTANCE, with links (with the setting `webserver`).

    They are known from the first tick on. A process has those that its runs materialize.
    """
    return asset_places.find_places(
        context, contexts.resolve_subject(context, name, instance, kind=kind, clusters=clusters)
    )
