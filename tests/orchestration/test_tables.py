"""Processes over tables of a real metastore, run by Dagster on Spark: Hive's formats and Spark's, Python and SQL."""

import json
from pathlib import Path

import pytest
from dagster import AssetKey

from tests.drills import sized
from tests.orchestration.dagster_home import Home, materialized
from tests.tables import Catalog

pytestmark = [pytest.mark.spark, pytest.mark.server]

FORMATS = sized(("orc", "csv"), ("orc", "parquet", "avro", "csv", "native"))
ENTITIES = """
    kind: cluster
    name: here
    storage: file://${{DATA_ROOT}}
    catalog: {catalog}
    spark: {{master: "local[1]", conf: {{spark.sql.shuffle.partitions: "1"}}}}
    ---
    kind: process
    name: summing
    frequency: hours(1)
    clusters: {{here: {{validity: {{start: 2026-01-01T01:00Z, end: 2026-01-02T00:00Z}}}}}}
    inputs: {{clicks: {{feed: clicks, start: "now(-1,0)", end: "now(0,0)"}}}}
    outputs: {{{outputs}}}
    workflow: {{engine: python, path: "jobs_of_test:summing"}}
    timeout: months(60)
    ---
    kind: process
    name: reporting
    frequency: hours(1)
    clusters: {{here: {{validity: {{start: 2026-01-01T01:00Z, end: 2026-01-02T00:00Z}}}}}}
    inputs: {{{inputs}}}
    outputs: {{report: {{feed: report, instance: "now(0,0)"}}}}
    workflow: {{engine: sql, path: report.sql}}
    timeout: months(60)
    ---
    kind: process
    name: straying
    frequency: hours(1)
    clusters: {{here: {{validity: {{start: 2026-01-01T01:00Z, end: 2026-01-02T00:00Z}}}}}}
    inputs: {{clicks: {{feed: clicks, start: "now(0,0)", end: "now(0,0)"}}}}
    outputs: {{strays: {{feed: strays, instance: "now(0,0)"}}}}
    workflow: {{engine: python, path: "jobs_of_test:straying"}}
    timeout: months(60)
"""
FEED = """
    ---
    kind: feed
    name: {name}
    frequency: hours(1)
    table: "catalog:spark:{table}#{partition}"
    clusters: {{here: {{validity: {{start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}}}}
"""
JOBS = """
    from pyspark.sql import functions as f

    def summing(clicks, context):
        sums = clicks.groupBy("user").agg(f.sum("n").alias("total"), f.max("hour").alias("last"))
        kept = sums.withColumn("region", f.lit("eu"))
        return {name: kept if name == "sums-orc" else sums for name in context.output_urls}

    def straying(clicks):
        return clicks.select(f.col("user").alias("text"), f.lit("us").alias("region"))
"""
LINE = "concat_ws(' ', '{format}', user, total, last, at, region)"
FACTS = "sums_orc_storage_type sums_orc_database sums_orc_table sums_orc_filter report_table report_partitions_hive"
ONE = "2026-01-01-01:00"


def make_tables(catalog: Catalog, folder: Path) -> None:
    catalog.make_database("spark", folder)
    columns = [("user", "string"), ("n", "int")]
    catalog.make_table("spark", "clicks", folder / "clicks", [("ds", "string"), ("hour", "int")], columns=columns)
    keys, columns = [("at", "string"), ("region", "string")], [("last", "int"), ("user", "string"), ("total", "bigint")]
    for form in ("orc", "parquet", "avro", "csv"):
        catalog.make_table("spark", f"sums_{form}", folder / form, keys, columns=columns, format=form)
    types = {"int": "integer", "bigint": "long"}
    schema = [
        {"name": name, "type": types.get(kind, kind), "nullable": True, "metadata": {}}
        for name, kind in (*columns, *keys)
    ]
    native = {
        "spark.sql.sources.provider": "json",
        "spark.sql.sources.schema": json.dumps({"type": "struct", "fields": schema}),
        "spark.sql.sources.schema.numPartCols": "2",
        "spark.sql.sources.schema.partCol.0": "at",
        "spark.sql.sources.schema.partCol.1": "region",
        "spark.sql.partitionProvider": "catalog",
    }
    catalog.make_table("spark", "sums_native", folder / "native", keys, columns=columns, parameters=native)
    catalog.make_table("spark", "report", folder / "report", [("at", "string")])
    catalog.make_table("spark", "strays", folder / "strays", keys)


