"""Build what the work of an attempt receives: inputs and outputs for engines, and job properties.

Falcon's standard properties come first; the user's properties override them.
"""

import getpass
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from feed_assets.engines.partition_filters import render_filter, render_values
from feed_assets.engines.port import InputData, InputInstance, MadeUpRows, OutputTarget, TableName, TablePartition
from feed_assets.entities.maps import EMPTY
from feed_assets.entities.workflow import Workflow
from feed_assets.log.messages.records import render_falcon_time
from feed_assets.plan.edges import InputEdge
from feed_assets.plan.records import FeedRecord, Plan, ProcessRecord
from feed_assets.storage.lake_rows import rows_of
from feed_assets.timing.templates import WHOLE_TABLE
from feed_assets.timing.text import TextContext, render_text

NONE = "NONE"
"""Falcon's placeholder for the feeds, paths and names of a process without inputs or without outputs."""


def input_data(
    edge: InputEdge, record: FeedRecord, instances: Iterable[InputInstance], context: TextContext
) -> InputData:
    """Return an input with the instances of its feed."""
    partition = render_text(edge.partition, context) if edge.partition else None
    return replace(feed_data(edge.name, record, instances), partition=partition, optional=edge.optional)


def feed_data(name: str, record: FeedRecord, instances: Iterable[InputInstance]) -> InputData:
    """Return instances of a feed, to be read as it declares."""
    return InputData(
        name=name,
        feed=record.feed,
        instances=tuple(instances),
        format=record.format,
        columns=record.columns,
        options=dict(record.options),
        partitions=record.partitions,
        table=table_name(record),
    )


def output_target(
    name: str,
    record: FeedRecord,
    nominal_time: datetime,
    url: str,
    *,
    optional: bool = False,
    quarantine: OutputTarget | None = None,
    others: Mapping[str, InputData] = EMPTY,
) -> OutputTarget:
    """Return an output whose instance is written at a URL, where its bad rows go, and what rows are compared with."""
    return OutputTarget(
        name=name,
        feed=record.feed,
        url=url,
        format=record.format,
        columns=record.columns,
        options=dict(record.options),
        partition=table_partition(record, nominal_time),
        optional=optional,
        other_columns=record.other_columns,
        quality=record.quality,
        quarantine=quarantine,
        others=others,
    )


def table_name(record: FeedRecord) -> TableName | None:
    """Return the table of a feed; None if the feed lies in files."""
    table = record.table
    if table is None:
        return None
    rows = rows_of(record.store)
    return TableName(catalog=table.catalog, database=table.database, name=table.name, rows=rows)


def table_partition(record: FeedRecord, nominal_time: datetime) -> TablePartition | None:
    """Return the table partition of an instance; None if the feed lies in files."""
    table = table_name(record)
    if table is None:
        return None
    path = record.path(nominal_time)
    parts = (part.partition("=") for part in path.split("/") if path != WHOLE_TABLE)
    return TablePartition(table=table, values=tuple((key, value) for key, _, value in parts))


def made_up_rows(workflow: Workflow, instances: Sequence[datetime]) -> MadeUpRows | None:
    """Return the rows that a workflow makes up for the instance that it writes; None for other work."""
    if not workflow.columns:
        return None
    (instance,) = instances
    return MadeUpRows(rows=workflow.rows or 0, seed=workflow.seed or 0, instance=instance, columns=workflow.columns)


def text_context(plan: Plan, process: ProcessRecord, nominal_time: datetime) -> TextContext:
    """Return the values that `${…}` in the process's properties, partitions and arguments can refer to."""
    cluster = plan.clusters[process.cluster]
    return TextContext(
        nominal_time=nominal_time,
        timezone=process.sequence.timezone,
        user=getpass.getuser(),
        cluster={**dict(cluster.properties), "name": cluster.name, "colo": cluster.colo},
        properties=dict(process.properties),
    )


def with_overrides(process: ProcessRecord, overrides: Mapping[str, object]) -> ProcessRecord:
    """Return the process with its properties overridden by those that a person gave for one instance."""
    if not overrides:
        return process
    properties = {**dict(process.properties), **{name: str(value) for name, value in overrides.items()}}
    return replace(process, properties=tuple(properties.items()))


