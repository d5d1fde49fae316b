"""Why instances are not done, on their partitions in Dagster: what `feed-assets why` says, as observations.

An observation does not colour the bar. It is reported before it is remembered: after a crash it may come twice.
"""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime

from dagster import AssetKey, AssetObservation, DagsterInstance, MetadataValue
from sqlalchemy import Connection

from feed_assets.entities.errors import EntityNotFoundError
from feed_assets.lifecycle.governance import Governance
from feed_assets.lifecycle.schedules import state_without_row
from feed_assets.lifecycle.tellings import decide_telling
from feed_assets.operations.errors import InstanceQueryError
from feed_assets.operations.explaining.explanations import explain_process_instance
from feed_assets.operations.explaining.records import Explanation
from feed_assets.operations.scene import Scene
from feed_assets.orchestration import names
from feed_assets.orchestration.layout import AssetLayout
from feed_assets.orchestration.runtime import Runtime
from feed_assets.state.database import Database
from feed_assets.state.records import ProcessInstance
from feed_assets.state.tellings import Telling, Tellings
from feed_assets.timing.dates import render_datetime
from feed_assets.timing.errors import InstanceError

EXPLAINED_A_TICK = 20
MOST_LINES = 200

_logger = logging.getLogger(__name__)


def build_scene(runtime: Runtime, governance: Governance, database: Database, as_of: datetime) -> Scene:
    """What a tick sees, as the commands see it."""
    return Scene(
        governance=governance,
        database=database,
        stores=runtime.stores,
        as_of=as_of,
        wall=runtime.wall.now(),
        without_row=state_without_row(runtime.settings.schedule),
        webserver=runtime.settings.webserver,
    )


def tell_why(scene: Scene, layout: AssetLayout, cluster: str, instance: DagsterInstance) -> int:
    """Tell Dagster why instances wait for long, have timed out or failed for good, each once for what keeps it.

    Without one that is due that is one question. What goes wrong here keeps nothing else from being done.

    Returns:
        Of how many instances it was told.
    """
    try:
        with scene.database.read() as connection:
            due = Tellings(connection, without_row=scene.without_row).due(cluster, scene.as_of, EXPLAINED_A_TICK)
        return _tell(scene, layout, due, instance) if due else 0
    except Exception:
        _logger.warning("what keeps instances on %s could not be told", cluster, exc_info=True)
        return 0


def _tell(scene: Scene, layout: AssetLayout, due: Sequence[ProcessInstance], instance: DagsterInstance) -> int:
    with scene.read() as connection:
        found = [(row, find_explanation(scene, connection, row)) for row in due]
    told = 0
    tellings: list[Telling] = []
    for row, explanation in found:
        telling = decide_telling(row, explanation.digest if explanation else None, scene.as_of)
        tellings.append(telling)
        if explanation is not None and telling.told != row.told:
            told += 1
            for observation in build_observations(layout, explanation):
                instance.report_runless_asset_event(observation)
    with scene.database.begin() as connection:
        Tellings(connection).mark(tellings)
    return told


def find_explanation(scene: Scene, connection: Connection, row: ProcessInstance) -> Explanation | None:
    """Why an instance is as it is; None if it is none by what is declared now."""
    try:
        return explain_process_instance(scene, connection, *row.key)
    except (EntityNotFoundError, InstanceError, InstanceQueryError):
        return None


def build_observations(layout: AssetLayout, explanation: Explanation) -> Iterator[AssetObservation]:
    """What Dagster is told of a process instance: at the partition of each output, or of the process's own asset."""
    for key, partition in _partitions(layout, explanation):
        yield AssetObservation(
            asset_key=key,
            partition=partition,
            description=explanation.headline,
            metadata={
                names.META_WHY: MetadataValue.md(_shortened(explanation.render())),
                names.META_STATUS: explanation.status,
                names.META_NOMINAL: render_datetime(explanation.nominal_time),
            },
        )


def _partitions(layout: AssetLayout, explanation: Explanation) -> Iterator[tuple[AssetKey, str]]:
    process = layout.plan.processes[explanation.name, explanation.cluster]
    if layout.is_own_asset(process):
        assets = [(names.process_key(layout.plan, process), layout.process_grid(process))]
    else:
        assets = [layout.feed_asset(edge.feed_key) for edge in process.outputs]
    for key, grid in assets:
        if grid.sequence.contains(explanation.nominal_time):
            yield key, grid.key(explanation.nominal_time)


def _shortened(text: str) -> str:
    lines = text.splitlines()
    if len(lines) <= MOST_LINES:
        return text
    more = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], f"… and {more} more lines, which `feed-assets why` has"])


def describe_oldest(scene: Scene, cluster: str) -> str:
    """The instance that waits longest and the first of its root causes, for the end of a sentence; empty if none does.

    One instance is explained, however many wait.
    """
    try:
        with scene.database.read() as connection:
            row = Tellings(connection, without_row=scene.without_row).oldest_waiting(cluster)
            explanation = find_explanation(scene, connection, row) if row else None
    except Exception:
        _logger.warning("the oldest instance that waits on %s could not be explained", cluster, exc_info=True)
        return ""
    return f"; the oldest that waits: {explanation.root_sentence}" if explanation else ""
