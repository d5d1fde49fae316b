"""The demo: a real month arrives on a fast clock, is processed on Spark and appears in Dagster.

Run by `make demo` and, with the UI left open, `make dev`. All its files are below one folder.
"""

import argparse
import logging
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from moto.server import ThreadedMotoServer
from rich.progress import Progress

from examples.flights.landing import LATE_DAY, NEW_YORK, Delivery, read_deliveries
from examples.flights.place import LATE_PROCESS, ROOT, START_UP, Demo, DemoError, console
from examples.flights.report import check_dagster, report, report_copies, report_late, report_retention
from feed_assets.clock import Clock, SystemClock, open_clock
from feed_assets.log.instances.process_instances import ProcessInstances
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.plan.edges import Key
from feed_assets.plan.location import Location, load_location
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database, open_database
from feed_assets.timing.dates import render_datetime

PATIENCE_SECONDS = 300
"""Seconds without any change after which the demo gives up. The total duration depends on the machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if every process instance of the month is materialized."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="where everything is put (%(default)s)")
    parser.add_argument("--port", type=int, default=3000, help="port of the UI (%(default)s)")
    parser.add_argument(
        "--storage", help="where both clusters are, such as hdfs://namenode:8020/demo (local files, and S3 in memory)"
    )
    parser.add_argument("--seconds", type=float, default=150, help="how long the month takes (%(default)s)")
    parser.add_argument(
        "--keep-open", action="store_true", help="leave the UI and the pages open at the end, until Ctrl-C"
    )
    options = parser.parse_args(arguments)
    try:
        with object_storage() as s3:
            demo = Demo(
                folder=options.folder.resolve(),
                port=options.port,
                seconds=options.seconds,
                s3=s3,
                storage=options.storage,
            )
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
    location = load_location(settings)
    if location.issues:
        raise DemoError("\n".join(issue.render() for issue in location.issues))
    console.print(f"November 2013 arrives in {demo.seconds:.0f} seconds. The UI is at [link]{demo.address}[/link]")
    with dagster(demo, environment) as server:
        wait_for_ui(demo, Patience(demo, server))
        database = open_database(f"sqlite:///{demo.home / 'feed_assets.db'}")
        database.migrate()
        with ThreadPoolExecutor(1) as executor:
            late_deliveries = [each for each in deliveries if each.is_late]
            late = executor.submit(land_late, demo, late_deliveries, database, location, server)
            land(demo, [delivery for delivery in deliveries if not delivery.is_late], clock, server)
            attempts = late.result()
        wait_for_processes(database, location, Patience(demo, server))
        wait_for_attempt(database, location, attempts + 1, Patience(demo, server))
        report(database, location, deliveries)
        report_late(demo, location)
        report_copies(environment)
        report_retention(environment)
        check_dagster(demo, location)
        if keep_open:
            with pages(demo, environment):
                console.print(
                    f"Dagster stays open at {demo.address}, and the pages at {demo.pages}/ui. Ctrl-C ends both."
                )
                server.wait()
    console.print(f"Everything is in {demo.folder}; `make dev` shows it in the UI at {demo.address}.")


@contextmanager
def object_storage() -> Iterator[str]:
    """Run an S3 server in this process, with the bucket for the copies, and yield its address. Its contents are lost at
    the end.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        request = urllib.request.Request(f"{address}/backup", method="PUT")
        with urllib.request.urlopen(request, timeout=10):
            yield address
    finally:
        server.stop()


def dagster(demo: Demo, environment: dict[str, str]) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run webserver, daemon and code location, and stop them as one group."""
    command = ["dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(demo.port)]
    return _running(command, environment, demo.log)


def pages(demo: Demo, environment: dict[str, str]) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run the server of feed-assets."""
    return _running(["feed_assets", "serve", "--port", str(demo.pages_port)], environment, demo.folder / "server.log")


