import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep

import pytest
from pyspark.sql.connect.session import SparkSession

from feed_assets.definitions.checks.live_checks import check_reachability
from feed_assets.engines.databases.sessions import add_driver
from feed_assets.engines.spark.addresses import check_spark_remote, probe
from feed_assets.engines.spark.sessions import interrupt_run
from feed_assets.issues import SourceMap
from feed_assets.log.instances.process_instances import ProcessInstances
from tests.connect_server import ConnectServer
from tests.drills import drill_seed
from tests.entities.samples import bundle
from tests.orchestration.dagster_home import Home, sqlite_state
from tests.orchestration.small import ENTITIES, START, key, land, total
from tests.shops import POSTGRES_JAR, Shop

pytestmark = [
    pytest.mark.spark,
    pytest.mark.server,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


IDLE = 0.2  # processors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ConnectServer]:
    conf = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
    }
    with ConnectServer(log_file=folder / "server.log", master="local[2]", conf=conf) as server:
        yield server


def client(server: ConnectServer, run_id: str, task: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.engines.connect_client", server.url, run_id, task, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def busy_seconds(server: ConnectServer) -> float:
    """Processor time that the server has used so far."""
    assert server.pid is not None
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12]) if int(fields[2]) == server.pid else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def load(server: ConnectServer, seconds: float = 1.0) -> float:
    """How many processors the server uses."""
    before = busy_seconds(server)
    sleep(seconds)
    return (busy_seconds(server) - before) / seconds


def becomes_busy(server: ConnectServer, seconds: float) -> bool:
    """Whether the server computes; a busy machine may leave it little of a second."""
    until = monotonic() + seconds
    while monotonic() < until:
        if load(server) > IDLE:
            return True
    return False


def becomes_idle(server: ConnectServer, seconds: float) -> bool:
    until = monotonic() + seconds
    while monotonic() < until:
        if load(server) <= IDLE:
            return True
    return False


def test_engines_run_on_a_server(server: ConnectServer, tmp_path: Path) -> None:
    with client(server, str(uuid.uuid4()), "work", tmp_path) as process:
        output, _ = process.communicate()
    assert output.splitlines() == [
        "python 2 ['EWR,40', 'JFK,2'] {'origin': ['origin'], 'delay': ['delay']} None",
        "sql 1 ['EWR,20'] {'origin': ['origin'], 'delay': ['delay']} None",
        "sql 1 ['EWR,20'] {'origin': ['origin'], 'delay': ['delay']} None",
        "sql 2 ['\"EWRx) AS p#77777, count(1\",20', '\"JFKx) AS p#77777, count(1\",1'] {} "
        "a literal in its plan cannot be told from columns",
        "sql OutputMismatchError output 'out' (feed 'out-feed'): column `delay` is \"STRING\", but the schema says "
        '"INT". Cast it in the workflow, or in the query of an import, or change the schema.',
        "left True []",
        "judged (2, {'punctual': 1, 'unique': 0})",
        "judged OutputMismatchError True",
    ]


@pytest.mark.drill
def test_what_changes_a_column_is_in_its_lineage_on_a_server_too(server: ConnectServer) -> None:
    """As `tests/engines/test_random_plans.py` says of classic sessions."""
    number = 300
    command = [sys.executable, "-m", "tests.engines.random_lineage", server.url, str(drill_seed()), str(number)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-5_000:]
    assert f"of {number} are known" in done.stdout


def test_row_7_a_server_that_answers_can_be_reached(server: ConnectServer) -> None:
    check_spark_remote(server.url)


