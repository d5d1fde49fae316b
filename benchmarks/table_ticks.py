"""A tick of many feeds in tables, when nothing is new: `python -m benchmarks.table_ticks PORT FOLDER [feeds] [rounds]`.

PORT is that of a Hive metastore on loopback, in which the tables are made: revisions are compared on the same ones.
"""

import json
import sys
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from statistics import median

from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from benchmarks.tick_harness import open_location
from benchmarks.workload import CLUSTER, HOUR, START
from feed_assets.patience import Patience

DATABASE = "benchmark"
_SECONDS = 600
_FEED = """\
kind: feed
name: table-{number:04d}
frequency: hours(1)
table: "catalog:benchmark:table_{number:04d}#ds=${{YEAR}}-${{MONTH}}-${{DAY}};hour=${{HOUR}}"
clusters: {{primary: {{validity: {{start: 2025-01-01T00:00Z, end: 2027-01-01T00:00Z}}}}}}
"""


def main(port: str, folder: str, feeds: str = "300", rounds: str = "7") -> None:
    """Print the sockets to the metastore and the median seconds of a tick in which each feed waits for an instance."""
    _make_tables(int(port), int(feeds), folder)
    with tempfile.TemporaryDirectory() as name:
        entities = Path(name) / "entities"
        entities.mkdir()
        cluster = f"kind: cluster\nname: {CLUSTER}\nstorage: file://{folder}\ncatalog: thrift://127.0.0.1:{port}\n"
        texts = [cluster, *(_FEED.format(number=number) for number in range(int(feeds)))]
        (entities / "all.yaml").write_text("---\n".join(texts))
        with open_location(Path(name), START + timedelta(minutes=1)) as location:
            location.runtime.patience = Patience(_SECONDS)
            taken = [location.tick()[0]]
            for number in range(int(rounds)):
                location.set_clock(START + timedelta(minutes=10) + number * HOUR)
                taken.append(location.tick()[0])
            sockets = count_sockets(int(port))
    print(json.dumps({"sockets": sockets, "first": taken[0], "seconds": median(taken[1:])}))


def _make_tables(port: int, feeds: int, folder: str) -> None:
    transport = TBufferedTransport(TSocket("127.0.0.1", port))
    transport.open()
    client = ThriftHiveMetastore.Client(TBinaryProtocol(transport))
    if DATABASE not in client.get_all_databases():
        client.create_database(ttypes.Database(name=DATABASE, locationUri=f"file:{folder}"))
    for number in range(len(client.get_all_tables(DATABASE)), feeds):
        storage = ttypes.StorageDescriptor(
            cols=[ttypes.FieldSchema(name="text", type="string")],
            location=f"file:{folder}/table_{number:04d}",
            serdeInfo=ttypes.SerDeInfo(parameters={}),
            numBuckets=-1,
            bucketCols=[],
            sortCols=[],
            parameters={},
        )
        keys = [ttypes.FieldSchema(name="ds", type="string"), ttypes.FieldSchema(name="hour", type="int")]
        name, external = f"table_{number:04d}", {"EXTERNAL": "TRUE"}
        client.create_table(
            ttypes.Table(
                dbName=DATABASE,
                tableName=name,
                sd=storage,
                partitionKeys=keys,
                parameters=external,
                tableType="EXTERNAL_TABLE",
            )
        )
    transport.close()


def count_sockets(port: int) -> int:
    """Count this process's connections to a port."""
    own = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder itself
            own.add(str(each.readlink()))
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(line[2].endswith(f":{port:04X}") and f"socket:[{line[9]}]" in own for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
