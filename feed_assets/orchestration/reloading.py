"""Definitions that change while Dagster runs: ticks follow them at once, and Dagster is made to load them anew.

A daemon that starts its code servers itself renews them every minute. A code server of its own (`dagster dev`, `dagster
code-server start`) is asked to by the first tick that notices. That the sensor's context tells where the server is, and
the client of it, are not public in Dagster; `tests/orchestration/test_reloading.py` holds both against the real thing.
"""

import logging
import threading
from dataclasses import replace
from datetime import datetime

from dagster import SensorEvaluationContext
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin

from feed_assets.entities.errors import DefinitionsError
from feed_assets.operations.location import Location
from feed_assets.operations.safe_mode import SAFE_MODE, parse_safe_mode
from feed_assets.orchestration import names
from feed_assets.orchestration.layout import AssetLayout, lay_out
from feed_assets.orchestration.present import Present
from feed_assets.orchestration.runtime import Runtime
from feed_assets.plan.records import Key, ProcessRecord
from feed_assets.state.database import Database
from feed_assets.state.definitions import REVISION_CURSOR
from feed_assets.state.event_log import Cursors

RELOAD_SECONDS = 180
PAUSE_SECONDS = 1.0

_logger = logging.getLogger(__name__)


def follow_definitions(runtime: Runtime, loaded: AssetLayout, database: Database, as_of: datetime) -> Present:
    """The definitions as they are now. Where no command has changed them since, that costs one read.

    What cannot be read now stays as it was, and is tried again by the next tick.
    """
    with database.read() as connection:
        cursors = Cursors(connection).get_many((REVISION_CURSOR, SAFE_MODE))
    revision = int(cursors.get(REVISION_CURSOR) or 0)
    with runtime.reloading:
        if revision != runtime.revision:
            _reload(runtime, revision, as_of)
        present = runtime.present
        if present is None or present.location is not runtime.location:
            present = runtime.present = _present(runtime.location, loaded)
    return replace(present, is_safe_mode=parse_safe_mode(cursors.get(SAFE_MODE)).is_on)


def _present(location: Location, loaded: AssetLayout) -> Present:
    if location.plan.digest == loaded.plan.digest:
        return Present(location=location, layout=loaded, not_yet=frozenset())
    layout = lay_out(location.plan)
    return Present(location=location, layout=layout, not_yet=_not_yet(loaded, layout))


def _reload(runtime: Runtime, revision: int, as_of: datetime) -> None:
    if runtime.reload is not None:
        try:
            location = runtime.reload(as_of)
        except DefinitionsError as exc:
            _logger.warning("definitions have changed and cannot be loaded, so those before stay in force: %s", exc)
            return
        if location.digest != runtime.location.digest:
            _logger.info("definitions have changed: %s", location.digest)
            runtime.location = location
    runtime.revision = revision


def _not_yet(loaded: AssetLayout, present: AssetLayout) -> frozenset[Key]:
    return frozenset(
        key
        for key, process in present.plan.processes.items()
        if (known := loaded.plan.processes.get(key)) is None or _run_of(loaded, known) != _run_of(present, process)
    )


def _run_of(layout: AssetLayout, process: ProcessRecord) -> tuple[object, ...]:
    """What Dagster has to know of a process to run it: the assets that are selected, and how they are partitioned."""
    selected = (
        [names.process_key(layout.plan, process)]
        if layout.is_own_asset(process)
        else [layout.feed_asset(edge.feed_key)[0] for edge in process.outputs]
    )
    return (selected, id(layout.process_grid(process).definition()))


def renew_code_server(runtime: Runtime, loaded: AssetLayout, context: SensorEvaluationContext) -> None:
    """Ask the code server that runs this tick to load anew, if it has been given other definitions than are in force.

    Once for each state of the definitions, and after the tick has been answered: the old process then ends.
    """
    origin = context.code_location_origin
    location = runtime.location
    if location.plan.digest == loaded.plan.digest or not isinstance(origin, GrpcServerCodeLocationOrigin):
        return
    with runtime.reloading:
        if runtime.asked_for == location.digest:
            return
        runtime.asked_for = location.digest
    threading.Timer(PAUSE_SECONDS, _ask, (origin,)).start()


def _ask(origin: GrpcServerCodeLocationOrigin) -> None:
    try:
        origin.create_client().reload_code(timeout=RELOAD_SECONDS)
    except Exception:
        _logger.warning("the code server %s could not be asked to load anew", origin.location_name, exc_info=True)
