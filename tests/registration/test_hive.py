"""Instances at locations as partitions of a table of a real metastore, through their whole life, without Spark."""

import itertools
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.context.bulkheads import Bulkheads
from feed_assets.entities.feed import Feed
from feed_assets.explain.explanations import explain
from feed_assets.explain.records import ReasonCode
from feed_assets.instances.arrival.polling import apply_arrivals
from feed_assets.instances.attempts import attempts
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.records import FeedInstanceStatus
from feed_assets.log.removals.records import ItemOutcome
from feed_assets.registration.port import OWNER
from feed_assets.registration.registering import Registrations, unregister
from feed_assets.registration.ticks import apply_registrations
from feed_assets.registration.verifying import RegistrationQuery, repair_registrations, verify_registrations
from feed_assets.storage.errors import StorageAwayError
from feed_assets.storage.table.metastore import Metastore, Partition, Table
from feed_assets.storage.table.partitions import plain_location
from feed_assets.timing.dates import NEVER
from tests.context.contexts import about, context_of
from tests.instances.harness import START, LifecycleHarness, at, feed, process
from tests.retention.harness import RetentionHarness
from tests.servers import free_port
from tests.tables import Catalog

pytestmark = [pytest.mark.server, pytest.mark.spark]

_numbers = itertools.count()
ONE, TWO = at("01T01:00"), at("01T02:00")
EVERYTHING = RegistrationQuery(feed="clicks", cluster=None, start=None, end=None)
TABLE = "catalog:{database}:clicks#ds=${{YEAR}}-${{MONTH}}-${{DAY}};hour=${{HOUR}}"


def clicks(table: str | None, **more: object) -> Feed:
    given: dict[str, object] = {
        "name": "clicks",
        "frequency": "hours(1)",
        "format": "csv",
        "schema": "id string, n long",
        "options": {"header": "false"},
        "locations": {"data": "/clicks/${YEAR}-${MONTH}-${DAY}/${HOUR}"},
        "clusters": {"primary": {"validity": {"start": START}, "retention": {"limit": "days(2)"}}},
        "catalog_table": table,
    }
    return Feed.model_validate(given | more)


class Registering:
    """A feed with a table, what moves it, and the metastore."""

    def __init__(self, root: Path, port: int, *more: object, address: str | None = None) -> None:
        self.catalog, self.database = Catalog(port), f"registered_{next(_numbers)}"
        self.catalog.make_database(self.database, root / "warehouse")
        self.feed = clicks(TABLE.format(database=self.database))
        address = address or f"thrift://127.0.0.1:{port}"
        self.lifecycle = LifecycleHarness.of(root, self.feed, *more, catalog=address)  # type: ignore[arg-type]
        self.retention = RetentionHarness(lifecycle=self.lifecycle)

    def table(self) -> Table:
        found = self.catalog.find_table(self.database, "clicks")
        assert found is not None
        return found

    def partitions(self) -> dict[str, str]:
        """The locations of all partitions, below the folder of the feed."""
        table = self.table()
        found = self.catalog.find_partitions(table, self.catalog.partition_names(table, {}))
        base = f"{self.lifecycle.root.as_uri()}/primary/clicks/"
        return {table.render(each.values): plain_location(each.location).removeprefix(base) for each in found}

    def find(self, name: str) -> Partition:
        """The one partition whose name has a text."""
        table = self.table()
        names = [each for each in self.catalog.partition_names(table, {}) if name in each]
        (found,) = self.catalog.find_partitions(table, names)
        return found

    def planned(self) -> dict[datetime, str | None]:
        """Why what is on the agenda has failed."""
        with self.lifecycle.database.read() as connection:
            found = Registrations(connection).due([AgendaKind.REGISTRATION], "primary", NEVER, 100)
        return {each.nominal_time: each.reason for each in found}

    def verify(self, as_of: datetime) -> list[tuple[datetime, str]]:
        found = verify_registrations(
            self.lifecycle.context(as_of), RegistrationQuery(feed="clicks", cluster=None, start=None, end=None)
        )
        return [(each.nominal_time, each.reason) for each in found.differences]


@pytest.fixture
def registering(tmp_path: Path, metastore_port: int) -> Registering:
    return Registering(tmp_path, metastore_port)


