"""Access of commands to the state database: by the setting `state`, else beside the Dagster instance of
DAGSTER_HOME; and to the definitions.
"""

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from feed_assets.cli.door import find_door
from feed_assets.cli.progress import status_line
from feed_assets.cli.render import say
from feed_assets.errors import FeedAssetsError
from feed_assets.project_homes import state_unknown
from feed_assets.settings import Settings, load_settings
from feed_assets.sql.dagster_home import find_state

if TYPE_CHECKING:
    from feed_assets.context.operation import OperationContext
    from feed_assets.log.records import ProcessInstance
    from feed_assets.sql.database import Database


def current_settings() -> Settings:
    """Return the settings of the project: of the working directory, or of the server."""
    door = find_door()
    return load_settings() if door is None else door.settings


def open_state(settings: Settings, *, may_take_over: bool = False) -> "Database":
    """Open the state database, and make its tables if necessary; its connections end with the command.

    `may_take_over` allows the database of another project.

    Raises:
        SettingsError: neither settings nor environment name the database.
        StateError: the database cannot be used.
        ForeignDefinitionsError: it records the definitions of another project.
    """
    if (door := find_door()) is not None:
        return door.database
    from feed_assets.definitions.ownership import require_own_database
    from feed_assets.sql.database import open_state_database

    url = find_state(settings, os.environ) or _ask_dagster(settings)
    database = open_state_database(url, settings)
    command = click.get_current_context(silent=True)  # none completes a word
    if command is not None:
        command.call_on_close(database.close)
    with status_line.waiting_for(f"the state database {database.name}"):
        database.migrate()
        if not may_take_over:
            require_own_database(database, settings)
    return database


def open_context_for() -> "OperationContext":
    """Open the context of a command: settings, state and definitions. Say on stderr what is left out for its errors."""
    if (door := find_door()) is not None:
        context = door.open_context()
    else:
        from feed_assets.context.operation import open_context

        settings = load_settings()
        database = open_state(settings)
        with status_line.waiting_for(f"the definitions in {settings.entities_location}"):
            context = open_context(settings, database)
    at = dict.fromkeys(
        f"{each.source.render()}: {each.entity}" if each.source else str(each.entity) for each in context.errors
    )
    if at:
        say(f"left out because of errors, with all that needs it: {'; '.join(at)}. Correct them first.", err=True)
    return context


def say_silence(context: "OperationContext", clusters: Collection[str]) -> None:
    """Say on stderr that no ticks come, which would carry on what was done."""
    from feed_assets.context.heartbeat import find_silence

    if (silence := find_silence(context, clusters)) is not None:
        say(silence, err=True)


def stop_runs(stopped: "Sequence[ProcessInstance]") -> int:
    """End the Dagster runs of killed instances. Returns the number of runs.

    Raises:
        FeedAssetsError: Dagster failed or cannot be reached; names the remaining runs.
    """
    from feed_assets.log.run_names import is_command

    stopped = [row for row in stopped if row.request_key or (row.run_id and not is_command(row.run_id))]
    if not stopped:
        return 0
    # Measured: importing Dagster takes half a second, and few commands need it.
    from feed_assets.orchestration.runs.operating import stop_runs_of

    return stop_runs_of(stopped)


def end_and_reload(settings: Settings, stopped: "Sequence[ProcessInstance]", *, reload_needed: bool) -> None:
    """End the runs of killed instances, and reload the webserver of the settings, whether the first succeeds or not.

    Raises:
        FeedAssetsError: see `stop_runs`. A webserver that does not answer is a warning.
    """
    try:
        stop_runs(stopped)
    finally:
        if reload_needed and settings.webserver is not None:
            from feed_assets.orchestration.webserver import reload_locations

            try:
                reload_locations(settings.webserver)
            except FeedAssetsError as exc:
                say(f"warning: {exc}", err=True)


def _ask_dagster(settings: Settings) -> str:
    # Measured: importing Dagster takes a second, and a home that is not as usual needs it.
    from dagster import DagsterInstance
    from dagster._core.errors import DagsterHomeNotSetError

    from feed_assets.orchestration.location.runtime import state_url

    try:
        with DagsterInstance.get() as instance:
            return state_url(instance)
    except DagsterHomeNotSetError as exc:
        tried = (*settings.tried[:-1], "the Dagster instance of DAGSTER_HOME (not set)")
        raise state_unknown(settings, tried) from exc
