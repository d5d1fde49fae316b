"""Places of a current feed whose publisher is killed: a directory, a prefix of S3, a table of Hive; each with a reader
that asks by the path, or by the metastore.

A killed process counts what changes anything: files, objects, calls to the metastore, statements and commits.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from feed_assets.engines.port import Work
from feed_assets.entities.feed import Feed
from feed_assets.errors import FeedAssetsError
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedInstance
from feed_assets.log.removals.store import Sweeps
from feed_assets.retention.sweeps.undoing import undo_sweep
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.storage.object.store import ObjectStore
from feed_assets.storage.pool import StorePool
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Availability
from feed_assets.storage.registry import open_store
from tests.deaths import die_before
from tests.instances.harness import START, LifecycleHarness, process, validity
from tests.storage.watched import CHANGES, WatchedClient
from tests.tables import Catalog

FEED = "lands"
OLD, NEW = "old", "new"
FILES = ("part-0.csv", "part-1.csv")


@dataclass(slots=True)
class Bench:
    """A process that writes the feed, in a folder with the state. `step` is called before each change."""

    kind: str
    folder: Path
    url: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    port: int = 0
    step: Callable[[str], object] = lambda _: None
    lifecycle: LifecycleHarness = field(init=False)

    def __post_init__(self) -> None:
        place = {"table": f"catalog:default:{self.table}"} if self.port else {"locations": {"data": "/ref/lands"}}
        feed = Feed(
            name=FEED,
            instances="current",
            format="csv",
            availability_flag="_SUCCESS" if self.url else None,
            clusters={"primary": validity(START, None) | {"retention": {"versions": 3}}},
            **place,
        )
        self.lifecycle = LifecycleHarness.of(
            self.folder,
            feed,
            process("write", outputs={FEED: "now(0,0)"}),
            scheme="memory" if self.url else "file",
            catalog=f"thrift://127.0.0.1:{self.port}" if self.port else None,
            stores=StorePool(self._open),
        )

    @property
    def table(self) -> str:
        return f"lands_{self.folder.parent.name}_{self.folder.name}".replace("-", "_").lower()

    @property
    def path(self) -> str:
        return self.lifecycle.feed(FEED).path(START)

    @property
    def store(self) -> InstanceStore:
        return self.lifecycle.stores.get(self.lifecycle.feed(FEED).store)

    def publish(self, text: str, hour: int) -> None:
        def job(work: Work) -> Mapping[str, str]:
            folder = Path(urlsplit(work.outputs[0].url).path)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / FILES[1]).write_text(text)
            return {FEED: text}

        self.lifecycle.job = job
        now = at(hour)
        self.lifecycle.run("write", START, now, f"run-{hour}")

    def undo(self, sweep: str, hour: int) -> None:
        undo_sweep(self.lifecycle.sweep_context(at(hour)), sweep)

    def kept(self) -> dict[str, str]:
        """The sweeps of versions in the trash, by their content."""
        with self.lifecycle.database.read() as connection:
            sweeps = Sweeps(connection).newest(20)
        found = {}
        for sweep in sweeps:
            with (
                suppress(InstanceNotFoundError),
                self.store.trash().reading(sweep.sweep_id, self.path) as (_, chunks),
            ):
                (text,) = {b"".join(chunks(name)).decode() for name in FILES}
                found[text] = sweep.sweep_id
        return found

    def row(self) -> FeedInstance:
        with self.lifecycle.database.read() as connection:
            found = FeedInstances(connection).get(FEED, "primary", START)
        assert found is not None
        return found

    def read(self) -> str | None:
        """What a reader sees now; None where it must wait for the flag."""
        return _READERS[self.kind](self)

    def _open(self, url: str, options: dict[str, object]) -> InstanceStore:
        if not self.url:
            return open_store(url, options)
        opened = open_store(f"{self.url}/{self.folder.parent.name}-{self.folder.name}", self.options)
        assert isinstance(opened, ObjectStore)
        client = WatchedClient(opened.client)
        client.before = lambda name: self.step(name) if name in CHANGES else None
        return ObjectStore(client, root_url=url, scratch=self.folder / "scratch")


def at(hour: int) -> datetime:
    return START + timedelta(hours=hour)


def _read_path(bench: Bench) -> str | None:
    """Both files of the directory at the path; a reader that finds it replaced opens the path again."""
    while True:
        folder = os.open(bench.folder / "primary/ref/lands", os.O_RDONLY)
        try:
            return _one({_read(name, folder) for name in FILES})
        except FileNotFoundError:
            assert not os.path.samestat(os.fstat(folder), (bench.folder / "primary/ref/lands").stat()), "a file is gone"
        finally:
            os.close(folder)


def _read(name: str, folder: int) -> str:
    with open(os.open(name, os.O_RDONLY, dir_fd=folder)) as stream:  # noqa: PTH123
        return stream.read()


def _read_table(bench: Bench) -> str | None:
    """Both files at the location that the metastore says; a reader that finds it removed asks again."""
    catalog = Catalog(bench.port)
    while True:
        location = _location(catalog, bench)
        try:
            return _one({(location / name).read_text() for name in FILES})
        except FileNotFoundError:
            assert _location(catalog, bench) != location, "a file is gone"


def _location(catalog: Catalog, bench: Bench) -> Path:
    table = catalog.find_table("default", bench.table)
    assert table is not None
    return Path(table.location.removeprefix("file:"))


def _read_objects(bench: Bench) -> str | None:
    """Both objects, if the flag is there, no marker, and both are so afterwards: else a reader waits."""
    store = bench.store
    mark = store.mark(bench.path)
    if store.look([bench.path], "_SUCCESS")[0].availability is not Availability.AVAILABLE:
        return None
    with store.reading(bench.path) as reading:
        try:
            texts = {b"".join(map(bytes, reading.chunks(name))).decode() for name in FILES}
        except FeedAssetsError:
            texts = set()
    if (
        store.look([bench.path], "_SUCCESS")[0].availability is not Availability.AVAILABLE
        or store.mark(bench.path) != mark
    ):
        return None
    return _one(texts)


def _one(texts: set[str]) -> str:
    assert len(texts) == 1, f"a reader sees {texts}"
    return texts.pop()


_READERS: Mapping[str, Callable[[Bench], str | None]] = {
    "local": _read_path,
    "s3": _read_objects,
    "hive": _read_table,
}


@contextmanager
def polled(bench: Bench) -> Iterator[set[str | None]]:
    """A reader that polls; what it has seen, complete, as often as it could ask."""
    seen: set[str | None] = set()
    failures: list[Exception] = []
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            try:
                seen.add(bench.read())
            except (AssertionError, FeedAssetsError, OSError) as exc:
                failures.append(exc)
                return

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()
    if failures:
        raise failures[0]


def make(kind: str, folder: Path, **where: Any) -> Bench:
    """A bench at which the version `old` is published."""
    folder.mkdir(parents=True)
    if kind == "hive":
        name = f"lands_{folder.parent.name}_{folder.name}".replace("-", "_").lower()
        Catalog(where["port"]).make_table("default", name, folder / "warehouse", [])
    bench = Bench(kind, folder, **where)
    bench.publish(OLD, 1)
    return bench


def work_until_killed(kind: str, folder: Path, where: dict[str, Any], sweep: str | None, number: int) -> None:
    """In a process of its own: publish `new`, or undo a sweep, and die before the n-th change."""
    bench = Bench(kind, folder, **where)
    bench.step = die_before(number)
    if sweep is not None:
        bench.undo(sweep, 50)
    else:
        bench.publish(NEW, 50)
    os._exit(0)
