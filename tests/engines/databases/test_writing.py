"""Exports to a PostgreSQL and a MariaDB by Spark."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from feed_assets.engines.databases import moving
from feed_assets.engines.databases.connections import DatabaseColumn, DatabaseConnection, open_connection
from feed_assets.engines.databases.dialects import DIALECTS
from feed_assets.engines.databases.export_columns import ExportColumns
from feed_assets.engines.databases.writing import ExportEngine
from feed_assets.engines.errors import ExportRefusedError, ServiceError
from feed_assets.engines.java.machine import JavaMachine
from feed_assets.engines.port import InputData, InputInstance
from feed_assets.entities.datasource import ExportTarget, Fields, Load, LoadType
from feed_assets.plan.transfers import ExportRecord
from feed_assets.timing.dates import parse_datetime
from tests.engines.works import NOMINAL_TIME, work
from tests.shops import Shop

pytestmark = [pytest.mark.spark, pytest.mark.server]

_ORDERS = "id int, name string, amount decimal(10,2)"


class _Tables(list[str]):
    """The staging tables that are made and not dropped, as the agenda has them."""

    def begin(self, table: str) -> Sequence[str]:
        earlier = tuple(self)
        self.append(table)
        return earlier

    def end(self, table: str) -> None:
        self.remove(table)


def orders(load: LoadType, fields: Fields | None = None, **more: Any) -> ExportTarget:
    return ExportTarget(name="shop", table="orders", load=Load(type=load, **more), fields=fields)


class _Export:
    """Exports rows of CSV to a table `orders`."""

    def __init__(self, machine: JavaMachine, spark: SparkSession, shop: Shop, folder: Path) -> None:
        self.shop, self.tables, self.guard = shop, _Tables(), lambda: None
        self.staging: str | None = None
        self._machine, self._spark, self._folder = machine, spark, folder

    def run(
        self, load: LoadType, content: str, schema: str = _ORDERS, *, key: str = "id", zone: str = "UTC", **more: Any
    ) -> dict[str, Any]:
        folder = self._folder / "data"
        folder.mkdir(exist_ok=True)
        (folder / "part.csv").write_text(content)
        instance = InputInstance(nominal_time=NOMINAL_TIME, url=folder.as_uri())
        data = InputData(name="source", feed="orders", instances=(instance,), format="csv", columns=schema)
        keys = tuple(filter(None, key.split(",")))
        told = {name: more.pop(name) for name in ("null_string", "null_other", "connections") if name in more}
        engine = ExportEngine(
            export=ExportRecord(target=orders(load, **more), key=keys, pace=None, **told),
            connect=lambda: open_connection(self._machine, self.shop.address),
            timezone=ZoneInfo(zone),
            staging_schema=self.staging,
            guard=self.guard,
            token=7,
            log=self.tables,
        )
        done = engine.run(replace(work(self._folder, "", engine="export"), inputs=(data,)), lambda: self._spark)
        return dict(done.details)

    def rows(self, columns: str = "id, name, amount") -> list[tuple[str | None, ...]]:
        found = self.shop.run(f"SELECT {columns} FROM orders ORDER BY id")
        return [tuple(None if each in (None, "NULL") else str(each) for each in row) for row in found]

    def left(self) -> list[str]:
        """Staging tables that are in the database."""
        sql = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{self.shop.schema}'"
        return sorted(name for (name,) in self.shop.run(sql) if name.startswith("fa_"))


@pytest.fixture
def export(machine: JavaMachine, spark: SparkSession, shop: Shop, tmp_path: Path) -> _Export:
    shop.run(
        "CREATE TABLE orders (id int PRIMARY KEY, name varchar(20), amount numeric(10,2), day date)",
        "ALTER TABLE orders ADD UNIQUE (name, day)",
        "INSERT INTO orders (id, name, amount) VALUES (1, 'one', 1), (2, 'two', 2)",
    )
    if shop.type == "mysql":
        shop.run("ALTER TABLE orders MODIFY id int AUTO_INCREMENT")
    return _Export(machine, spark, shop, tmp_path)


def test_row_145_rows_are_updated_and_new_ones_inserted_and_a_repeat_changes_nothing(export: _Export) -> None:
    content = "id,name,amount\n2,zwei,2.50\n0,,3\n"
    assert export.run(LoadType.ALLOW_INSERT, content) == {"rows": 2, "updated": 1, "inserted": 1}
    rows = [("0", None, "3.00"), ("1", "one", "1.00"), ("2", "zwei", "2.50")]
    assert export.rows() == rows
    assert export.run(LoadType.ALLOW_INSERT, content) == {"rows": 2, "updated": 2, "inserted": 0}
    assert (export.rows(), export.left(), export.tables) == (rows, [], [])


def test_rows_that_the_table_lacks_are_left_out_by_updateonly(export: _Export) -> None:
    content = "id,name,amount\n2,zwei,2.50\n3,,3\n"
    assert export.run(LoadType.UPDATE_ONLY, content) == {"rows": 2, "updated": 1}
    assert export.rows() == [("1", "one", "1.00"), ("2", "zwei", "2.50")]


def test_insert_takes_what_is_there_already_for_its_own_and_refuses_other_values(export: _Export) -> None:
    content = "id,name,amount\n2,two,2\n3,,3\n"
    assert export.run(LoadType.INSERT, content, key="") == {"rows": 2, "inserted": 1}
    assert export.run(LoadType.INSERT, content, key="") == {"rows": 2, "inserted": 0}
    before = export.rows()
    with pytest.raises(ExportRefusedError, match=r"2 rows are in the table already with other values: 2; 3\. Write a"):
        export.run(LoadType.INSERT, "id,name,amount\n1,one,1\n2,Two,2\n3,,4\n4,,5\n", key="")
    assert export.rows() == before


def test_replace_writes_the_rows_of_the_instance_alone(export: _Export) -> None:
    export.shop.run(
        "UPDATE orders SET day = '2013-11-02' WHERE id = 1", "UPDATE orders SET day = '2013-11-03' WHERE id = 2"
    )
    done = export.run(LoadType.REPLACE, "id,name,amount\n3,three,3\n4,four,4\n", key="", instance_column="DAY")
    assert done == {"rows": 2, "deleted": 1, "inserted": 2}
    rows = [("1", "2013-11-02"), ("3", "2013-11-03"), ("4", "2013-11-03")]
    assert export.rows("id, day") == rows
    done = export.run(
        LoadType.REPLACE, "id,day\n3,2013-11-03\n4,2013-11-03\n", "id int, day date", key="", instance_column="day"
    )
    assert (done, export.rows("id, day")) == ({"rows": 2, "deleted": 2, "inserted": 2}, rows)
    with pytest.raises(ExportRefusedError, match="1 rows have another day than 2013-11-03: 2013-11-04"):
        export.run(LoadType.REPLACE, "id,day\n5,2013-11-04\n", "id int, day date", key="", instance_column="day")
    assert export.run(LoadType.REPLACE, "id,name,amount\n", key="", instance_column="day")["deleted"] == 2


@pytest.mark.parametrize(
    ("content", "key", "reason"),
    [
        ("id,name,amount\n,a,1\n,b,1\n3,c,1\n", "id", "2 rows lack a value of the key: null; null"),
        ("id,name,amount\n3,a,1\n3,b,1\n", "ID", "1 keys have several rows: 3, 2"),
        ("id,name,amount\n3,a,1\n", "name", "name is no unique key of it; there are: id; name, day"),
        ("id,name,amount\n3,a,1\n", "name,day", "day of --update-key is not written"),
        ("id,name,amount\n3,a,1\n", "number", "number of --update-key is not written"),
    ],
)
def test_rows_that_no_key_tells_apart_are_refused(export: _Export, content: str, key: str, reason: str) -> None:
    before = export.rows()
    with pytest.raises(ExportRefusedError, match=f"nothing is exported to the table orders of shop: {reason}"):
        export.run(LoadType.ALLOW_INSERT, content, key=key)
    assert (export.rows(), export.left(), export.tables) == (before, [], [])


def test_what_the_table_refuses_leaves_it_as_it_was(export: _Export) -> None:
    export.shop.run("UPDATE orders SET day = '2013-11-03'")
    before = export.rows()
    with pytest.raises(ServiceError, match=r"the database jdbc:.*: it refuses: .*too long"):
        export.run(LoadType.ALLOW_INSERT, f"id,name,amount\n2,zwei,5\n3,{'x' * 21},1\n")
    with pytest.raises(
        ServiceError, match=r"it refuses: .*uplicate.* Correct the rows"
    ):  # another unique key than that of the update
        export.run(
            LoadType.ALLOW_INSERT, "id,name,day\n2,zwei,2013-11-03\n3,one,2013-11-03\n", "id int, name string, day date"
        )
    with pytest.raises(ExportRefusedError, match="it has no column comment"):
        export.run(LoadType.ALLOW_INSERT, "id,comment\n3,a\n", "id int, comment string")
    with pytest.raises(ExportRefusedError, match=r"the feed has no column Nam\. Correct fields of the export"):
        export.run(
            LoadType.ALLOW_INSERT, "id,name\n3,a\n", "id int, name string", fields=Fields(includes=("id", "Nam"))
        )
    export.staging = "nowhere"
    with pytest.raises(ServiceError, match="nowhere"):
        export.run(LoadType.ALLOW_INSERT, "id,name,amount\n3,a,1\n")
    export.staging = None
    assert (export.rows(), export.left(), export.tables) == (before, [], [])
    done = export.run(
        LoadType.ALLOW_INSERT, "id,comment\n3,a\n", "id int, comment string", fields=Fields(excludes=("Comment",))
    )
    assert done["inserted"] == 1


def test_a_column_of_a_type_that_no_table_has_is_named(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS id, array(1) AS list, struct(1 AS a) AS pair")
    table = [DatabaseColumn(name, "text", "STRING", True) for name in frame.columns]
    export = ExportRecord(target=orders(LoadType.INSERT))
    for type_, named in {"mysql": "list, which is array<int>", "postgres": "pair, which is struct<a:int>"}.items():
        columns = ExportColumns(export=export, dialect=DIALECTS[type_], table=table, timezone=ZoneInfo("UTC"))
        with pytest.raises(ExportRefusedError, match=rf"no column takes {named}\. Leave it out by fields"):
            columns.fit(frame, None)


def test_an_hour_that_comes_twice_is_the_time_of_two_instances() -> None:
    def find(at: str, kind: str = "timestamp", hours: int = 1) -> str:
        export = ExportRecord(target=orders(LoadType.REPLACE, instance_column="at"), pace=timedelta(hours=hours))
        table, zone = [DatabaseColumn("at", kind, "TIMESTAMP", True)], ZoneInfo("Europe/Berlin")
        columns = ExportColumns(export=export, dialect=DIALECTS["postgres"], table=table, timezone=zone)
        found = columns.find_instance(parse_datetime(at), ZoneInfo("UTC"))
        assert found is not None
        return found.text

    for at in ("2026-10-25T00:00Z", "2026-10-25T01:00Z"):
        with pytest.raises(ExportRefusedError, match="two instances have the same at, since 02:00 comes twice"):
            find(at)
    assert find("2026-10-25T02:00Z") == "2026-10-25 03:00:00"
    assert find("2026-10-25T00:00Z", hours=2) == "2026-10-25 02:00:00"
    assert find("2026-10-25T01:00Z", "timestamptz") == "2026-10-25 01:00:00 UTC"


def test_times_are_those_of_the_datasource_whatever_the_machine_has(export: _Export) -> None:
    clock, moment = (
        ("datetime(6)", "timestamp(6) NULL") if export.shop.type == "mysql" else ("timestamp", "timestamptz")
    )
    if export.shop.type == "mysql":
        export.shop = replace(export.shop, url=f"{export.shop.url}?sessionVariables=time_zone='+05:00'")
    export.shop.run(f"ALTER TABLE orders ADD clock {clock}, ADD moment {moment}, ADD raw {clock}")
    schema = "id int, day date, clock timestamp, moment timestamp, raw timestamp_ntz"
    content = (
        "id,day,clock,moment,raw\n1,2013-03-31,2013-03-31T01:30:00.250Z,2013-03-31T01:30:00Z,2013-03-31T02:30:00\n"
        "2,1582-10-04,1970-01-01T00:00:00Z,1980-01-01T00:00:00Z,\n"
    )
    export.run(LoadType.ALLOW_INSERT, content, schema, zone="Europe/Berlin")
    at = (
        "moment AT TIME ZONE 'UTC'"
        if export.shop.type == "postgres"
        else "CONVERT_TZ(moment, @@session.time_zone, '+00:00')"
    )
    told = [tuple(text and text.split(".")[0] for text in row) for row in export.rows(f"day, clock, {at}, raw")]
    assert told == [
        ("2013-03-31", "2013-03-31 03:30:00", "2013-03-31 01:30:00", "2013-03-31 02:30:00"),
        ("1582-10-04", "1970-01-01 01:00:00", "1980-01-01 00:00:00", None),
    ]
    done = export.run(LoadType.REPLACE, "id\n5\n", "id int", key="", zone="Europe/Berlin", instance_column="clock")
    assert (done["deleted"], str(export.rows("id, clock")[-1][1])[:19]) == (0, "2013-11-03 05:00:00")


def test_texts_become_what_a_column_of_postgres_has(
    machine: JavaMachine, spark: SparkSession, shop_postgres: Shop, tmp_path: Path
) -> None:
    shop_postgres.run(
        "CREATE TYPE mood AS ENUM ('good', 'bad')", "CREATE TABLE orders (id uuid PRIMARY KEY, m mood, j jsonb, n int)"
    )
    export = _Export(machine, spark, shop_postgres, tmp_path)
    one, two = "6a2f41a3-c54c-fce8-32d2-0324e1c32e22", "6a2f41a3-c54c-fce8-32d2-0324e1c32e23"
    content = f"id|m|j|n\n{one}|good|[1]|7\n{two}|||-\n".replace("|", ",")
    export.run(LoadType.INSERT, content, "id string, m string, j string, n string", key="", null_other="-")
    assert export.rows("m, j, n") == [("good", "[1]", "7"), (None, None, None)]


def test_a_worker_that_was_overtaken_writes_nothing(export: _Export) -> None:
    calls: list[int] = []

    def guard(last: int) -> None:
        calls.append(1)
        if len(calls) == last:
            raise ServiceError(service="the lease", reason="it was taken over", next_step="-")

    before = export.rows()
    for last in (1, 2, 3):
        calls.clear()
        export.guard = partial(guard, last)
        with pytest.raises(ServiceError, match="taken over"):
            export.run(LoadType.ALLOW_INSERT, "id,name,amount\n2,zwei,2.50\n3,,3\n")
        assert (export.rows(), export.left(), export.tables) == (before, [], [])


def test_who_holds_the_table_for_too_long_is_named(
    export: _Export, machine: JavaMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "LOCK_SECONDS", 1)
    before, is_postgres = export.rows(), export.shop.type == "postgres"
    with open_connection(machine, export.shop.address) as other:
        _open_rival(other).lock()
        setting = "idle_in_transaction_session_timeout = 0" if is_postgres else "wait_timeout = 100"
        other.execute(f"SET SESSION {setting}")
        who = r"process \d+ of shop \(.*idle in transaction\)" if is_postgres else r"connection \d+ of shop from"
        with pytest.raises(ServiceError, match=f"the table orders of .*: it was locked for 1 seconds by {who}"):
            export.run(LoadType.ALLOW_INSERT, "id,name,amount\n3,,3\n")
    assert (export.rows(), export.left()) == (before, [])


def test_a_worker_that_is_frozen_in_its_transaction_is_cut_off_and_one_that_waits_for_spark_is_not(
    export: _Export, machine: JavaMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "LOCK_SECONDS", 1)
    url, is_postgres = export.shop.url, export.shop.type == "postgres"
    impatient = "&options=-c%20idle_session_timeout=1s" if is_postgres else "?sessionVariables=wait_timeout=1"
    with open_connection(machine, export.shop.address) as other:
        frozen = _open_rival(other)
        frozen.lock()
        frozen.delete("id", 1)
        monkeypatch.setattr(moving, "LOCK_SECONDS", 60)
        export.shop, export.guard = replace(export.shop, url=f"{url}{impatient}"), lambda: sleep(1.5)
        assert export.run(LoadType.ALLOW_INSERT, "id,name,amount\n1,eins,1\n")["updated"] == 1
        with pytest.raises(ServiceError, match="cannot be reached"):
            other.commit()
    assert export.rows()[0] == ("1", "eins", "1.00")


def _open_rival(other: DatabaseConnection) -> moving.Move:
    rival = moving.MOVES[other.address.type](other, "orders", "-", ["id"], ["id"])
    rival.begin()
    return rival


def test_a_table_without_transactions_is_refused(
    machine: JavaMachine, spark: SparkSession, shop_mariadb: Shop, tmp_path: Path
) -> None:
    shop_mariadb.run("CREATE TABLE orders (id int PRIMARY KEY) ENGINE=MyISAM")
    with pytest.raises(ExportRefusedError, match="its engine MyISAM has no transactions"):
        _Export(machine, spark, shop_mariadb, tmp_path).run(LoadType.ALLOW_INSERT, "id\n1\n", "id int")
