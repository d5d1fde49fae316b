"""A feed that is exported to a table, or imported from one, with a reader that asks for what is there, all the time.

A killed process counts what changes anything: files, the state, statements and commits of a database.
"""

import os
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from feed_assets.definitions.datasources.marks import list_marks
from feed_assets.engines.databases.connections import DatabaseConnection
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.datasource import Datasource
from feed_assets.entities.feed import Feed
from feed_assets.instances.attempts.execution import InstanceRunner
from feed_assets.instances.attempts.exporting import StagedTablesAgenda
from feed_assets.log.agenda import AgendaKind
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.timing.dates import NEVER
from tests.context.contexts import context_of
from tests.deaths import die_before
from tests.instances.harness import START, LifecycleHarness
from tests.shops import PASSWORD, Shop

ROWS = 500
DAY = timedelta(days=1)


class TransferBench(ABC):
    """A feed `orders` and the table `orders` of a shop, in a folder with the state. Its night `n` brings the content
    `v<n>`. What a reader sees is told as a text, such as "v0 100,v1 500".
    """

    process: ClassVar[str]
    steps: ClassVar[int]
    """About so many changes has a run, at least."""

    def __init__(self, root: Path, shop: Shop) -> None:
        self.root, self.shop, self.lifecycle = root, shop, LifecycleHarness.of(root)
        (root / "password").write_text(PASSWORD)
        document = {**shop.document, "credential": {"user": "shop", "password_file": "password"}}
        feed = {
            "name": "orders",
            "frequency": "days(1)",
            "format": "csv",
            "late_arrival": {"cut_off": "days(2)"},
            "locations": {"data": "/orders/${YEAR}/${MONTH}/${DAY}"},
            **self.fields(),
        }
        feed["clusters"]["primary"]["validity"] = {"start": START}
        self.declared: tuple[AnyEntity, ...] = (Datasource.model_validate(document), Feed.model_validate(feed))
        self.lifecycle.declare(*self.declared)

    @abstractmethod
    def fields(self) -> dict[str, Any]:
        """What the feed has of its own."""

    @abstractmethod
    def bring(self, night: int) -> None:
        """Put the content of a night where it comes from, and tick."""

    def disturb(self, night: int) -> None:  # noqa: B027 - most have nothing to change
        """Change the place where it comes from, between two attempts, so that they read the same."""

    @abstractmethod
    def expected(self, night: int) -> str:
        """What a reader sees when the night has been transferred."""

    @abstractmethod
    def reading(self, night: int) -> Any:
        """A context with the function that reads what is there now."""

    @abstractmethod
    def require_end(self, night: int) -> None:
        """Require that nothing is left over, when a night has been repeated."""

    def time(self, night: int) -> datetime:
        return START + night * DAY

    def now(self, night: int) -> datetime:
        return self.time(night) + timedelta(hours=12)

    def run(self, session: Any, now: datetime | None = None, run_id: str = "run-1", night: int = 0) -> None:
        runner: InstanceRunner = self.lifecycle.runner(now or self.now(night), run_id)
        runner = replace(runner, engines=None, session=session)
        runner.run(self.lifecycle.process(self.process), self.time(night), lambda _: None)


