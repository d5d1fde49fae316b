"""The final report of the demo: totals of the month, in the record and in Dagster, and the effect of retention."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from examples.flights.landing import LATE_DAY, NEW_YORK, Delivery
from examples.flights.overview import FeedOverview, feed_overview, iter_ran_without, process_overview
from examples.flights.place import LATE_PROCESS, ORIGIN, ROOT, UNTIL, Demo, DemoError, console
from feed_assets.plan.location import Location
from feed_assets.sql.database import Database, open_database
from feed_assets.timing.dates import render_datetime


def report(database: Database, location: Location, deliveries: Sequence[Delivery]) -> None:
    """Print the totals of the month."""
    landed = _landed_rows(deliveries)
    feeds = Table("feed", "instances", "available", "evicted", "missing", "rows", title="Feeds")
    overviews = [feed_overview(database, record, UNTIL) for record in location.plan.feeds.values()]
    for feed in overviews:
        name = feed.feed if feed.cluster == "primary" else f"{feed.feed} on {feed.cluster}"
        rows = feed.rows if feed.rows is not None else landed.get(feed.feed)
        counts = (feed.instances, feed.available, feed.evicted, len(feed.missing), "" if rows is None else rows)
        feeds.add_row(name, *map(str, counts))
    processes = Table("process", "instances", "succeeded", "median seconds", title="Processes")
    for record in location.plan.processes.values():
        process = process_overview(database, record, UNTIL)
        seconds = "" if process.seconds is None else f"{process.seconds:.2f}"
        processes.add_row(process.process, str(process.instances), str(process.succeeded), seconds)
    console.print(feeds, processes)
    for feed in overviews:
        _print_missing(feed)
    for record in location.plan.processes.values():
        for ran in iter_ran_without(database, location.plan, record):
            day = ran.nominal_time.astimezone(NEW_YORK)
            hours = "1 hour" if len(ran.missing) == 1 else f"{len(ran.missing)} hours"
            console.print(f"{ran.process} of {day:%d %B} ran without {hours} of its optional input {ran.input}")


def _landed_rows(deliveries: Sequence[Delivery]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for delivery in deliveries:
        feed = delivery.path.split("/", 1)[0]
        rows[feed] = rows.get(feed, 0) + len(delivery.rows)
    return rows


def _print_missing(feed: FeedOverview) -> None:
    if feed.missing:
        console.print(f"{feed.feed} never arrived for {', '.join(map(render_datetime, feed.missing))}")


def check_dagster(demo: Demo, location: Location) -> None:
    """Compare Dagster's own record with ours: every instance that ever existed is a materialized partition there.

    Raises:
        DemoError: they differ.
    """
    from dagster import DagsterInstance

    from feed_assets.orchestration.graph.layout import lay_out

    database = open_database(f"sqlite:///{demo.home / 'feed_assets.db'}")
    layout = lay_out(location.plan)
    with DagsterInstance.from_config(str(demo.home)) as instance:
        for _ in range(60):
            behind = []
            for record in location.plan.feeds.values():
                known = instance.get_materialized_partitions(layout.feed_asset(record.key)[0])
                feed = feed_overview(database, record, UNTIL)
                if len(known) != feed.available + feed.evicted:
                    behind.append(f"{record.feed}: {len(known)} of {feed.available + feed.evicted}")
            if not behind:
                console.print("Every instance is a materialized partition in Dagster.")
                return
            time.sleep(1)
    raise DemoError(f"Dagster's partitions do not agree: {'; '.join(behind)}")


def report_late(demo: Demo, location: Location) -> None:
    """Print Dagster's materializations of the day with late weather, one per attempt.

    Raises:
        DemoError: its output has not changed.
    """
    from dagster import AssetRecordsFilter, DagsterInstance

    from feed_assets.orchestration import names
    from feed_assets.orchestration.graph.layout import lay_out
    from feed_assets.orchestration.names import DATA_VERSION

    asset_key, grid = lay_out(location.plan).feed_asset((LATE_PROCESS, "primary"))
    day_filter = AssetRecordsFilter(asset_key=asset_key, asset_partitions=[grid.key(LATE_DAY)])
    table = Table("attempt", "weather hours", "bytes", "data version", "why", title=f"{LATE_PROCESS} of 1 November")
    versions = set()
    with DagsterInstance.from_config(str(demo.home)) as instance:
        records = instance.fetch_materializations(day_filter, limit=20, ascending=True).records
    for event in filter(None, (record.asset_materialization for record in records)):
        values = {name: value.value for name, value in event.metadata.items()}
        version = (event.tags or {})[DATA_VERSION]
        versions.add(version)
        inputs = values[names.META_INPUTS]
        hours = inputs["weather"] if isinstance(inputs, dict) else ""
        why = values.get(names.META_LATE_DATA, "its inputs were available")
        table.add_row(
            *(str(values[names.META_ATTEMPT]), str(hours), str(values[names.META_BYTES]), version[:19], str(why))
        )
    console.print(table)
    if len(versions) < 2:
        raise DemoError("the output of the day whose weather came late has not changed")


def report_copies(environment: Mapping[str, str]) -> None:
    """Print the copies on the second cluster, and verify all their bytes against their manifests.

    Raises:
        DemoError: a copy is missing, or differs from its source.
    """
    selection = ("daily-delays", "--start", render_datetime(ORIGIN))
    # Copies of repeated instances need not wait for their turn.
    _run_command(environment, "replication", "repair", *selection)
    status = _run_command(environment, "replication", "status", *selection)
    verified = _run_command(environment, "replication", "verify", *selection, "--deep")
    good = verified["counts"].get("in sync", 0)
    table = Table("feed", "from", "to", "files", "bytes", "seconds", "verified", title="Replication")
    for flow in status["flows"]:
        copies = sum(flow["counts"].values())
        figures = (flow["files"], flow["bytes"], round(flow["seconds"], 1), f"{good} of {copies}")
        table.add_row("daily-delays", flow["source"], flow["target"], *map(str, figures))
        if good != copies:
            raise DemoError(f"only {good} of {copies} copies to {flow['target']} equal their sources")
    console.print(table)


def report_retention(environment: Mapping[str, str]) -> None:
    """Evict the expired raw data as a person would (plan, approve, run), undo one feed, and print the result.

    Raises:
        DemoError: nothing was evicted, or the undone feed was not restored.
    """
    for sweep in _run_command(environment, "retention", "plan")["sweeps"]:
        for each in sweep["obstacles"]:
            feeds = ", ".join(feed["feed"] for feed in sweep["counts"])
            console.print(f"The sweep of {feeds} asks: {each['sentence']}")
        if sweep["obstacles"]:
            _run_command(environment, "retention", "approve", sweep["sweep_id"])
        _run_sweep(environment, sweep["sweep_id"])
    sweeps = [sweep for sweep in _run_command(environment, "retention", "list")["sweeps"] if sweep["state"] == "DONE"]
    table = Table("sweep", "by", "feed", "instances", "bytes", "evicted", title="Retention: raw feeds keep 20 days")
    for sweep in sorted(sweeps, key=lambda sweep: str(sweep["sweep_id"])):
        for feed in sweep["counts"]:
            numbers = (feed["instances"], feed["bytes"], feed["evicted"])
            table.add_row(sweep["sweep_id"], sweep["author"], feed["feed"], *map(str, numbers))
    evicted = [(sweep["sweep_id"], feed) for sweep in sweeps for feed in sweep["counts"] if feed["evicted"]]
    if not evicted:
        raise DemoError("retention has evicted nothing")
    sweep_id, feed = min(evicted, key=lambda each: each[1]["evicted"])
    undone = _run_command(environment, "retention", "undo", sweep_id, "--feed", feed["feed"])
    table.add_row(sweep_id, "undo", feed["feed"], "", "", f"{undone['restored']} are back")
    console.print(table)
    if undone["restored"] != feed["evicted"]:
        raise DemoError(f"only {undone['restored']} of {feed['evicted']} instances of sweep {sweep_id} were restored")


def _run_sweep(environment: Mapping[str, str], sweep_id: str) -> None:
    """Run a sweep, unless the schedule, which runs approved sweeps within a minute, was quicker."""
    try:
        _run_command(environment, "retention", "run", sweep_id)
    except DemoError:
        sweeps = _run_command(environment, "retention", "list")["sweeps"]
        if not any(sweep["sweep_id"] == sweep_id and sweep["state"] == "DONE" for sweep in sweeps):
            raise


def _run_command(environment: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    """Return the output of a `feed-assets` command."""
    done = subprocess.run(
        [sys.executable, "-m", "feed_assets", *arguments, "--output", "json"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DemoError(f"feed-assets {' '.join(arguments)}: {done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
