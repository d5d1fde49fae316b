"""A state as years of work leave it, on any database. The product lives the first period: arrivals, runs, and the
sweep that removes their data a year later. SQL copies its rows into later periods, with other times, names and numbers.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy
from sqlalchemy import Column, Connection, MetaData, Table, TypeDecorator, insert, select, text
from sqlalchemy.engine.default import DefaultDialect

from benchmarks.workload import CLUSTER, HOUR, START, pairs_of, write_entities
from feed_assets.definitions.store import record_location
from feed_assets.log.cursors import Cursors
from feed_assets.log.events import EventLog
from feed_assets.log.instances.tables import attempts, feed_instances, manifests, process_instances
from feed_assets.log.messages.outbox import outbox
from feed_assets.log.removals.records import SweepState
from feed_assets.log.removals.store import Sweeps
from feed_assets.log.removals.tables import sweep_chunks, sweeps
from feed_assets.log.tables import audit, feed_events, shared_payloads, watermarks
from feed_assets.plan.location import load_location
from feed_assets.retention.planning import plan_retention
from feed_assets.retention.rules.clock_witness import note_clock
from feed_assets.retention.running import run_sweeps
from feed_assets.settings import load_settings
from feed_assets.simulate.parts import ArrivalPattern, iter_arrivals
from feed_assets.simulate.simulation import Simulation, SimulationSettings
from feed_assets.sql.column_types import Digest, UtcDateTime
from feed_assets.sql.database import Database
from feed_assets.sql.tables import VERSION_TABLE, load_tables
from feed_assets.timing.dates import NEVER

DAY = timedelta(days=1)
KEPT = timedelta(days=365)
MESSAGES = timedelta(days=12)
"""How long messages are kept: older ones are not made."""
COPIED = (
    feed_instances,
    feed_events,
    shared_payloads,
    manifests,
    process_instances,
    attempts,
    outbox,
    sweeps,
    sweep_chunks,
    audit,
)
_IN_TRASH = timedelta(days=8)
_EVERYTHING = ArrivalPattern(late=0, missing=0, again=0)
_RUN, _UUID_END = re.compile(r"\brun-(\d+)\b"), "-8000-000000000000"
_BEFORE = "template.nominal_time"
_NUMBERED = (feed_events, outbox, audit)


Rows = Mapping[Table, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LivedSize:
    """How many pairs have lived how many periods, each a day or an hour; instances are evicted after a year if
    `is_evicting`. A run takes `run_time`.
    """

    pairs: int
    periods: int
    period: timedelta = DAY
    is_evicting: bool = True
    run_time: timedelta = timedelta(minutes=10)

    @property
    def end(self) -> datetime:
        """The first nominal time after it."""
        return START + self.periods * self.period

    @property
    def every(self) -> timedelta:
        """How long a tick of the simulation is after another: each requests 50 runs, and all are over in time."""
        return timedelta(minutes=15) / max(1, self.pairs // 100)

    @property
    def lag(self) -> int:
        """How many periods after an instance its data are removed."""
        return -(-(KEPT + self.period) // self.period)

    @property
    def evicted(self) -> int:
        """How many periods are evicted."""
        return max(0, self.periods - self.lag) if self.is_evicting else 0


def fill_lived_state(database: Database, folder: Path, size: LivedSize) -> None:
    """Fill an empty database with the state of the pairs whose entities are in `folder` / "entities"."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    if not (folder / "entities").exists():
        write_entities(folder / "entities", pairs_of(size.pairs), folder / "data", KEPT.days)
    live, evicted = _live(folder, size)
    database.migrate()
    indexes = [index for table in COPIED for index in table.indexes]
    with database.begin() as connection:
        for table, rows in live.items():
            if rows and table not in COPIED:
                connection.execute(insert(table), rows)
        for index in indexes:
            index.drop(connection)
    numbers = {table: _Numbers.of(live[table], evicted[table]) for table in _NUMBERED}
    for table in COPIED:
        begun = numbers.get(table, numbers[feed_events])
        for rows, ranks in ((evicted[table], range(size.evicted)), (live[table], range(size.evicted, size.periods))):
            if rows and ranks:
                with database.begin() as connection:
                    _copy(connection, size, table, rows, ranks, begun)
    with database.begin() as connection:
        for index in indexes:
            index.create(connection)
        _move_positions(connection, size)


class _Numbers(NamedTuple):
    """How many rows of a log are older than the first period, and how many that has and its sweep adds."""

    first: int
    live: int
    evicted: int

    @classmethod
    def of(cls, live: Sequence[Mapping[str, Any]], evicted: Sequence[Mapping[str, Any]]) -> "_Numbers":
        first = sum(row["recorded_at"] <= START for row in live)
        return cls(first, len(live) - first, len(evicted) - len(live))

    def shifts(self, rank: int, size: LivedSize) -> tuple[int, int]:
        """Return what is added to the numbers of a period's rows: to those of its life, and to those of its sweep."""
        swept = min(max(0, rank - size.lag + 1), size.evicted)  # a period begins with the sweep of an older one
        return rank * self.live + swept * self.evicted, (rank + size.lag - 1) * self.live + rank * self.evicted


