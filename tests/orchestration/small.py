"""A small declaration for tests of the real thing: hourly numbers that arrive, and a process that sums each of them."""

from datetime import datetime, timedelta
from pathlib import Path

CLUSTER = """
    kind: cluster
    name: here
    storage: file://${DATA_ROOT}
    spark: {master: "local[1]", conf: {spark.sql.shuffle.partitions: "1"}}
"""
NUMBERS = """
    kind: feed
    name: numbers
    frequency: hours(1)
    format: csv
    schema: "n int"
    availability_flag: _SUCCESS
    locations: {data: "/numbers/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    clusters: {here: {type: source, validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
"""
SUMS = """
    kind: feed
    name: sums
    frequency: hours(1)
    format: csv
    schema: "total bigint"
    availability_flag: _SUCCESS
    locations: {data: "/sums/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
"""
SUMMING = """
    kind: process
    name: summing
    frequency: hours(1)
    clusters: {here: {validity: {start: 2026-01-01T00:00Z, end: 2026-01-02T00:00Z}}}
    inputs: {numbers: {feed: numbers, start: "now(0,0)", end: "now(0,0)"}}
    outputs: {sums: {feed: sums, instance: "now(0,0)"}}
    workflow: {engine: python, path: "jobs_of_test:summing"}
    timeout: months(60)
"""
ENTITIES = "    ---".join((CLUSTER, NUMBERS, SUMS, SUMMING))

JOBS = """
    from pyspark.sql import functions as f

    def summing(numbers):
        return numbers.agg(f.sum("n").alias("total"))
"""

START = datetime.fromisoformat("2026-01-01T00:00+00:00")


def land(data: Path, hour: int, *numbers: int, feed: str = "numbers") -> None:
    """Let the numbers of an hour arrive, flag last."""
    at = START + timedelta(hours=hour)
    folder = data / feed / f"{at:%Y-%m-%d}" / f"{at:%H}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part.csv").write_text("n\n" + "".join(f"{number}\n" for number in numbers))
    (folder / "_SUCCESS").touch()


def key(hour: int) -> str:
    return f"{START + timedelta(hours=hour):%Y-%m-%d-%H:%M}"


def total(data: Path, hour: int) -> int:
    """What the process made of an hour, read as a consumer would."""
    at = START + timedelta(hours=hour)
    (part,) = (data / "sums" / f"{at:%Y-%m-%d}" / f"{at:%H}").glob("part-*.csv")
    header, value = part.read_text().split()
    assert header == "total"
    return int(value)