class ExportBench(TransferBench):
    """Each night exports 500 rows, of which the table has 400."""

    process, steps = "orders.export", 45

    def fields(self) -> dict[str, Any]:
        target = {"name": "shop", "table": "orders", "load": {"type": "allowinsert"}}
        export = {"target": target, "arguments": {"--update-key": "id"}}
        return {"schema": "id int, name string", "clusters": {"primary": {"export": export}}}

    def land(self, name: str, first: int = 0, night: int = 0) -> None:
        rows = "".join(f"{number},{name}\n" for number in range(first, first + ROWS))
        for file in self.lifecycle.folder("orders", self.time(night)).glob("*"):
            file.unlink()
        self.lifecycle.land("orders", self.time(night), text=f"id,name\n{rows}")

    def bring(self, night: int) -> None:
        self.land(f"v{night}", 100 * night, night)
        self.lifecycle.tick(self.now(night))

    def expected(self, night: int) -> str:
        return ",".join(sorted([*(f"v{each} 100" for each in range(night)), f"v{night} {ROWS}"]))

    @contextmanager
    def reading(self, night: int) -> Iterator[Callable[[], str]]:  # noqa: ARG002 - a table is one
        names = f"SELECT name, count(*) n FROM {self.shop.schema}.orders GROUP BY name"
        port = self.shop.url.partition("127.0.0.1:")[2].partition("/")[0]
        if self.shop.type == "postgres":
            with _open_postgres(port) as ask:
                yield lambda: ask(
                    f"SELECT coalesce(string_agg(name || ' ' || n, ',' ORDER BY name), '') FROM ({names}) f"
                )
        else:
            with _open_mariadb(port) as ask:
                yield lambda: ask(
                    f"SELECT coalesce(group_concat(concat(name, ' ', n) ORDER BY name), '') FROM ({names}) f"
                )

    def require_end(self, night: int) -> None:
        assert (self.left(), self.noted()) == ([], [])
        assert self.lifecycle.statuses(self.process)[self.time(night)] is ProcessInstanceStatus.SUCCEEDED

    def left(self) -> list[str]:
        """Staging tables in the database."""
        sql = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{self.shop.schema}'"
        return sorted(name for (name,) in self.shop.run(sql) if name.startswith("fa_"))

    def noted(self) -> list[str]:
        """Staging tables on the agenda."""
        with self.lifecycle.database.read() as connection:
            found = StagedTablesAgenda(connection).due([AgendaKind.STAGED_TABLES], "primary", NEVER, 10)
        return [table for each in found for table in each.tables]

    def counts(self) -> dict[str, int]:
        found = self.shop.run("SELECT name, count(*) FROM orders GROUP BY name")
        return {str(name): int(count) for name, count in found}


class ImportBench(TransferBench):
    """Each night reads the whole table, in two parts where these see one moment; all rows are changed before. It is
    always the same instance, so that what stands is replaced.
    """

    process, steps = "orders.import", 45
    extract: ClassVar[dict[str, Any]] = {}

    def fields(self) -> dict[str, Any]:
        source = {"name": "shop", "table": "orders", **({"extract": self.extract} if self.extract else {})}
        parts = 2 if self.shop.type == "postgres" else 1
        made = {"source": source, "arguments": {"--split-by": "id", "--num-mappers": parts}}
        schema = "id int, name string, at timestamp"
        return {"schema": schema, "clusters": {"primary": {"type": "source", "import": made}}}

    def time(self, night: int) -> datetime:  # noqa: ARG002 - it is always the same
        return START

    def now(self, night: int) -> datetime:
        return START + (2 + night) * DAY

    def bring(self, night: int) -> None:
        if night:
            self.shop.run(f"UPDATE orders SET name = 'v{night}'")
        else:
            self.insert(night, ROWS)
            self.lifecycle.tick(self.now(night))

    def insert(self, night: int, count: int) -> None:
        """Add rows of the day of an instance."""
        rows = ", ".join(
            f"('v{night}', '{self.time(night):%Y-%m-%d %H:}{n // 60:02}:{n % 60:02}')" for n in range(count)
        )
        self.shop.run(f"INSERT INTO orders (name, at) VALUES {rows}")

    def expected(self, night: int) -> str:
        return f"v{night} {ROWS}"

    @contextmanager
    def reading(self, night: int) -> Iterator[Callable[[], str]]:
        folder = self.lifecycle.folder("orders", self.time(night))
        yield lambda: _read_folder(folder)

    def require_end(self, night: int) -> None:
        assert self.lifecycle.statuses(self.process)[self.time(night)] is ProcessInstanceStatus.SUCCEEDED


class WindowBench(ImportBench):
    """Reads the rows of the instance's own day."""

    extract: ClassVar[dict[str, Any]] = {"type": "incremental", "delta_column": "at", "by": "window"}


