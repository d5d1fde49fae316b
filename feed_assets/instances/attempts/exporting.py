"""Exports of instances: the engine of an attempt, and the staging tables that dead attempts have left in databases.

A table is on the agenda before it is made, by its name, until it is dropped. Nothing else is ever dropped.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from sqlalchemy import Connection

from feed_assets.context.bulkheads import TickStep
from feed_assets.context.operation import AttemptContext
from feed_assets.context.tick import Handler, Tick, tick_step, work_off
from feed_assets.entities.datasource import Datasource
from feed_assets.instances.attempts.attempts import HeldInstance
from feed_assets.log.agenda import Agenda, AgendaKey, AgendaKind, AgendaRows, Planned
from feed_assets.log.leases import find_held
from feed_assets.log.records import ProcessKey
from feed_assets.masking import get_logger
from feed_assets.plan.transfers import ExportRecord
from feed_assets.sql.database import Database

if TYPE_CHECKING:  # ticks do without Java, unless a table is left
    from feed_assets.engines.databases.connections import DatabaseConnection
    from feed_assets.engines.databases.writing import ExportEngine

LEFT_AFTER = timedelta(hours=1)
"""When the table of an attempt that has not dropped it is looked at, and how often then."""

_logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTables(Planned):
    """The staging tables that attempts at the export of an instance have made and not dropped, with the datasources."""

    tables: Mapping[str, str]
    kind: AgendaKind = AgendaKind.STAGED_TABLES


class StagedTablesAgenda(Agenda[StagedTables]):
    """The staging tables in databases, as one transaction sees them."""

    rows = AgendaRows(StagedTables, tables=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStagings:
    """The staging tables of one instance in a datasource."""

    context: AttemptContext
    key: ProcessKey
    datasource: str

    def begin(self, table: str) -> Sequence[str]:
        """Note a table before it is made; return those of earlier attempts in the same datasource."""
        at, now = AgendaKey(AgendaKind.STAGED_TABLES, *self.key), self.context.clock.now()
        with self.context.database.begin() as connection:
            agenda = StagedTablesAgenda(connection)
            found = agenda.lock_many([at]).get(at)
            earlier = found.tables if found is not None else {}
            entry = StagedTables(
                name=self.key.process,
                cluster=self.key.cluster,
                nominal_time=self.key.nominal_time,
                planned_at=now,
                due_at=now + self.context.clock.span(LEFT_AFTER),
                tables={**earlier, table: self.datasource},
            )
            agenda.put([entry])
        return [each for each, datasource in earlier.items() if datasource == self.datasource]

    def end(self, table: str) -> None:
        """Forget a table that is dropped."""
        _forget(self.context.database, AgendaKey(AgendaKind.STAGED_TABLES, *self.key), [table])


def _forget(database: Database, key: AgendaKey, tables: Collection[str]) -> None:
    """Take tables from the agenda."""
    with database.begin() as connection:
        agenda = StagedTablesAgenda(connection)
        found = agenda.lock_many([key]).get(key)
        left = {each: of for each, of in found.tables.items() if each not in tables} if found is not None else {}
        if found is not None and left:
            agenda.put([replace(found, tables=left)])
        else:
            agenda.remove([key])


def open_export(held: HeldInstance, root: Path) -> "ExportEngine":
    """Return the engine of an attempt at an export. It finds the datasource when it runs, as it is declared then."""
    from feed_assets.engines.databases.writing import ExportEngine

    export = held.process.work
    assert isinstance(export, ExportRecord)
    datasource = held.context.datasource(export.datasource)
    return ExportEngine(
        export=export,
        connect=partial(_open, datasource, root),
        timezone=ZoneInfo(datasource.timezone),
        staging_schema=datasource.staging_schema,
        guard=held.check,
        token=held.leased.tokens[held.nominal_time],
        log=InstanceStagings(context=held.context, key=held.key, datasource=export.datasource),
    )


@contextmanager
def _open(datasource: Datasource, root: Path) -> "Iterator[DatabaseConnection]":
    """Open a datasource for writing, over a Java machine of its own."""
    from feed_assets.engines.databases.credentials import open_interface
    from feed_assets.engines.java.machine import JavaMachine

    with JavaMachine() as machine, open_interface(datasource, datasource.write, root, lambda: machine) as connection:
        yield connection


@tick_step(TickStep.STAGED_TABLES, otherwise=None)
def apply_staged_tables(tick: Tick, root: Path) -> None:
    """Drop the staging tables that dead attempts have left."""
    work_off(tick, StagedTablesHandler(root))


@dataclass(frozen=True, slots=True)
class StagedTablesHandler(Handler[StagedTables, int]):
    """Drops what is due, unless somebody is at work on the instance; a unit is an export. `root` is the project."""

    step = TickStep.STAGED_TABLES
    at_once = 20
    most_steps = 1

    root: Path

    def find_due(self, connection: Connection, tick: Tick, limit: int) -> Sequence[StagedTables]:
        return StagedTablesAgenda(connection).due([AgendaKind.STAGED_TABLES], tick.cluster, tick.as_of, limit)

    def unit_of(self, entry: StagedTables) -> str:
        return entry.name

    def handle(self, tick: Tick, entries: Sequence[StagedTables]) -> list[int]:
        wanted = {(f"process/{each.name}", each.cluster, each.nominal_time): each for each in entries}
        with tick.database.read() as connection:
            busy = {found.key for found in find_held(connection, wanted, tick.real_now)}
        self.put_off(tick, [each for key, each in wanted.items() if key in busy], LEFT_AFTER)
        free = [each for key, each in wanted.items() if key not in busy]
        for name in {of for each in free for of in each.tables.values()}:
            tables = {table: each.key for each in free for table, of in each.tables.items() if of == name}
            datasource = tick.plan.datasources.get(name)
            if datasource is None or datasource.write is None:
                _logger.warning("datasource %s is gone; these tables are left there: %s", name, ", ".join(tables))
            else:
                asked = {name: partial(_drop_all, datasource, self.root, [*tables])}
                if isinstance(answer := tick.bulkheads.ask(self.step, asked)[name], Exception):
                    raise answer
            for table, key in tables.items():
                _forget(tick.database, key, [table])
        return [len(entries)]

    def put_off(self, tick: Tick, entries: Sequence[StagedTables], pause: timedelta) -> list[int]:
        due_at = tick.as_of + tick.clock.span(pause)
        with tick.database.begin() as connection:
            StagedTablesAgenda(connection).put(replace(each, planned_at=tick.as_of, due_at=due_at) for each in entries)
        return []


def _drop_all(datasource: Datasource, root: Path, tables: Sequence[str]) -> None:
    from feed_assets.engines.databases.moving import drop_staging

    with _open(datasource, root) as connection:
        for table in tables:
            drop_staging(connection, table)
