"""What can be asked about instances: how good their rows were."""

from typing import TYPE_CHECKING, Annotated

from feed_assets.entities.common import Kind
from feed_assets.operation import Param, operation
from feed_assets.parameters import Feed, Limit, MaybeInstance

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.instances.lists.quality import InstanceQuality, QualityTrend

GROUPS = {"quality": "Show how good the rows of feed instances were."}

Cluster = Annotated[
    str | None, Param("The cluster; by default each on which a process writes the feed.", of=(Kind.CLUSTER,))
]


@operation("quality show", rows="instances", text="lines", example="flights 2013-11-03")
def show_quality(
    context: "OperationContext", *, feed: Feed, instance: MaybeInstance = None, cluster: Cluster = None
) -> "tuple[InstanceQuality, ...]":
    """Show what was found about the rows of INSTANCE of FEED, by default of the newest one.

    It is what the newest attempt has found, whether the instance was published or not.
    """
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.instances.lists.quality import show_quality

    on = () if cluster is None else (cluster,)
    return show_quality(context, resolve_subject(context, feed, instance, kind=Kind.FEED, clusters=on))


@operation(
    "quality history",
    table="instance=nominal_time, cluster, rows, bad=rejected, good %=percent:.12g, needed %=threshold:.12g, result, "
    "broken=broken_rules",
    rows="instances",
    example="flights --limit 7",
)
def quality_history(
    context: "OperationContext", *, feed: Feed, cluster: Cluster = None, limit: Limit = 30
) -> "QualityTrend":
    """Show how good the newest instances of FEED were, newest first."""
    from feed_assets.context.subjects import resolve_subject
    from feed_assets.instances.lists.quality import quality_history

    on = () if cluster is None else (cluster,)
    return quality_history(context, resolve_subject(context, feed, kind=Kind.FEED, clusters=on), limit)
