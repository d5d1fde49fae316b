"""A folder of definitions, a state database and a person at the command line, at times of their own choice."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import yaml

from feed_assets.context.operation import open_context
from feed_assets.context.tick import open_tick
from feed_assets.definitions.verbs.context import EntityContext, open_entity_context
from feed_assets.entities.common import Kind
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.instances.gates.readiness import apply_readiness
from feed_assets.loading.entity_files import EntityFile
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstance, ProcessInstanceStatus, ProcessKey
from feed_assets.plan.location import compile_location
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.settings import Settings, load_settings
from feed_assets.sql.database import Database
from tests.databases import open_migrated
from tests.instances.harness import at

NOON = at("03T12:00")

CLUSTER = {"kind": "cluster", "name": "primary", "storage": "file://${PROJECT_ROOT}/data"}
_VALIDITY = {"start": "2013-11-01T00:00Z", "end": "2013-12-01T00:00Z"}
CLICKS = {
    "kind": "feed",
    "name": "clicks",
    "frequency": "hours(1)",
    "format": "csv",
    "locations": {"data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}"},
    "clusters": {"primary": {"validity": _VALIDITY}},
}
COUNTS = {
    **CLICKS,
    "name": "counts",
    "locations": {"data": "/counts/${YEAR}-${MONTH}-${DAY}/${HOUR}"},
}
COUNTING = {
    "kind": "process",
    "name": "counting",
    "frequency": "hours(1)",
    "clusters": {"primary": {"validity": _VALIDITY}},
    "inputs": {"clicks": {"feed": "clicks", "start": "now(0,0)", "end": "now(0,0)"}},
    "outputs": {"counts": {"feed": "counts", "instance": "now(0,0)"}},
    "workflow": {"engine": "sql", "path": "counting.sql"},
}
ALL = (CLUSTER, CLICKS, COUNTS, COUNTING)

Document = Mapping[str, object]


def file_of(*documents: Document, name: str = "brought.yaml") -> EntityFile:
    """A file with documents, as a user brings it."""
    return EntityFile(name=name, content=yaml.safe_dump_all(documents, sort_keys=False).encode())


@dataclass(slots=True)
class EntityHarness:
    """One project; `now` is what the clock of the next command says."""

    folder: Path
    database: Database
    settings: Settings
    now: datetime = NOON

    @classmethod
    def at(cls, folder: Path, *, schedule: str = "automatic", state: str | None = None) -> "EntityHarness":
        (folder / "entities").mkdir()
        (folder / "data").mkdir()
        (folder / "counting.sql").write_text("select count(*) as n from clicks")
        state = state or f"sqlite:///{folder}/state.db"
        (folder / "feed_assets.yaml").write_text(f"schedule: {schedule}\nstate: {state}\n")
        database = open_migrated(state)
        database.is_explicit = schedule == "explicit"
        return cls(folder=folder, database=database, settings=load_settings(environ={}, start=folder))

    def context(self, author: str = "ann", *, dry_run: bool = False, skip_checks: bool = False) -> EntityContext:
        return open_entity_context(
            self.settings, self.database, author=author, now=self.now, dry_run=dry_run, skip_checks=skip_checks
        )

    def later(self, **by: float) -> None:
        """Let time pass."""
        self.now += timedelta(**by)

    def declared(self, kind: Kind) -> tuple[str, ...]:
        return self.context().store.load(self.now).bundle.bundle.names(kind)

    def tick(self) -> None:
        """What a tick does to process instances, without looking for arrivals."""
        context = self.context()
        context.record()
        loaded = context.load()
        timeline = ReleaseTimeline(compile_location(loaded.bundle).plan, context.store.values)
        apply_plan(self.database, timeline, self.now)
        ticked = replace(open_context(self.settings, self.database, timeline), as_of=self.now)
        apply_readiness(open_tick(ticked, "primary"))

    def instances(self, process: str = "counting", cluster: str = "primary") -> dict[datetime, ProcessInstance]:
        with self.database.read() as connection:
            rows = ProcessInstances(connection).find_between(process, cluster, at("01"), at("30"))
        return {row.nominal_time: row for row in rows}

    def statuses(self, process: str = "counting") -> set[ProcessInstanceStatus]:
        return {row.status for row in self.instances(process).values()}

    def put(self, status: ProcessInstanceStatus, *times: datetime, run_id: str | None = None) -> None:
        """Bring instances to a status."""
        with self.database.begin() as connection:
            ProcessInstances(connection).transition_many(
                [ProcessKey("counting", "primary", time) for time in times],
                set(ProcessInstanceStatus),
                status=status,
                run_id=run_id,
                updated_at=self.now,
            )


def changed(document: Document, **fields: object) -> dict[str, object]:
    """A document with other fields."""
    return {**document, **fields}


def with_validity(document: Document, **validity: str) -> dict[str, object]:
    """A document with another validity on its cluster."""
    return {**document, "clusters": {"primary": {"validity": {**_VALIDITY, **validity}}}}
