"""Run an external application through the `spark-submit` of the installed pyspark: command line and environment."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING

from feed_assets.engines.data.frames import judge_output
from feed_assets.engines.errors import WorkflowFailedError
from feed_assets.engines.failures import last_lines, reporting_failures
from feed_assets.engines.partition_filters import render_filter
from feed_assets.engines.port import Engine, InputData, OutputReport, SubmitOptions, Work, WorkReport
from feed_assets.engines.run_metadata import parse_reported
from feed_assets.engines.spark.sessions import YARN_QUEUE, catalog_conf, open_session, spark_environment, spark_home
from feed_assets.engines.spark.supervised import SupervisedProcess
from feed_assets.engines.workflow.files import PYTHON_SUFFIXES, place_file
from feed_assets.entities.content.column_lineage import ColumnLineage
from feed_assets.masking import get_logger
from feed_assets.timing.dates import render_datetime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = get_logger(__name__)
FACTS = "FEED_ASSETS_FACTS"
"""The variable of the environment with the file for facts."""

_ABSENT = "NONE"
_DEFAULTS = MappingProxyType({"spark.log.level": "WARN", "spark.standalone.submit.waitAppCompletion": "true"})
"""By default a standalone master in cluster mode is not waited for; YARN and Kubernetes are."""
_LONGEST_VARIABLE = 32_768


class SparkSubmitEngine(Engine):
    """An engine that submits `Work.path`, a Python file or a jar, and waits for its end.

    Arguments are in Falcon's order: for each input its paths joined by commas (`NONE` for an optional input without
    instances), for each output the directory to write into, then the user's `args`. An input in a table has three
    arguments: the filter of its partitions, table, database. The application creates its own session, with the
    cluster's catalog, and writes its outputs itself; their rows are not counted. If they are held to a quality, the
    session of the run reads them, counts them, and writes them anew.

    Differs from Falcon: for an output in a table the application writes files in the table's format into a directory,
    as for any other output. The partition is added when the files are published.

    The application finds facts and properties in its Spark configuration as `spark.feed_assets.<name>` and in its
    environment as `FEED_ASSETS_<NAME>` (`-` and `.` written as `_`): `process`, `cluster`, `nominal_time`
    (`2013-11-03T05:00Z`), `timezone`, `run_id`, `attempt`, and each property with another name. They are passed in a
    file that only this user can read, not on the command line. A value that is too long for an environment (32,768
    characters, for example the paths of a very long window) is in the configuration only.

    `FEED_ASSETS_FACTS` names a file, which is not there yet: what the application writes into it as JSON are its facts,
    and metadata of entities (see `parse_reported`). A driver on another machine cannot write it.

    Each line of output goes to this module's logger. Spark itself reports warnings only, unless `conf` sets
    `spark.log.level`. The application ends with its parent: when the run is cancelled or killed, the driver and all
    processes it started end too.
    """

    def run(self, work: Work, session: "Callable[[], SparkSession]") -> WorkReport:
        facts = render_facts(work)
        environment = {_environment_name(name): text for name, text in facts.items() if len(text) <= _LONGEST_VARIABLE}
        with TemporaryDirectory(prefix="feed-assets-submit-") as folder:
            properties_file = Path(folder, "spark.properties")
            properties_file.write_text(render_properties(settings_of(work)), encoding="utf-8")
            said_file = Path(folder, "facts.json")
            command = render_command(work, properties_file)
            _logger.info("submitting %s", work.path)
            environment = spark_environment() | environment | {FACTS: str(said_file)}
            with SupervisedProcess(command, env=environment, cwd=work.root, output=None) as process:
                tail = last_lines(_logged(process.lines))
                code = process.wait()
            content = said_file.read_bytes() if code == 0 and said_file.exists() else b""
        if code != 0:
            raise WorkflowFailedError(
                process=work.process,
                nominal_time=render_datetime(work.nominal_time),
                path=work.path,
                reason=f"spark-submit ended with exit code {code}",
                last_lines=tail,
            )
        with reporting_failures(work):
            reported = parse_reported(content, work.check_reported)
            reports = tuple(
                judge_output(open_session(session, work.run_id), target, work.nominal_time)
                if target.quality is not None
                else OutputReport(name=target.name, rows=None)
                for target in work.outputs
            )
        untold = ColumnLineage(unknown="an application that is submitted does not tell its plans")
        reports = tuple(replace(report, lineage=untold) for report in reports)
        return WorkReport(outputs=reports, details={"application": work.path}, reported=reported)


def _logged(lines: Iterable[bytes]) -> Iterator[str]:
    for raw in lines:
        line = raw.decode(errors="replace").rstrip()
        _logger.info("%s", line)
        yield line


def render_command(work: Work, properties_file: Path) -> list[str]:
    """Return the command line of `spark-submit` for the work. Pinned files are written beside `properties_file`.

    Raises:
        WorkflowNotFoundError: the path of the application or of a library is not a file.
    """
    submit = work.submit or SubmitOptions()
    folder = properties_file.parent
    python_libs = [place_file(work, name, folder) for name in work.libs if name.endswith(PYTHON_SUFFIXES)]
    java_libs = [place_file(work, name, folder) for name in work.libs if not name.endswith(PYTHON_SUFFIXES)]
    own = {
        "--master": submit.master,
        "--deploy-mode": submit.deploy_mode,
        "--name": f"{work.process} {render_datetime(work.nominal_time)}",
        "--class": submit.main_class,
        "--py-files": ",".join(python_libs),
        "--jars": ",".join(java_libs),
        "--properties-file": str(properties_file),
    }
    set_here = {option: value for option, value in own.items() if value}
    options = {f"--{name}": value for name, value in submit.more.items()} | set_here
    return [
        str(spark_home() / "bin" / "spark-submit"),
        "--load-spark-defaults",
        *(part for option, value in options.items() for part in (option, value)),
        *(part for name, value in submit.conf.items() for part in ("--conf", f"{name}={value}")),
        place_file(work, work.path, folder),
        *(argument for data in work.inputs for argument in _arguments_of(data)),
        *(target.url for target in work.outputs),
        *submit.args,
    ]


def _arguments_of(data: InputData) -> tuple[str, ...]:
    if data.table is None:
        return (",".join(data.paths) or _ABSENT,)
    partitions = [each.partition.values for each in data.instances if each.partition is not None]
    return (render_filter(partitions) or _ABSENT, data.table.name, data.table.database)


def settings_of(work: Work) -> dict[str, str]:
    """Return the Spark configuration of the application; `conf` of the submission overrides it."""
    catalog = {} if work.catalog is None else catalog_conf(work.catalog)
    facts = {f"spark.feed_assets.{name}": text for name, text in render_facts(work).items()}
    queue = {} if work.submit is None or work.submit.queue is None else {YARN_QUEUE: work.submit.queue}
    return {**_DEFAULTS, **queue, **catalog, **facts}


def render_facts(work: Work) -> dict[str, str]:
    """Return the facts and properties for the application, by name. A property does not replace a fact of the same
    name.
    """
    return {
        **work.properties,
        "process": work.process,
        "cluster": work.cluster,
        "nominal_time": render_datetime(work.nominal_time),
        "timezone": work.timezone.key,
        "run_id": work.run_id,
        "attempt": str(work.attempt),
    }


def render_properties(properties: Mapping[str, str]) -> str:
    """Render a Java properties file.

    >>> render_properties({"spark.feed_assets.a b": "C:\\\\x = 1\\n2"})
    'spark.feed_assets.a\\\\ b=C:\\\\\\\\x = 1\\\\n2\\n'
    """
    return "".join(f"{_escaped(name, ' =:#!')}={_escaped(value, '')}\n" for name, value in properties.items())


def _escaped(text: str, special: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return "".join(f"\\{letter}" if letter in special else letter for letter in escaped)


def _environment_name(name: str) -> str:
    return f"FEED_ASSETS_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}"
