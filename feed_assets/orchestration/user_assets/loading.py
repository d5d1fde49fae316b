"""Hand instances of feeds to other people's assets: `load_instance`, `locate_instance` and an IO manager.

The partitions are those of the run, mapped as the graph says, or those that the caller names. Outside of a run the
settings tell where the feeds are declared.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import dagster as dg
from dagster._check import CheckError
from dagster._core.errors import DagsterHomeNotSetError

from feed_assets.entities.common import Kind
from feed_assets.masking import masked_errors
from feed_assets.orchestration import names
from feed_assets.orchestration.errors import FeedOutputError, PartitionKeyError
from feed_assets.orchestration.graph.layout import AssetLayout, lay_out
from feed_assets.orchestration.graph.partitions import Grid
from feed_assets.orchestration.location.runtime import Runtime, open_runtime
from feed_assets.plan.edges import Key
from feed_assets.plan.records import FeedRecord
from feed_assets.project_homes import find_home, state_unknown
from feed_assets.settings import load_settings, project_environment
from feed_assets.timing.dates import parse_datetime
from feed_assets.timing.errors import DateTimeError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from upath import UPath

    from feed_assets.context.errors import InstanceQueryError
    from feed_assets.context.operation import OperationContext
    from feed_assets.orchestration.user_assets.values import Form

RunContext: TypeAlias = dg.AssetExecutionContext | dg.OpExecutionContext | dg.InputContext
Where: TypeAlias = RunContext | dg.Definitions | None
Instance: TypeAlias = str | datetime
Partition: TypeAlias = Instance | dg.PartitionKeyRange | Iterable[Instance] | None


class FeedIOManager(dg.IOManager):
    """Loads instances of feeds as inputs of assets, in the form that the parameter's type names.

    `pyspark.sql.DataFrame`, `pandas.DataFrame`, `pyarrow.Table`, `Path` or `UPath`, `str` (the URL). Without a type it
    is a DataFrame of Spark if there is a session, else of pandas. Several partitions are one frame, oldest first.
    """

    def __init__(self, runtime: Runtime, layout: AssetLayout) -> None:
        self.runtime = runtime
        self.layout = layout

    def load_input(self, context: dg.InputContext) -> Any:
        """Load the input's partitions.

        Raises:
            InstanceNotThereError: one of them is missing, partial, empty or evicted.
            InstanceQueryError: the input is no feed, or has no partitions.
        """
        from feed_assets.orchestration.user_assets.values import form_of

        with masked_errors():
            asset = context.asset_key
            key = self.layout.find_feed(asset)
            if key is None:
                raise _refusal(
                    subject=f"asset {asset.to_user_string()}",
                    reason="it is no feed",
                    next_step="Use another IO manager for it.",
                )
            return self.load(context, key, None, form_of(context.dagster_type.typing_type))

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Refuse to write: an asset writes the data of a feed itself.

        Raises:
            FeedOutputError: always, but for an asset that returns nothing.
        """
        if obj is not None:
            raise FeedOutputError(asset=context.asset_key.to_user_string())

    def load(self, context: RunContext | None, key: Key, partition: Partition, form: "Form | None") -> Any:
        """Load instances of a feed."""
        from feed_assets.orchestration.user_assets.materializations import follow_now
        from feed_assets.orchestration.user_assets.values import find_session, read_form

        record, grid = self.layout.plan.feeds[key], self.layout.grids[key]
        times = self._times(context, record, grid, partition)
        operation = self._operation(context)
        if record.produced_by is not None:
            follow_now(self.runtime, self.layout.find_asset, [record.cluster], _instance_of(context))
        session = self._find_spark(context, record) or find_session()
        return read_form(operation, record, times, form, session, lambda: self._open_spark(record))

    def locate(self, context: RunContext | None, key: Key, partition: Partition, form: "Form") -> Any:
        """Return where instances of a feed belong."""
        from feed_assets.orchestration.user_assets.values import locate_form

        record, grid = self.layout.plan.feeds[key], self.layout.grids[key]
        return locate_form(self._operation(context), record, self._times(context, record, grid, partition), form)

    def find_key(self, context: RunContext | None, feed: str, cluster: str | None) -> Key:
        """Return the feed on the cluster that is named, or the one that the run reads, or its only one.

        Raises:
            EntityNotFoundError: there is no such feed.
            InstanceQueryError: it is not on the cluster, or on several.
        """
        operation = self._operation(context)
        if cluster is not None:
            return operation.feed_on(feed, cluster).key
        on = operation.clusters_of(Kind.FEED, feed)
        read = [each for each in on if self.layout.feed_asset((feed, each))[0] in _inputs_of(context)]
        if len(read or on) != 1:
            raise _refusal(
                subject=f"feed {feed!r}",
                reason=f"it is on {', '.join(read or on)}",
                next_step=f"Name one: cluster={(read or on)[0]!r}.",
            )
        return (feed, (read or on)[0])

    def _times(
        self, context: RunContext | None, record: FeedRecord, grid: Grid, partition: Partition
    ) -> Sequence[datetime]:
        if grid.is_single:
            return [grid.sequence.start]
        if partition is None:
            keys = _keys_of_run(context, self.layout.feed_asset(record.key)[0])
            if not keys:
                raise _refusal(
                    subject=f"feed {record.feed!r}",
                    reason="nothing says which instance is meant: there is no run with partitions",
                    next_step=f"Name one, for example {grid.key(grid.sequence.start)!r}.",
                )
            return sorted(map(grid.nominal_time, keys))
        if isinstance(partition, dg.PartitionKeyRange):
            first, last = (grid.sequence.index(_parse(grid, each)) for each in (partition.start, partition.end))
            return [grid.sequence.at(index) for index in range(first, last + 1)]
        wanted = [partition] if isinstance(partition, str | datetime) else list(partition)
        return [_parse(grid, each) for each in wanted]

    def _operation(self, context: RunContext | None) -> "OperationContext":
        from feed_assets.orchestration.location.reloading import build_context

        try:
            database = self.runtime.database(_instance_of(context))
        except DagsterHomeNotSetError as exc:
            settings = self.runtime.settings
            raise state_unknown(settings, (*settings.tried[:-1], "the Dagster instance of DAGSTER_HOME")) from exc
        return build_context(self.runtime, self.runtime.timeline(), database, self.runtime.clock.now())

    def _find_spark(self, context: RunContext | None, record: FeedRecord) -> "SparkSession | None":
        """Return the session of the cluster if the step has its resource."""
        if context is None:
            return None
        try:
            resource = getattr(context.resources, names.OfCluster.SPARK.of(record.cluster), None)
        except dg.DagsterError:  # a context of a test without resources
            return None
        return None if resource is None else resource.spark_session

    def _open_spark(self, record: FeedRecord) -> "SparkSession":
        from feed_assets.orchestration.location.spark import resource_of_process

        cluster = self.layout.plan.clusters[record.cluster]
        session: SparkSession = resource_of_process(cluster, self.runtime.root).spark_session
        return session


