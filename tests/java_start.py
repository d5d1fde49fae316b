"""How the Java of tests starts: compiled once and lightly, its classes from an archive where `make test` has made one.

Most tests with Spark start a Java machine that lives for seconds. Measured: a session with five small jobs takes 22 CPU
seconds as Spark starts by itself, 14 with these options and 8 with the archive.
"""

import os
import subprocess
import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark.jsa"
LIGHT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of every Java machine of tests."""
_WORK = """
from pyspark.sql import SparkSession, functions as f
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
for format in ("csv", "json", "parquet"):
    frame = session.range(1000).withColumn("group", f.col("id") % 7).groupBy("group").agg(f.sum("id").alias("sum"))
    frame.repartition(2).write.mode("overwrite").format(format).save("rows")
    session.read.format(format).load("rows").count()
session.createDataFrame([(1, "a")], "id INT, name STRING").createOrReplaceTempView("few")
session.sql("SELECT name, count(*) FROM few JOIN range(5) USING (id) GROUP BY name").collect()
session.stop()
"""


def start_lightly() -> None:
    """Let every `spark-submit` below this process start so, also that of `pyspark`."""
    archive = (f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:cds=off") if ARCHIVE.exists() else ()
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join((*LIGHT, *archive)))


def _make(folder: Path) -> None:
    new = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    options = " ".join((*LIGHT, f"-XX:ArchiveClassesAtExit={new}", "-Xlog:cds=off"))
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _WORK],
        env=os.environ | {"SPARK_SUBMIT_OPTS": options},
        cwd=folder,
        check=True,
        capture_output=True,
    )
    new.replace(ARCHIVE)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        _make(Path(name))
