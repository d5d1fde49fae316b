"""The peer of the daemon: a loop over the days in one Spark session. Arguments: folder of days, folder of results."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.jobs import COLUMNS, by_airline
from feed_assets.engines.spark.sessions import session_conf


def main(source: str, target: str) -> None:
    """Start Spark, process each day, and print the number of days."""
    builder = SparkSession.builder
    for name, value in session_conf(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    days = sorted(Path(source).iterdir())
    for day in days:
        flights = spark.read.csv(str(day / "data.csv"), schema=COLUMNS, header=True, nullValue="NA")
        by_airline(flights).write.parquet(f"{target}/{day.name}")
    spark.stop()
    print(json.dumps({"days": len(days)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
