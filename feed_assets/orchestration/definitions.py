"""Build the Dagster `Definitions` of a location. Everything that Dagster receives is assembled here."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType

import dagster as dg
from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType
from dagster._core.definitions.partitions.partitioned_schedule import UnresolvedPartitionedAssetScheduleDefinition
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.execution.build_resources import wrap_resources_for_execution  # all assets need the same objects
from dagster_shared.libraries import DagsterLibraryRegistry

from feed_assets.engines.workflow.python_code import PythonFiles
from feed_assets.issues import Severity
from feed_assets.masking import get_logger
from feed_assets.orchestration import names
from feed_assets.orchestration.assets import build_feed_assets
from feed_assets.orchestration.errors import NameClashError
from feed_assets.orchestration.graph.code_references import CodeReferences
from feed_assets.orchestration.graph.layout import AssetLayout, UserAsset, check_user_assets, lay_out
from feed_assets.orchestration.graph.metadata import Shown
from feed_assets.orchestration.graph.translator import DEFAULT_TRANSLATOR, FeedAssetsTranslator
from feed_assets.orchestration.location.runtime import Runtime, open_runtime
from feed_assets.orchestration.location.spark import spark_definition
from feed_assets.orchestration.runs import jobs
from feed_assets.orchestration.runs.feed_checks import (
    build_on_time_checks,
    build_replica_checks,
    to_result,
)
from feed_assets.orchestration.sensors import building
from feed_assets.orchestration.user_assets.loading import FeedIOManager
from feed_assets.plan.location import Declared, declare_location, find_plan_cache, load_location
from feed_assets.project_homes import find_home
from feed_assets.settings import Settings, load_settings

_logger = get_logger(__name__)
_PACKAGE = __name__.partition(".")[0]


def build_definitions(
    entities: Sequence[Declared] | None = None,
    *,
    folder: Path | None = None,
    settings: Settings | None = None,
    resources: Mapping[str, object] | None = None,
    translator: FeedAssetsTranslator | None = None,
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
    assets: Sequence[UserAsset] = (),
    asset_checks: Sequence[dg.AssetChecksDefinition] = (),
    jobs: Sequence[dg.JobDefinition | UnresolvedAssetJobDefinition] = (),
    schedules: Sequence[dg.ScheduleDefinition | UnresolvedPartitionedAssetScheduleDefinition] = (),
    sensors: Sequence[dg.SensorDefinition] = (),
) -> dg.Definitions:
    """Build Dagster definitions for everything that is declared.

    Args:
        entities: entities built in Python and functions declared with `process`; None loads the files named in the
            settings.
        folder: the folder of the project, where the search for `feed_assets.yaml` begins. If None, it begins in the
            folder of the module that calls this, and then in the working directory, which is one for all code locations
            of a workspace.
        settings: None reads them (see `load_settings`).
        resources: resources of your own, and those that replace what is built here: `spark_<cluster>` and
            `feed_io_manager`, by which assets read feeds (`FeedIOManager`).
        translator: names the assets, and decides what else Dagster shows of them.
        executor: the executor of asset runs. Dagster has one for each code location: give None to merge these
            definitions with others that are not to run in one process.
        assets: assets of your own that belong to the same definitions; those that produce feeds are checked.
        asset_checks, jobs, schedules, sensors: others of your own, as `Definitions` takes them.

    Raises:
        AssetClashError: one of `assets` has the key of an asset built here.
        NameClashError: a check, job, schedule or sensor has the name of one built here.
        ProducerError: one of `assets` produces a feed and has other partitions.
        SettingsError: a setting is wrong.
        DefinitionsError: entities built in Python are wrong, or a file is wrong and the settings are strict, or the
            location cannot be read, or the translator is wrong. Without strict, a wrong file excludes only itself and
            its dependents.
    """
    with without_beta_warnings():
        runtime, layout = open_location(entities, folder, settings, translator)
        built = assemble_definitions(runtime, layout, resources or {}, executor, assets)
        own = dg.Definitions(asset_checks=asset_checks, jobs=jobs, schedules=schedules, sensors=sensors)
        for kind in ("asset_checks", "jobs", "schedules", "sensors"):
            for name in sorted(_names_of(built, kind) & _names_of(own, kind)):
                raise NameClashError(kind=kind, name=name)
        return dg.Definitions.merge(built, own)


def _names_of(definitions: dg.Definitions, kind: str) -> set[str]:
    found = getattr(definitions, kind) or ()
    keys = (each.check_keys if kind == "asset_checks" else [each.name] for each in found)
    return {key if isinstance(key, str) else key.to_user_string() for each in keys for key in each}


def build_assets(
    entities: Sequence[Declared] | None = None,
    *,
    folder: Path | None = None,
    settings: Settings | None = None,
    resources: Mapping[str, object] | None = None,
    translator: FeedAssetsTranslator | None = None,
) -> list[dg.AssetSpec | dg.AssetsDefinition]:
    """Build only the assets, with their resources, for locations where something else starts all work.

    Without sensors, schedules and jobs, no arrival is noticed, no run is requested, no late data are found, and nothing
    is evicted. A run started by hand, a job or an automation condition does the same work, with the same guarantees.
    The arguments and errors are those of `build_definitions`.
    """
    with without_beta_warnings():
        runtime, layout = open_location(entities, folder, settings, translator)
        return build_feed_assets(
            runtime, layout, wrap_resources_for_execution({**_sparks(runtime), **(resources or {})})
        )


def build_io_manager(
    entities: Sequence[Declared] | None = None,
    *,
    folder: Path | None = None,
    settings: Settings | None = None,
    translator: FeedAssetsTranslator | None = None,
) -> FeedIOManager:
    """Build the IO manager by which other assets read feeds, for a location with `build_assets`.

    `build_definitions` has it already, as the resource `feed_io_manager`. The arguments and errors are those of
    `build_definitions`.
    """
    with without_beta_warnings():
        return FeedIOManager(*open_location(entities, folder, settings, translator))


@contextmanager
def without_beta_warnings() -> Iterator[None]:
    """Build without the warnings of what is in beta in Dagster: whoever calls has not chosen it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield


