"""What the next run of an import would read, as its database says it now."""

from dataclasses import dataclass

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.definitions.datasources.asking import root_of
from feed_assets.engines.data.fitting import find_differences
from feed_assets.engines.databases.reading import ImportEngine
from feed_assets.entities.content.columns import parse_columns
from feed_assets.entities.flow_names import Transfer, transfer_name
from feed_assets.instances.attempts.marks import find_stretches
from feed_assets.json_form import NominalTime
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessKey
from feed_assets.plan.transfers import ImportRecord
from feed_assets.timing.dates import render_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenColumn:
    """A column of the database: its type there and, without a schema, in Spark; `schema` is that of the feed's."""

    name: str
    type: str
    ddl: str | None
    schema: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What is read for an instance: rows that meet `where` and the `condition` of the increment, above one mark up to
    the other if it is read by mark, in `parts` with a condition each. `differences` from the feed's schema fail it.
    """

    feed: str
    cluster: str
    nominal_time: NominalTime
    datasource: str
    table: str | None
    query: str | None
    where: str | None
    condition: str | None
    above: str | None
    upto: str | None
    parts: tuple[str, ...]
    columns: tuple[ForeseenColumn, ...]
    differences: tuple[str, ...]

    @property
    def has_failed(self) -> bool:
        """Whether the columns are not those of the schema."""
        return bool(self.differences)

    @property
    def summary(self) -> str:
        """What is read, in a sentence."""
        rows = " and ".join(each for each in (self.where, self.condition) if each is not None)
        what = f"table {self.table}" if self.table is not None else "a query"
        told = "".join(f"; {each}" for each in self.differences)
        parts = f"{len(self.parts)} part{'s' if len(self.parts) > 1 else ''}"
        return (
            f"{self.feed} on {self.cluster}, {render_datetime(self.nominal_time)}: {what} of {self.datasource}"
            f"{f', where {rows}' if rows else ''}, in {parts}{told}"
        )


def foresee_import(context: OperationContext, name: str, cluster: str | None) -> ImportPlan:
    """Ask the database of a feed's import what its next run would read.

    Raises:
        InstanceQueryError: the feed is not imported there, or has no further instance.
        ServiceError: the database refuses.
    """
    subject, own = f"feed {name!r}", transfer_name(name, Transfer.IMPORT)
    feeds = [each for each in context.feeds_of(name, cluster) if (own, each.cluster) in context.plan.processes]
    if not feeds:
        raise InstanceQueryError(subject=subject, reason="it is not imported", next_step="Declare an import.")
    record = context.only_process(own, cluster)
    feed, work = context.feed_on(name, record.cluster), record.work
    assert isinstance(work, ImportRecord), "an import has one"
    with context.database.read() as connection:
        rows = ProcessInstances(connection).unended(*record.key)
        waiting = rows[-1 if work.source.extract.is_whole else 0].nominal_time if rows else None
        time = waiting or record.sequence.ceil(context.as_of)
        if time is None:
            raise InstanceQueryError(subject=subject, reason="it has no further instance", next_step="Move its end.")
        known = find_stretches(connection, ProcessKey(*record.key, time), feed) if record.reads_in_turn else None
    engine = ImportEngine(
        record=work,
        datasource=context.datasource(work.datasource),
        root=root_of(context),
        period=(time, record.sequence.at(record.sequence.index(time) + 1)),
    )
    found = engine.foresee(known, subject)
    declared = parse_columns(feed.columns) if feed.columns is not None else ()
    schema = {column.lower(): kind for column, kind in declared}
    names, wanted = [each.name for each in found.columns], [column for column, _ in declared]
    return ImportPlan(
        feed=name,
        cluster=record.cluster,
        nominal_time=time,
        datasource=work.datasource,
        table=work.source.table,
        query=work.source.query,
        where=work.source.where,
        condition=found.condition,
        above=None if found.stretch is None else found.stretch.low,
        upto=None if found.stretch is None else found.stretch.high,
        parts=tuple(found.parts),
        columns=tuple(
            ForeseenColumn(name=each.name, type=each.type, ddl=each.read_as, schema=schema.get(each.name.lower()))
            for each in found.columns
        ),
        differences=tuple(find_differences(names, wanted, feed.other_columns) if declared else ()),
    )
