"""The Spark Connect server that a cluster keeps: who starts it, who uses it, and when it ends."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep

import pytest

from feed_assets.engines.errors import ServiceError
from feed_assets.engines.spark.local_servers import LocalServer, ServerUse
from feed_assets.log.instances.process_instances import ProcessInstances
from tests.orchestration.dagster_home import Home, sqlite_state
from tests.orchestration.small import ENTITIES, START, key, land, total

_USER = """
import sys
from pathlib import Path
from feed_assets.engines.spark.local_servers import LocalServer, ServerUse

server = LocalServer(cluster="here", master="local[1]", root=Path(sys.argv[1]), idle_seconds=0.5)
print(ServerUse(server).connect(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all servers, for this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@pytest.fixture
def users(temporary: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    """Programs that use the server until they are killed, two of them begun at once."""
    programs = [start_user(temporary), start_user(temporary)]
    yield programs
    for program in programs:
        program.kill()
        program.communicate()


def start_user(folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "ignore", "-c", _USER, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def url_of(program: "subprocess.Popen[str]") -> str:
    assert program.stdout is not None
    return program.stdout.readline()


def keeper_of(folder: Path) -> int:
    (alive,) = folder.glob("feed-assets-spark-*/here-*/alive")
    return int(alive.read_text())


def machine_of(keeper: int) -> int:
    """The Java machine below a keeper."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[1] == str(keeper):
                return int(stat.parent.name)
    raise AssertionError(f"{keeper} has no child")


def ends(pid: int, seconds: float = 60.0) -> bool:
    until = monotonic() + seconds
    while monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        sleep(0.1)
    return False


@pytest.mark.spark
@pytest.mark.server
def test_users_share_a_server_that_ends_with_its_keeper_and_with_its_last_user(
    temporary: Path, users: list["subprocess.Popen[str]"]
) -> None:
    url = url_of(users[0])
    assert url.startswith("sc://localhost:")
    assert url_of(users[1]) == url
    keeper = keeper_of(temporary)
    machine = machine_of(keeper)
    use = ServerUse(LocalServer(cluster="here", master="local[1]", root=temporary, idle_seconds=0.5))
    assert use.connect() == url.strip()
    os.kill(keeper, signal.SIGKILL)
    assert ends(machine)
    assert (use.folder / "address").exists()
    assert use.find() is None
    use.close()

    users.append(start_user(temporary))
    assert url_of(users[2]) != url
    keeper = keeper_of(temporary)
    machine = machine_of(keeper)
    for program in users:
        program.kill()
    assert ends(keeper)
    assert ends(machine)
    assert not (use.folder / "address").exists()


DEADLY = """
    import os, signal
    from pathlib import Path
    from pyspark.sql import functions as f

    def summing(spark, numbers, context):
        assert context.run_id == spark.session_id
        if context.nominal_time.hour == 1:
            (alive,) = Path(os.environ["TMPDIR"]).glob("feed-assets-spark-*/here-*/alive")
            keeper = int(alive.read_text())
            os.kill(int(Path(f"/proc/{keeper}/task/{keeper}/children").read_text()), signal.SIGKILL)
        return numbers.agg(f.sum("n").alias("total"))
"""


@pytest.mark.spark
@pytest.mark.server
def test_a_kept_server_that_dies_fails_the_instance_in_work_and_the_next_one_starts_another(temporary: Path) -> None:
    home = Home(folder=temporary)
    kept = 'spark: {connect: "local[1]", conf: {spark.sql.shuffle.partitions: "1"}}'
    home.prepare(re.sub("spark: {master.*", kept, ENTITIES), DEADLY)
    for hour in range(3):
        land(home.data, hour, hour)
    select = ("--select", "here/sums", "--partition-range", f"{key(0)}...{key(2)}")
    assert home.run("asset", "materialize", "-f", "definitions.py", *select).returncode != 0
    with sqlite_state(home).read() as connection:
        rows = ProcessInstances(connection).find_between("summing", "here", START, START + timedelta(hours=2))
    assert [row.status.value for row in rows] == ["SUCCEEDED", "FAILED", "SUCCEEDED"], rows
    assert total(home.data, 2) == 2


@pytest.mark.server
def test_without_java_the_start_says_what_is_missing(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    use = ServerUse(LocalServer(cluster="here", master="local[1]", root=temporary))
    with pytest.raises(ServiceError) as caught, closing(use):
        use.connect()
    assert "Check that JAVA_HOME is Java 17 or later" in str(caught.value)
    assert str(caught.value).startswith("the Spark Connect server of cluster here: it cannot be used: ")
    assert "/nowhere/bin/java" in str(caught.value)


def test_a_folder_that_others_can_enter_is_not_trusted(temporary: Path) -> None:
    server = LocalServer(cluster="here", master="local[1]", root=temporary)
    ServerUse(server).close()
    server.folder.chmod(0o755)
    with pytest.raises(ServiceError, match="others than this user can enter its folder"):
        ServerUse(server)


def test_each_change_of_what_a_server_is_started_with_leads_to_another_server(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder(cluster: str = "here", root: Path = temporary, catalog: str | None = None, **conf: str) -> Path:
        return LocalServer(cluster=cluster, master="local[1]", root=root, conf=conf, catalog=catalog).folder

    folders = {
        folder(),
        folder("there"),
        folder(root=temporary / "below"),
        folder(catalog="thrift://a:1"),
        folder(a="1"),
    }
    monkeypatch.setenv("DAGSTER_RUN_JOB_NAME", "sums")
    assert folder() in folders
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert len(folders | {folder()}) == 6


def test_a_server_has_the_configuration_of_a_session_and_keeps_what_users_add_to_its_own() -> None:
    options = "spark.driver.extraJavaOptions"
    conf = {"spark.plugins": "com.example.Plugin", options: "-Da=b", "spark.driver.memory": "2g"}
    server = LocalServer(cluster="here", master="local[2]", root=Path("/project"), conf=conf, catalog="thrift://a:1")
    found = server.server_conf()
    assert found["spark.plugins"] == "com.example.Plugin,org.apache.spark.sql.connect.SparkConnectPlugin"
    assert found[options] == "-Da=b -XX:+ExitOnOutOfMemoryError"
    assert found["spark.master"] == "local[2]"
    assert found["spark.driver.memory"] == "2g"
    assert found["spark.hadoop.hive.metastore.uris"] == "thrift://a:1"
    assert found["spark.connect.grpc.binding.address"] == "127.0.0.1"
