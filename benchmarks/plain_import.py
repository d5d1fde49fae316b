"""The peer of an import: the same read and write in plain PySpark. Arguments: JDBC URL, folder of the result, rows."""

import json
import os
import resource
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from feed_assets.clock import Stopwatch
from feed_assets.engines.spark.sessions import session_conf

PARTS = 4
DRIVER, JAR = "org.postgresql.Driver", Path("/usr/share/java/postgresql.jar")


def main(url: str, target: str, rows: str) -> None:
    """Read and write the table, and print the seconds that it has taken."""
    turn = Turn({"spark.jars": str(JAR)})
    properties = {"driver": DRIVER, "user": "postgres", "password": "none", "fetchsize": "10000"}
    orders = turn.spark.read.jdbc(url, "orders", "id", 1, int(rows) + 1, PARTS, properties=properties)
    orders.write.parquet(target)
    turn.report()


class Turn:
    """The time of either side, from the start of its session."""

    def __init__(self, conf: dict[str, str] | None = None) -> None:
        self._watch, self._before = Stopwatch(), time.process_time()
        builder = SparkSession.builder
        for name, value in session_conf(master="local[2]", conf=conf or {}).items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()

    def report(self) -> None:
        """Print the seconds in all, and those on the processor, of this process and those that it has started."""
        whole = self._watch.seconds
        gateway = self.spark.sparkContext._gateway
        assert gateway is not None
        java = Path("/proc", str(gateway.proc.pid), "stat").read_text().rpartition(")")[2].split()
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = (int(java[11]) + int(java[12])) / os.sysconf("SC_CLK_TCK") + ended.ru_utime + ended.ru_stime
        processor += time.process_time() - self._before
        print(json.dumps({"whole": whole, "processor": processor}))


if __name__ == "__main__":
    main(*sys.argv[1:])
