"""The inputs and outputs of a process instance as engines know them: plain data made of feed records."""

from collections.abc import Iterable
from datetime import datetime

from feed_assets.engines.port import InputData, InputInstance, OutputTarget, TableName, TablePartition
from feed_assets.plan.records import FeedRecord, InputEdge
from feed_assets.timing.text import TextContext, render_text


def input_data(
    edge: InputEdge, record: FeedRecord, instances: Iterable[InputInstance], context: TextContext
) -> InputData:
    """An input with the instances of its feed."""
    return InputData(
        name=edge.name,
        feed=edge.feed,
        instances=tuple(instances),
        format=record.format,
        columns=record.columns,
        options=dict(record.options),
        partition=render_text(edge.partition, context) if edge.partition else None,
        partitions=record.partitions,
        optional=edge.optional,
        table=table_name(record),
    )


def output_target(name: str, record: FeedRecord, nominal_time: datetime, url: str) -> OutputTarget:
    """An output whose instance is written at a URL."""
    return OutputTarget(
        name=name,
        feed=record.feed,
        url=url,
        format=record.format,
        columns=record.columns,
        options=dict(record.options),
        partition=table_partition(record, nominal_time),
    )


def table_name(record: FeedRecord) -> TableName | None:
    """The table that a feed lies in; None where it lies in files."""
    table = record.table
    return None if table is None else TableName(catalog=table.catalog, database=table.database, name=table.name)


def table_partition(record: FeedRecord, nominal_time: datetime) -> TablePartition | None:
    """The partition that an instance of a feed is; None where the feed lies in files."""
    table = table_name(record)
    if table is None:
        return None
    parts = (part.partition("=") for part in record.path(nominal_time).split("/"))
    return TablePartition(table=table, values=tuple((key, value) for key, _, value in parts))