def test_row_154_an_instance_is_a_partition_while_it_is_there(registering: Registering) -> None:
    harness, retention = registering.lifecycle, registering.retention
    harness.land("clicks", START, ONE)
    retention.arrive(ONE + timedelta(minutes=5))

    first = {"ds=2013-11-01/hour=00": "2013-11-01/00", "ds=2013-11-01/hour=01": "2013-11-01/01"}
    assert registering.partitions() == first
    described = registering.table().described
    assert [(each.name, each.type) for each in described.sd.cols] == [("id", "string"), ("n", "bigint")]
    assert registering.planned() == {}
    assert registering.verify(at("01T02")) == []

    retention.now = at("04")
    sweep = retention.sweep_now("clicks")
    assert retention.outcomes(sweep) == {ItemOutcome.EVICTED: 2}
    assert registering.partitions() == {}
    retention.undo(sweep)
    assert registering.partitions() == first
    harness.tick(at("04T01"))
    assert registering.partitions() == first
    assert registering.planned() == {}


READING = """
import sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False)
hive = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": sys.argv[1]}
session = builder.config(map=hive).getOrCreate()
print(session.table(sys.argv[2]).orderBy("hour").collect())
"""


@pytest.mark.drill
def test_row_154_spark_reads_the_rows_of_the_partitions(registering: Registering, metastore_port: int) -> None:
    harness = registering.lifecycle
    for time, text in ((START, "a,1\n"), (ONE, "b,2\n")):
        harness.land("clicks", time, text=text)
    harness.tick(TWO)
    arguments = (f"thrift://127.0.0.1:{metastore_port}", f"{registering.database}.clicks")
    command = [sys.executable, "-c", READING, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=harness.root)
    day = "ds='2013-11-01'"
    assert done.stdout.splitlines()[-1] == (f"[Row(id='a', n=1, {day}, hour='00'), Row(id='b', n=2, {day}, hour='01')]")


def test_what_the_table_has_else_is_named_and_repaired(registering: Registering, tmp_path: Path) -> None:
    harness = registering.lifecycle
    harness.land("clicks", START, ONE, TWO)
    harness.tick(at("01T03"))
    table, catalog = registering.table(), registering.catalog
    dropped, moved = (registering.find("hour=00"), registering.find("hour=01"))
    catalog.drop_partitions(table, [dropped])
    catalog.alter_partition(table, moved, (tmp_path / "elsewhere").as_uri())

    assert registering.verify(at("01T03")) == [
        (START, "it is AVAILABLE, and no partition of the table"),
        (ONE, "its partition is not in a place of the feed, and stays as it is until somebody drops it"),
    ]
    context = harness.context(at("01T03"))
    planned = repair_registrations(context.by("ann", dry_run=True), EVERYTHING)
    assert (len(planned.differences), planned.has_failed, len(registering.partitions())) == (2, False, 2)
    repaired = repair_registrations(context.by("ann"), EVERYTHING)
    assert [each.repaired for each in repaired.differences] == [True, False]
    assert (repaired.has_failed, registering.partitions()["ds=2013-11-01/hour=00"]) == (True, "2013-11-01/00")
    assert registering.find("hour=01").location.endswith("/elsewhere")

    harness.tick(at("01T04"))
    assert list(registering.planned()) == [ONE]
    assert "points to" in (registering.planned()[ONE] or "")


def test_partitions_that_the_record_does_not_have_are_named_and_dropped(registering: Registering) -> None:
    harness, root = registering.lifecycle, registering.lifecycle.root / "primary/clicks"
    harness.land("clicks", START, ONE)
    harness.tick(TWO)
    table, catalog = registering.table(), registering.catalog
    catalog.add_partition(table, ["2013-11-01", "07"], (root / "2013-11-01/07").as_uri())
    catalog.add_partition(table, ["once more", "01"], (root / "2013-11-01/01").as_uri())
    catalog.add_partition(table, ["elsewhere", "01"], root.as_uri())
    told = "is in a place of the feed, and no instance that is recorded there"
    found = [(at("01T07"), f"ds=2013-11-01/hour=07 {told}"), (ONE, f"ds=once more/hour=01 {told}")]
    assert registering.verify(at("01T08")) == found
    assert registering.verify(at("01T06")) == found[1:]
    assert not repair_registrations(harness.context(at("01T08")).by("ann"), EVERYTHING).has_failed
    assert registering.verify(at("01T08")) == []
    assert list(registering.partitions()) == ["ds=2013-11-01/hour=00", "ds=2013-11-01/hour=01", "ds=elsewhere/hour=01"]


