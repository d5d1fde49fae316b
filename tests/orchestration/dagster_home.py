"""A real Dagster for tests: a home of its own, daemon and code server in a group that ends with the test."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dagster import AssetKey, DagsterInstance, DagsterRun, RunsFilter

from feed_assets.state.database import Database, open_database

ROOT = Path(__file__).resolve().parents[2]
HOMES = ROOT / "examples" / "dagster_home"


@dataclass(frozen=True, kw_only=True)
class Home:
    """A project with entities and jobs, a data root and a Dagster home, all below one folder."""

    folder: Path
    storage: str = "sqlite"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DAGSTER_HOME": str(self.home),
            "FEED_ASSETS_ENTITIES": "entities",
            "FEED_ASSETS_VARIABLES__DATA_ROOT": str(self.data),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(self.folder)]),
            "PYTHONWARNINGS": "ignore",
            **self.settings,
        }

    def prepare(self, entities: str, jobs: str) -> None:
        """Write the project."""
        self.data.mkdir()
        self.home.mkdir()
        (self.folder / "entities").mkdir()
        (self.folder / "entities" / "all.yaml").write_text(textwrap.dedent(entities))
        (self.folder / "jobs_of_test.py").write_text(textwrap.dedent(jobs))
        shutil.copy(ROOT / "definitions.py", self.folder)
        shutil.copy(ROOT / "workspace.yaml", self.folder)
        shutil.copy(HOMES / self.storage / "dagster.yaml", self.home)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a Dagster command line to its end."""
        return subprocess.run(
            [sys.executable, "-m", "dagster", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    @contextmanager
    def daemon(self) -> Iterator[subprocess.Popen[bytes]]:
        """The daemon with its code server, and the group of processes below it, ended by its id."""
        log = (self.folder / "daemon.log").open("ab")
        daemon = subprocess.Popen(
            [sys.executable, "-m", "dagster._daemon", "run", "-w", "workspace.yaml"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield daemon
        finally:
            log.close()
            end_group(daemon)

    @contextmanager
    def instance(self) -> Iterator[DagsterInstance]:
        """The Dagster instance, opened here."""
        before = dict(os.environ)
        os.environ.update({name: value for name, value in self.settings.items() if name.startswith("DAGSTER_PG")})
        try:
            with DagsterInstance.from_config(str(self.home)) as instance:
                yield instance
        finally:
            os.environ.clear()
            os.environ.update(before)

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text(errors="replace")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all in its group: politely, then not."""
    for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def wait_until(condition: Callable[[], bool], seconds: float, otherwise: Callable[[], str]) -> None:
    """Until `condition` holds; fails with what `otherwise` says."""
    for _ in range(int(seconds * 5)):
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError(otherwise())


def materialized(instance: DagsterInstance, *key: str) -> set[str]:
    """The partitions of an asset that Dagster shows green."""
    return set(instance.get_materialized_partitions(AssetKey(key)))


def runs_of(instance: DagsterInstance, process: str) -> list[DagsterRun]:
    """The runs of a process, the oldest first."""
    runs = instance.get_runs(RunsFilter(tags={"feed_assets/process": process}))
    return list(reversed(list(runs)))


def sqlite_state(home: Home) -> Database:
    return open_database(f"sqlite:///{home.home / 'feed_assets.db'}")