@overload
def load_instance(
    context: Where, feed: str, partition: Partition = None, *, cluster: str | None = None, as_: Literal["spark"]
) -> "DataFrame": ...
@overload
def load_instance(
    context: Where, feed: str, partition: Partition = None, *, cluster: str | None = None, as_: Literal["pandas"]
) -> "pd.DataFrame": ...
@overload
def load_instance(
    context: Where, feed: str, partition: Partition = None, *, cluster: str | None = None, as_: Literal["arrow"]
) -> "pyarrow.Table": ...
@overload
def load_instance(
    context: Where, feed: str, partition: Partition = None, *, cluster: str | None = None, as_: Literal["path"]
) -> "UPath": ...
@overload
def load_instance(
    context: Where, feed: str, partition: Partition = None, *, cluster: str | None = None, as_: Literal["paths"]
) -> "list[UPath]": ...
@overload
def load_instance(
    context: Where, feed: str, partition: Partition = None, *, cluster: str | None = None, as_: Literal["url"]
) -> str: ...
@overload
def load_instance(
    context: Where, feed: str, partition: Partition = None, *, cluster: str | None = None, as_: Literal["urls"]
) -> list[str]: ...
@overload
def load_instance(
    context: Where, feed: str, partition: Partition = None, *, cluster: str | None = None, as_: None = None
) -> Any: ...
def load_instance(
    context: Where, feed: str, partition: Partition = None, *, cluster: str | None = None, as_: str | None = None
) -> Any:
    """Return instances of a feed, read with its format, schema and options.

    Args:
        context: of the run. Outside of one: the `Definitions` with the feeds, or None for those of the settings, which
            are found as those of commands: from the working directory upwards, with the `.env` of the project.
        feed: the name of the feed.
        partition: a partition key, a UTC time, several of them, or a `PartitionKeyRange`, both ends inclusive. Without
            it those of the run, mapped to the feed if the asset depends on it.
        cluster: needed if the feed is on several, and the asset does not depend on one of them.
        as_: `spark`, `pandas`, `arrow`, `path`, `paths`, `url` or `urls`. Without it a DataFrame of Spark if there is a
            session, else of pandas. Without a session pandas and Arrow are read without Java.

    Raises:
        InstanceNotThereError: an instance is missing, partial, empty or evicted; it says why, as `feed-assets why`.
        PartitionKeyError: a partition is no instance of the feed.
        EntityNotFoundError, InstanceQueryError: the feed is not declared, or not on the cluster.
        InputReadError: the data cannot be read as declared; or only by Spark, and there is no session.
    """
    with masked_errors(), _environment_of(context):
        feeds, run = _find_feeds(context)
        return feeds.load(run, feeds.find_key(run, feed, cluster), partition, None if as_ is None else _form(as_))


