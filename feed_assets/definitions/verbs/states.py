"""States of entities: submitted, running, suspended or completed, on each cluster and overall."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Connection

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.log.definitions.records import ScheduleState
from feed_assets.log.definitions.schedules import ScheduleView, load_schedules
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import EntityKey, Watermark, WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.compile import runs_here


class EntityState(StrEnum):
    """Falcon's four states. COMPLETED: the validity is over and no instance is left to run."""

    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"


class _OnCluster(NamedTuple):
    cluster: str
    status: EntityState


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityStatus:
    """The state of an entity, overall and on each of its clusters (none for clusters and datasources)."""

    kind: str
    name: str
    state: EntityState
    clusters: Mapping[str, EntityState] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The state, above the table."""
        return self.state.value

    @property
    def rows(self) -> tuple[_OnCluster, ...]:
        """The state on each cluster."""
        return tuple(_OnCluster(*each) for each in self.clusters.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityProgress:
    """The recorded schedules, watermarks, and numbers of unfinished instances."""

    schedules: ScheduleView
    watermarks: Mapping[EntityKey, Watermark]
    unended: Mapping[EntityKey, int]


def load_progress(connection: Connection) -> EntityProgress:
    """Load the progress of all entities, in three statements."""
    return EntityProgress(
        schedules=load_schedules(connection),
        watermarks=Watermarks(connection).all(WatermarkKind.PROCESS),
        unended=ProcessInstances(connection).unended_counts(),
    )


def entity_status(
    bundle: Bundle, progress: EntityProgress, entity: AnyEntity, as_of: datetime, colo: str | None = None
) -> EntityStatus:
    """Return the status of an entity on its clusters in a colo, or on all. Overall it is the first of RUNNING,
    SUSPENDED, SUBMITTED and COMPLETED that any cluster has.
    """
    on = bundle.clusters_in(entity, colo)
    if isinstance(entity, Cluster | Datasource) or not on:
        return EntityStatus(kind=entity.kind, name=entity.name, state=EntityState.SUBMITTED)
    clusters = {cluster: _state_on(bundle, progress, entity, cluster, as_of) for cluster in on}
    order = (EntityState.RUNNING, EntityState.SUSPENDED, EntityState.SUBMITTED)
    overall = next((state for state in order if state in clusters.values()), EntityState.COMPLETED)
    return EntityStatus(kind=entity.kind, name=entity.name, state=overall, clusters=clusters)


def _state_on(
    bundle: Bundle, progress: EntityProgress, entity: Feed | Process, cluster: str, as_of: datetime
) -> EntityState:
    state = progress.schedules.state(entity.kind, entity.name, cluster)
    if state is ScheduleState.SUBMITTED or not works_here(bundle, entity, cluster):
        return EntityState.SUBMITTED
    end = entity.sequence_on(cluster).end
    if end is not None and end <= as_of and not _has_more(progress, entity, cluster):
        return EntityState.COMPLETED
    return EntityState.SUSPENDED if state is ScheduleState.SUSPENDED else EntityState.RUNNING


def works_here(bundle: Bundle, entity: Feed | Process, cluster: str) -> bool:
    """Return whether an entity can be worked on on a cluster: there is an engine, and a location for the data."""
    if isinstance(entity, Feed):
        return entity.lies_on(cluster)
    return runs_here(bundle, entity, cluster)


def _has_more(progress: EntityProgress, entity: Feed | Process, cluster: str) -> bool:
    if isinstance(entity, Feed):
        return False
    key = EntityKey(entity.name, cluster)
    watermark = progress.watermarks.get(key)
    return watermark is None or bool(watermark.ahead) or progress.unended.get(key, 0) > 0