def open_location(
    entities: Sequence[Declared] | None,
    folder: Path | None,
    settings: Settings | None,
    translator: FeedAssetsTranslator | None,
) -> tuple[Runtime, AssetLayout]:
    """Return the runtime and the layout of a location. The arguments and errors are those of `build_definitions`."""
    DagsterLibraryRegistry.register("feed-assets", version("feed-assets"), is_dagster_package=False)
    settings = settings or load_settings(start=folder or (*_calling_folders(), Path.cwd()))
    find_home(settings, os.environ)
    load = partial(load_location, settings, cache=find_plan_cache(os.environ))
    location = load() if entities is None else declare_location(entities, settings.root)
    for issue in location.issues:
        level = logging.ERROR if issue.severity is Severity.ERROR else logging.WARNING
        _logger.log(level, "%s", issue.render())
    translator = translator or DEFAULT_TRANSLATOR
    runtime = open_runtime(settings, location, reload=load if entities is None else None, translator=translator)
    shown = replace(load_user_metadata(settings), references=CodeReferences(PythonFiles(settings.root)))
    runtime.shown_revision = shown.revision
    return runtime, lay_out(location.plan, translator, shown)


def _calling_folders() -> Iterator[Path]:
    """Yield the folder of the module outside this package that is calling, if it is a file."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    file = frame.f_globals.get("__file__") if frame is not None else None
    if file is not None and Path(file).is_file():
        yield Path(file).resolve().parent


def assemble_definitions(
    runtime: Runtime,
    layout: AssetLayout,
    resources: Mapping[str, object],
    executor: dg.ExecutorDefinition | None = dg.in_process_executor,
    assets: Sequence[UserAsset] = (),
) -> dg.Definitions:
    """Return all that Dagster receives of a location. The arguments and errors are those of `build_definitions`."""
    clusters = list(runtime.plan.clusters)
    retention = {cluster: jobs.build_retention_job(runtime, cluster) for cluster in clusters}
    listed = {
        (job, cluster): jobs.build_listed_job(runtime, layout.find_asset, cluster, job)
        for job in (names.OfCluster.INSTANCES_JOB, names.OfCluster.REPLICATION_JOB)
        for cluster in clusters
    }
    copied_to = sorted({each.cluster for each in runtime.plan.processes.values() if each.is_flow})
    built = [*build_feed_assets(runtime, layout), _location_asset(runtime)]
    check_user_assets(layout, built, assets)
    return dg.Definitions(
        assets=[*built, *assets],
        asset_checks=[
            _location_check(runtime),
            *(check for cluster in clusters for check in build_on_time_checks(runtime, layout, cluster)),
            *(check for cluster in clusters for check in build_replica_checks(runtime, layout, cluster)),
            *(check for cluster in clusters for check in jobs.build_outside_checks(runtime, layout, cluster)),
        ],
        jobs=[
            *listed.values(),
            *retention.values(),
            jobs.build_operate_job(runtime),
        ],
        schedules=[
            *(building.build_retention_schedule(runtime, layout, *each) for each in retention.items()),
            *(
                building.build_replication_schedule(
                    runtime, layout, each, listed[names.OfCluster.REPLICATION_JOB, each]
                )
                for each in copied_to
            ),
        ],
        sensors=[
            *(each for cluster in clusters for each in building.build_sensors(runtime, layout, cluster)),
            building.build_notify_sensor(runtime, layout),
        ],
        resources={**_sparks(runtime), names.FEED_IO_MANAGER: FeedIOManager(runtime, layout), **resources},
        executor=executor,
    )


def _sparks(runtime: Runtime) -> dict[str, dg.ResourceDefinition]:
    return {
        names.OfCluster.SPARK.of(cluster.name): spark_definition(cluster, runtime.root)
        for cluster in runtime.plan.clusters.values()
    }


def _location_asset(runtime: Runtime) -> dg.AssetSpec:
    return dg.AssetSpec(
        runtime.location_key,
        group_name="feed_assets",
        description=(
            "The entities that this location declares. Its check fails while one of their files is invalid, or while "
            "something fails in a tick of a sensor."
        ),
        metadata={names.META_DIGEST: runtime.location.digest},
        kinds={"yaml"},
    )


def _location_check(runtime: Runtime) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=runtime.location_key,
        name=names.LOCATION_CHECK,
        description="Checks that every entity file is valid, and that nothing fails in the ticks of the sensors.",
    )
    def entities_are_valid(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        from feed_assets.orchestration.location.health import find_health

        location = runtime.location
        health = find_health(runtime.database(context.instance), location.plan, location.issues, runtime.clock.now())
        return to_result(health.check(runtime.location_key))

    return entities_are_valid


def load_user_metadata(settings: Settings) -> Shown:
    """Read what people and programs say, in one query. A state that is not there yet, or cannot be asked, says nothing.

    The state is that of the settings, or beside the Dagster instance of DAGSTER_HOME. A run loads the location again,
    and shows nothing: it does not read. In Dagster, the context that tells the two apart is not public;
    `tests/orchestration/test_user_metadata.py` checks it.
    """
    if DefinitionsLoadContext.get().load_type is DefinitionsLoadType.RECONSTRUCTION:
        return Shown()
    # Measured: these import SQLAlchemy, which a run does not need to load its location.
    from feed_assets.catalog.store import REVISION, MetadataStore
    from feed_assets.log.cursors import Cursors
    from feed_assets.sql.dagster_home import find_state
    from feed_assets.sql.database import open_database
    from feed_assets.sql.errors import StateError

    url = find_state(settings, os.environ)
    if url is None:
        return Shown()
    database = open_database(url, settings.namespace)
    try:
        if not database.exists():
            return Shown(revision="")
        with database.read() as connection:
            values = MetadataStore(connection).said_beside_files()
            return Shown(values=values, revision=Cursors(connection).get(REVISION) or "")
    except StateError as exc:
        _logger.info("Dagster shows no metadata of people and programs: %s", exc)
        return Shown()
    finally:
        database.close()