def test_of_a_table_that_a_feed_had_nothing_of_its_own_is_left(registering: Registering) -> None:
    harness, table = registering.lifecycle, TABLE.format(database=registering.database)

    def declare(text: str | None, *names: str) -> list[list[str]]:
        harness.declare(*([clicks(text)] if text != "none" else []))
        tick = harness.open_tick(TWO)
        apply_arrivals(tick)
        apply_registrations(tick)
        found = [registering.catalog.find_table(registering.database, name) for name in names]
        return [registering.catalog.partition_names(each, {}) for each in found if each is not None]

    harness.land("clicks", START)
    first, others = ["ds=2013-11-01/hour=00"], ["ds=others/hour=1"]
    assert declare(table, "clicks") == [first]
    registering.catalog.add_partition(registering.table(), ["others", "1"], (harness.root / "others").as_uri())
    assert declare("none", "clicks") == [[*first, *others]]  # a feed that is deleted keeps its files, too
    assert declare(table.replace(":clicks", ":other"), "clicks", "other") == [others, first]
    assert declare(table.replace(":clicks#ds=", ":other#ds=day "), "other") == [["ds=day 2013-11-01/hour=00"]]
    assert declare(None, "other") == [[]]
    assert declare(table.replace(":clicks", ":other"), "other") == [first]


def test_a_catalog_that_is_away_keeps_nobody_waiting_and_is_tried_again(tmp_path: Path, metastore_port: int) -> None:
    address = f"thrift://127.0.0.1:{free_port()}"
    registering = Registering(tmp_path, metastore_port, address=address)
    harness = registering.lifecycle
    harness.land("clicks", START)
    bulkheads = Bulkheads("primary", FrozenClock(ONE))
    apply_arrivals(harness.open_tick(ONE, bulkheads=bulkheads))
    apply_registrations(harness.open_tick(ONE, bulkheads=bulkheads))
    bulkheads.save(harness.database)

    assert harness.feed_statuses("clicks")[START] is FeedInstanceStatus.AVAILABLE
    assert "does not answer" in (registering.planned()[START] or "")
    (explained,) = about(explain, context_of(harness, ONE), "clicks", START).items
    (reason,) = [each.text for each in explained.reasons if each.code is ReasonCode.REGISTRATION]
    assert reason.startswith(f"it is not registered in {registering.database}.clicks: ")
    assert "it is tried again at 2013-11-01T01:" in reason

    harness.catalog = f"thrift://127.0.0.1:{metastore_port}"
    harness.declare(registering.feed)
    harness.tick(TWO)
    assert registering.partitions() == {"ds=2013-11-01/hour=00": "2013-11-01/00"}
    assert registering.planned() == {}


