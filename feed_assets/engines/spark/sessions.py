"""Locate the installed Spark, configure sessions, and tag the operations of a run so that they can be interrupted."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from feed_assets.engines.errors import ServiceError
from feed_assets.engines.spark.addresses import open_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

YARN_QUEUE = "spark.yarn.queue"
_PYTHON = "spark.pyspark.python"

_SQL_DEFAULTS = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionOverwriteMode": "static",
    }
)
_PROCESS_DEFAULTS = MappingProxyType(
    {
        "spark.app.name": "feed-assets",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }
)
_LOOPBACK = MappingProxyType({"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
_ERROR_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_CLOSED = "SESSION_CLOSED"
_STILL_ENDING = "SPARK_CONNECT_ILLEGAL_STATE"
_LOCAL_RETRIES = 4
_TAG_PREFIX = "feed-assets-run-"


def session_conf(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] = MappingProxyType({}),
    run_id: str | None = None,
    root: Path | None = None,
    catalog: str | None = None,
) -> dict[str, str]:
    """Return the full configuration for a session of a cluster; the cluster's own `conf` takes precedence.

    Either `master` ("local[2]", "yarn", …) or `remote` (a Spark Connect URL) is given. With a remote, `run_id` (a UUID)
    becomes the id of the server-side session, so that `interrupt_run` finds the operations of a run whose process has
    died. `root`, the project's folder, is put on the path of Python workers. `catalog` is the address of the cluster's
    metastores. A Spark Connect server has to be started with it (see `catalog_conf`), because a client cannot set it.

    Local files are written without Hadoop's hidden `.crc` files. Such a checksum makes Spark refuse a file that another
    program has replaced since.

    >>> session_conf(remote="sc://spark:15002", run_id="5f0c")["spark.remote"]
    'sc://spark:15002/;session_id=5f0c'
    """
    if (master is None) == (remote is None):
        raise ValueError("either master or remote is given, not both")
    if remote is not None:
        return {**_SQL_DEFAULTS, **conf, "spark.remote": _with_session_id(remote, run_id)}
    assert master is not None
    loopback = _LOOPBACK if master.startswith("local") else {}
    path = {} if root is None else {"spark.executorEnv.PYTHONPATH": str(root.resolve())}
    tables = {} if catalog is None else catalog_conf(catalog)
    return {**_PROCESS_DEFAULTS, **loopback, **path, **_SQL_DEFAULTS, **tables, **conf, "spark.master": master}


def catalog_conf(catalog: str) -> dict[str, str]:
    """Return the configuration with which Spark finds the tables of a Hive metastore.

    >>> catalog_conf("thrift://host:9083")["spark.hadoop.hive.metastore.uris"]
    'thrift://host:9083'
    """
    return {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": catalog}


def connect(url: str, run_id: str) -> "SparkSession":
    """Open a session on the Spark Connect server that a cluster keeps on this machine, with the id of a run.

    A server on this machine that does not answer has died, so calls are repeated for seconds, not for ten minutes.

    Raises:
        ServiceError: this process already has a session without Spark Connect.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.retries import DefaultPolicy

    if SparkContext._active_spark_context is not None:
        raise ServiceError(
            service="Spark",
            reason="this run already has a session of a cluster without Spark Connect, and can have only one kind",
            next_step="Run the assets of each cluster in a run of their own.",
        )
    session: SparkSession = SparkSession.builder.remote(_with_session_id(url, run_id)).create()
    session.client.set_retry_policies([DefaultPolicy(max_retries=_LOCAL_RETRIES)])
    return session


def close_session(spark: "SparkSession") -> None:
    """Close a run's session on a Spark Connect server, and drop what was cached.

    Spark shares cached data among sessions, and does not notice that files have been replaced. Other runs compute again
    what they have cached.
    """
    from pyspark.errors import PySparkException

    with suppress(PySparkException):
        spark.catalog.clearCache()
    spark.stop()


def start_session(conf: Mapping[str, str]) -> "SparkSession":
    """Start the session of a program of its own, with a full configuration (see `session_conf`)."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def open_session(session: "Callable[[], SparkSession]", run_id: str) -> "SparkSession":
    """Prepare the session for a run's work: tag its operations, and log each error only once.

    For each error in a query pyspark prints the JVM's whole stack trace to standard error; the exception contains it
    too. Python functions run on this interpreter, or on the one at its path on other machines, unless
    `spark.pyspark.python` of the session or `PYSPARK_PYTHON` names another one, as in `spark-submit`. By default
    pyspark uses the `python3` on the path, which may lack the packages.
    """
    from pyspark.logger import PySparkLogger

    spark = session()
    if not _is_remote():
        _use_this_python(spark)
    for name in _ERROR_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    tag_session(spark, run_id)
    return spark


@contextmanager
def restored(spark: "SparkSession") -> Iterator["SparkSession"]:
    """Yield a session, and afterwards put back what code has left in it, so that the next instance is as one alone:
    settings (such as time zone and ANSI), the current catalog and database, and temporary views.
    """
    before = _state_of(spark)
    try:
        yield spark
    except BaseException:
        with suppress(Exception):  # Spark itself may have failed
            _put_back(spark, *before)
        raise
    _put_back(spark, *before)


@contextmanager
def with_settings(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session as long as the block lasts. Those that have their value are left to whoever has
    changed them, so that blocks of several threads leave none behind.
    """
    found = {name: spark.conf.get(name, None) for name in settings}
    before = {name: former for name, former in found.items() if former != settings[name]}
    for name in before:
        spark.conf.set(name, settings[name])
    try:
        yield
    finally:
        for name, former in before.items():
            spark.conf.unset(name) if former is None else spark.conf.set(name, former)


