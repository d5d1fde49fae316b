"""Locate the files of a workflow: its code, and what accompanies it (`workflow.lib`)."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from feed_assets.engines.errors import ServiceError
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
        next_step = "Name a file relative to the project's folder, or a URL that Spark can open."
        raise work.not_found(f"{file} is not a file", next_step, name)
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
            reason = f"a running session takes libraries of Python only ({', '.join(PYTHON_SUFFIXES)})"
            next_step = "Put it into spark.jars of the cluster's spark.conf, or use the engine spark-submit."
            raise work.not_found(reason, next_step, name)
        spark.addArtifacts(resolve_file(work, name), pyfile=True)


def find_code_digest(work: Work) -> str | None:
    """Return a digest of the file with the code of work that has run; None if its code is not in a file here."""
    where = work.path.rpartition(":")[0] if work.engine == "python" else work.path
    try:
        if work.engine == "python" and not where.endswith(".py"):
            origin = sys.modules[where].__file__ if where in sys.modules else None
            content = Path(origin).read_bytes() if origin is not None else None
        else:
            content = work.read_file(where)
    except OSError:
        return None
    return None if content is None else f"sha256:{hashlib.sha256(content).hexdigest()}"


def check_url(url: str, options: Mapping[str, object]) -> None:
    """Check that the file of a URL exists.

    Raises:
        ServiceError: the file does not exist, or the filesystem does not answer.
    """
    import fsspec

    try:
        filesystem, path = fsspec.core.url_to_fs(url, **options)
        reason = None if filesystem.exists(path) else "it does not exist"
    except (OSError, ImportError, ValueError, TypeError) as exc:
        raise ServiceError(service=url, reason=f"it cannot be read: {exc}", next_step="Check the address.") from exc
    if reason is not None:
        raise ServiceError(service=url, reason=reason, next_step="Correct the path, or put the file there.")
