"""What git does not hold of a project, and each place of it needs: `.env`, with the Dagster home and the database."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dotenv import dotenv_values
from psycopg2 import ProgrammingError
from psycopg2.extensions import parse_dsn
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from feed_assets.command_lines import command_line
from feed_assets.errors import SettingsError, WrongUsageError
from feed_assets.project_homes import DAGSTER_HOME, HOME_FOLDER, find_home
from feed_assets.settings import ENV_FILE, FILE_NAME, find_settings_file, load_settings
from feed_assets.sql.database import WRITE_AT

POSTGRES_URL = "DAGSTER_PG_URL"
DAGSTER_YAML = f"{HOME_FOLDER}/dagster.yaml"

_FORM = (
    "Write postgresql://user@host:5432/database?sslmode=verify-full&sslrootcert=/etc/ssl/ca.pem, "
    "or postgresql://user@/database?host=/var/run/postgresql for a socket."
)
_VARIABLE = re.compile(r"\{\s*env:\s*(\w+)\s*\}")  # password: {env: DAGSTER_PG_PASSWORD}
_HEADER = "# Dagster's commands and feed-assets read this file in the folder in which they are started.\n"


def env_values(folder: Path, postgres: str | None) -> dict[str, str]:
    """Return the variables of the `.env` of a project in a folder.

    Raises:
        WrongUsageError: `postgres` is no address of a database of PostgreSQL, or has what cannot be kept.
    """
    values = {DAGSTER_HOME: str(folder / HOME_FOLDER)}
    return values if postgres is None else {**values, POSTGRES_URL: _postgres_url(postgres)}


def render_env(values: Mapping[str, str], before: str = _HEADER) -> str:
    """Return the text of an `.env` file in which these variables stand anew, behind all others of the text before."""
    stale = re.compile(rf"\s*(export\s+)?({'|'.join(values)})\s*=")
    kept = [line for line in before.splitlines() if not stale.match(line)]
    return "\n".join([*kept, *(f"{name}={_quoted(value)}" for name, value in values.items())]) + "\n"


def find_project(folder: Path) -> Path:
    """Return the folder of the project of a folder. Raises WrongUsageError if it is in none."""
    settings = find_settings_file(folder)
    if settings is None:
        raise WrongUsageError(
            f"{folder} is in no project: neither in it nor above is a {FILE_NAME}. Make one: {command_line('init')}"
        )
    return settings.parent


def write_env(folder: Path, values: Mapping[str, str]) -> None:
    """Write variables into the `.env` of a project, which keeps all others; without variables it stays as it is."""
    if not values:
        return
    file = (folder / ENV_FILE).resolve()
    staged = file.with_name(f"{ENV_FILE}.new")
    staged.touch(mode=0o600)
    staged.write_text(render_env(values, file.read_text("utf-8")) if file.exists() else render_env(values), "utf-8")
    staged.replace(file)


def find_lacking_values(folder: Path, postgres: str | None, dagster_yaml: str) -> dict[str, str]:
    """Return the variables that neither `.env` of a project nor the environment has, or that are of another place.
    `dagster_yaml` is the configuration of its Dagster home.

    Raises:
        WrongUsageError: an address is lacking, or one is given that nothing needs.
    """
    own = dotenv_values(folder / ENV_FILE).items()
    found = {**os.environ, **{name: value for name, value in own if value is not None}}
    wanted = env_values(folder, postgres)
    needed = [name for name in _VARIABLE.findall(dagster_yaml) if not found.get(name)]
    if POSTGRES_URL in wanted and POSTGRES_URL not in needed:
        raise WrongUsageError(f"--postgres: {POSTGRES_URL} is set already, or {DAGSTER_YAML} does not use it.")
    if unknown := ", ".join(name for name in needed if name not in wanted):
        how = "Give the address of the database with --postgres." if unknown == POSTGRES_URL else "Set them first."
        raise WrongUsageError(f"{folder / DAGSTER_YAML} needs {unknown}, and nothing has it. {how}")
    if found.get(DAGSTER_HOME) != wanted[DAGSTER_HOME]:
        with suppress(SettingsError):
            if find_home(load_settings(start=folder), found) is not None:
                del wanted[DAGSTER_HOME]
    else:
        del wanted[DAGSTER_HOME]
    return wanted


def _postgres_url(text: str) -> str:
    """Return the address of a database with the driver that dagster-postgres installs, and all that it says."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as exc:
        raise WrongUsageError(f"--postgres is no URL. {_FORM}") from exc
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise WrongUsageError(f"--postgres is an address of {url.get_backend_name()}, not of PostgreSQL. {_FORM}")
    if "@" in f"{url.host}/{url.database}":
        raise WrongUsageError(f"--postgres has a second '@'. {WRITE_AT} {_FORM}")
    if not url.database:
        raise WrongUsageError(f"--postgres names no database. {_FORM}")
    for name in url.query:
        try:
            parse_dsn(f"{name}=x")
        except ProgrammingError as exc:
            raise WrongUsageError(f"--postgres has {name!r}, which is no parameter of PostgreSQL. {_FORM}") from exc
    return url.set(drivername="postgresql+psycopg2").render_as_string(hide_password=False)


def _quoted(value: str) -> str:
    """Return a value of an .env file that is not expanded."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return value if re.fullmatch(r"[\w.:/-]*", value) else f"'{escaped}'"
