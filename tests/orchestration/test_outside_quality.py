"""Rows of what comes from outside are judged by a run before anybody reads them."""

import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from feed_assets import Cluster, Feed, process
from feed_assets.context.errors import InstanceNotThereError
from feed_assets.entities.common import Kind
from feed_assets.explain.explanations import explain_instance
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.settings import load_settings
from feed_assets.testing import open_project
from feed_assets.testing.projects import Project
from feed_assets.timing.dates import NEVER, parse_datetime, render_datetime
from tests.drills import drill, sized
from tests.spark_session import spark

__all__ = ["spark"]

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.* is currently in (beta|preview)")]

ON = {"here": {"validity": {"start": "2026-01-01T00:00Z", "end": "2026-01-04T00:00Z"}}}
HERE = Cluster(name="here", storage="s3://never-asked")
DAILY = {"frequency": "days(1)", "clusters": ON, "format": "csv"}
CUSTOMERS = Feed.model_validate(
    {**DAILY, "name": "customers", "schema": "id bigint", "locations": {"data": "/customers/${YEAR}${MONTH}${DAY}"}}
)
ORDERS = Feed.model_validate(
    {
        **DAILY,
        "name": "orders",
        "schema": "id bigint, customer bigint, amount double",
        "locations": {"data": "/orders/${YEAR}${MONTH}${DAY}"},
        "quality": {
            "rules": {"has-id": "id IS NOT NULL"},
            "unique": ["id"],
            "in_feed": {"customer": "customers.id"},
            "aggregates": {"paid": "sum(amount) > 0"},
            "compare": {"volume": {"to": "latest(1)", "at_least": 0.5, "at_most": 2}},
        },
    }
)
SUMS = Feed.model_validate({**DAILY, "name": "sums", "locations": {"data": "/sums/${YEAR}${MONTH}${DAY}"}})


RATES = Feed.model_validate(
    {
        "name": "rates",
        "instances": "current",
        "format": "csv",
        "schema": "id bigint, rate double",
        "availability_flag": "_SUCCESS",
        "clusters": {"here": {"validity": {"start": "2026-01-01T00:00Z"}}},
        "locations": {"data": "/rates"},
        "quality": {"rules": {"positive": "rate > 0"}},
    }
)


@process(
    clusters=ON,
    frequency="days(1)",
    inputs={"rates": {"feed": "rates", "start": "latest(0)", "end": "latest(0)"}},
    outputs={"sums": {"feed": "rated", "instance": "now(0,0)"}},
    trigger={"on_update": "rerun"},
)
def rate(rates):  # type: ignore[no-untyped-def]
    """Add up."""
    return rates.groupBy().sum("rate").toDF("total")


RATED = Feed.model_validate({**DAILY, "name": "rated", "locations": {"data": "/rated/${YEAR}${MONTH}${DAY}"}})


@process(
    clusters=ON,
    frequency="days(1)",
    inputs={"orders": {"feed": "orders", "start": "now(0,0)", "end": "now(0,0)"}},
    outputs={"sums": {"feed": "sums", "instance": "now(0,0)"}},
)
def add_up(orders):  # type: ignore[no-untyped-def]
    """Add up."""
    return orders.groupBy().sum("amount").toDF("total")


SECOND_PATH = "${YEAR}${MONTH}${DAY}/${HOUR}${MINUTE}${SECOND}"
LOADED = Feed.model_validate(
    {
        "name": "loaded",
        "instances": "as-they-come",
        "format": "csv",
        "clusters": {"here": {"validity": {"start": "2026-01-01T00:00Z"}}},
        "locations": {"data": f"/loaded/{SECOND_PATH}"},
    }
)