def with_inputs(context: TextContext, inputs: Sequence[InputData]) -> TextContext:
    """Return the context with the input instances, for `dataIn(name, partition)`."""
    urls = {item.name: tuple(instance.url for instance in item.instances) for item in inputs}
    return replace(context, inputs=urls)


def job_properties(
    process: ProcessRecord, context: TextContext, inputs: Sequence[InputData], outputs: Sequence[OutputTarget]
) -> dict[str, str]:
    """Return the properties of one attempt, with variables filled in. The user's properties override the standard ones.

    Standard properties (names as in Falcon, `reference`: its process coordinators): `nominalTime` (`yyyy-MM-dd-HH-mm`
    in UTC, and `-ss` if it has seconds), `falconInputs`, `falconInputFeeds`, `falconInPaths` and
    `falconInputFeedStorageTypes` (joined by `#`), `feedNames` and `feedInstancePaths` (outputs, joined by `,`), and the
    paths of each input and output under its own name. Inputs and outputs in tables have more (see `table_properties`).
    """
    given = {
        "nominalTime": render_falcon_time(context.nominal_time),
        "falconInputs": _joined("#", [item.name for item in inputs]),
        "falconInputFeeds": _joined("#", [item.feed for item in inputs]),
        "falconInPaths": _joined("#", [",".join(item.paths) for item in inputs]),
        "falconInputFeedStorageTypes": _joined("#", ["TABLE" if item.table else "FILESYSTEM" for item in inputs]),
        "feedNames": _joined(",", [item.feed for item in outputs]),
        "feedInstancePaths": _joined(",", [item.url for item in outputs]),
        **{item.name: ",".join(item.paths) or NONE for item in inputs},
        **{item.name: item.url for item in outputs},
        **table_properties(inputs, outputs),
    }
    own = {name: render_text(value, context) for name, value in process.properties}
    return {**given, **own}


def table_properties(inputs: Sequence[InputData], outputs: Sequence[OutputTarget]) -> dict[str, str]:
    """Return the table properties of a job, for each input and output in a table, with Falcon's names.

    All have `falcon_<name>_storage_type` (TABLE), `_catalog_url`, `_database` and `_table`. An input also has
    `_partition_filter_hive`, `_java` and `_pig`; the first appears also as `falcon_<name>_filter` and `<name>_filter`.
    An output also has `_dataout_partitions`, `_partitions_hive`, `_java` and `_pig`, and `_dated_partition_value_<key>`
    for each key.
    """
    given: dict[str, str] = {}
    for data in inputs:
        if data.table is not None:
            partitions = [each.partition.values for each in data.instances if each.partition is not None]
            hive, pig = render_filter(partitions) or NONE, render_filter(partitions, equals="==") or NONE
            prefix = f"falcon_{data.name}"
            given |= _table_facts(prefix, data.table)
            given |= {f"{prefix}_partition_filter_{language}": hive for language in ("hive", "java")}
            given |= {f"{prefix}_partition_filter_pig": pig, f"{prefix}_filter": hive, f"{data.name}_filter": hive}
    for target in outputs:
        if target.partition is not None:
            prefix, values = f"falcon_{target.name}", target.partition.values
            given |= _table_facts(prefix, target.partition.table)
            plain = ("dataout_partitions", "partitions_java", "partitions_pig")
            given |= {f"{prefix}_{name}": render_values(values) for name in plain}
            given[f"{prefix}_partitions_hive"] = render_values(values, quoted=True)
            given |= {f"{prefix}_dated_partition_value_{key}": value for key, value in values}
    return given


def _table_facts(prefix: str, table: TableName) -> dict[str, str]:
    return {
        f"{prefix}_storage_type": "TABLE",
        f"{prefix}_catalog_url": table.catalog,
        f"{prefix}_database": table.database,
        f"{prefix}_table": table.name,
    }


def _joined(separator: str, parts: Sequence[str]) -> str:
    return separator.join(parts) if parts else NONE