def test_retention_removes_nothing_that_the_catalog_still_shows(
    registering: Registering, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, retention = registering.lifecycle, registering.retention
    harness.land("clicks", START)
    retention.arrive(ONE)
    retention.now = at("04")

    def refuse(*_: object) -> None:
        raise StorageAwayError(store="thrift://here", path="", reason="it is away", next_step="Wait.")

    with monkeypatch.context() as patch:
        patch.setattr(Metastore, "drop_partitions", refuse)
        sweep = retention.sweep_now("clicks")
    (result,) = retention.results(sweep).values()
    assert (result.outcome, "could not be dropped" in (result.reason or "")) == (ItemOutcome.REFUSED, True)
    assert harness.folder("clicks", START).exists()
    harness.tick(at("04T01"))
    assert (registering.partitions(), registering.verify(at("04T01"))) == (
        {"ds=2013-11-01/hour=00": "2013-11-01/00"},
        [],
    )


def test_a_sweep_that_is_killed_after_the_drop_leaves_nothing_wrong_for_long(registering: Registering) -> None:
    harness, retention = registering.lifecycle, registering.retention
    harness.land("clicks", START)
    retention.arrive(ONE)
    record = harness.feed("clicks")
    unregister(retention.context(at("04")), record, record, [START])
    assert registering.partitions() == {}
    assert registering.verify(at("04")) == [(START, "it is AVAILABLE, and no partition of the table")]
    harness.tick(at("04T00:02"))
    assert registering.partitions() == {"ds=2013-11-01/hour=00": "2013-11-01/00"}


def test_a_publication_is_registered_before_it_is_recorded(
    tmp_path: Path, metastore_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = process("make", inputs={"raw": "now(0,0)"}, outputs={"clicks": "now(0,0)"})
    registering = Registering(tmp_path, metastore_port, feed("raw"), made)
    harness, publish = registering.lifecycle, {"ds=2013-11-01/hour=00": "2013-11-01/00"}
    harness.land("raw", START)
    harness.tick(ONE)

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(attempts.EventLog, "append", kill)
        with pytest.raises(KeyboardInterrupt):
            harness.run("make", START, ONE)
    assert (registering.partitions(), harness.feed_statuses("clicks")) == (publish, {})

    harness.run("make", START, ONE)
    assert (registering.partitions(), registering.verify(ONE)) == (publish, [])
    table, partition = registering.table(), registering.find("hour=00")
    registering.catalog.put_parameters(table, partition, {"numRows": "1"})
    harness.run("make", START, TWO)
    assert "numRows" not in registering.find("hour=00").described.parameters


def test_where_no_plain_table_can_be_it_is_said(registering: Registering, tmp_path: Path) -> None:
    harness, keys = registering.lifecycle, [("ds", "string"), ("hour", "int")]
    harness.land("clicks", START)
    parameters = {"table_type": "ICEBERG"}
    registering.catalog.make_table(registering.database, "clicks", tmp_path / "x", keys, parameters=parameters)
    said = []
    own, nowhere = (TABLE.format(database=database) for database in (registering.database, "nowhere"))
    for declared in (clicks(own), clicks(nowhere), clicks(own.replace(":clicks", ":other"), options={})):
        harness.declare(declared)
        bulkheads = Bulkheads("primary", FrozenClock(ONE))
        apply_arrivals(harness.open_tick(ONE, bulkheads=bulkheads))
        apply_registrations(harness.open_tick(ONE, bulkheads=bulkheads))
        said.append(registering.planned()[START] or "")
    assert "it is a table of Iceberg" in said[0]
    assert "there is no database 'nowhere' in the catalog" in said[1]
    assert "none is made for csv with a header line, a row for Spark. Make the table" in said[2]
    assert registering.partitions() == {}


@pytest.mark.parametrize("kind", ["EXTERNAL_TABLE", "MANAGED_TABLE"])
def test_a_table_that_others_fill_is_refused(registering: Registering, tmp_path: Path, kind: str) -> None:
    harness, catalog, keys = registering.lifecycle, registering.catalog, [("ds", "string"), ("hour", "int")]
    table = catalog.make_table(registering.database, "clicks", tmp_path / "others", keys, kind=kind)
    if kind == "EXTERNAL_TABLE":
        catalog.add_partition(table, ["2012-01-01", "1"], (tmp_path / "others/1").as_uri())
    harness.land("clicks", START)
    bulkheads = Bulkheads("primary", FrozenClock(ONE))
    apply_arrivals(harness.open_tick(ONE, bulkheads=bulkheads))
    apply_registrations(harness.open_tick(ONE, bulkheads=bulkheads))
    why = registering.planned()[START] or ""
    assert ("others fill the table" if kind == "EXTERNAL_TABLE" else "is a managed table") in why
    assert len(registering.partitions()) == (kind == "EXTERNAL_TABLE")


def test_a_table_of_which_all_is_the_feeds_own_gets_its_new_name(registering: Registering) -> None:
    harness = registering.lifecycle
    harness.land("clicks", START)
    harness.tick(ONE)
    registering.catalog.put_parameter(registering.table(), OWNER, "former@primary")
    harness.land("clicks", ONE)
    harness.tick(TWO)
    assert registering.table().parameters[OWNER] == "clicks@primary"
    assert len(registering.partitions()) == 2
