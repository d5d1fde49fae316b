"""The driver of a database in a Spark session: it goes into sessions that run already, and to Spark Connect servers."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from feed_assets.engines.databases.connections import DatabaseAddress, DatabaseConnection
from feed_assets.engines.databases.dialects import spark_url
from feed_assets.engines.errors import ServiceError
from feed_assets.errors import shorten

_NOT_FOUND, _NOT_CONNECTED = "ClassNotFoundException", "FAILED_JDBC"
_VARIABLES = "sessionVariables"  # of MariaDB and MySQL
_IN_URL = re.compile(rf"(?<=[?&]){_VARIABLES}=[^&]*")  # …?sessionVariables=wait_timeout=60&…
_WORDS = re.compile(r"[\w$]\.(?!Spark)\w*(?:SQL\w*|DataTruncation)Exception: ([^\n]+)")
"""`org.postgresql.util.PSQLException: FATAL: …`, and no `org.apache.spark.SparkSQLException: …`."""
_UNKNOWN, _LONGEST = "UnknownReason", 400
_RESULT_THREADS = ("task-result-getter", "dispatcher-")
_REDACTION = ("spark.sql.redaction.string.regex", "spark.redaction.string.regex")
_NAMED = r'key: "[^"]{0,60}(?i:url|[s]ecret|[p]assword|[t]oken|access[.]?key)[^"]{0,30}"\s{1,20}value: "'
_SECRETS = rf'(?<={_NAMED})(?:[^"\\]|\\.)*+'
"""What the pages of Spark do not show of options, in the form in which Protobuf writes them. A server tells no value of
a setting that has one of the words in brackets.
"""
_NOWHERE: Mapping[str, str] = MappingProxyType({"url": "jdbc:feed-assets:nowhere", "dbtable": "nothing"})


def jdbc_options(address: DatabaseAddress, own: Mapping[str, str]) -> dict[str, str]:
    """Return the options by which Spark connects: ours, then those of the datasource. Of the variables of a session
    both are set, ours last. Drivers prefer what the URL says.
    """
    options, url = {**own, **address.properties}, spark_url(address.url)
    if (ours := own.get(_VARIABLES)) is not None:
        url, found = _IN_URL.subn(rf"\g<0>,{ours}", url)
        theirs = address.properties.get(_VARIABLES)
        options[_VARIABLES] = ours if found or theirs is None else f"{theirs},{ours}"
    return options | {
        "url": url,
        "driver": address.driver_class,
        "user": address.user,
        "password": address.password,
    }


def add_driver(spark: SparkSession, address: DatabaseAddress) -> None:
    """Let a session read and write a database by its driver, also on executors. All sessions of a process, or of a
    Spark Connect server, share the jars, so that they have one version of a class.

    Raises:
        ServiceError: the session has the class of another jar, or does not take the jars.
    """
    if hasattr(spark, "_jsparkSession"):
        _add_to_process(spark, address)
        return
    _hide_secrets(spark)
    # Not as artifacts: all sessions have the driver that the first has loaded, which can load no more once that ends.
    with suppress(PySparkException):
        for jar in address.spark_jars:
            spark.sql(f"ADD JAR '{jar.replace(chr(39), '%27')}'")
    try:
        _ = spark.read.format("jdbc").options(driver=address.driver_class, **_NOWHERE).load().schema
    except PySparkException as exc:
        if _NOT_FOUND in str(exc):
            raise _refused(address, "Start the Spark Connect server with its jars (--jars).") from exc
        if not str(exc.getCondition()).startswith(_NOT_CONNECTED):
            raise


@contextmanager
def telling_refusals(connection: DatabaseConnection, next_step: str, asked: Sequence[str] = ()) -> Iterator[None]:
    """Tell what the database says where Spark fails because of it; a lost connection tells that it is away. Spark does
    not know the reason if it is of a class that only the driver has: then the database is asked again, by queries that
    need all that was read, if there are any.
    """
    try:
        yield
    except (PySparkException, Py4JError) as exc:
        if (words := _find_words(exc)) is None:
            raise
        for query in ["SELECT 1"] if words else asked:
            connection.query(query)
        if asked and not words:
            raise
        words = words or "its words are in the log of Spark, whose driver does not know its exceptions"
        service = f"the database {connection.address.url}"
        raise ServiceError(service=service, reason=f"it refuses: {words}", next_step=next_step) from exc


def _find_words(exc: Exception) -> str | None:
    """Return what a database has said last, of which Spark has made an error; None if it has said nothing. Where only
    its driver knows the reason, what is said is an empty text.
    """
    told = f"{exc}\n{getattr(exc, '_stackTrace', None) or ''}"  # which has the causes
    words = _WORDS.findall(told)
    return shorten(words[-1].strip(), _LONGEST) if words else "" if _UNKNOWN in told else None


def check_remote_driver(url: str, address: DatabaseAddress) -> None:
    """Ask a Spark Connect server, in a session of its own, whether it can have a driver. Raises as `add_driver`."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    session = RemoteSession(connection=url)  # not by a builder, which would make this process one of Spark Connect
    try:
        add_driver(session, address)  # type: ignore[arg-type]
    finally:
        session.client.release_session()
        session.client.close()


