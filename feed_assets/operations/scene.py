"""What questions about instances are answered from: the definitions in force, the record, storage, and the time."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import NoReturn, assert_never

from sqlalchemy import Connection

from feed_assets.clock import Clock, open_clock
from feed_assets.entities.common import Kind, label_of
from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.entities.flow_names import describe_process
from feed_assets.lifecycle.governance import Governance, Governed
from feed_assets.lifecycle.run_names import is_command
from feed_assets.lifecycle.schedules import state_without_row
from feed_assets.lifecycle.stores import StorePool
from feed_assets.loading.interpolation import Values
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.location import find_plan_cache, load_location
from feed_assets.plan.records import FeedRecord, Key, Plan, ProcessRecord
from feed_assets.settings import Settings
from feed_assets.state.database import Database
from feed_assets.state.definition_records import ScheduleState
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.errors import InstanceError
from feed_assets.timing.sequence import InstanceSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that is looked at. `as_of` is the present in the time of the data, `wall` in the time of day, which
    leases have. `webserver` is the URL of Dagster's, for links to runs.
    """

    governance: Governance
    database: Database
    stores: StorePool
    as_of: datetime
    wall: datetime
    without_row: ScheduleState = ScheduleState.SCHEDULED
    webserver: str | None = None

    @property
    def plan(self) -> Plan:
        """What is declared now."""
        return self.governance.plan

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """The record at one moment, with the releases of that moment."""
        with self.database.read() as connection:
            self.governance.refresh(connection, self.as_of)
            yield connection

    def run_url(self, run_id: str | None) -> str | None:
        """Where Dagster shows a run; None if there is no run, or nobody has said where Dagster is."""
        if not run_id or is_command(run_id) or not self.webserver:
            return None
        return f"{self.webserver.rstrip('/')}/runs/{run_id}"

    def feed_url(self, record: FeedRecord, nominal_time: datetime) -> str:
        """The URL of a feed's instance."""
        return self.stores.get(record.store).url(record.path(nominal_time))

    def records(self, kind: Kind) -> Mapping[Key, FeedRecord | ProcessRecord]:
        """All feeds or all processes; raises InstanceQueryError for what has no instances."""
        match kind:
            case Kind.FEED:
                return self.plan.feeds
            case Kind.PROCESS:
                return self.plan.processes
            case Kind.CLUSTER | Kind.DATASOURCE:
                raise InstanceQueryError(
                    subject=kind.value, reason="it has no instances", next_step="Name a feed or a process."
                )
            case _:
                assert_never(kind)

    def clusters_of(self, kind: Kind, name: str) -> tuple[str, ...]:
        """The clusters on which a feed or process is, by name.

        Raises:
            EntityNotFoundError: it is on none.
        """
        records = self.records(kind)
        found = tuple(cluster for cluster in sorted(self.plan.clusters) if (name, cluster) in records)
        if not found:
            known = sorted({entity for entity, _ in records})
            raise EntityNotFoundError(
                kind=kind.value, name=name, suggestions=tuple(get_close_matches(name, known, n=2))
            )
        return found

    def kind_of(self, name: str) -> Kind:
        """Whether a feed or a process has this name; a process where both have.

        Raises:
            EntityNotFoundError: neither.
        """
        for kind in (Kind.PROCESS, Kind.FEED):
            if any((name, cluster) in self.records(kind) for cluster in self.plan.clusters):
                return kind
        known = sorted({entity for kind in (Kind.PROCESS, Kind.FEED) for entity, _ in self.records(kind)})
        raise EntityNotFoundError(
            kind="feed or process", name=name, suggestions=tuple(get_close_matches(name, known, n=2))
        )

    def feed_on(self, name: str, cluster: str) -> FeedRecord:
        """A feed on a cluster; raises InstanceQueryError if it is not there."""
        record = self.plan.feeds.get((name, cluster))
        return record if record is not None else self._not_on(Kind.FEED, name, cluster)

    def process_on(self, name: str, cluster: str) -> ProcessRecord:
        """A process on a cluster; raises InstanceQueryError if it is not there."""
        record = self.plan.processes.get((name, cluster))
        return record if record is not None else self._not_on(Kind.PROCESS, name, cluster)

    def governed(self, connection: Connection, name: str, cluster: str, nominal_time: datetime) -> Governed:
        """The definitions that govern an instance of a process.

        Raises:
            InstanceQueryError: the process is not on the cluster.
            InstanceError: the time is no instance of it.
        """
        record = self.process_on(name, cluster)
        governed = self.governance.find_or_present(connection, record.key, nominal_time)
        if governed is None:
            record.sequence.index(nominal_time)
            raise InstanceError(
                subject=render_datetime(nominal_time),
                reason="it is no instance by the definition that governs this time",
                next_step=f"List the instances of process {name!r} around it.",
            )
        return governed

    def _not_on(self, kind: Kind, name: str, cluster: str) -> NoReturn:
        raise InstanceQueryError(
            subject=describe_process(name) if kind is Kind.PROCESS else label_of((kind, name)),
            reason=f"it is not on cluster {cluster!r}",
            next_step=f"It is on {', '.join(self.clusters_of(kind, name))}.",
        )

    def sequence(self, kind: Kind, name: str, cluster: str) -> InstanceSequence:
        """The instances of a feed or process on a cluster, as it is declared now."""
        return self.records(kind)[name, cluster].sequence


def open_scene(settings: Settings, database: Database, wall: Clock) -> Scene:
    """The scene that the settings name. Entities with errors are not in it.

    Raises:
        DefinitionsError: the place of the definitions cannot be read.
    """
    as_of = open_clock(settings).now()
    values = Values(variables=settings.cluster_variables, environ=os.environ)
    return Scene(
        governance=Governance(load_location(settings, as_of, find_plan_cache(os.environ)).plan, values),
        database=database,
        stores=StorePool(),
        as_of=as_of,
        wall=wall.now(),
        without_row=state_without_row(settings.schedule),
        webserver=settings.webserver,
    )