def _live(folder: Path, size: LivedSize) -> tuple[Rows, Rows]:
    """Return the rows after the first period, and those after its sweep."""
    settings = load_settings({"entities": str(folder / "entities")}, environ={}, start=folder)
    location, end = load_location(settings), START + size.period
    arrivals = list(iter_arrivals(location.plan, START, end, _EVERYTHING, random.Random(0)))
    simulation = Simulation(
        plan=location.plan,
        record=lambda database: record_location(database, settings, location, START),
        arrivals=arrivals,
        settings=SimulationSettings(
            start=START,
            end=end - timedelta(seconds=1),
            root=settings.root,
            every=size.every,
            run_time=size.run_time,
        ),
    )
    try:
        for _ in simulation.run():
            pass
        _name_runs(simulation.database)
        live = _rows_of(simulation.database)
        if size.evicted:
            _sweep(simulation, size)
        return live, _rows_of(simulation.database)
    finally:
        simulation.close()


def _sweep(simulation: Simulation, size: LivedSize) -> None:
    """Remove the data of the first period as retention does, in one sweep. Newer data stay."""
    at = START + size.lag * size.period
    for record in simulation.plan.feeds.values():
        simulation.stores.write(record, at - HOUR, "newer")
    with simulation.database.begin() as connection:
        note_clock(connection, CLUSTER, at - DAY)
    context = simulation._operation_context(at)
    by = context.by("benchmark")
    done = run_sweeps(by, plan_retention(by).sweeps)
    assert (done.is_complete, len(done.sweeps)) == (True, 1), done
    with simulation.database.begin() as connection:  # nobody declares the storage of a simulation: its trash stays
        (sweep,) = done.sweeps
        Sweeps(connection).transition(
            sweep.sweep_id, {SweepState.DONE}, state=SweepState.PURGED, purged_at=at + _IN_TRASH
        )


def _rows_of(database: Database) -> Rows:
    tables = [table for table in load_tables().sorted_tables if table.name != VERSION_TABLE]
    with database.read() as connection:
        found = {table: connection.execute(select(table)).mappings() for table in tables}
        return {table: [{each.key: row[each] for each in table.c} for row in rows] for table, rows in found.items()}


def _name_runs(database: Database) -> None:
    """Give runs names as long as those of Dagster."""
    named = ((attempts, "run_id"), (process_instances, "run_id"), (feed_events, "origin"), (outbox, "payload"))
    with database.begin() as connection:
        inner: Any = connection.connection.driver_connection
        inner.create_function("named", 1, _named)
        for table, column in named:
            connection.execute(text(f"UPDATE {table.name} SET {column} = named({column})"))


def _named(value: str | bytes | None) -> str | bytes | None:
    if isinstance(value, bytes):
        return Digest().process_bind_param(_RUN.sub(_uuid, value.decode()), DefaultDialect())
    return value and _RUN.sub(_uuid, value)


def _uuid(run: re.Match[str]) -> str:
    return f"{int(run[1]):08x}-0000-4000{_UUID_END}"


def _copy(
    connection: Connection,
    size: LivedSize,
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    ranks: range,
    numbers: _Numbers,
) -> None:
    """Copy rows of the first period into other periods."""
    template = table.to_metadata(MetaData(), name="template")
    connection.execute(text(f"CREATE TEMP TABLE template AS SELECT * FROM {table.name} WHERE 1 = 0"))
    connection.execute(insert(template), rows)
    tokens = [(at, form) for at in (START + size.lag * size.period, START) for form in _forms(size)]
    _lay_periods(connection, size, ranks, numbers, tokens)
    if table in _NUMBERED:
        where, order = f"seq > {numbers.first}", "period.rank, seq"
        older = [row for row in rows if row["seq"] <= numbers.first]
        if older and ranks[0] == 0:
            connection.execute(insert(table), older)
    else:
        where, order = "1 = 1", "period.rank"
    if table is outbox:
        oldest = size.periods - MESSAGES // size.period
        where += f" AND rank + CASE WHEN seq > {numbers.first + numbers.live} THEN {size.lag} ELSE 0 END >= {oldest}"
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    values = ", ".join(_later(connection, column, numbers, tokens) for column in table.columns)
    chosen = f"SELECT {values} FROM period CROSS JOIN template WHERE {where} ORDER BY {order}"
    connection.execute(text(f"INSERT INTO {table.name} ({names}) {chosen}"))
    connection.execute(text("DROP TABLE template"))
    connection.execute(text("DROP TABLE period"))


def _forms(size: LivedSize) -> tuple[str, ...]:
    """Return how texts name a period."""
    return ("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d-") if size.period == DAY else ("%Y-%m-%dT%H", "%Y/%m/%d/%H", "%Y%m%d-%H")


