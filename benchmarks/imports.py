"""(s) A table of a million rows from PostgreSQL to Parquet: an instance of an import from its lease to its publication,
against the same read and write in plain PySpark. Each is a fresh process with a session of its own, timed from the
start of that session; both read four parts by the same column.
"""

import shutil
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from statistics import median

from sqlalchemy import create_engine, text

from benchmarks.plain_import import DRIVER, JAR, PARTS
from benchmarks.probes import run_probe, say
from benchmarks.report import Figure, Part, Scale, slower
from benchmarks.tick_harness import open_location
from benchmarks.workload import START

AT_MOST = 1.15
FEED = "orders"
COLUMNS = "id bigint, customer string, total decimal(10,2), note string, paid boolean, at timestamp"
_ROWS = """CREATE TABLE orders AS
    SELECT i::bigint AS id, 'customer ' || i % 5000 AS customer, (i % 100000 / 100.0)::numeric(10,2) AS total,
        md5(i::text) AS note, i % 3 > 0 AS paid, timestamptz '2024-01-01 00:00Z' + i * interval '1 second' AS at
    FROM generate_series(1, {rows}) AS i"""
_ENTITIES = f"""\
kind: cluster
name: primary
storage: {{data}}
spark: {{{{master: "local[2]"}}}}
---
kind: datasource
name: shop
type: postgres
interfaces: {{{{readonly: {{{{endpoint: "{{url}}"}}}}}}}}
driver: {{{{class: {DRIVER}, jars: [{JAR}]}}}}
credential: {{{{user: postgres, password: none}}}}
---
kind: feed
name: {FEED}
frequency: days(1)
format: parquet
schema: "{COLUMNS}"
locations: {{{{data: "/{FEED}/${{{{YEAR}}}}-${{{{MONTH}}}}-${{{{DAY}}}}"}}}}
clusters:
  primary:
    type: source
    validity: {{{{start: {START:%Y-%m-%dT%H:%MZ}}}}}
    import:
      source: {{{{name: shop, table: orders, extract: {{{{history: true}}}}}}}}
      arguments: {{{{--split-by: id, --num-mappers: {PARTS}}}}}
"""


def measure_imports(folder: Path, scale: Scale) -> Iterator[Figure]:
    """Measure both in turn, each turn with the next day."""
    rows, turns = scale.choose((1_000_000, 5), (1_000_000, 3), (1_000, 1))
    ours, theirs = [], []
    with _postgres(rows) as url:
        (folder / "data").mkdir()
        (folder / "entities").mkdir()
        entities = _ENTITIES.format(data=(folder / "data").as_uri(), url=url)
        (folder / "entities" / "orders.yaml").write_text(entities)
        with open_location(folder, START + timedelta(days=turns, hours=1)) as location:
            location.tick()
        for turn in range(turns):
            say(f"imports: {rows:,} rows, turn {turn + 1} of {turns}")
            ours.append(run_probe("imports_probe", folder, turn, rows))
            theirs.append(run_probe("plain_import", url, folder / f"plain-{turn}", rows))
    for kind, name, note in (
        ("whole", "with the start of its session", "elapsed"),
        ("processor", "on the processor", "user and system, of all programs; a busy machine changes it less"),
    ):
        yield slower(
            Part.IMPORTS,
            f"{rows:,} rows from PostgreSQL to Parquet by an import, {name}",
            median(each[kind] for each in ours),
            "the same read and write in plain PySpark",
            median(each[kind] for each in theirs),
            at_most=AT_MOST,
            note=note,
        )


@contextmanager
def _postgres(rows: int) -> Iterator[str]:
    """Yield the JDBC URL of a new server on this machine with a table of orders."""
    with warnings.catch_warnings(action="ignore"):
        pgserver = import_module("pgserver")
    folder, port = Path(tempfile.mkdtemp(prefix="feed-assets-bench-pg-")), _free_port()
    try:
        server = pgserver.get_server(folder, cleanup_mode="stop")
        try:
            options = f"-h 127.0.0.1 -p {port} -k {folder} -F"
            pgserver.pg_ctl(["-w", "-o", options, "restart"], pgdata=folder, user=server.system_user)
            engine = create_engine(f"postgresql+psycopg2://postgres@127.0.0.1:{port}/postgres")
            with engine.begin() as connection:
                connection.execute(text(_ROWS.format(rows=rows)))
                connection.execute(text("ANALYZE orders"))
            engine.dispose()
            yield f"jdbc:postgresql://127.0.0.1:{port}/postgres"
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