def test_what_a_killed_run_computes_is_interrupted_from_another_process(server: ConnectServer, tmp_path: Path) -> None:
    run_id = str(uuid.uuid4())
    with client(server, run_id, "compute", tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "computing\n"
        process.kill()
    assert becomes_busy(server, seconds=30)
    assert interrupt_run(server.url, run_id) == 1
    assert becomes_idle(server, seconds=15)
    assert interrupt_run(server.url, str(uuid.uuid4())) == 0


DEADLY = """
    import os, signal
    from pyspark.sql import functions as f
    from pyspark.sql.connect.client.retries import DefaultPolicy

    def summing(spark, numbers, context):
        spark.client.set_retry_policies([DefaultPolicy(max_retries=1)])  # also of releases that are still under way
        if context.nominal_time.hour == 1:
            os.killpg(SERVER, signal.SIGKILL)
        return numbers.agg(f.sum("n").alias("total"))
"""


def test_a_server_that_dies_fails_what_needs_it_with_the_cause_and_does_not_answer_any_more(tmp_path: Path) -> None:
    server = ConnectServer(log_file=tmp_path / "server.log", master="local[1]")
    assert not probe(server.url)
    with server:
        assert probe(server.url)
        pid = server.pid
        home = Home(folder=tmp_path)
        remote = f'spark: {{remote: "{server.url}"}}'
        home.prepare(re.sub("spark: {master.*", remote, ENTITIES), DEADLY.replace("SERVER", str(pid)))
        for hour in range(3):
            land(home.data, hour, hour)
        select = ("--select", "here/sums", "--partition-range", f"{key(0)}...{key(2)}")
        assert home.run("asset", "materialize", "-f", "definitions.py", *select).returncode != 0
    with sqlite_state(home).read() as connection:
        rows = ProcessInstances(connection).find_between("summing", "here", START, START + timedelta(hours=2))
    assert [row.status.value for row in rows] == ["SUCCEEDED", "FAILED", "FAILED"]
    assert "workflow 'jobs_of_test:summing' failed: " in (rows[1].reason or "")
    assert f"Spark Connect at {server.url}: no answer at 127.0.0.1:" in (rows[2].reason or "")
    assert total(home.data, 0) == 0
    assert pid is not None
    assert not probe(server.url)
    assert not Path(f"/proc/{pid}").exists()


def test_a_server_that_is_not_ours_is_asked_whether_it_can_have_a_driver(server: ConnectServer, tmp_path: Path) -> None:
    if not POSTGRES_JAR.exists():
        pytest.skip("the driver of PostgreSQL is not installed: apt-get install libpostgresql-jdbc-java")
    changes = {
        "cluster primary/spark": {"remote": server.url},
        "datasource shop/driver/jars": [str(POSTGRES_JAR)],
        "feed clicks/clusters/primary/import": {"source": {"name": "shop", "table": "orders"}},
    }

    def ask(**more: object) -> list[str]:
        environ = {"SHOP_PASSWORD": "word"}
        entities = bundle({**changes, "cluster primary/storage": tmp_path.as_uri(), **more})
        found = check_reachability(
            entities, [("cluster", "primary")], sources=SourceMap(), root=tmp_path, environ=environ
        )
        return [issue.render() for issue in found]

    assert ask() == []
    assert ask(**{"datasource shop/driver/class": "org.nowhere.Driver"}) == [
        "cluster 'primary': the driver of datasource 'shop' cannot be used: the driver org.nowhere.Driver: "
        "a Spark session does not find it in postgresql.jar. Start the Spark Connect server with its jars (--jars)."
    ]
    assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ


def test_a_server_logs_no_password_of_a_database(server: ConnectServer, shop_postgres: Shop, folder: Path) -> None:
    password = "pl'4n\"ted%s \\;&"
    shop_postgres.run("CREATE TABLE orders (id int)")
    session = SparkSession(connection=server.url)
    session.conf.set("spark.sql.redaction.string.regex", "planne[d]-by-us")
    secrets = {"password": password, "sslpassword": password, "what": "planned-by-us"}
    options = {"driver": shop_postgres.driver, "user": "shop", **secrets}
    try:
        for _ in range(2):
            add_driver(session, shop_postgres.address)  # type: ignore[arg-type]
        assert session.read.jdbc(shop_postgres.url, "orders", properties=options).count() == 0
    finally:
        session.client.release_session()
        session.client.close()
    told = "".join(file.read_text() for file in folder.glob("eventlog*/events*"))
    assert "sslpassword" in told
    assert [word for word in ("4n", "ted%s", "planned-by-us") if word in told] == []
