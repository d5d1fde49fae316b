"""From an empty folder to a project whose own assets read and make feeds, by commands of the documents only."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml

from tests.documents.newcomer import Newcomer, install
from tests.object_servers import BUCKET, run_s3
from tests.servers import run_tls_postgres

pytestmark = [pytest.mark.drill, pytest.mark.daemon, pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(3600)]

ASSETS = '''\
"""The feeds of the entities folder, and assets beside them."""

from pathlib import Path

import dagster as dg
import pandas as pd
from feed_assets import build_definitions, load_instance, locate_instance

FOLDER = Path(__file__).parent
daily = dg.DailyPartitionsDefinition("START", end_offset=1)


@dg.asset(key=["team", "costs"], partitions_def=daily)
def costs(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    rows = pd.DataFrame({"product": ["coffee", "tea", "cocoa"], "cost": [3.0, 2.0, 1.0]})
    folder = locate_instance(context, "costs", context.partition_key)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "costs.csv").write_text(rows.to_csv(index=False))
    return dg.MaterializeResult(metadata={"dagster/row_count": len(rows)})


@dg.asset(
    key=["team", "report"],
    partitions_def=daily,
    ins={"profit": dg.AssetIn(["primary", "profit"], input_manager_key="feed_io_manager")},
)
def report(context: dg.AssetExecutionContext, profit: pd.DataFrame) -> None:
    revenue = load_instance(context, "daily-revenue", as_="pandas")["revenue"].sum()
    (FOLDER / "report.txt").write_text(f"{revenue - profit['profit'].sum():g}")


defs = build_definitions(folder=FOLDER, assets=[costs, report])
'''

PROFIT = """\
kind: feed
name: costs
frequency: days(1)
format: csv
schema: "product string, cost double"
locations: {data: "/costs/${YEAR}-${MONTH}-${DAY}"}
clusters: {primary: {validity: {start: STARTT00:00Z}, produced_by: {asset: [team, costs]}}}
---
kind: feed
name: profit
frequency: days(1)
format: parquet
schema: "product string, profit double"
locations: {data: "/profit/${YEAR}-${MONTH}-${DAY}"}
clusters: {primary: {validity: {start: STARTT00:00Z}}}
---
kind: process
name: profit
frequency: days(1)
clusters: {primary: {validity: {start: STARTT00:00Z}}}
inputs:
  revenue: {feed: daily-revenue, start: "today(0,0)", end: "today(0,0)"}
  costs: {feed: costs, start: "today(0,0)", end: "today(0,0)"}
outputs: {profit: {feed: profit, instance: "today(0,0)"}}
workflow: {engine: sql, path: profit.sql}
"""

PROFIT_SQL = "SELECT product, revenue - cost AS profit FROM revenue JOIN costs USING (product)\n"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("newcomer"), "[s3]")


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where the orders of a project lie: in its folder `data`, or also in a bucket, by `deliver_orders.py`."""

    folder: Path
    person: Newcomer
    is_bucket: bool = False

    def days(self) -> list[str]:
        """The days whose orders are there from the beginning, and the next one."""
        found = sorted(each.name for each in (self.folder / "orders").iterdir())
        return [*found, str(date.fromisoformat(found[-1]) + timedelta(days=1))]

    def copy_orders(self, day: str, to: str) -> None:
        """Let the orders of a day arrive for another day: the data, and then the flag."""
        (self.folder / "orders" / to).mkdir()
        for name in ("orders.csv", "_SUCCESS"):
            shutil.copy(self.folder / "orders" / day / name, self.folder / "orders" / to / name)
        self.deliver(to)

    def deliver(self, *days: str) -> None:
        """Put orders, by default all, into the bucket, if there is one, as the project's README says."""
        if self.is_bucket:
            self.person.run("python", "deliver_orders.py", *days)


@pytest.fixture(params=["sqlite and a disk", "postgresql with tls and s3"])
def shop(request: pytest.FixtureRequest, programs: Path, tmp_path: Path) -> Iterator[tuple[Newcomer, Storage]]:
    """A new project, and its storage."""
    begin = Newcomer(folder=tmp_path, programs=programs)
    folder = tmp_path / "shop"
    if request.param == "sqlite and a disk":
        begin.run("feed-assets", "init", "shop")
        person = Newcomer(folder=folder, programs=programs)
        yield person, Storage(folder=folder / "data", person=person)
        return
    with run_tls_postgres() as url, run_s3() as server:
        begin.run("feed-assets", "init", "shop", "--postgres", url, "--storage", f"s3://{BUCKET}/feeds")
        options = {"region": "us-east-1", "endpoint_url": server.options["endpoint_url"]}
        with (folder / "entities" / "cluster.yaml").open("a") as cluster:
            yaml.safe_dump({"storage_options": options}, cluster)
        with (folder / ".env").open("a") as variables:
            variables.write("AWS_ACCESS_KEY_ID=anybody\nAWS_SECRET_ACCESS_KEY=anything\n")
        person = Newcomer(folder=folder, programs=programs)
        storage = Storage(folder=folder / "data", person=person, is_bucket=True)
        storage.deliver()
        yield person, storage


def test_a_newcomer_comes_from_an_empty_folder_to_assets_that_read_and_make_feeds(
    shop: tuple[Newcomer, Storage],
) -> None:
    person, storage = shop
    *days, today = storage.days()
    person.run("feed-assets", "validate", "--live")
    with person.dagster_dev() as dagster:
        seconds = dagster.wait_for("primary/daily-revenue", *days)
        print(f"{seconds:.0f} s from `dagster dev` to {len(days)} green days")
        waiting = person.run("feed-assets", "why", "daily-revenue", today)
        assert "feed orders on primary" in waiting
        storage.copy_orders(days[-1], today)
        person.run("feed-assets", "feed", "notify", "orders", today)
        dagster.wait_for("primary/daily-revenue", today)

    start = {"START": days[0]}
    write(person.folder / "definitions.py", ASSETS, start)
    write(person.folder / "entities" / "profit.yaml", PROFIT, start)
    write(person.folder / "profit.sql", PROFIT_SQL, {})
    person.run("feed-assets", "validate", "--live")
    materialize = ("dagster", "asset", "materialize", "-f", "definitions.py", "--partition", today, "--select")
    with person.dagster_dev() as dagster:
        person.run(*materialize, "team/costs")
        dagster.wait_for("primary/profit", today)
        person.run(*materialize, "team/report")
    assert (person.folder / "report.txt").read_text() == "6", "the costs of one coffee, one tea and one cocoa"


def test_the_tests_of_a_new_project_pass(programs: Path, tmp_path: Path) -> None:
    Newcomer(folder=tmp_path, programs=programs).run("feed-assets", "init", "shop")
    person = Newcomer(folder=tmp_path / "shop", programs=programs)
    (person.folder / ".env").unlink()  # as in CI
    person.run("feed-assets", "validate", "--strict")
    person.run("pytest")


def write(file: Path, text: str, values: dict[str, str]) -> None:
    for name, value in values.items():
        text = text.replace(name, value)
    file.write_text(text)