def _hide_secrets(spark: SparkSession) -> None:
    """Let a Spark Connect server leave out passwords where it shows and logs what it was asked, as those of other
    sessions do by themselves.
    """
    known = next((found for name in _REDACTION if (found := spark.conf.get(name, ""))), None)
    if _SECRETS not in (known or ""):
        spark.conf.set(_REDACTION[0], _SECRETS if known is None else f"(?:{known})|{_SECRETS}")


def _add_to_process(spark: SparkSession, address: DatabaseAddress) -> None:
    found = _find_jar(spark, address.driver_class)
    if found is None:
        resources = spark._jsparkSession.sessionState().resourceLoader()
        for jar in address.spark_jars:
            resources.addJar(jar)
        if _find_jar(spark, address.driver_class) is None:
            raise _refused(address, "Check driver.class and driver.jars.")
        _let_errors_be_told(spark)
    elif _digest(found) not in map(_digest, address.jars):
        named = ", ".join(jar.name for jar in address.jars)
        raise ServiceError(
            service=f"the driver {address.driver_class}",
            reason=f"the Spark session has it from {found}, and driver.jars names {named} with another content",
            next_step="Name the same jar in both places; a session has one version of a class.",
        )
    assert spark._jvm is not None
    thread = spark._jvm.java.lang.Thread.currentThread()  # another one than that which has added the jars
    thread.setContextClassLoader(spark._jsparkSession.sharedState().jarClassLoader())


def _let_errors_be_told(spark: SparkSession) -> None:
    """Let the threads that read results of tasks, and those that make more of them, know classes of drivers: an error
    of a class that they do not know has an unknown reason.
    """
    assert spark._jvm is not None
    loader = spark._jsparkSession.sharedState().jarClassLoader()
    for thread in spark._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray():
        if str(thread.getName()).startswith(_RESULT_THREADS):
            thread.setContextClassLoader(loader)


def _find_jar(spark: SparkSession, name: str) -> Path | None:
    """Return the jar from which a session loads a class; None if it does not have the class."""
    try:
        found = spark._jsparkSession.sharedState().jarClassLoader().loadClass(name)
        place = str(found.getProtectionDomain().getCodeSource().getLocation())
    except (Py4JError, PySparkException):
        return None
    return Path(unquote(urlsplit(place).path))


def _digest(jar: Path) -> bytes | None:
    try:
        return hashlib.sha256(jar.read_bytes()).digest()
    except OSError:  # of another machine
        return None


def _refused(address: DatabaseAddress, next_step: str) -> ServiceError:
    named = ", ".join(jar.name for jar in address.jars)
    reason = f"a Spark session does not find it in {named}"
    return ServiceError(service=f"the driver {address.driver_class}", reason=reason, next_step=next_step)
