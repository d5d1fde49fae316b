"""The Dagster home of a project: that of no other project, and what a checkout is told that has none."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from feed_assets.command_lines import command_line
from feed_assets.errors import SettingsError
from feed_assets.settings import ENV_FILE, ENV_SETTINGS, FILE_NAME, Settings, find_settings_file, load_settings

DAGSTER_HOME = "DAGSTER_HOME"
HOME_FOLDER = "dagster_home"
"""The folder of a project that `init` makes its Dagster home."""


def find_home(settings: Settings, environ: Mapping[str, str]) -> Path | None:
    """Return the Dagster home of a project; None if the environment names none.

    Raises:
        SettingsError: it does not exist, or it is that of another project, as in a copy of its folder.
    """
    if not (text := environ.get(DAGSTER_HOME)):
        return None
    home = Path(text)
    if home.is_absolute() and not home.is_dir():
        next_step = f"A project that was moved writes its new place with: {_init_here(settings)}"
        next_step = next_step if settings.file is not None else "Make it, or name the folder that the daemon uses."
        raise SettingsError(
            setting=DAGSTER_HOME, reason=f"the folder {home} does not exist", tried=(), next_step=next_step
        )
    owner = _find_other_project(home, settings.root)
    is_shared = owner is not None and load_settings(environ={}, start=owner).namespace != settings.namespace
    if owner is None or is_shared or settings.file is None or ENV_SETTINGS in environ:
        return home
    raise SettingsError(
        setting=DAGSTER_HOME,
        reason=f"{home} is the home of the project in {owner}, whose state a copy in {settings.root} would change",
        tried=(),
        next_step=f"The copy gets a home of its own with: {_init_here(settings)}\n"
        "Projects that share a home on purpose have a setting namespace each.",
    )


def _find_other_project(home: Path, root: Path) -> Path | None:
    """Return the folder of another project than that of `root` that has this Dagster home in it; None without one."""
    owner = home.resolve().parent
    is_one = home.name == HOME_FOLDER and (owner / FILE_NAME).is_file() and owner != root.resolve()
    return owner if is_one else None


def state_unknown(settings: Settings, tried: Sequence[str]) -> SettingsError:
    """Return the error of a project whose state nothing names; `tried` are the places that could."""
    next_step = "Set DAGSTER_HOME to the folder that the daemon uses, or state to an SQLAlchemy URL."
    if settings.file is not None:
        file = settings.root / ENV_FILE
        why = "names no DAGSTER_HOME" if file.exists() else "is missing: git ignores it, so a clone has none"
        next_step = f"{file} {why}. This writes it: {_init_here(settings)}\nOr: {next_step[0].lower()}{next_step[1:]}"
    return SettingsError(
        setting="state", reason="the location of the state is not configured", tried=tuple(tried), next_step=next_step
    )


def _init_here(settings: Settings) -> str:
    is_here = settings.file is not None and find_settings_file(Path.cwd()) == settings.file
    return command_line("init", *(() if is_here else (str(settings.root),)), here=True)
