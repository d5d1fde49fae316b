"""Follow definitions that change while Dagster runs: ticks use them at once, and code servers are reloaded. Their
operations have contexts as those of commands: what commands see, a tick sees, too.

A daemon that starts its code servers itself renews them every minute. A separate code server (`dagster dev`, `dagster
code-server start`) is asked to reload by the first tick that notices a change. Two parts of this are not public in
Dagster: the server's address in the sensor's context, and the client of the server.
`tests/orchestration/test_reloading.py` checks both against real Dagster.
"""

import threading
from dataclasses import replace
from datetime import datetime

import dagster as dg
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin

from feed_assets.catalog.store import REVISION as METADATA_REVISION
from feed_assets.clock import TimeBudget
from feed_assets.context.bulkheads import Bulkheads, TickStep
from feed_assets.context.operation import OperationContext
from feed_assets.context.safe_mode import HELD, REBUILDS, RESTORED, SAFE_MODE, parse_restored, parse_safe_mode
from feed_assets.context.tick import Tick, open_tick
from feed_assets.definitions.store import record_location
from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import FeedAssetsError
from feed_assets.instances.gates.plan_changes import apply_plan
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.store import REVISION_CURSOR
from feed_assets.masking import get_logger
from feed_assets.orchestration.errors import OutdatedLocationError
from feed_assets.orchestration.graph.layout import AssetLayout, lay_out
from feed_assets.orchestration.location.asset_places import NOTED, note_places
from feed_assets.orchestration.location.runtime import ActiveDefinitions, Runtime
from feed_assets.plan.edges import Key
from feed_assets.plan.location import Location
from feed_assets.plan.records import ProcessRecord
from feed_assets.releases.timeline import ReleaseTimeline
from feed_assets.sql.database import Database

RELOAD_SECONDS = 180
PAUSE_SECONDS = 1.0

_logger = get_logger(__name__)


def follow_definitions(runtime: Runtime, loaded: AssetLayout, database: Database) -> ActiveDefinitions:
    """Return the current definitions, and note where Dagster shows them; one read if no command has changed them since.

    Definitions that cannot be read keep their previous version, and the next tick tries again.
    """
    with database.read() as connection:
        names = (REVISION_CURSOR, METADATA_REVISION, SAFE_MODE, REBUILDS, RESTORED, NOTED)
        cursors = Cursors(connection).get_many(names)
    revision = int(cursors.get(REVISION_CURSOR) or 0)
    with runtime.reloading:
        runtime.said_revision = cursors.get(METADATA_REVISION, "")
        if revision != runtime.revision:
            _reload(runtime, loaded, revision)
        active = runtime.active
        if active is None or active.location is not runtime.location:
            active = runtime.active = _activate(runtime, runtime.location, loaded)
        if runtime.places is None or runtime.places[0] is not loaded or runtime.places[1] != cursors.get(NOTED):
            runtime.places = loaded, note_places(database, loaded, cursors.get(NOTED))
    return replace(
        active, is_safe_mode=parse_safe_mode(cursors.get(SAFE_MODE)).is_on, is_restored=parse_restored(cursors)
    )


def _activate(runtime: Runtime, location: Location, loaded: AssetLayout) -> ActiveDefinitions:
    if location.plan.digest == loaded.plan.digest:
        return ActiveDefinitions(location=location, layout=loaded, not_yet=frozenset())
    layout = lay_out(location.plan, runtime.translator)
    return ActiveDefinitions(location=location, layout=layout, not_yet=_find_unlaunchable(loaded, layout))


def _reload(runtime: Runtime, loaded: AssetLayout, revision: int) -> None:
    if runtime.reload is not None:
        try:
            location = runtime.reload()
            if location.plan.digest != runtime.location.plan.digest:
                runtime.active = _activate(runtime, location, loaded)
                runtime.location = location
                _logger.info("definitions have changed: %s", location.plan.digest)
        except DefinitionsError as exc:
            _logger.warning("the changed definitions cannot be loaded; the previous ones stay in effect: %s", exc)
            return
    runtime.revision = revision


def _find_unlaunchable(loaded: AssetLayout, current: AssetLayout) -> frozenset[Key]:
    return frozenset(
        key
        for key, process in current.plan.processes.items()
        if (known := loaded.plan.processes.get(key)) is None
        or _run_shape(loaded, known) != _run_shape(current, process)
    )