def locate_instance(context: Where, feed: str, partition: Partition = None, *, cluster: str | None = None) -> "UPath":
    """Return where the data of an instance belong, whether they are there or not: for an asset that makes a feed.

    The arguments and errors are those of `load_instance`.
    """
    from feed_assets.orchestration.user_assets.values import Form

    with masked_errors(), _environment_of(context):
        feeds, run = _find_feeds(context)
        path: UPath = feeds.locate(run, feeds.find_key(run, feed, cluster), partition, Form.PATH)
        return path


def _form(text: str) -> "Form":
    from feed_assets.orchestration.user_assets.values import Form

    try:
        return Form(text)
    except ValueError as exc:
        forms = ", ".join(form.value for form in Form)
        raise _refusal(
            subject=f"as_={text!r}", reason="there is no such form", next_step=f"Forms are {forms}."
        ) from exc


def _find_feeds(where: Where) -> tuple[FeedIOManager, RunContext | None]:
    """Return the feeds of the run's code location, of definitions, or of the settings."""
    found: object = None
    if isinstance(where, dg.Definitions):
        found, run = (where.resources or {}).get(names.FEED_IO_MANAGER), None
    else:
        run = where
        if isinstance(where, dg.AssetExecutionContext | dg.OpExecutionContext):
            resource = _resources_of(where).get(names.FEED_IO_MANAGER)
            found = None if resource is None else resource(dg.build_init_resource_context())
    if isinstance(found, FeedIOManager):
        return found, run
    from feed_assets.plan.location import load_location

    settings = load_settings()
    find_home(settings, os.environ)
    runtime = open_runtime(settings, load_location(settings))
    return FeedIOManager(runtime, lay_out(runtime.plan)), run


def _environment_of(where: Where) -> AbstractContextManager[None]:
    """Return the environment of a program outside of a run: as for commands, with the `.env` of the project."""
    return project_environment(Path.cwd()) if where is None else nullcontext()


def _resources_of(context: dg.AssetExecutionContext | dg.OpExecutionContext) -> Mapping[str, dg.ResourceDefinition]:
    """Return the resources of the run's code location; of its job, if it is in none, as in a test."""
    try:
        return context.repository_def.get_top_level_resources()
    except (dg.DagsterError, CheckError):
        pass
    try:
        return context.job_def.resource_defs
    except (dg.DagsterError, CheckError):
        return {}


def _instance_of(context: RunContext | None) -> dg.DagsterInstance:
    if isinstance(context, dg.AssetExecutionContext | dg.OpExecutionContext):
        return context.instance
    step = context.step_context if isinstance(context, dg.InputContext) else None
    return dg.DagsterInstance.get() if step is None else step.instance


def _inputs_of(context: RunContext | None) -> Mapping[dg.AssetKey, str]:
    """Return the inputs of the run's asset by their keys, also those of dependencies that pass nothing."""
    if isinstance(context, dg.InputContext):
        return {context.asset_key: context.name} if context.has_asset_key else {}
    if context is None or not context.has_assets_def:
        return {}
    return {key: name for name, key in context.assets_def.keys_by_input_name.items()}


def _keys_of_run(context: RunContext | None, asset: dg.AssetKey) -> Sequence[str]:
    """Return the partition keys of an asset that a run reads; without a dependency on it, those of the run."""
    if context is None:
        return ()
    if isinstance(context, dg.InputContext):
        return context.asset_partition_keys if context.has_asset_partitions else ()
    name = _inputs_of(context).get(asset)
    if name is not None:
        return context.asset_partition_keys_for_input(name)
    return context.partition_keys if context.has_partition_key or context.has_partition_key_range else ()


def _parse(grid: Grid, instance: Instance) -> datetime:
    """Return the nominal time of a partition key or a time, which must be an instance."""
    if isinstance(instance, str):
        try:
            return grid.nominal_time(instance)
        except PartitionKeyError as exc:
            try:
                instance = parse_datetime(instance, seconds=True)
            except DateTimeError:
                raise exc from None
    if instance.tzinfo is None:
        raise _refusal(
            subject=f"{instance.isoformat()}", reason="it has no time zone", next_step="Pass an aware datetime."
        )
    return grid.sequence.at(grid.sequence.index(instance))


def _refusal(*, subject: str, reason: str, next_step: str) -> "InstanceQueryError":
    from feed_assets.context.errors import InstanceQueryError

    return InstanceQueryError(subject=subject, reason=reason, next_step=next_step)
