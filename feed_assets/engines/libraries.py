"""Locate the files that accompany a workflow's code (`workflow.lib`), and add them to a session."""

from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from feed_assets.engines.errors import WorkflowNotFoundError
from feed_assets.engines.port import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON_SUFFIXES = (".py", ".zip", ".egg")


def resolve_file(work: Work, name: str) -> str:
    """Return the address of a file of the work: a URL unchanged, a path relative to the project's root.

    Raises:
        WorkflowNotFoundError: the path is not a file.
    """
    if len(urlsplit(name).scheme) > 1:
        return name
    file = work.root / name
    if not file.is_file():
        raise WorkflowNotFoundError(
            process=work.process,
            path=name,
            reason=f"{file} is not a file",
            next_step="Name a file relative to the project's folder, or a URL that Spark can open.",
        )
    return str(file.resolve())


def place_file(work: Work, name: str, folder: Path) -> str:
    """Return the address of a file of the work with the content of the instance's release, written below `folder` if
    the file has changed since.

    Raises:
        WorkflowNotFoundError: the path is not a file.
    """
    if name not in work.pinned:
        return resolve_file(work, name)
    below = folder / str(list(work.pinned).index(name))
    below.mkdir(exist_ok=True)
    file = below / PurePath(name).name
    file.write_bytes(work.pinned[name])
    return str(file)


def add_libraries(spark: "SparkSession", work: Work) -> None:
    """Add the libraries of the work to the session and its Python workers, except those already added.

    Raises:
        WorkflowNotFoundError: a library is not a file, or it is a Java library, which a running session cannot load.
    """
    for name in work.libs:
        if not name.endswith(PYTHON_SUFFIXES):
            raise WorkflowNotFoundError(
                process=work.process,
                path=name,
                reason=f"a running session takes libraries of Python only ({', '.join(PYTHON_SUFFIXES)})",
                next_step="Put it into spark.jars of the cluster's spark.conf, or use the engine spark-submit.",
            )
        spark.addArtifacts(resolve_file(work, name), pyfile=True)
