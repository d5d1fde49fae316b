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
    "dfs.blocksize": "33554432",  # the library gives a file up whose last block is not counted yet
    "dfs.heartbeat.interval": "1",
    "dfs.namenode.acls.enabled": "true",
    "dfs.namenode.heartbeat.recheck-interval": "1000",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.edits.noeditlogchannelflush": "true",
    "dfs.permissions.superusergroup": "supergroup",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HdfsCluster:
    """A cluster: its URL without a path, and what it obeys."""

    url: str
    process: "subprocess.Popen[str]"

    def obey(self, *words: object) -> None:
        """Do what a command of `HdfsCluster.java` says, such as `stop-data-node`."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        _require_line(self.process, "done")


@contextmanager
def run_hdfs() -> Iterator[HdfsCluster]:
    """A cluster; the test is skipped where its jar or Java's compiler is not installed."""
    found = sorted(_JARS.glob("hadoop-client-minicluster-*.jar"))
    if not found or shutil.which("javac") is None:
        pytest.skip("Hadoop's mini cluster is not installed: run tests/install_emulators.sh, and install a JDK")
    libraries = [str(jar) for pattern in _LIBRARIES for jar in (spark_home() / "jars").glob(f"{pattern}.jar")]
    folder = Path(tempfile.mkdtemp(prefix="feed-assets-hdfs-"))
    command = ["java", *LIGHT, "-Xmx512m", "-cp", os.pathsep.join([str(found[-1]), *libraries])]
    command += [str(Path(__file__).with_name("HdfsCluster.java")), str(folder / "data")]
    command += [f"{name}={value}" for name, value in _SETTINGS.items()]
    try:
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            port = _require_line(process, "port").split()[1]
            yield HdfsCluster(url=f"hdfs://127.0.0.1:{port}", process=process)
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