class MarkBench(ImportBench):
    """Each night reads what is new, and its next attempt the same though more has come."""

    extract: ClassVar[dict[str, Any]] = {"type": "incremental", "delta_column": "id", "by": "mark"}

    def time(self, night: int) -> datetime:
        return START + night * DAY

    def now(self, night: int) -> datetime:
        return self.time(night) + timedelta(hours=12)

    def bring(self, night: int) -> None:
        self.insert(night, ROWS)
        self.lifecycle.tick(self.now(night))

    def disturb(self, night: int) -> None:
        self.insert(night + 1, 10)

    def expected(self, night: int) -> str:
        """The rows of its stretch, as the marks tell it."""
        above, upto = self.stretches()[night]
        ids = f"id > {above.removeprefix('number ') if above else 0} AND id <= {upto.removeprefix('number ')}"
        found = self.shop.run(f"SELECT name, count(*) FROM orders WHERE {ids} GROUP BY name ORDER BY name")
        return ",".join(f"{name} {count}" for name, count in found)

    def require_end(self, night: int) -> None:
        super().require_end(night)
        found = self.stretches()
        assert len(found) == night + 1
        assert [above for above, _ in found] == ["", *(upto for _, upto in found[:-1])]

    def stretches(self) -> list[tuple[str, str]]:
        told = list_marks(context_of(self.lifecycle, NEVER), "orders")
        return [(each.above or "", each.upto or "") for each in reversed(told)]


@contextmanager
def _open_postgres(port: str) -> Iterator[Callable[[str], str]]:
    from psycopg2 import connect

    with closing(connect(host="127.0.0.1", port=port, user="shop", dbname="postgres")) as connection:
        connection.autocommit = True
        cursor = connection.cursor()

        def ask(sql: str) -> str:
            cursor.execute(sql)
            return str(cursor.fetchone()[0])

        yield ask


@contextmanager
def _open_mariadb(port: str) -> Iterator[Callable[[str], str]]:
    """One client for all questions, since the start of one takes longer than a transaction."""
    command = ("mariadb", "--no-defaults", "-h127.0.0.1", f"-P{port}", "-ushop", "--batch", "--unbuffered", "-N")
    env, pipe = {**os.environ, "MYSQL_PWD": PASSWORD}, subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        asked, answers = client.stdin, client.stdout

        def ask(sql: str) -> str:
            asked.write(f"{sql};\n")
            asked.flush()
            return str(answers.readline().rstrip("\n"))

        yield ask


def _read_folder(place: Path) -> str:
    """Count the names in all files of the directory at a path; a reader that finds it replaced opens the path again."""
    while True:
        try:
            folder = os.open(place, os.O_RDONLY)
        except FileNotFoundError:
            return ""
        try:
            names = [name for name in os.listdir(folder) if name.endswith(".csv")]  # noqa: PTH208 - of what is open
            rows = [line.split(",")[1] for name in names for line in _lines(name, folder)]
            if os.path.samestat(os.fstat(folder), place.stat()):
                return ",".join(f"{name} {rows.count(name)}" for name in sorted({*rows}))
        except FileNotFoundError:
            pass
        finally:
            os.close(folder)


def _lines(name: str, folder: int) -> list[str]:
    with open(os.open(name, os.O_RDONLY, dir_fd=folder)) as stream:  # noqa: PTH123
        return stream.read().splitlines()[1:]


@contextmanager
def polled(bench: TransferBench, night: int) -> Iterator[list[str]]:
    """What a reader has seen, as often as it could ask, without repetitions."""
    seen: list[str] = []
    is_over = threading.Event()

    def poll() -> None:
        with bench.reading(night) as read:
            while not is_over.wait(0.002):
                if (found := read()) not in seen[-1:]:
                    seen.append(found)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def transfer_until_killed(
    kind: type[TransferBench], root: Path, shop: Shop, url: str, night: int, steps: int, seconds: float
) -> None:
    """In a process of its own: transfer, and die before the n-th change, or after a while."""
    os.environ["SPARK_REMOTE"] = url
    bench = kind(root, shop)
    session = SparkSession.builder.remote(url).create()
    step = die_before(steps)
    for name in ("execute", "query", "commit"):
        setattr(DatabaseConnection, name, _stepping(getattr(DatabaseConnection, name), step))
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    bench.run(lambda: session, run_id=f"killed-{night}", night=night)
    os._exit(0)


def _stepping(own: Any, step: Any) -> Any:
    def call(*arguments: Any) -> Any:
        step(own)
        return own(*arguments)

    return call


def transfer(kind: type[TransferBench], root: Path, shop: Shop, url: str, night: int) -> None:
    """In a process of its own: transfer when the lease of an earlier attempt has ended."""
    bench = kind(root, shop)
    session = SparkSession.builder.remote(url).create()
    bench.run(lambda: session, bench.now(night) + timedelta(hours=6), f"again-{night}", night)
    session.stop()
