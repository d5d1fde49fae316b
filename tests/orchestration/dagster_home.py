"""A real Dagster for tests: a home of its own, daemon and code server in a group that ends with the test."""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from alembic.script import ScriptDirectory
from dagster import AssetKey, DagsterInstance, DagsterRun, RunsFilter

from feed_assets.scaffolding.projects import read_dagster_yaml
from feed_assets.settings import STATE_FILE
from feed_assets.sql.database import Database, open_database
from tests.databases import lay_tables
from tests.servers import run_tcp_postgres

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 600.0
"""A machine of two processors that others use, too, can take minutes for what takes seconds; nothing is measured."""

# Dagster reads all of its migrations for each database that it opens, one for each run: a third of what a run costs.
ScriptDirectory.from_config = cache(ScriptDirectory.from_config)  # type: ignore[method-assign, assignment]


@contextmanager
def open_dagster(folder: Path) -> Iterator[DagsterInstance]:
    """A Dagster instance of its own in a new folder; its tables and ours come as copies, which takes a fifth of the
    time of making them.
    """
    shutil.copytree(_with_tables(), folder)
    with DagsterInstance.local_temp(str(folder)) as instance:
        yield instance


@cache
def _with_tables() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="feed-assets-dagster-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with DagsterInstance.local_temp(str(folder)):
        lay_tables(folder / STATE_FILE)
    return folder


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
        (self.home / "dagster.yaml").write_text(read_dagster_yaml(is_postgres=self.storage == "postgres"), "utf-8")

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

    def start(self, *arguments: str, log: str = "daemon.log") -> subprocess.Popen[bytes]:
        """Begin `python -m …` in the project, in a group of processes of its own; what it says is in `log`."""
        with (self.folder / log).open("ab") as file:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @contextmanager
    def background(self, *arguments: str, log: str = "daemon.log") -> Iterator[subprocess.Popen[bytes]]:
        """As `start`; the group is ended with the block, by its id."""
        process = self.start(*arguments, log=log)
        try:
            yield process
        finally:
            end_group(process)

    def daemon(self) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """The daemon with its code server."""
        return self.background("dagster._daemon", "run", "-w", "workspace.yaml")

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


@contextmanager
def home_on_postgresql(folder: Path) -> Iterator[Home]:
    """A home whose Dagster and state are in a PostgreSQL server of its own."""
    with run_tcp_postgres() as port:
        settings = {
            "DAGSTER_PG_HOST": "127.0.0.1",
            "DAGSTER_PG_PORT": str(port),
            "DAGSTER_PG_DB": "postgres",
            "DAGSTER_PG_URL": f"postgresql+psycopg2://postgres:unused@127.0.0.1:{port}/postgres",
        }
        yield Home(folder=folder, storage="postgres", settings=settings)


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


def wait_until(condition: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    """Until `condition` holds; fails with what `otherwise` says when that takes too long for any machine."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(otherwise())
        time.sleep(0.2)


def materialized(instance: DagsterInstance, *key: str) -> set[str]:
    """The partitions of an asset that Dagster shows green."""
    return set(instance.get_materialized_partitions(AssetKey(key)))


def runs_of(instance: DagsterInstance, process: str) -> list[DagsterRun]:
    """The runs of a process, the oldest first."""
    runs = instance.get_runs(RunsFilter(tags={"feed_assets/process": process}))
    return list(reversed(list(runs)))


def sqlite_state(home: Home) -> Database:
    return open_database(f"sqlite:///{home.home / 'feed_assets.db'}")


def state_of(home: Home) -> Database:
    """The state, in whichever database it is."""
    if home.storage == "sqlite":
        return sqlite_state(home)
    host, port = home.settings["DAGSTER_PG_HOST"], home.settings["DAGSTER_PG_PORT"]
    return open_database(f"postgresql://postgres@{host}:{port}/{home.settings['DAGSTER_PG_DB']}")
