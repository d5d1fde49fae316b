"""How commands reach the state database: by the setting `state`, else beside the Dagster instance of DAGSTER_HOME."""

from collections.abc import Sequence

from feed_assets.errors import FeedAssetsError, SettingsError
from feed_assets.lifecycle.run_names import is_command
from feed_assets.settings import Settings
from feed_assets.state.database import Database, open_database
from feed_assets.state.records import ProcessInstance


def open_state(settings: Settings) -> Database:
    """The state database, with its tables.

    Raises:
        SettingsError: neither settings nor environment say where it is.
        StateError: it cannot be used.
    """
    database = open_database(settings.state or _url_beside_dagster())
    database.migrate()
    return database


def stop_runs(stopped: Sequence[ProcessInstance]) -> int:
    """End the Dagster runs of instances that were killed; returns how many runs there were.

    Raises:
        FeedAssetsError: Dagster could not be reached, or refused; names the runs that are left.
    """
    stopped = [row for row in stopped if row.request_key or (row.run_id and not is_command(row.run_id))]
    if not stopped:
        return 0
    # Measured: importing dagster takes half a second, and few commands need it.
    from feed_assets.orchestration.stopping import stop_runs_of

    return stop_runs_of(stopped)


def show_changes(settings: Settings) -> str | None:
    """Make the webserver of the settings load anew; the reason why it could not, None if it did or there is none."""
    if settings.webserver is None:
        return None
    from feed_assets.orchestration.webserver import reload_locations

    try:
        reload_locations(settings.webserver)
    except FeedAssetsError as exc:
        return str(exc)
    return None


def _url_beside_dagster() -> str:
    from dagster import DagsterInstance
    from dagster._core.errors import DagsterHomeNotSetError

    from feed_assets.orchestration.runtime import state_url

    try:
        with DagsterInstance.get() as instance:
            return state_url(instance)
    except DagsterHomeNotSetError as exc:
        raise SettingsError(
            setting="state",
            reason="nothing says where the state is kept",
            tried=("settings", "the Dagster instance of DAGSTER_HOME (not set)"),
            next_step="Set DAGSTER_HOME to the folder that the daemon uses, or state to an SQLAlchemy URL.",
        ) from exc
