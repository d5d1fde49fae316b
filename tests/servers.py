"""Real servers for tests: started once a session on a socket of their own, ended with it."""

import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from feed_assets.engines.spark.sessions import spark_home
from feed_assets.engines.spark.supervised import SupervisedProcess
from tests.java_start import LIGHT

if TYPE_CHECKING:
    from tests.hdfs_cluster import HdfsCluster
    from tests.object_servers import ObjectServer


@contextmanager
def run_postgres() -> Iterator[str]:
    """A PostgreSQL server with an empty database, at the URL that is given; its files are gone afterwards.

    So it does not wait for the disk.
    """
    with warnings.catch_warnings():
        # Without XDG_RUNTIME_DIR the package says at import where it puts its sockets instead.
        warnings.simplefilter("ignore")
        import pgserver

    folder = Path(tempfile.mkdtemp(prefix="feed-assets-postgres-"))
    try:
        server = pgserver.get_server(folder / "data", cleanup_mode="stop")
        try:
            server.psql("ALTER SYSTEM SET fsync = off;")
            server.psql("SELECT pg_reload_conf();")
            yield server.get_uri()
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of a PostgreSQL server that lives as long as the test session."""
    with run_postgres() as url:
        yield url


@contextmanager
def run_tcp_postgres() -> Iterator[int]:
    """A PostgreSQL server on a free port of 127.0.0.1, user `postgres` without a password; yields the port."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver

    folder = Path(tempfile.mkdtemp(prefix="feed-assets-postgres-"))
    port = free_port()
    try:
        server = pgserver.get_server(folder / "data", cleanup_mode="stop")
        try:
            options = f"-h 127.0.0.1 -p {port} -k {folder / 'data'} -F"
            pgserver.pg_ctl(["-w", "-o", options, "restart"], pgdata=folder / "data", user=server.system_user)
            yield port
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def run_tls_postgres() -> Iterator[str]:
    """A PostgreSQL server of the system, as the tests' own has no TLS; it refuses who comes without. Yields its URL,
    with the certificate that it must show.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    folder, port = Path(tempfile.mkdtemp(prefix="feed-assets-postgres-")), free_port()
    as_owner: tuple[str, ...] = ()
    if os.geteuid() == 0:  # under whom it does not run
        as_owner = ("runuser", "-u", "postgres", "--")
        shutil.chown(folder, "postgres")
        folder.parent.chmod(folder.parent.stat().st_mode | stat.S_IXOTH)  # who owns the folder must reach it
    files = ("-keyout", f"{folder}/key.pem", "-out", f"{folder}/ca.pem")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    certificate = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *files, *names)
    making = (f"{found[-1]}/initdb", "-D", f"{folder}/data", "-U", "postgres", "-A", "trust", "-N")
    tls = ("ssl=on", f"ssl_cert_file={folder}/ca.pem", f"ssl_key_file={folder}/key.pem", "fsync=off")
    options = [word for setting in tls for word in ("-c", setting)]
    place = ("-D", f"{folder}/data", "-h", "127.0.0.1", "-p", str(port), "-k", str(folder))
    command = [*as_owner, f"{found[-1]}/postgres", *place, *options]
    try:
        for before in (certificate, making):
            subprocess.run([*as_owner, *before], check=True, capture_output=True)
        (folder / "data/pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 trust\n")
        with (
            (folder / "log").open("wb") as log,
            SupervisedProcess(command, env=os.environ, cwd=folder, output=log) as server,
        ):
            wait_for_port(port, server)
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert={folder}/ca.pem"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres_away(port: int) -> Iterator[None]:
    """Stop the server of `run_tcp_postgres` for the time of the block, without a word to those who are connected."""
    import pgserver
    from psycopg2 import connect

    with closing(connect(host="127.0.0.1", port=port, user="postgres")) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW data_directory")
        folder = Path(cursor.fetchone()[0])
    user = folder.owner()
    pgserver.pg_ctl(["-w", "-m", "immediate", "stop"], pgdata=folder, user=user)
    try:
        yield
    finally:
        options = f"-h 127.0.0.1 -p {port} -k {folder} -F"
        pgserver.pg_ctl(["-w", "-l", str(folder / "log"), "-o", options, "start"], pgdata=folder, user=user)


def postgres_program(name: str) -> Path:
    """A program of the PostgreSQL that tests run, such as `pg_dump`."""
    import pgserver

    return Path(pgserver.__file__).parent / "pginstall" / "bin" / name


@contextmanager
def run_metastore(program: str = "org.apache.hadoop.hive.metastore.HiveMetaStore") -> Iterator[int]:
    """A Hive metastore of the installed pyspark with an empty catalog, on a free port of 127.0.0.1; yields the port."""
    folder = Path(tempfile.mkdtemp(prefix="feed-assets-metastore-"))
    port = free_port()
    settings = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{folder}/metastore;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"file:{folder}/warehouse",
        "hive.metastore.event.db.notification.api.auth": "false",
        "datanucleus.connectionPoolingType": "HikariCP",
    }
    values = "".join(
        f"<property><name>{name}</name><value>{text}</value></property>" for name, text in settings.items()
    )
    (folder / "hive-site.xml").write_text(f"<configuration>{values}</configuration>")
    selector = "org.apache.logging.log4j.core.selector.ClassLoaderContextSelector"
    command = [
        "java",
        *LIGHT,
        f"-Dlog4j2.contextSelector={selector}",
        "-cp",
        f"{folder}:{spark_home() / 'jars' / '*'}",
        program,
        "-p",
        str(port),
    ]
    try:
        with (folder / "log").open("wb") as log:
            process = SupervisedProcess(command, env=os.environ, cwd=folder, output=log)
        with process:
            wait_for_port(port, process)
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def metastore_port() -> Iterator[int]:
    """The port of a Hive metastore that lives as long as the test session."""
    with run_metastore() as port:
        yield port


@pytest.fixture(scope="session")
def locking_metastore_port() -> Iterator[int]:
    """The port of a Hive metastore that has locks, as commits to Iceberg tables need them."""
    with run_metastore(str(Path(__file__).with_name("LockingMetastore.java"))) as port:
        yield port


@pytest.fixture(scope="session")
def rest_catalog_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of Iceberg's own REST catalog, which keeps tables in memory; the test is skipped where it is not
    installed.
    """
    jars = Path(__file__).parent.parent / ".emulators" / "iceberg"
    if not any(jars.glob("iceberg-open-api-*.jar")):
        pytest.skip("Iceberg's REST catalog is not installed: run tests/install_emulators.sh")
    folder, port = tmp_path_factory.mktemp("rest-catalog"), free_port()
    settings = {
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.inmemory.InMemoryCatalog",
        "CATALOG_REST_PORT": str(port),
        "CATALOG_WAREHOUSE": folder.as_uri(),
    }
    classes = os.pathsep.join([f"{jars}/*", f"{spark_home() / 'jars'}/*"])
    command = ["java", *LIGHT, "-cp", classes, "org.apache.iceberg.rest.RESTCatalogServer"]
    with (folder / "log").open("wb") as log:
        process = SupervisedProcess(command, env={**os.environ, **settings}, cwd=folder, output=log)
    with process:
        wait_for_port(port, process)
        yield port


@pytest.fixture(scope="session")
def s3_server() -> "Iterator[ObjectServer]":
    from tests.object_servers import run_s3

    with run_s3() as server:
        yield server


@pytest.fixture(scope="session")
def s3_options(s3_server: "ObjectServer") -> dict[str, object]:
    """The options of an S3 server with one bucket."""
    return dict(s3_server.options)


@pytest.fixture(scope="session")
def azure_server() -> "Iterator[ObjectServer]":
    from tests.object_servers import run_azure

    with run_azure() as server:
        yield server


@pytest.fixture(scope="session")
def hdfs_cluster() -> "Iterator[HdfsCluster]":
    from tests.hdfs_cluster import run_hdfs

    with run_hdfs() as cluster:
        yield cluster


def wait_for_port(port: int, process: SupervisedProcess, seconds: float = 60.0) -> None:
    """Return when somebody listens; fail when the process has ended, or in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on port {port}")


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