def _run_shape(layout: AssetLayout, process: ProcessRecord) -> tuple[object, ...]:
    """Return what Dagster must know to run a process: the selected assets and their partitions."""
    selected = [key for key, _ in layout.run_assets(process)]
    return (selected, id(layout.process_grid(process).definition()))


def renew_code_server(runtime: Runtime, loaded: AssetLayout, context: dg.SensorEvaluationContext) -> None:
    """Ask the code server that runs this tick to reload, if it has to.

    This happens after the tick has returned, because the old process then ends.
    """
    origin = context.code_location_origin
    if isinstance(origin, GrpcServerCodeLocationOrigin) and has_to_reload(runtime, loaded):
        threading.Timer(PAUSE_SECONDS, _request_reload, (origin,)).start()


def has_to_reload(runtime: Runtime, loaded: AssetLayout) -> bool:
    """Return whether other definitions than the loaded ones are active, or people have said something since that the
    loaded assets do not show; once per version of the two.
    """
    with runtime.reloading:
        active = (runtime.location.plan.digest, runtime.said_revision)
        shown = (loaded.plan.digest, active[1] if runtime.shown_revision is None else runtime.shown_revision)
        is_new = active not in (shown, runtime.requested)
        runtime.requested = active if is_new else runtime.requested
    return is_new


def _request_reload(origin: GrpcServerCodeLocationOrigin) -> None:
    try:
        origin.create_client().reload_code(timeout=RELOAD_SECONDS)
    except Exception:
        _logger.warning("the code server %s could not be asked to reload", origin.location_name, exc_info=True)


def follow_plan(
    runtime: Runtime, location: Location, database: Database, as_of: datetime, bulkheads: Bulkheads | None = None
) -> ReleaseTimeline:
    """Record what a location declares, start releases, and return the release timeline; one read if nothing is new.

    Definitions that cannot be recorded have no effect yet; `bulkheads` tell it.
    """
    timeline = runtime.timeline(location)
    refused: list[FeedAssetsError] = []

    def record() -> bool:
        try:
            is_recorded = record_location(database, runtime.settings, location, as_of)
        except DefinitionsError as exc:
            refused.append(exc)
            return False
        refused.extend([] if is_recorded else [OutdatedLocationError()])
        return is_recorded

    settings = runtime.settings
    apply_plan(database, timeline, as_of, settings.definition_changes, record, settings.metadata.system)
    if bulkheads is not None:
        if refused:
            bulkheads.fail(TickStep.DEFINITIONS, "", refused[0])
        else:
            bulkheads.succeed(TickStep.DEFINITIONS)
    return timeline


SECONDS_A_TICK = 20.0


def build_context(runtime: Runtime, timeline: ReleaseTimeline, database: Database, as_of: datetime) -> OperationContext:
    """Build the context of a tick, which is the same as that of the commands."""
    return OperationContext(
        timeline=timeline,
        database=database,
        stores=runtime.stores,
        as_of=as_of,
        clock=runtime.clock,
        real_clock=runtime.real_clock,
        webserver=runtime.settings.webserver,
        server_url=runtime.settings.server.url,
    )


def find_hold(active: ActiveDefinitions) -> str | None:
    """Return why nothing is launched; None if something may be."""
    return "safe mode is on" if active.is_safe_mode else HELD if active.is_restored else None


def begin_tick(
    runtime: Runtime, loaded: AssetLayout, cluster: str, instance: dg.DagsterInstance
) -> tuple[ActiveDefinitions, Tick]:
    """Return the current definitions, and a tick for a cluster that follows them, with what is recorded of failures."""
    database, as_of = runtime.database(instance), runtime.clock.now()
    active = follow_definitions(runtime, loaded, database)
    context = build_context(runtime, runtime.timeline(active.location), database, as_of)
    bulkheads = Bulkheads.open(database, cluster, runtime.real_clock, runtime.patience)
    budget, is_held = TimeBudget(SECONDS_A_TICK), find_hold(active) is not None
    return active, open_tick(context, cluster, bulkheads, budget=budget, is_held=is_held)
