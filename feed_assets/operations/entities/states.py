"""How entities stand: submitted, running, suspended or completed, on each cluster and as a whole."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sqlalchemy import Connection

from feed_assets.entities.bundle import AnyEntity, Bundle
from feed_assets.entities.cluster import Cluster
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.lifecycle.schedules import ScheduleView, load_schedules
from feed_assets.plan.compile import runs_here
from feed_assets.state.definition_records import ScheduleState
from feed_assets.state.frontiers import Frontiers
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import EntityKey, Frontier, FrontierKind


class EntityState(StrEnum):
    """Falcon's four states. COMPLETED: the validity is over and no instance is left to run."""

    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETED = "COMPLETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityStatus:
    """The state of an entity, overall and on each of its clusters (none for clusters and datasources)."""

    kind: str
    name: str
    state: EntityState
    clusters: Mapping[str, EntityState] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The JSON form."""
        clusters = {cluster: state.value for cluster, state in self.clusters.items()}
        return {"kind": self.kind, "name": self.name, "status": self.state.value, "clusters": clusters}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the record knows of schedules, of how far instances have come, and of how many have not ended."""

    schedules: ScheduleView
    frontiers: Mapping[EntityKey, Frontier]
    unended: Mapping[EntityKey, int]


def load_progress(connection: Connection, without_row: ScheduleState) -> Progress:
    """The progress of everything; three statements."""
    return Progress(
        schedules=load_schedules(connection, without_row),
        frontiers=Frontiers(connection).all(FrontierKind.PROCESS),
        unended=ProcessInstances(connection).unended_counts(),
    )


def entity_status(bundle: Bundle, progress: Progress, entity: AnyEntity, as_of: datetime) -> EntityStatus:
    """How an entity stands.

    Overall it is RUNNING if it is so on any cluster, else SUSPENDED, SUBMITTED or COMPLETED, the first that some
    cluster is.
    """
    if isinstance(entity, Cluster | Datasource):
        return EntityStatus(kind=entity.kind, name=entity.name, state=EntityState.SUBMITTED)
    clusters = {cluster: _state_on(bundle, progress, entity, cluster, as_of) for cluster in entity.clusters}
    return EntityStatus(kind=entity.kind, name=entity.name, state=_overall(clusters.values()), clusters=clusters)


def _state_on(bundle: Bundle, progress: Progress, entity: Feed | Process, cluster: str, as_of: datetime) -> EntityState:
    state = progress.schedules.state(entity.kind, entity.name, cluster)
    if state is ScheduleState.SUBMITTED or not works_here(bundle, entity, cluster):
        return EntityState.SUBMITTED
    end = entity.sequence_on(cluster).end
    if end is not None and end <= as_of and not _has_more(progress, entity, cluster):
        return EntityState.COMPLETED
    return EntityState.SUSPENDED if state is ScheduleState.SUSPENDED else EntityState.RUNNING


def works_here(bundle: Bundle, entity: Feed | Process, cluster: str) -> bool:
    """Whether there is anything that does an entity's work on a cluster: an engine, and a place for the data."""
    if isinstance(entity, Feed):
        return entity.data_on(cluster) is not None or entity.table_on(cluster) is not None
    return runs_here(bundle, entity, cluster)


def _has_more(progress: Progress, entity: Feed | Process, cluster: str) -> bool:
    if isinstance(entity, Feed):
        return False
    key = EntityKey(entity.name, cluster)
    frontier = progress.frontiers.get(key)
    return frontier is None or frontier.next_time is not None or progress.unended.get(key, 0) > 0


def _overall(states: Iterable[EntityState]) -> EntityState:
    found = set(states)
    order = (EntityState.RUNNING, EntityState.SUSPENDED, EntityState.SUBMITTED)
    return next((state for state in order if state in found), EntityState.COMPLETED)