def land(catalog: Catalog, folder: Path, hour: int, *rows: tuple[str, int]) -> None:
    """An hour of clicks, as Hive writes text."""
    table = catalog.find_table("spark", "clicks")
    assert table is not None
    place = folder / f"raw/{hour}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "000000_0").write_text("".join(f"{user}\x01{n}\n" for user, n in rows))
    catalog.add_partition(table, ["2026-01-01", str(hour)], f"file:{place}")


def report(catalog: Catalog, hour: int) -> list[str]:
    table = catalog.find_table("spark", "report")
    assert table is not None
    partition = catalog.partition(table, f"2026-01-01T{hour:02}:00")
    assert partition is not None
    files = Path(partition.location.removeprefix("file:")).glob("part-*")
    return sorted(line for file in files for line in file.read_text().splitlines())


@pytest.fixture
def home(tmp_path: Path, metastore_port: int) -> Home:
    made = Home(folder=tmp_path)
    names = [f"sums-{form}" for form in FORMATS]
    entities = ENTITIES.format(
        catalog=f"thrift://127.0.0.1:{metastore_port}",
        outputs=", ".join(f'{name}: {{feed: {name}, instance: "now(0,0)"}}' for name in names),
        inputs=", ".join(f'{name}: {{feed: {name}, start: "now(0,0)", end: "now(0,0)"}}' for name in names),
    )
    at = "at=${YEAR}-${MONTH}-${DAY}T${HOUR}:${MINUTE}"
    places = {"clicks": "ds=${YEAR}-${MONTH}-${DAY};hour=${HOUR}", "report": at}
    places |= dict.fromkeys([*names, "strays"], f"region=eu;{at}")
    for name, partition in places.items():
        entities += FEED.format(name=name, table=name.replace("-", "_"), partition=partition)
    made.prepare(entities, JOBS)
    selects = [
        f"SELECT {LINE.format(format=form)} AS text FROM "
        + (
            f"IDENTIFIER(:falcon_sums_{form}_database || '.' || :falcon_sums_{form}_table)"
            if form == "csv"
            else f"sums_{form}"
        )
        for form in FORMATS
    ]
    facts = ", ".join(f":falcon_{name}" for name in FACTS.split())
    selects.append(f"SELECT concat_ws(' ', {facts}) AS text")
    (tmp_path / "report.sql").write_text("\nUNION ALL\n".join(selects))
    return made


@pytest.mark.sample
def test_row_27_tables_are_read_and_written_by_python_and_sql(home: Home, metastore_port: int) -> None:
    catalog = Catalog(metastore_port)
    make_tables(catalog, home.folder / "warehouse")
    for hour, rows in enumerate([[("ann", 1), ("bob", 2)], [("ann", 5)], [("cy", 7)]]):
        land(catalog, home.folder, hour, *rows)
    selected = ",".join([*(f"here/sums-{form}" for form in FORMATS), "here/report", "here/strays"])

    done = home.run("asset", "materialize", "-f", "definitions.py", "--select", selected, "--partition", ONE)

    assert done.returncode == 1
    assert "rows of another partition than region=eu/at=2026-01-01T01:00 were returned: 1" in done.stderr
    expected = [f"{form} {row} 2026-01-01T01:00 eu" for form in FORMATS for row in ("ann 6 1", "bob 2 0")]
    facts = "TABLE spark sums_orc (region='eu' AND at='2026-01-01T01:00') report at='2026-01-01T01:00'"
    assert report(catalog, 1) == sorted([*expected, facts])
    names = {name: catalog.find_table("spark", name) for name in ("sums_csv", "strays")}
    shown = {name: catalog.partition(table, "2026-01-01T01:00", "eu") for name, table in names.items() if table}
    assert shown["strays"] is None
    assert shown["sums_csv"] is not None
    written = {item.name[:6] for item in Path(shown["sums_csv"].location.removeprefix("file:")).iterdir()}
    assert written == {"part-0", ".feed-"}
    with home.instance() as instance:
        (event,) = instance.fetch_materializations(AssetKey(["here", "sums-orc"]), limit=10).records
        assert event.asset_materialization is not None
        metadata = event.asset_materialization.metadata
        assert metadata["dagster/partition_row_count"].value == 2
        assert str(metadata["dagster/uri"].value).endswith("/spark/sums_orc/region=eu/at=2026-01-01T01:00")
        assert materialized(instance, "here", "strays") == set()