@process(
    clusters={"here": {"validity": {"start": "2026-01-01T00:00Z"}}},
    trigger={"from": "earliest"},
    inputs={"orders": {"feed": "orders", "take": "new"}},
    outputs={"loaded": {"feed": "loaded", "instance": "now(0,0)"}},
)
def load(orders):  # type: ignore[no-untyped-def]
    """Add up."""
    return orders.groupBy().sum("amount").toDF("total")


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Iterator[Project]:
    settings = load_settings({}, environ={}, start=tmp_path)
    with open_project(
        "2026-01-01T00:00Z", entities=[HERE, CUSTOMERS, ORDERS, SUMS, add_up], settings=settings, spark=spark
    ) as project:
        project.put("customers", "2026-01-01T00:00Z", {"all.csv": "id\n1\n2\n"})
        yield project


GOOD = "id,customer,amount\n1,1,5\n2,2,6\n"
FIRST, SECOND = "2026-01-01T00:00Z", "2026-01-02T00:00Z"


def jobs(project: Project) -> list[tuple[str, bool]]:
    return [(run.job, run.succeeded) for run in project.run() if run.job == "instances_here"]


def events(project: Project) -> list[dg.AssetCheckEvaluation]:
    kind = dg.DagsterEventType.ASSET_CHECK_EVALUATION
    records = project.instance.get_event_records(dg.EventRecordsFilter(kind, dg.AssetKey(["here", "orders"])))
    found = [each.event_log_entry.dagster_event for each in records]
    return [each.event_specific_data for each in found if each is not None]  # type: ignore[misc]


def why(project: Project, instance: str) -> str:
    """Return why an instance of the orders is as it is."""
    context = project._context()
    with context.read() as connection:
        time = parse_datetime(instance)
        return explain_instance(context, connection, Kind.FEED, "orders", "here", time).reasons[0].text


def test_good_rows_are_judged_by_one_run_and_read(project: Project) -> None:
    project.put("orders", FIRST, {"a.csv": GOOD})
    assert jobs(project) == [("instances_here", True)]
    assert project.status("add-up", FIRST) == "SUCCEEDED"
    assert jobs(project) == []


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        drill(
            "id,customer,amount\n,1,5\n2,2,6\n",
            "1 of 2 rows are good (50 %), 100 % must be; broken: has-id 1",
            id="a row without a key",
        ),
        pytest.param(
            "id,customer,amount\n1,1,5\n2,9,6\n",
            "1 of 2 rows are good (50 %), 100 % must be; broken: customer 1",
            id="a reference",
        ),
        drill(
            "id,customer,amount\n1,1,-5\n2,2,-6\n",
            "not good enough: paid: sum(amount) > 0 does not hold; 2 of 2 rows are good (100 %)",
            id="an aggregate",
        ),
    ],
)
def test_bad_rows_never_reach_a_reader_until_other_content_comes(project: Project, rows: str, reason: str) -> None:
    folder = project.put("orders", FIRST, {"a.csv": rows})
    assert jobs(project) == [("instances_here", True)]
    assert jobs(project) == []
    assert project.status("add-up", FIRST) == "WAITING"
    assert reason in why(project, FIRST)
    with pytest.raises(InstanceNotThereError):
        project.load("orders", FIRST)
    (folder / "a.csv").write_text(GOOD)
    project.set_clock("2026-01-01T01:00Z")
    assert jobs(project) == [("instances_here", True)]
    assert project.status("add-up", FIRST) == "SUCCEEDED"


def test_an_instance_unlike_the_one_before_is_held_back_until_somebody_accepts_it(project: Project) -> None:
    project.put("orders", FIRST, {"a.csv": GOOD})
    jobs(project)
    project.set_clock(SECOND)
    project.put("orders", SECOND, {"a.csv": GOOD + "3,1,1\n4,1,1\n5,1,1\n"})
    assert jobs(project) == [("instances_here", True)]
    assert project.status("add-up", SECOND) == "WAITING"
    said = "volume: count(*) is 5, and must be at least 0.5 times and at most 2 times the 2 of 2026-01-01T00:00Z"
    assert said in why(project, SECOND)
    assert project.notify("orders", SECOND, accept="a sale").told.endswith("accepted as it is, 49 bytes in 1 file")
    assert jobs(project) == []
    assert project.status("add-up", SECOND) == "SUCCEEDED"


