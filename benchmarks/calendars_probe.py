"""Measures the calendar page of a feed whose instances are there but for each fiftieth, and the question that Dagster's
own page of an asset asks for its partitions, with the same of them materialized. Arguments: folder, hours, repeats.
"""

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

import dagster as dg
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster_webserver.app import create_app_from_workspace_process_context

from benchmarks.searching_peer import serving
from feed_assets.log.events import EventLog
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedEventKind, FeedInstance, FeedInstanceStatus, NewFeedEvent
from feed_assets.server.application import build_application
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database, open_database

START = datetime(2013, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOLE = 50
PAGE = f"/ui/feed/weather/calendar?year={START.year}"
_STATUSES = """
assetPartitionStatuses {
  ... on TimePartitionStatuses { ranges { status startTime endTime startKey endKey } }
  ... on DefaultPartitionStatuses {
    materializedPartitions failedPartitions unmaterializedPartitions materializingPartitions
  }
}
"""
_ASKED = "query Health($key: AssetKeyInput!) {{ assetNodeOrError(assetKey: $key) {{ ... on AssetNode {{ {} }} }} }}"
HEALTH = _ASKED.format(f"partitionKeysByDimension {{ name type partitionKeys }} {_STATUSES}")
RANGES = _ASKED.format(_STATUSES)
_ENTITIES = """
kind: cluster
name: primary
storage: file://${PROJECT_ROOT}/data
---
kind: feed
name: weather
frequency: hours(1)
format: csv
locations: {data: "/weather/${YEAR}-${MONTH}-${DAY}/${HOUR}"}
"""


def build_peer(hours: int) -> dg.Definitions:
    """Build an asset with a partition for each hour."""
    partitions = dg.HourlyPartitionsDefinition(START, end_date=START + hours * HOUR)
    return dg.Definitions(assets=[dg.AssetSpec("weather", partitions_def=partitions)])


def main(folder: str, count: str, repeats: str) -> None:
    """Print the seconds of the page and of Dagster's answers."""
    hours, place = int(count), Path(folder)
    place.mkdir(parents=True)
    there = [START + number * HOUR for number in range(hours) if number % HOLE]
    module = place / "peer_definitions.py"
    module.write_text(f"from benchmarks.calendars_probe import build_peer\n\ndefs = build_peer({hours})\n")
    target = InProcessWorkspaceLoadTarget(
        InProcessCodeLocationOrigin(
            loadable_target_origin=LoadableTargetOrigin(python_file=str(module), working_directory=folder)
        )
    )
    with dg.DagsterInstance.local_temp() as instance:
        for moment in there:
            made = dg.AssetMaterialization("weather", partition=f"{moment:%Y-%m-%d-%H:%M}")
            instance.report_runless_asset_event(made)
        with (
            WorkspaceProcessContext(instance, target) as process,
            serving(create_app_from_workspace_process_context(process)) as connection,
        ):
            theirs, ranges = (
                [_time(partial(ask_webserver, connection, query)) for _ in range(int(repeats))]
                for query in (HEALTH, RANGES)
            )
    database = lay_state(place, hours, there)
    with serving(build_application(load_settings(start=(place,)), database)) as connection:
        ours = sorted(_time(partial(ask_page, connection, len(there))) for _ in range(int(repeats)))
    database.close()
    found = {"ours": median(ours), "p95": ours[len(ours) * 95 // 100], "holes": hours - len(there)}
    print(json.dumps(found | {"theirs": median(theirs), "ranges": median(ranges)}))


def lay_state(folder: Path, hours: int, there: list[datetime]) -> Database:
    """Declare the feed, and record its instances."""
    (folder / "entities").mkdir()
    validity = f"{{start: {START:%Y-%m-%dT%H:%MZ}, end: {START + hours * HOUR:%Y-%m-%dT%H:%MZ}}}"
    clusters = f"clusters: {{primary: {{validity: {validity}}}}}\n"
    (folder / "entities/all.yaml").write_text(_ENTITIES.lstrip() + clusters)
    (folder / "feed_assets.yaml").write_text(f"state: sqlite:///{folder}/state.db\n")
    database = open_database(f"sqlite:///{folder}/state.db")
    database.migrate()
    with database.begin() as connection:
        status = FeedInstanceStatus.AVAILABLE
        FeedInstances(connection).put(
            FeedInstance(feed="weather", cluster="primary", nominal_time=time, status=status, updated_at=time)
            for time in there
        )
        arrived = [
            NewFeedEvent(
                feed="weather",
                cluster="primary",
                nominal_time=time,
                kind=FeedEventKind.ARRIVED,
                origin="poll",
                recorded_at=time,
            )
            for time in there
        ]
        EventLog(connection).append(arrived)
    return database


def ask_webserver(connection: HTTPConnection, query: str) -> None:
    """Ask Dagster's webserver for the partitions of the asset."""
    asked = {"query": query, "variables": {"key": {"path": ["weather"]}}}
    connection.request("POST", "/graphql", json.dumps(asked), {"Content-Type": "application/json"})
    found = json.loads(connection.getresponse().read())["data"]["assetNodeOrError"]["assetPartitionStatuses"]
    if not found["ranges"]:
        raise LookupError(found)


def ask_page(connection: HTTPConnection, there: int) -> None:
    """Ask for the page."""
    connection.request("GET", PAGE)
    text = connection.getresponse().read().decode()
    if f"available {there:,}" not in text:
        raise LookupError(text)


def _time(question: partial[None]) -> float:
    """Return the seconds of a question that was asked once before."""
    question()
    begun = time.perf_counter()
    question()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main(*sys.argv[1:])