def _lay_periods(
    connection: Connection,
    size: LivedSize,
    ranks: range,
    numbers: _Numbers,
    tokens: Sequence[tuple[datetime, str]],
) -> None:
    columns = "".join(f", token{number} text" for number in range(len(tokens)))
    numbered = "rank bigint, micros bigint, live bigint, evicted bigint"
    connection.execute(text(f"CREATE TEMP TABLE period ({numbered}, run text, tail bytea{columns})"))
    values = "".join(f", :token{number}" for number in range(len(tokens)))
    micros = size.period // timedelta(microseconds=1)
    periods = []
    for rank in ranks:
        live, evicted = numbers.shifts(rank, size)
        later = {f"token{number}": f"{at + rank * size.period:{form}}" for number, (at, form) in enumerate(tokens)}
        run = f"-8000-{rank:012d}"
        named = {"run": run, "tail": bytes.fromhex(run[-12:])}
        periods.append({"rank": rank, "micros": rank * micros, "live": live, "evicted": evicted} | named | later)
    values = f":rank, :micros, :live, :evicted, :run, :tail{values}"
    connection.execute(text(f"INSERT INTO period VALUES ({values})"), periods)


def _later(
    connection: Connection, column: "Column[Any]", numbers: _Numbers, tokens: Sequence[tuple[datetime, str]]
) -> str:
    """Return the SQL value of a row of the first period in another one."""
    name = f'template."{column.name}"'
    if isinstance(column.type, UtcDateTime):
        return f"{name} + period.micros"
    if column in (feed_events.c.shared, shared_payloads.c.number):
        return f"{name} + period.rank"
    if column.name in ("seq", "event_seq", "log_seq"):
        return _number(name, numbers)
    if column is feed_events.c.idempotency_key:  # a digest: another one, as long
        rank = "CAST(1000000 + period.rank AS text)"
        return f"{rank} || substr({name}, length({rank}) + 1)"
    if column is attempts.c.outputs:
        parsed = f"CAST(rtrim(substr({name}, 5), ']') AS bigint)"  # [1,[7]]
        return f"'[1,[' || CAST({_number(parsed, numbers)} AS text) || ']]'"
    if column.name in ("run_id", "origin"):  # the last bytes of a UUID, behind 255, or 252 for `run:`
        is_sqlite = connection.dialect.name == "sqlite"
        run = f"substr({name}, 1, length({name}) - 6) || period.tail"
        run, marks = (f"CAST({run} AS BLOB)", "X'FF', X'FC'") if is_sqlite else (run, "'\\xff', '\\xfc'")
        return f"CASE WHEN substr({name}, length({name}) - 16, 1) IN ({marks}) THEN {run} ELSE {name} END"
    if column is attempts.c.inputs:  # each reads the instance of its own time
        return _with_time(connection, name)
    if not isinstance(column.type, TypeDecorator) or not isinstance(column.type.impl_instance, sqlalchemy.Text):
        return name
    value = name
    for number, (at, form) in enumerate(tokens):
        if _has(connection, name, f"{at:{form}}"):
            value = f"replace({value}, '{at:{form}}', period.token{number})"
    if _has(connection, name, _UUID_END):
        value = f"replace({value}, '{_UUID_END}', period.run)"
    return f"{value} || '/' || period.rank" if column is outbox.c.idempotency_key else value


def _with_time(connection: Connection, name: str) -> str:
    """Return the SQL value of bytes that have the nominal time of their row, with that of the other period."""
    if connection.dialect.name == "sqlite":
        inner: Any = connection.connection.driver_connection
        inner.create_function("moved", 3, _moved)
        return f"moved({name}, {_BEFORE}, period.micros)"
    old, new = (f"encode(int8send({time}), 'hex')" for time in (_BEFORE, f"{_BEFORE} + period.micros"))
    return f"decode(replace(encode({name}, 'hex'), {old}, {new}), 'hex')"


def _moved(stored: bytes, time: int, micros: int) -> bytes:
    return stored.replace(time.to_bytes(8, "big"), (time + micros).to_bytes(8, "big"))


def _has(connection: Connection, name: str, token: str) -> bool:
    statement = text(f"SELECT 1 FROM template WHERE {name} LIKE :pattern LIMIT 1")
    return connection.scalar(statement, {"pattern": f"%{token}%"}) is not None


def _number(name: str, numbers: _Numbers) -> str:
    return f"{name} + CASE WHEN {name} > {numbers.first + numbers.live} THEN period.evicted ELSE period.live END"


def _move_positions(connection: Connection, size: LivedSize) -> None:
    """Let everything go on behind the last period."""
    copied = (size.periods - 1) * size.period
    later = ", ".join(f"{name} = {name} + :micros" for name in ("next_time", "due_at"))
    moved = {"steps": copied // HOUR, "micros": copied // timedelta(microseconds=1)}
    connection.execute(text(f"UPDATE {watermarks.name} SET next_index = next_index + :steps, {later}"), moved)
    positions = Cursors(connection)
    positions.put(f"readiness/{CLUSTER}", str(EventLog(connection).last_seq()))
    positions.put(f"stored/{CLUSTER}", NEVER.isoformat())  # none of these data are on disk
    positions.put(f"clock/{CLUSTER}", (size.end - HOUR).isoformat())
    positions.put(f"cleanup/{CLUSTER}", (size.end - HOUR).isoformat())
