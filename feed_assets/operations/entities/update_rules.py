"""What an update may not do, beside what validation refuses."""

from datetime import datetime

from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.differences import FieldChange, diff_entities
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.lifecycle.schedules import ScheduleView
from feed_assets.operations.entities.registry import Registry
from feed_assets.operations.errors import VerbRefusedError
from feed_assets.plan.signs import Weight, weigh
from feed_assets.state.definition_records import ScheduleState
from feed_assets.timing.dates import render_datetime


def require_updatable(registry: Registry, before: AnyEntity | None, after: AnyEntity) -> None:
    """Demand that an update is one that can be made; nothing is known of an entity that could not be read before.

    Raises:
        VerbRefusedError: the type of a datasource changes; or where it is scheduled a validity would be over already.
    """
    if isinstance(before, Datasource) and isinstance(after, Datasource) and before.type is not after.type:
        raise VerbRefusedError(
            subject=after.label,
            reason=f"its type cannot change from {before.type.value!r} to {after.type.value!r}",
            next_step="Submit another datasource, and let the feeds name that one.",
        )
    if isinstance(before, Feed | Process) and isinstance(after, Feed | Process):
        for cluster in find_past_ends(before, after, registry.schedules(), registry.now):
            raise VerbRefusedError(
                subject=after.label,
                reason=(
                    f"its validity on {cluster} ends at {render_datetime(after.clusters[cluster].validity.end)}, "
                    "which is past, and it is scheduled there"
                ),
                next_step="Let it end in the future; or delete it and submit it anew.",
            )


def find_past_ends(
    before: Feed | Process, after: Feed | Process, schedules: ScheduleView, as_of: datetime
) -> list[str]:
    """The clusters on which a scheduled entity would change in more than what is soft, with its end in the past."""
    changes = diff_entities(before, after)
    return [
        name
        for name, entry in after.clusters.items()
        if name in before.clusters
        and entry.validity.end < as_of
        and schedules.state(after.kind, after.name, name) is not ScheduleState.SUBMITTED
        and any(_matters(after.kind, change, name) for change in changes)
    ]


def _matters(kind: Kind, change: FieldChange, cluster: str) -> bool:
    if change.path[0] == "clusters" and change.path[1:2] != (cluster,):
        return False
    return weigh(kind, change.path, change.before, change.after) is not Weight.SOFT