def _state_of(spark: "SparkSession") -> tuple[dict[str, str], tuple[str, str], set[str]]:
    """Return the settings, the current catalog and database, and the names of the temporary views."""
    place = (spark.catalog.currentCatalog(), spark.catalog.currentDatabase())
    return dict(spark.conf.getAll), place, _views_of(spark)


def _views_of(spark: "SparkSession") -> set[str]:
    """Return the names of the temporary views, also while the metastore is away: not all work needs it. SQL asks it, so
    that a Spark Connect server then tells none.
    """
    from pyspark.errors import PySparkException

    if not _is_remote():
        views = spark._jsparkSession.sessionState().catalog().listLocalTempViews("*")
        return {views.apply(number).table() for number in range(views.size())}
    with suppress(PySparkException):
        views = spark.sql("SHOW VIEWS IN global_temp").collect()  # with those of the session
        return {row["viewName"] for row in views if not row["namespace"]}
    return set()


def _put_back(spark: "SparkSession", settings: dict[str, str], place: tuple[str, str], views: set[str]) -> None:
    settings_now, place_now, views_now = _state_of(spark)
    for name in views_now - views:
        spark.catalog.dropTempView(name)
    if place_now != place:
        spark.catalog.setCurrentCatalog(place[0])
        spark.catalog.setCurrentDatabase(place[1])
    for name in settings_now.keys() - settings.keys():
        spark.conf.unset(name)
    for name, value in settings.items():
        if settings_now.get(name) != value:
            spark.conf.set(name, value)


def map_on_executors(spark: "SparkSession", work: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> list[_Result]:
    """Return the result of `work` for each task, in order. Each task is a partition, so Spark repeats tasks of lost
    executors.

    The executors must be able to run our Python code, which excludes Spark Connect. `work` and the tasks are pickled.
    """
    if not tasks:
        return []
    _use_this_python(spark)
    return list(spark.sparkContext.parallelize(list(tasks), len(tasks)).map(work).collect())


def tag_session(spark: "SparkSession", run_id: str) -> None:
    """Tag the operations that this thread starts in the session from now on with the run."""
    if _is_remote():
        spark.addTag(_TAG_PREFIX + run_id)
    else:
        spark.sparkContext.addJobTag(_TAG_PREFIX + run_id)


def interrupt_run(remote: str, run_id: str) -> int:
    """Stop the operations of a run on a Spark Connect server, from any process, and return how many there were.

    The run's session must have been created with its id (see `session_conf`). It is closed; if an operation is still
    ending, the server closes it later by itself.
    """
    from pyspark.errors import PySparkException

    client = open_client(_with_session_id(remote, run_id))
    stopped = 0
    try:
        stopped = len(client.interrupt_all() or ())
        client.release_session()
    except PySparkException as exc:
        if not any(state in str(exc) for state in (_CLOSED, _STILL_ENDING)):
            raise
    finally:
        client.close()
    return stopped


def _is_remote() -> bool:
    from pyspark.sql import is_remote

    return is_remote()


def _with_session_id(remote: str, run_id: str | None) -> str:
    if run_id is None:
        return remote
    separator = ";" if "/;" in remote else "/;"
    return f"{remote.rstrip('/;') if separator == '/;' else remote.rstrip(';')}{separator}session_id={run_id}"


def _use_this_python(spark: "SparkSession") -> None:
    named = spark.sparkContext.getConf().get(_PYTHON) or os.environ.get("PYSPARK_PYTHON")
    spark.sparkContext.pythonExec = named or sys.executable


_OF_THIS_PROCESS = (
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_REMOTE",
    "SPARK_LOCAL_REMOTE",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_GATEWAY_SECRET",
)


def spark_home() -> Path:
    """Return the folder of the installed pyspark, which contains a complete Spark, without importing it."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def spark_environment() -> dict[str, str]:
    """Return the environment for a Spark program: that of this process, without the variables of its own Spark
    connection.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_THIS_PROCESS}
    interpreter = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**interpreter, **inherited, "SPARK_HOME": str(spark_home())}
