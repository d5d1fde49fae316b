"""The files beside a workflow's code (`workflow.lib`): where they are, and how a session gets them."""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from feed_assets.engines.errors import WorkflowNotFoundError
from feed_assets.engines.port import Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON_SUFFIXES = (".py", ".zip", ".egg")


def resolve_file(work: Work, name: str) -> str:
    """The address of a file that the work names: a URL as it is, a path as seen from the project's root.

    Raises:
        WorkflowNotFoundError: a path that is no file.
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


def add_libraries(spark: "SparkSession", work: Work) -> None:
    """Give the session, and its Python workers, the libraries of the work; those it has already stay.

    Raises:
        WorkflowNotFoundError: a library that is no file, or one of Java, which a running session does not take.
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
