"""The file `.env` of a project. Commands read it as Dagster's do, so that both find the same DAGSTER_HOME."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feed_assets.settings import ENV_FILE, find_settings_file


@contextmanager
def project_environment(folder: Path) -> Iterator[None]:
    """Set the variables of the project's `.env` during the context. As in Dagster, they override the environment.

    The project is the nearest folder, from `folder` upwards, that has settings; `folder` itself if none has.
    """
    settings = find_settings_file(folder)
    file = (folder if settings is None else settings.parent) / ENV_FILE
    if not file.is_file():
        yield
        return
    from dotenv import dotenv_values

    values = {name: value for name, value in dotenv_values(file).items() if value is not None}
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
