"""Export the rows of a feed instance to a table of a database: all of them at one moment, or none.

Spark writes a staging table beside the target, and the database checks it: as many rows as were read, no key without a
value, none twice. One transaction moves the rows. It asks for the lease after the target is locked and before it is
committed, so that a worker that was overtaken writes nothing. A repetition gives the same rows.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, assert_never
from zoneinfo import ZoneInfo

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from feed_assets.engines.data.frames import read_input
from feed_assets.engines.databases.connections import DatabaseConnection
from feed_assets.engines.databases.dialects import Value
from feed_assets.engines.databases.export_columns import ExportColumns, InstanceValue
from feed_assets.engines.databases.moving import MOVES, Move, drop_staging
from feed_assets.engines.databases.sessions import add_driver, jdbc_options, telling_refusals
from feed_assets.engines.errors import ServiceError
from feed_assets.engines.failures import reporting_failures
from feed_assets.engines.port import Engine, Work, WorkReport
from feed_assets.engines.run_metadata import ReportedMetadata
from feed_assets.engines.spark.sessions import open_session
from feed_assets.entities.datasource import LoadType
from feed_assets.masking import get_logger
from feed_assets.plan.transfers import ExportRecord

_LONGEST = 63

_logger = get_logger(__name__)


class StagingLog(Protocol):
    """What is known of the staging tables of an instance, so that none is left for ever."""

    def begin(self, table: str) -> Sequence[str]:
        """Note a table before it is made; return those of earlier attempts."""

    def end(self, table: str) -> None:
        """Forget a table that is dropped."""


def staging_name(process: str, nominal_time: datetime, token: int, run_id: str) -> str:
    """Return the name of a staging table: process, instance, fence, and digits of the run.

    >>> from datetime import UTC
    >>> staging_name("orders.export", datetime(2026, 11, 30, tzinfo=UTC), 7, "5f0c")
    'fa_orders_export_20261130T000000Z_7_88d12b'
    """
    run = hashlib.sha256(run_id.encode()).hexdigest()[:6]
    end = f"_{nominal_time:%Y%m%dT%H%M%SZ}_{token}_{run}"
    return f"{f'fa_{process}'.replace('.', '_')[: _LONGEST - len(end)]}{end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportEngine(Engine):
    """Exports the only input of a work.

    `connect` opens the database, whose times without a zone are in `timezone`. Staging tables are made in
    `staging_schema`, by default in that of the target, and named by the fencing `token` of the lease that `guard` asks
    for.
    """

    export: ExportRecord
    connect: Callable[[], AbstractContextManager[DatabaseConnection]]
    timezone: ZoneInfo
    staging_schema: str | None
    guard: Callable[[], None]
    token: int
    log: StagingLog

    def run(self, work: Work, session: Callable[[], SparkSession]) -> WorkReport:
        """Write the rows, and tell as facts how many were read, updated, inserted and deleted.

        Raises:
            ExportRefusedError: the rows do not fit the table.
            ServiceError: the database refuses or is away.
            FencedOutError: another worker took over. In each case the table is as it was.
        """
        with reporting_failures(work):
            spark = open_session(session, work.run_id)  # before a server ends a connection that waits for it
        with self.connect() as connection:
            columns = ExportColumns.of(connection, self.export, self.timezone)
            instance = columns.find_instance(work.nominal_time, work.timezone)
            with reporting_failures(work):
                add_driver(spark, connection.address)
                frame = columns.fit(read_input(spark, work.inputs[0]), instance)
            staging = self._staging_table(work)
            key = columns.find_key(connection.unique_keys(self.export.target.table), frame.columns)
            move = MOVES[connection.address.type](connection, self.export.target.table, staging, frame.columns, key)
            move.begin()
            if (obstacle := move.find_obstacle()) is not None:
                raise columns.refused(obstacle, "Export to a table whose engine has some.")
            earlier = self.log.begin(staging)
            try:
                self.guard()  # else they might be those of whoever took over
                for left in earlier:
                    self._drop(connection, left)
                move.create()
                next_step = "Correct the rows or the table, and run the instance again."
                with reporting_failures(work), telling_refusals(connection, next_step):
                    rows = _write(frame, connection, staging, self.export.connections)
                self._check(move, columns, rows, instance)
                connection.commit()  # else a transaction that is older than the lock would read what was there before
                done = self._move(move, columns, instance)
                connection.commit()
            finally:
                self._drop(connection, staging)
        counts = {"rows": rows, **done}
        return WorkReport(outputs=(), details=counts, reported=ReportedMetadata(facts=counts))

    def _check(self, move: Move, columns: ExportColumns, rows: int, instance: InstanceValue | None) -> None:
        """Refuse rows that are not those that were read, or that a key does not tell apart."""
        if (staged := move.count()) != rows:
            reason = f"{rows:,} rows were read, but {staged:,} are in the staging table"
            raise columns.refused(reason, "A task of Spark was repeated: run the instance again.")
        if move.key:
            _require_none(columns, "{} rows lack a value of the key", move.find_nulls(), "Leave them out.")
            _require_none(columns, "{} keys have several rows", move.find_doubles(), "Leave one row for each.")
        if instance is not None:
            what = f"{{}} rows have another {instance.column} than {instance.text}"
            _require_none(columns, what, move.find_strangers(instance.column, instance.value), "Leave it out.")

    def _move(self, move: Move, columns: ExportColumns, instance: InstanceValue | None) -> dict[str, int]:
        """Move the staged rows, and commit nothing; return how many rows of the table have changed, and how."""
        move.lock()
        self.guard()
        done: dict[str, int] = {}
        match self.export.target.load.type:
            case LoadType.UPDATE_ONLY:
                done["updated"] = move.update()
            case LoadType.ALLOW_INSERT:
                done["updated"] = move.update()
                done["inserted"] = move.insert(lacking="key")
            case LoadType.INSERT:
                what = "{} rows are in the table already with other values"
                _require_none(columns, what, move.find_others(), "Write allowinsert, which changes them.")
                done["inserted"] = move.insert(lacking="row")
            case LoadType.REPLACE:
                assert instance is not None
                done["deleted"] = move.delete(instance.column, instance.value)
                done["inserted"] = move.insert(lacking=None)
            case _:
                assert_never(self.export.target.load.type)
        self.guard()
        return done

    def _staging_table(self, work: Work) -> str:
        schema = self.staging_schema or self.export.target.table.rpartition(".")[0]
        name = staging_name(work.process, work.nominal_time, self.token, work.run_id)
        return f"{schema}.{name}" if schema else name

    def _drop(self, connection: DatabaseConnection, table: str) -> None:
        """Drop a staging table; one that cannot be dropped now stays on the agenda."""
        try:
            drop_staging(connection, table)
            self.log.end(table)
        except ServiceError as exc:
            _logger.warning("staging table %s is left: %s", table, exc)


def _require_none(
    columns: ExportColumns, what: str, found: tuple[int, Sequence[Sequence[Value]]], next_step: str
) -> None:
    count, examples = found
    if count:
        shown = "; ".join(", ".join("null" if each is None else str(each) for each in row) for row in examples)
        reason = f"{what.format(f'{count:,}')}: {shown}{'; …' if count > len(examples) else ''}"
        raise columns.refused(reason, next_step)


def _write(frame: DataFrame, connection: DatabaseConnection, table: str, connections: int) -> int:
    """Append the rows to a table, each task of Spark in a transaction of its own; return how many were read, where a
    task that was repeated counts once.
    """
    observation = Observation()
    options = jdbc_options(connection.address, connection.dialect.writing) | {"dbtable": connection.quote(table)}
    # with Spark's option `numPartitions` nothing is observed
    counted = frame.coalesce(connections).observe(observation, sf.count(sf.lit(1)).alias("rows"))
    counted.write.format("jdbc").mode("append").options(**options).save()
    return int(observation.get["rows"])
