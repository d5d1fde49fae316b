"""Runs an external application through the `spark-submit` of the installed pyspark: its command line and environment."""

import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from feed_assets.engines.libraries import PYTHON_SUFFIXES, resolve_file
from feed_assets.engines.port import Engine, OutputReport, SubmitOptions, Work, WorkReport
from feed_assets.engines.supervised import SupervisedProcess
from feed_assets.errors import WorkflowFailedError, WorkflowNotFoundError
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)
_ABSENT = "NONE"
_KEPT_LINES = 20


class SparkSubmitEngine(Engine):
    """Submits `Work.path`, a Python file or a jar, and waits for its end.

    Arguments in Falcon's order: for each input its paths joined by commas (`NONE` where an optional input has no
    instance), for each output the directory to write into, then the user's `args`. The application makes its own
    session and writes its outputs itself; nobody counts their rows.

    It finds facts and properties in its Spark configuration as `spark.feed_assets.<name>` and in its environment as
    `FEED_ASSETS_<NAME>` (`-` and `.` written as `_`): `process`, `cluster`, `nominal_time` (`2013-11-03T05:00Z`),
    `timezone`, `run_id`, `attempt`, and each property whose name is none of these. They stand on a command line, where
    other users of the machine can see them: a secret belongs into the environment of the deployment.

    What it prints goes to this module's logger line by line. It ends with its parent: when the run is cancelled or
    killed, so are the driver and what the driver has started.
    """

    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:  # noqa: ARG002 - it has its own
        command = render_command(work)
        _logger.info("submitting %s", work.path)
        environment = spark_environment() | _facts_in_environment(work)
        last_lines: deque[str] = deque(maxlen=_KEPT_LINES)
        with SupervisedProcess(command, env=environment, cwd=work.root, output=None) as process:
            for raw in process.lines:
                line = raw.decode(errors="replace").rstrip()
                last_lines.append(line)
                _logger.info("%s", line)
            code = process.wait()
        if code != 0:
            raise WorkflowFailedError(
                process=work.process,
                nominal_time=render_datetime(work.nominal_time),
                path=work.path,
                reason=f"spark-submit ended with exit code {code}",
                last_lines=tuple(last_lines),
            )
        reports = tuple(OutputReport(name=target.name, rows=None) for target in work.outputs)
        return WorkReport(outputs=reports, details={"application": work.path})


def render_command(work: Work) -> list[str]:
    """The command line of `spark-submit` for the work.

    Raises:
        WorkflowNotFoundError: the application or a library is a path that is no file.
    """
    submit = work.submit or SubmitOptions()
    python_libs = [resolve_file(work, name) for name in work.libs if name.endswith(PYTHON_SUFFIXES)]
    java_libs = [resolve_file(work, name) for name in work.libs if not name.endswith(PYTHON_SUFFIXES)]
    conf = {f"spark.feed_assets.{name}": value for name, value in _facts(work).items()} | dict(submit.conf)
    options = {
        "--master": submit.master,
        "--deploy-mode": submit.deploy_mode,
        "--name": f"{work.process} {render_datetime(work.nominal_time)}",
        "--class": submit.main_class,
        "--py-files": ",".join(python_libs),
        "--jars": ",".join(java_libs),
    }
    return [
        str(spark_home() / "bin" / "spark-submit"),
        *(part for option, value in options.items() if value for part in (option, value)),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        resolve_file(work, work.path),
        *(",".join(data.paths) or _ABSENT for data in work.inputs),
        *(target.url for target in work.outputs),
        *submit.args,
    ]


def spark_home() -> Path:
    """The folder of the installed pyspark, which is a whole Spark; found without importing it."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
