"""A real HDFS on loopback: a name node and two data nodes of PySpark's Hadoop, in one Java machine."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from feed_assets.engines.spark.sessions import spark_home
from tests.java_start import LIGHT

_JARS = Path(__file__).parent.parent / ".emulators" / "hadoop"
_LIBRARIES = ("hadoop-client-*", "*slf4j*", "log4j-*", "snappy-java-*")
_SETTINGS = {
    "dfs.blocksize": "4194304",
    "dfs.heartbeat.interval": "1",
    "dfs.namenode.acls.enabled": "true",
    "dfs.namenode.heartbeat.recheck-interval": "1000",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.edits.noeditlogchannelflush": "true",
    "dfs.permissions.superusergroup": "supergroup",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsCluster:
    """A cluster: its URL without a path, the ports of its name nodes, and what it obeys."""

    url: str
    ports: tuple[int, ...]
    process: "subprocess.Popen[str]"

    def obey(self, *words: object) -> None:
        """Do what a command of `HdfsCluster.java` says, such as `stop-data-node`."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        _require_line(self.process, "done")


def write_configuration(folder: Path, **properties: str) -> None:
    """Write the files that HADOOP_CONF_DIR has."""
    found = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()
    )
    for name in ("core-site.xml", "hdfs-site.xml"):
        (folder / name).write_text(f"<configuration>{found}</configuration>")


def name_service(*ports: int) -> dict[str, str]:
    """Return the properties of the name service `lake`, whose name nodes have these ports."""
    names = [f"nn{number}" for number in range(len(ports))]
    addresses = {
        f"dfs.namenode.rpc-address.lake.{name}": f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)
    }
    return {"dfs.nameservices": "lake", "dfs.ha.namenodes.lake": ",".join(names), **addresses}


@contextmanager
def run_hdfs(**settings: str) -> Iterator[HdfsCluster]:
    """A cluster, with further settings; the test is skipped where its jar or Java's compiler is not installed."""
    found = sorted(_JARS.glob("hadoop-client-minicluster-*.jar"))
    if not found or shutil.which("javac") is None:
        pytest.skip("Hadoop's mini cluster is not installed: run tests/install_emulators.sh, and install a JDK")
    libraries = [str(jar) for pattern in _LIBRARIES for jar in (spark_home() / "jars").glob(f"{pattern}.jar")]
    folder = Path(tempfile.mkdtemp(prefix="feed-assets-hdfs-"))
    command = ["java", *LIGHT, "-Xmx512m", "-cp", os.pathsep.join([str(found[0]), *libraries])]
    command += [str(Path(__file__).with_name("HdfsCluster.java")), str(folder / "data")]
    command += [f"{name}={value}" for name, value in {**_SETTINGS, **settings}.items()]
    try:
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            ports = tuple(map(int, _require_line(process, "port").split()[1:]))
            yield HdfsCluster(url=f"hdfs://127.0.0.1:{ports[0]}", ports=ports, process=process)
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    stream.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require_line(process: "subprocess.Popen[str]", start: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(start):
            return line
    raise AssertionError(f"the cluster has ended with {process.wait()}")
