"""The demo: a real month arrives on a fast clock, is processed on Spark and appears in Dagster.

Run by `make demo` and, with the UI left open, `make dev`. Everything it makes is below one folder.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from examples.flights.landing import LATE_DAY, Delivery, read_deliveries
from feed_assets.clock import Clock, SystemClock, open_clock
from feed_assets.operations.location import Location, load_location
from feed_assets.operations.overview import FeedOverview, feed_overview, iter_ran_without, process_overview
from feed_assets.settings import load_settings
from feed_assets.state.database import Database, open_database
from feed_assets.state.process_instances import ProcessInstances
from feed_assets.state.records import ProcessInstanceStatus
from feed_assets.timing.dates import render_datetime

ROOT = Path(__file__).resolve().parents[2]
DAGSTER_YAML = ROOT / "examples" / "dagster_home" / "sqlite" / "dagster.yaml"
MARKER = ".feed-assets-demo"
ORIGIN = datetime(2013, 11, 1, tzinfo=UTC)
LAST_DELIVERY = datetime(2013, 12, 1, 7, tzinfo=UTC)
UNTIL = datetime(2013, 12, 2, tzinfo=UTC)
REPLAY_END = datetime(2014, 2, 1, tzinfo=UTC)
"""Late data are looked for on the days after the month, so the clock goes on."""
START_UP = timedelta(seconds=12)
PATIENCE_SECONDS = 300
LATE_PROCESS = "daily-delays"
NEW_YORK = ZoneInfo("America/New_York")

console = Console()


class DemoError(Exception):
    """Why the demo could not do what it shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The folders and the address of one demo."""

    folder: Path
    port: int
    seconds: float

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def home(self) -> Path:
        return self.folder / "dagster_home"

    @property
    def log(self) -> Path:
        return self.folder / "dagster.log"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, real_start: datetime) -> dict[str, str]:
        """What Dagster's processes are told."""
        speed = (LAST_DELIVERY - ORIGIN).total_seconds() / self.seconds
        return {
            "DAGSTER_HOME": str(self.home),
            "FEED_ASSETS_ENTITIES": "examples/flights/entities",
            "FEED_ASSETS_VARIABLES__DATA_ROOT": str(self.data),
            "FEED_ASSETS_DEMO__REPLAY__ORIGIN": ORIGIN.isoformat(),
            "FEED_ASSETS_DEMO__REPLAY__REAL_START": real_start.isoformat(),
            "FEED_ASSETS_DEMO__REPLAY__SPEED": repr(speed),
            "FEED_ASSETS_DEMO__REPLAY__UNTIL": REPLAY_END.isoformat(),
        }

    def prepare(self) -> None:
        """Make the folders anew; a folder that is not a demo's is left alone."""
        if self.folder.exists():
            if not (self.folder / MARKER).exists():
                raise DemoError(f"{self.folder} exists and is no demo's folder. Name another with --folder.")
            shutil.rmtree(self.folder)
        self.data.mkdir(parents=True)
        self.home.mkdir()
        (self.folder / MARKER).touch()
        shutil.copy(DAGSTER_YAML, self.home / "dagster.yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 when every process instance of the month is materialized."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="where everything is put (%(default)s)")
    parser.add_argument("--port", type=int, default=3000, help="port of the UI (%(default)s)")
    parser.add_argument("--seconds", type=float, default=75, help="how long the month takes (%(default)s)")
    parser.add_argument("--keep-open", action="store_true", help="leave the UI open at the end, until Ctrl-C")
    options = parser.parse_args(arguments)
    demo = Demo(folder=options.folder.resolve(), port=options.port, seconds=options.seconds)
    try:
        run(demo, keep_open=options.keep_open)
    except DemoError as exc:
        console.print(f"[red]The demo failed:[/red] {exc}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def run(demo: Demo, *, keep_open: bool) -> None:
    """Start Dagster, let the month arrive, wait for the processes, report."""
    deliveries = read_deliveries()
    demo.prepare()
    real_start = SystemClock().now() + START_UP
    environment = demo.environment(real_start)
    settings = load_settings(environ=environment, start=ROOT)
    clock = open_clock(settings)
    location = load_location(settings, ORIGIN)
    if location.issues:
        raise DemoError("\n".join(issue.render() for issue in location.issues))
    console.print(f"November 2013 arrives in {demo.seconds:.0f} seconds. The UI is at [link]{demo.address}[/link]")
    with dagster(demo, environment) as server:
        wait_for_ui(demo, server)
        land(demo, [delivery for delivery in deliveries if not delivery.is_late], clock, server)
        database = open_database(f"sqlite:///{demo.home / 'feed_assets.db'}")
        attempts = land_late(demo, [delivery for delivery in deliveries if delivery.is_late], database, server)
        wait_for_processes(database, location, server)
        wait_for_attempt(database, attempts + 1, server)
        report(database, location, deliveries)
        check_dagster(demo, location)
        report_late(demo, location)
        if keep_open:
            console.print(f"The UI stays open at {demo.address}. Ctrl-C ends it.")
            server.wait()
    console.print(f"Everything is in {demo.folder}; `make dev` shows it in the UI at {demo.address}.")


@contextmanager
def dagster(demo: Demo, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Webserver, daemon and code location, ended as one group."""
    command = [sys.executable, "-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(demo.port)]
    with demo.log.open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield server
    finally:
        _end_group(server)


def _end_group(server: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(server.pid, number)
            server.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def wait_for_ui(demo: Demo, server: subprocess.Popen[bytes]) -> None:
    """Until the webserver answers."""
    for _ in range(120):
        _require_running(server, demo)
        try:
            with urllib.request.urlopen(f"{demo.address}/server_info", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise DemoError(f"the UI did not come up; see {demo.log}")


def land(demo: Demo, deliveries: Sequence[Delivery], clock: Clock, server: subprocess.Popen[bytes]) -> None:
    """Let every delivery land at its time."""
    with Progress(console=console) as progress:
        task = progress.add_task("landing", total=len(deliveries))
        for delivery in deliveries:
            while (now := clock.now()) < delivery.lands_at:
                progress.update(task, description=f"landing {now:%d %b %H}h")
                _require_running(server, demo)
                time.sleep(0.1)
            delivery.land(demo.data)
            progress.advance(task)


def land_late(demo: Demo, deliveries: Sequence[Delivery], database: Database, server: subprocess.Popen[bytes]) -> int:
    """Let the hours that were kept back land when their day has been processed; the attempts made at it until then."""
    attempts = wait_for_attempt(database, 1, server)
    for delivery in deliveries:
        delivery.land(demo.data)
    day = LATE_DAY.astimezone(NEW_YORK)
    console.print(f"{len(deliveries)} weather hours of {day:%d %B} land late: {LATE_PROCESS} of that day has run")
    return attempts


def wait_for_attempt(database: Database, attempt: int, server: subprocess.Popen[bytes]) -> int:
    """Until the process of the late day has succeeded in this attempt or a later one; its number.

    Raises:
        DemoError: it takes too long.
    """
    for _ in range(PATIENCE_SECONDS * 2):
        with database.read() as connection:
            row = ProcessInstances(connection).get(LATE_PROCESS, "primary", LATE_DAY)
        if row is not None and row.status is ProcessInstanceStatus.SUCCEEDED and row.attempt >= attempt:
            return row.attempt
        if server.poll() is not None:
            raise DemoError("Dagster has ended")
        time.sleep(0.5)
    raise DemoError(f"{LATE_PROCESS} of {render_datetime(LATE_DAY)} has not succeeded in attempt {attempt}")


def wait_for_processes(database: Database, location: Location, server: subprocess.Popen[bytes]) -> None:
    """Until every process instance of the month has succeeded.

    Raises:
        DemoError: one failed, or it takes too long.
    """
    wanted = {record.key: record.sequence.size or 0 for record in location.plan.processes.values()}
    with Progress(console=console) as progress:
        task = progress.add_task("processing", total=sum(wanted.values()))
        for _ in range(PATIENCE_SECONDS * 2):
            overviews = [process_overview(database, record, UNTIL) for record in location.plan.processes.values()]
            failed = [item.process for item in overviews if item.statuses.get(ProcessInstanceStatus.FAILED)]
            if failed:
                raise DemoError(f"instances of {', '.join(failed)} failed")
            succeeded = sum(item.succeeded for item in overviews)
            progress.update(task, completed=succeeded)
            if succeeded == sum(wanted.values()):
                return
            if server.poll() is not None:
                raise DemoError("Dagster has ended")
            time.sleep(0.5)
    raise DemoError(f"only {succeeded} of {sum(wanted.values())} process instances succeeded")


def report(database: Database, location: Location, deliveries: Sequence[Delivery]) -> None:
    """Print what the month amounts to."""
    landed = _landed_rows(deliveries)
    feeds = Table("feed", "instances", "available", "missing", "rows", title="Feeds")
    overviews = [feed_overview(database, record, UNTIL) for record in location.plan.feeds.values()]
    for feed in overviews:
        rows = feed.rows if feed.rows is not None else landed.get(feed.feed)
        counts = (feed.instances, feed.available, len(feed.missing), "" if rows is None else rows)
        feeds.add_row(feed.feed, *map(str, counts))
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
    """Hold Dagster's own record against ours: every available instance is a materialized partition there.

    Raises:
        DemoError: they differ.
    """
    from dagster import DagsterInstance

    from feed_assets.orchestration.layout import lay_out

    database = open_database(f"sqlite:///{demo.home / 'feed_assets.db'}")
    layout = lay_out(location.plan)
    with DagsterInstance.from_config(str(demo.home)) as instance:
        for _ in range(60):
            behind = []
            for record in location.plan.feeds.values():
                known = instance.get_materialized_partitions(layout.feed_asset(record.key)[0])
                available = feed_overview(database, record, UNTIL).available
                if len(known) != available:
                    behind.append(f"{record.feed}: {len(known)} of {available}")
            if not behind:
                console.print("Every available instance is a materialized partition in Dagster.")
                return
            time.sleep(1)
    raise DemoError(f"Dagster's partitions do not agree: {'; '.join(behind)}")


def report_late(demo: Demo, location: Location) -> None:
    """Print what Dagster knows of the day whose weather came late: each time that it was made.

    Raises:
        DemoError: its output is what it was.
    """
    from dagster import AssetRecordsFilter, DagsterInstance

    from feed_assets.orchestration import names
    from feed_assets.orchestration.instance_runs import DATA_VERSION
    from feed_assets.orchestration.layout import lay_out

    asset_key, grid = lay_out(location.plan).feed_asset((LATE_PROCESS, "primary"))
    wanted = AssetRecordsFilter(asset_key=asset_key, asset_partitions=[grid.key(LATE_DAY)])
    table = Table("attempt", "weather hours", "bytes", "data version", "why", title=f"{LATE_PROCESS} of 5 November")
    versions = set()
    with DagsterInstance.from_config(str(demo.home)) as instance:
        records = instance.fetch_materializations(wanted, limit=20, ascending=True).records
    for told in filter(None, (record.asset_materialization for record in records)):
        values = {name: value.value for name, value in told.metadata.items()}
        version = (told.tags or {})[DATA_VERSION]
        versions.add(version)
        inputs = values[names.META_INPUTS]
        hours = inputs["weather"] if isinstance(inputs, dict) else ""
        why = values.get(names.META_LATE_DATA, "its inputs were there")
        table.add_row(
            *(str(values[names.META_ATTEMPT]), str(hours), str(values[names.META_BYTES]), version[:19], str(why))
        )
    console.print(table)
    if len(versions) < 2:
        raise DemoError("the output of the day whose weather came late has not changed")


def _require_running(server: subprocess.Popen[bytes], demo: Demo) -> None:
    if server.poll() is not None:
        raise DemoError(f"Dagster ended with code {server.returncode}; see {demo.log}")


if __name__ == "__main__":
    sys.exit(main())
