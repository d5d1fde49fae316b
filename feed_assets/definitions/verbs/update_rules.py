"""Restrictions of updates, besides the rules of validation."""

from datetime import datetime

from feed_assets.context.errors import VerbRefusedError
from feed_assets.definitions.verbs.context import EntityContext
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.differences import FieldChange, diff_entities
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView
from feed_assets.plan.release_fingerprint import Weight, weigh
from feed_assets.timing.dates import render_datetime


def require_updatable(context: EntityContext, before: AnyEntity | None, after: AnyEntity) -> None:
    """Require that an update is allowed. There is no restriction if the entity before could not be read.

    Raises:
        VerbRefusedError: the type of a datasource changes, or the validity on a scheduled cluster would be over.
    """
    if isinstance(before, Datasource) and isinstance(after, Datasource) and before.type is not after.type:
        raise VerbRefusedError(
            subject=after.label,
            reason=f"its type cannot change from {before.type.value!r} to {after.type.value!r}",
            next_step="Submit another datasource, and change the feeds to it.",
        )
    if isinstance(before, Feed | Process) and isinstance(after, Feed | Process):
        for cluster in find_past_ends(before, after, context.schedules(), context.now):
            raise VerbRefusedError(
                subject=after.label,
                reason=(
                    f"its validity on {cluster} ends at {render_datetime(after.clusters[cluster].validity.end)}, "
                    "in the past, and it is scheduled there"
                ),
                next_step="Choose an end in the future; or delete it and submit it again.",
            )


def find_past_ends(
    before: Feed | Process, after: Feed | Process, schedules: ScheduleView, as_of: datetime
) -> list[str]:
    """Return the clusters on which a scheduled entity would change in more than soft fields, with its end in the
    past.
    """
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
