"""What can be asked of the instances of all feeds and processes."""

from typing import TYPE_CHECKING

from feed_assets.definitions.lists.query_fields import SearchQuery
from feed_assets.operation import later, operation

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.definitions.lists import instance_search
    from feed_assets.instances.lists import queries

later(globals())


@operation(
    "instance search",
    table="kind, name, cluster, instance=nominal_time, status, tags, log=run",
    rows="instances",
    spare=("tags",),
    example="--status FAILED,TIMEDOUT",
)
def search(context: "OperationContext", *, query: SearchQuery) -> "queries.InstancePage":
    """Search the instances of all feeds and processes; without --start ten of each."""
    return instance_search.search_instances(context, query)
