"""A Spark Connect server on loopback: one JVM, shared by many runs."""

import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType, TracebackType

from feed_assets.engines.spark.addresses import probe
from feed_assets.engines.spark.sessions import session_conf, spark_environment, spark_home
from feed_assets.engines.spark.supervised import SupervisedProcess

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LOOPBACK = "127.0.0.1"
_START_SECONDS = 60.0
_CONNECT_DEFAULTS = MappingProxyType(
    {
        "spark.port.maxRetries": "0",
        "spark.connect.execute.reattachable.senderMaxStreamDuration": "20s",
        "spark.connect.execute.manager.detachedTimeout": "30s",
        "spark.connect.execute.manager.maintenanceInterval": "10s",
    }
)


class ConnectServer:
    """A Spark Connect server on loopback. As a context manager, it runs inside the block.

    It has no access control: every user of this machine who can connect to loopback can use it. The work of a client
    that died is abandoned within a minute. The server ends with the process that started it, even if that process is
    killed.

    `log_file` is replaced at each start. With `port` None, a free port is used.
    """

    def __init__(
        self,
        *,
        log_file: Path,
        master: str = "local[*]",
        conf: Mapping[str, str] = MappingProxyType({}),
        port: int | None = None,
        root: Path | None = None,
    ) -> None:
        self._log_file = log_file
        self._port = port or _free_port()
        self._root = root or Path.cwd()
        self._conf = session_conf(
            master=master,
            conf={
                **_CONNECT_DEFAULTS,
                **conf,
                "spark.connect.grpc.binding.address": _LOOPBACK,
                "spark.connect.grpc.binding.port": str(self._port),
            },
            root=self._root,
        )
        self._process: SupervisedProcess | None = None

    def __enter__(self) -> "ConnectServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The value of `spark: {remote: …}` in a cluster."""
        return f"sc://{_LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process group of the server; None while it is not started."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the server and return after its first answer. Has no effect if it is already started."""
        if self._process is not None:
            return
        options = [part for name, value in self._conf.items() for part in ("--conf", f"{name}={value}")]
        command = [str(spark_home() / "bin" / "spark-submit"), *options, "--class", _CLASS, "spark-internal"]
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as undo:
            with self._log_file.open("wb") as log:
                process = SupervisedProcess(command, env=spark_environment(), cwd=self._root, output=log)
            undo.callback(process.stop)
            self._wait_until_ready(process)
            self._process = process
            undo.pop_all()

    def stop(self) -> None:
        """Stop the server and the processes it started. Has no effect if it is not started."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _wait_until_ready(self, process: SupervisedProcess) -> None:
        until = time.monotonic() + _START_SECONDS
        while not probe(self.url):
            code = process.poll()
            if code is None and time.monotonic() < until:
                time.sleep(0.1)
                continue
            reason = "did not answer in time" if code is None else f"ended with exit code {code}"
            log = self._log_file.read_text("utf-8", errors="replace")
            raise RuntimeError(f"the Spark Connect server at {self.url} {reason}:\n{log[-2_000:]}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((_LOOPBACK, 0))
        return int(listener.getsockname()[1])
