"""The real daemon with three feeds, one of which is poisoned in each of the ways in which one feed once stopped all."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterInstance
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluation

from feed_assets.clock import SystemClock
from tests.orchestration.dagster_home import Home, materialized, wait_until
from tests.orchestration.small import ENTITIES, JOBS, START, key, land
from tests.orchestration.test_reloading import command
from tests.orchestration.told import location_check, ticks_until_requested
from tests.servers import free_port

pytestmark = [pytest.mark.drill, pytest.mark.daemon, pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(3600)]

POISONED = """
kind: feed
name: poisoned
frequency: hours(1)
{place}
clusters: {{here: {{type: source, validity: {{start: 2026-01-01T00:00Z, end: 2027-01-01T00:00Z}}}}}}
"""
GOOD_PLACE = 'locations: {data: "/poisoned/${YEAR}-${MONTH}-${DAY}/${HOUR}"}'
S3_PLACE = 'locations: {data: "s3://nobody-has-this/poisoned/${YEAR}-${MONTH}-${DAY}/${HOUR}"}'
TABLE_PLACE = 'table: "catalog:nothing:missing#ds=${YEAR}-${MONTH}-${DAY};hour=${HOUR}"'
DOTS_PLACE = 'locations: {data: "/poisoned/../elsewhere/${YEAR}-${MONTH}-${DAY}/${HOUR}"}'


MOST_TICKS = 3
SPEED = 600


def others(text: str) -> str:
    """The same with the names of a second good feed and its process."""
    for name, other in (("numbers", "letters"), ("sums", "counts"), ("summing", "counting")):
        text = text.replace(name, other)
    return text


def fast_clock() -> dict[str, str]:
    """An hour of data passes in six seconds, so that each tick polls the newest hours if they are missing."""
    prefix, now = "FEED_ASSETS_DEMO__REPLAY__", SystemClock().now().isoformat()
    return {prefix + "ORIGIN": START.isoformat(), prefix + "REAL_START": now, prefix + "SPEED": str(SPEED)}


@dataclass
class Gate:
    """A port in front of a server; it refuses connections while it is closed."""

    server: int
    port: int = field(default_factory=free_port)
    _listening: socket.socket | None = None

    def open(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def close(self) -> None:
        if self._listening is not None:
            with suppress(OSError):
                self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()
            self._listening = None

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                threading.Thread(target=_relay, args=(client, self.server), daemon=True).start()


def _relay(client: socket.socket, port: int) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        back = threading.Thread(target=_pump, args=(server, client), daemon=True)
        back.start()
        _pump(client, server)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@dataclass
class Poisoned:
    """A daemon at work on a location with one feed that can be poisoned."""

    home: Home
    instance: DagsterInstance
    gate: Gate
    began: datetime
    hour: int = 0

    def take_newest_hour(self) -> None:
        """From now on, the newest hour that is due is meant."""
        self.hour = int((SystemClock().now() - self.began) * SPEED / timedelta(hours=1))

    def declare(self, place: str) -> None:
        command(self.home, "entity", "update", "--skip-checks", "-", stdin=POISONED.format(place=place))

    def write(self, place: str) -> None:
        """Edit the file by hand."""
        (self.home.folder / "entities" / "feed" / "poisoned.yaml").write_text(POISONED.format(place=place))

    @property
    def folder(self) -> Path:
        at = START + timedelta(hours=self.hour)
        return self.home.data / "poisoned" / f"{at:%Y-%m-%d}" / f"{at:%H}"

    def check(self) -> AssetCheckEvaluation | None:
        return location_check(self.instance)

    def has_failed(self, text: str) -> bool:
        check = self.check()
        return check is not None and not check.passed and text in str(check.metadata)

    def require_others_work(self) -> dict[str, int]:
        """The next hour of the good feeds arrives, and is processed; how many ticks that took, by process."""
        since = SystemClock().now().timestamp()
        for feed in ("numbers", "letters"):
            land(self.home.data, self.hour, 1, feed=feed)
        for asset in ("numbers", "letters", "sums", "counts"):
            self.wait(lambda asset=asset: key(self.hour) in materialized(self.instance, "here", asset))  # type: ignore[misc]
        ticks = {
            process: ticks_until_requested(self.instance, process, key(self.hour), since)
            for process in ("summing", "counting")
        }
        assert max(ticks.values()) <= MOST_TICKS
        return ticks

    def wait(self, condition: object) -> None:
        assert callable(condition)
        wait_until(condition, lambda: f"{self.check()}\n{self.home.log()[-3000:]}")


@contextmanager
def poisoned_by(daemon: Poisoned, poison: str) -> Iterator[str]:
    """Poison the feed, yield a text that names the poison (of an outage it is the address), and cure it."""
    folder = daemon.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    match poison:
        case "dangling link":
            folder.symlink_to(folder.parent / "nowhere")
        case "looping link":
            folder.symlink_to(folder)
        case "outward link":
            (daemon.home.folder / "outside").mkdir()
            folder.symlink_to(daemon.home.folder / "outside")
        case "no credentials":
            daemon.declare(S3_PLACE)
        case "no such table":
            daemon.declare(TABLE_PLACE)
        case "metastore is down":
            daemon.gate.close()
            daemon.declare(TABLE_PLACE)
        case "dots in a template":
            daemon.write(DOTS_PLACE)
    away = f"storage of thrift://127.0.0.1:{daemon.gate.port} fails"
    named = {"dots in a template": "'..'", "metastore is down": away}
    yield named.get(poison, "poisoned")
    if folder.is_symlink():
        folder.unlink()
    elif poison == "dots in a template":
        daemon.write(GOOD_PLACE)
    else:
        if poison == "metastore is down":
            daemon.gate.open()
        daemon.declare(GOOD_PLACE)


def test_the_others_go_on_and_the_check_names_the_poison_until_it_is_cured(tmp_path: Path, metastore_port: int) -> None:
    gate = Gate(metastore_port)
    gate.open()
    home = Home(folder=tmp_path, settings=fast_clock())
    catalog = f"storage: file://${{DATA_ROOT}}\n    catalog: thrift://127.0.0.1:{gate.port}"
    entities = (ENTITIES + others(ENTITIES[ENTITIES.index("    ---") :])).replace(
        "timeout: months(60)", "timeout: months(60)\n    parallel: 3"
    )
    entities = entities.replace("end: 2026-01-02", "end: 2027-01-01")
    home.prepare(entities.replace("storage: file://${DATA_ROOT}", catalog), JOBS + others(JOBS))
    (home.folder / "entities" / "feed").mkdir()
    with home.instance() as instance:
        began = datetime.fromisoformat(home.settings["FEED_ASSETS_DEMO__REPLAY__REAL_START"])
        daemon = Poisoned(home=home, instance=instance, gate=gate, began=began)
        daemon.write(GOOD_PLACE)
        with home.daemon():
            daemon.wait(lambda: daemon.check() is not None)
            for poison in (
                "dangling link",
                "looping link",
                "outward link",
                "no credentials",
                "no such table",
                "metastore is down",
                "dots in a template",
            ):
                daemon.take_newest_hour()
                with poisoned_by(daemon, poison) as text:
                    daemon.wait(lambda text=text: daemon.has_failed(text))
                    print(poison, daemon.require_others_work(), daemon.check())
                daemon.wait(lambda: (check := daemon.check()) is not None and check.passed)
    gate.close()
