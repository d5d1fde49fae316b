"""A standalone Spark on loopback: a master and its workers, each a Java machine of its own, as on three machines."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from feed_assets.engines.spark.sessions import spark_environment, spark_home
from feed_assets.engines.spark.supervised import SupervisedProcess
from tests.servers import free_port, wait_for_port

HOST = "127.0.0.1"
_DEPLOY = "org.apache.spark.deploy"
_SECONDS = 120.0


@contextmanager
def run_spark_cluster(folder: Path, *, workers: int) -> Iterator[str]:
    """A master with workers of two cores and 1 GiB, whose work and logs are in `folder`; yields the master's URL.

    They know nothing of the project: no path of Python's, and no interpreter of this one.
    """
    folder.mkdir()
    port = free_port()
    url = f"spark://{HOST}:{port}"
    own = {
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "SPARK_LOCAL_IP": HOST,
    }
    inherited = {name: value for name, value in spark_environment().items() if not name.startswith("PY")}

    def start(name: str, kind: str, *arguments: str) -> SupervisedProcess:
        command = [str(spark_home() / "bin" / "spark-class"), f"{_DEPLOY}.{kind}", "--webui-port", "0", *arguments]
        with (folder / f"{name}.log").open("wb") as log:
            return stack.enter_context(SupervisedProcess(command, env=inherited | own, cwd=folder, output=log))

    with ExitStack() as stack:
        master = start("master", "master.Master", "--host", HOST, "--port", str(port))
        for number in range(workers):
            place = ("--host", HOST, "--cores", "2", "--memory", "1g", "--work-dir", str(folder / f"work-{number}"))
            start(f"worker-{number}", "worker.Worker", *place, url)
        wait_for_port(port, master)
        _wait_for_workers(folder / "master.log", workers)
        yield url


def _wait_for_workers(log: Path, workers: int) -> None:
    until = time.monotonic() + _SECONDS
    while (said := log.read_text(errors="replace")).count("Registering worker") < workers:
        assert time.monotonic() < until, said
        time.sleep(0.1)
