"""Run a Java virtual machine beside this process, for drivers and keystores.

The machine has the class path of the installed pyspark but no Spark session; calls go through py4j. In a process that
also has a classic Spark session, its errors are hard to read: pyspark treats the errors of every py4j gateway as its
own.
"""

import os
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from feed_assets.engines.errors import ServiceError
from feed_assets.engines.spark.sessions import spark_home

_LOOPBACK = "127.0.0.1"
_CONF_FOLDERS = ("HADOOP_CONF_DIR", "HIVE_CONF_DIR")
_OPTIONS = (
    "-XX:TieredStopAtLevel=1",  # it makes few calls, and starts often
    "-XX:+UseSerialGC",
    "-Duser.timezone=UTC",  # in which drivers read and write times
    "-Dlog4j2.level=OFF",
    "-Dlog4j2.StatusLogger.level=OFF",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
    f"-Dderby.stream.error.file={os.devnull}",
)
_ENDS_WITHIN = 5.0


class JavaMachine(AbstractContextManager["JavaMachine", None]):
    """A running Java virtual machine; `view` has its classes: `machine.view.java.lang.System.currentTimeMillis()`.

    Thread-safe: each calling thread gets its own thread in the machine. The machine ends with `close`, or when this
    process ends.

    Raises:
        ServiceError: there is no Java, or the machine did not start.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaders: dict[tuple[Path, ...], Any] = {}
        self._fetched: dict[str, Path] = {}
        self._folder: Path | None = None
        self._errors: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the machine
        try:
            self._process = self._start()
            port, token = self._read_line(), self._read_line()
        except ServiceError:
            self._errors.close()
            raise
        self._drain = threading.Thread(target=_drain, args=(self._process.stdout,), daemon=True)
        self._drain.start()
        parameters = GatewayParameters(address=_LOOPBACK, port=int(port), auth_token=token)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        self._end = weakref.finalize(self, _end, self._process, self._drain, self._errors)

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def view(self) -> Any:
        """The classes of the machine, by name."""
        return self._gateway.jvm

    def array(self, of: Any, *items: object) -> Any:
        """Return a Java array of a class of `view`."""
        array = self._gateway.new_array(of, len(items))
        for position, item in enumerate(items):
            array[position] = item
        return array

    def loader(self, jars: Sequence[Path]) -> Any:
        """Return a class loader that sees only the JDK and these jars. The same jars get the same loader.

        Raises:
            py4j.protocol.Py4JError: a path is invalid.
        """
        view = self.view
        with self._lock:
            key = tuple(jars)
            if key not in self._loaders:
                urls = self.array(view.java.net.URL, *(view.java.io.File(str(jar)).toURI().toURL() for jar in jars))
                parent = view.java.lang.ClassLoader.getPlatformClassLoader()
                self._loaders[key] = view.java.net.URLClassLoader(urls, parent)
            return self._loaders[key]

    def fetch(self, url: str) -> Path:
        """Return a local copy of the file at a URL, which ends with the machine.

        Raises:
            ServiceError: the file cannot be fetched.
        """
        import fsspec

        with self._lock:
            if url in self._fetched:
                return self._fetched[url]
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="feed-assets-java-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            target = Path(self._folder, f"{len(self._fetched)}-{url.rpartition('/')[2]}")
            try:
                with fsspec.open(url, "rb") as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
            except (OSError, ImportError, ValueError) as exc:
                next_step = "Check the address."
                raise ServiceError(service=url, reason=f"it cannot be fetched: {exc}", next_step=next_step) from exc
            self._fetched[url] = target
            return target

    def close(self) -> None:
        """End the machine and any work in progress."""
        self._gateway.shutdown()
        self._gateway._gateway_client.is_connected = False  # else py4j would release objects in a dead machine
        self._end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> "subprocess.Popen[bytes]":
        jars = spark_home() / "jars"
        folders = [os.environ[name] for name in _CONF_FOLDERS if os.environ.get(name)]
        class_path = os.pathsep.join([*folders, str(jars / "*")])
        options = ["-Xmx512m", *_OPTIONS]
        command = [_java(), "-classpath", class_path, *options, "py4j.GatewayServer"]
        try:
            return subprocess.Popen(
                [*command, "--die-on-broken-pipe", "--enable-auth", "0"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as exc:
            raise ServiceError(
                service="Java",
                reason=f"it could not be started: {exc.strerror or exc}",
                next_step="Install Java 17 or later, or set JAVA_HOME.",
            ) from exc

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        if line:
            return line
        with self._process:
            self._process.kill()
        self._errors.seek(0)
        messages = self._errors.read().decode(errors="replace").strip().splitlines()
        raise ServiceError(
            service="Java",
            reason=f"it ended at once: {messages[-1] if messages else 'without any output'}",
            next_step="Check that JAVA_HOME is Java 17 or later.",
        )


def _end(process: "subprocess.Popen[bytes]", drain: threading.Thread, errors: BinaryIO) -> None:
    """End a machine that was closed or garbage-collected."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    drain.join()
    errors.close()


def explain_java(error: Exception) -> str:
    """Return the message of a Java exception with its causes; for any other exception, its text.

    The exception comes from py4j; a dead machine gives no details. In a process that also has a Spark session, pyspark
    treats every Java exception as its own and fails. The Java exception is then the context of that failure.
    """
    messages: list[str] = []
    chain = list(iter_causes(error))
    for raised in chain:
        name, text = str(raised.getClass().getSimpleName()), _message_of(raised)
        if " " not in text:
            text = "" if raised is not chain[-1] else f"{name}: {text}" if text else name
        if text and not any(text in before for before in messages):
            messages.append(text)
    return ": ".join(messages).rstrip(".") or " ".join(str(error).split()) or type(error).__name__


def iter_causes(error: Exception) -> Iterator[Any]:
    """Yield the Java exception of an error and its causes, not more than a few; nothing of any other error."""
    raised = _raised_in_java(error)
    for _ in range(_MOST_CAUSES):
        if raised is None:
            return
        yield raised
        raised = raised.getCause()


def _raised_in_java(error: BaseException | None) -> Any:
    while error is not None:
        if (raised := getattr(error, "java_exception", None)) is not None:
            return raised
        error = error.__context__
    return None


_MOST_CAUSES = 4


def _message_of(raised: Any) -> str:
    """Return the first line of the message; empty if the class of the exception is not public."""
    try:
        return str(raised.getMessage() or "").strip().partition("\n")[0].strip()
    except Py4JError:
        return ""


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def _drain(stream: BinaryIO) -> None:
    with stream:
        while stream.read(65_536):
            pass