def test_each_version_of_a_current_instance_is_judged_before_it_is_read(tmp_path: Path, spark: SparkSession) -> None:
    settings = load_settings({}, environ={}, start=tmp_path)
    with open_project(FIRST, entities=[HERE, RATES, RATED, rate], settings=settings, spark=spark) as project:
        folder = project.put("rates", FIRST, {"a.csv": "id,rate\n1,5\n"})
        assert jobs(project) == [("instances_here", True)]
        assert project.status("rate", FIRST) == "SUCCEEDED"
        for minute, (rows, total, runs) in enumerate((("1,-5", 5, 1), ("1,7", 7, 1), ("1,7", 7, 0)), 1):
            (folder / "a.csv").write_text(f"id,rate\n{rows}\n")
            project.set_clock(f"2026-01-01T00:{10 * minute}Z")
            assert jobs(project) + jobs(project) == [("instances_here", True)] * runs  # the look is its own sensor
            assert float(project.load("rated", FIRST).collect()[0][0]) == total


BAD = {
    "has-id": "id,customer,amount\n,1,5\n2,2,6\n",
    "customer": "id,customer,amount\n3,1,5\n4,9,6\n",
    "paid": "id,customer,amount\n5,1,-5\n6,2,-6\n",
    "volume": "id,customer,amount\n" + "".join(f"{number},1,1\n" for number in range(10, 15)),
}


@pytest.mark.sample
@pytest.mark.parametrize("leave", [pytest.param(False, id="moves"), drill(True, id="leaves")])
def test_each_kind_of_rule_stops_a_file_of_an_inbox(tmp_path: Path, spark: SparkSession, leave: bool) -> None:
    orders = Feed.model_validate(
        {
            **ORDERS.model_dump(by_alias=True, exclude_unset=True, exclude={"frequency"}),
            "instances": "as-they-come",
            "inbox": {"directory": "/in/orders", "pattern": "*.csv", "leave": leave},
            "locations": {"data": f"/orders/{SECOND_PATH}"},
            "clusters": LOADED.clusters,
        }
    )
    settings = load_settings({}, environ={}, start=tmp_path)
    everything = [HERE, CUSTOMERS, orders, LOADED, load]
    with open_project(FIRST, entities=everything, settings=settings, spark=spark) as project:
        inbox = project.put("customers", FIRST, {"all.csv": "id\n1\n2\n"}).parents[1] / "in" / "orders"
        inbox.mkdir(parents=True)

        def come(minute: int, name: str, rows: str) -> str:
            """Put a file into the inbox, and let ticks and runs do what they do; return the instance."""
            project.set_clock(f"2026-01-01T01:{minute:02}Z")
            (inbox / name).write_text(rows)
            written = project.now.timestamp() - 120
            os.utime(inbox / name, (written, written))
            assert ("instances_here", True) in jobs(project)
            return f"2026-01-01T01:{minute:02}Z"

        come(0, "good.csv", GOOD)
        assert read(project) == 11
        for minute, (rule, rows) in enumerate([*BAD.items()][: 1 if leave else sized(1, None)], 10):
            instance = come(minute, f"{rule}.csv", rows)
            assert rule in why(project, instance)
            with pytest.raises(InstanceNotThereError):
                project.load("orders", instance)
        assert jobs(project) == []
        assert read(project) == 11
        project.notify("orders", "2026-01-01T01:10Z", accept="a gap")
        come(20, "has-id.csv", "id,customer,amount\n1,1,5\n2,2,7\n")
        assert read(project) == 11 + 11 + 12
        assert {path.name for path in inbox.iterdir()} == ({"good.csv", "has-id.csv"} if leave else set())


def read(project: Project) -> float:
    """Return the sum of what was loaded."""
    context = project._context()
    with context.read() as connection:
        times = FeedInstances(connection).available_times("loaded", "here", parse_datetime(FIRST), NEVER)
    rows = [row for time in times for row in project.load("loaded", render_datetime(time)).collect()]
    return sum(float(row.total) for row in rows)