@contextmanager
def _running(module: list[str], environment: dict[str, str], path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", *module]
    with path.open("wb") as log:
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


class Patience:
    """A wait that goes on as long as something changes."""

    def __init__(self, demo: Demo, server: subprocess.Popen[bytes]) -> None:
        self._demo = demo
        self._server = server
        self._state: object = None
        self._since = time.monotonic()

    def wait(self, state: object, lacking: str) -> None:
        """Wait half a second; `state` is the present state of the demo.

        Raises:
            DemoError: Dagster has ended, or the state has not changed for too long; the message says what is `lacking`.
        """
        _require_running(self._server, self._demo)
        if state != self._state:
            self._state, self._since = state, time.monotonic()
        elif time.monotonic() > self._since + PATIENCE_SECONDS:
            raise DemoError(f"{lacking}, and nothing has changed for {PATIENCE_SECONDS} s; see {self._demo.log}")
        time.sleep(0.5)


def wait_for_ui(demo: Demo, patience: Patience) -> None:
    """Wait until the webserver answers."""
    while True:
        try:
            with urllib.request.urlopen(f"{demo.address}/server_info", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            patience.wait(None, "the UI did not come up")


def land(demo: Demo, deliveries: Sequence[Delivery], clock: Clock, server: subprocess.Popen[bytes]) -> None:
    """Land every delivery at its time."""
    with Progress(console=console) as progress:
        task = progress.add_task("landing", total=len(deliveries))
        for delivery in deliveries:
            while (now := clock.now()) < delivery.lands_at:
                progress.update(task, description=f"landing {now:%d %b %H}h")
                _require_running(server, demo)
                time.sleep(0.1)
            delivery.land(demo.source)
            progress.advance(task)


def land_late(
    demo: Demo, deliveries: Sequence[Delivery], database: Database, location: Location, server: subprocess.Popen[bytes]
) -> int:
    """Land the retained hours once their day has been processed; return the number of attempts until then."""
    attempts = wait_for_attempt(database, location, 1, Patience(demo, server))
    for delivery in deliveries:
        delivery.land(demo.source)
    day = LATE_DAY.astimezone(NEW_YORK)
    console.print(f"{len(deliveries)} weather hours of {day:%d %B} land late: {LATE_PROCESS} of that day has run")
    return attempts


def wait_for_attempt(database: Database, location: Location, attempt: int, patience: Patience) -> int:
    """Wait until the process of the late day has succeeded in this attempt or a later one, and return its number.

    Raises:
        DemoError: nothing changes any more.
    """
    lacking = f"{LATE_PROCESS} of {render_datetime(LATE_DAY)} has not succeeded in attempt {attempt}"
    while True:
        with database.read() as connection:
            row = ProcessInstances(connection).get(LATE_PROCESS, "primary", LATE_DAY)
        if row is not None and row.status is ProcessInstanceStatus.SUCCEEDED and row.attempt >= attempt:
            return row.attempt
        patience.wait((row, _counts(database, location)), lacking)


def wait_for_processes(database: Database, location: Location, patience: Patience) -> None:
    """Wait until every process instance of the month has succeeded.

    Raises:
        DemoError: an instance failed, or nothing changes any more.
    """
    expected = sum(record.sequence.size or 0 for record in location.plan.processes.values())
    with Progress(console=console) as progress:
        task = progress.add_task("processing", total=expected)
        while True:
            counts = _counts(database, location)
            failed = [process for (process, _), found in counts.items() if found.get(ProcessInstanceStatus.FAILED)]
            if failed:
                raise DemoError(f"instances of {', '.join(failed)} failed")
            succeeded = sum(found.get(ProcessInstanceStatus.SUCCEEDED, 0) for found in counts.values())
            progress.update(task, completed=succeeded)
            if succeeded == expected:
                return
            patience.wait(counts, f"only {succeeded} of {expected} process instances succeeded")


def _counts(database: Database, location: Location) -> dict[Key, dict[ProcessInstanceStatus, int]]:
    """Return the number of instances per process and status."""
    with database.read() as connection:
        instances = ProcessInstances(connection)
        return {key: instances.counts(*key) for key in location.plan.processes}


def _require_running(server: subprocess.Popen[bytes], demo: Demo) -> None:
    if server.poll() is not None:
        raise DemoError(f"Dagster ended with code {server.returncode}; see {demo.log}")


if __name__ == "__main__":
    sys.exit(main())
