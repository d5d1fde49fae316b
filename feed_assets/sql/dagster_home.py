"""The state database beside a Dagster home, read from its `dagster.yaml` without importing Dagster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from feed_assets.project_homes import find_home
from feed_assets.settings import STATE_FILE, Settings

_OTHER_STORAGES = ("instance_class", "run_storage", "event_log_storage", "schedule_storage", "local_artifact_storage")
_DATABASE = {"hostname", "port", "username", "password", "db_name", "scheme"}


def find_state(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """Return the URL of a project's state: that of the settings, else beside its Dagster home. None without a home, or
    as `find_state_url`.

    Raises:
        SettingsError: the home does not exist, or is that of another project.
    """
    home = find_home(settings, environ)
    return settings.state or (None if home is None else find_state_url(home, environ))


def find_state_url(home: Path, environ: Mapping[str, str]) -> str | None:
    """Return what `state_url` says of the instance of a Dagster home. None if the home is not one of the usual kinds,
    SQLite or PostgreSQL by URL or by parts: Dagster itself has to be asked.
    """
    file = home / "dagster.yaml"
    try:
        config = yaml.safe_load(file.read_text("utf-8")) if file.exists() else {}
    except (OSError, yaml.YAMLError):
        return None
    config = config or {}
    if not (isinstance(config, dict) and home.is_absolute() and home.is_dir()) or config.keys() & set(_OTHER_STORAGES):
        return None
    match config.get("storage"):
        case None | {"sqlite": _}:
            return f"sqlite:///{home / STATE_FILE}"
        case {"postgres": {"postgres_url": url, **others}} if not others:
            return _text(url, environ)
        case {"postgres": {"postgres_db": dict(parts), **others}} if not others and parts.keys() <= _DATABASE:
            return _postgres_url({name: _text(part, environ) for name, part in parts.items()})
    return None


def _postgres_url(parts: Mapping[str, str | None]) -> str | None:
    if None in parts.values() or not {"hostname", "username", "db_name"} <= parts.keys():
        return None
    scheme, port, password = parts.get("scheme", "postgresql"), parts.get("port", "5432"), parts.get("password")
    user = quote(parts["username"] or "") + (f":{quote(password)}" if password else "")
    return f"{scheme}://{user}@{parts['hostname']}:{port}/{parts['db_name']}"


def _text(value: Any, environ: Mapping[str, str]) -> str | None:
    """Return a value of the file, or of the environment; None if it has another form or the variable is not set."""
    match value:
        case {"env": str(name)}:
            return environ.get(name)
        case str() | int():
            return str(value)
    return None
