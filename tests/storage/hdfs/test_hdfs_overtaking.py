"""Two workers on one staging: whoever wakes up late publishes no part of the other one's, and takes nothing away."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from threading import Event, Lock, Thread

import pytest

from feed_assets.storage.copy_port import Staging
from feed_assets.storage.errors import StagingLostError, StorageError
from feed_assets.storage.hdfs.client import HdfsClient
from feed_assets.storage.port import InstanceStore
from feed_assets.storage.records import Availability
from feed_assets.storage.registry import open_store
from tests.hdfs_cluster import HdfsCluster
from tests.storage.assemblies import prepared
from tests.storage.harnesses import allow, client_of, publish, read_all

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("hdfs")]
PATH, TOKEN, FILES = "weather/05", "copy-1", ("a.csv", "b.csv", "s/c.csv")
OLD = {"old.csv": b"old"}


def content_of(name: str) -> dict[str, bytes]:
    return {file: f"{file} of {name}".encode() for file in FILES}


class Worker:
    """A copy of content that has a name; it stands still before its n-th request until it is told to go on."""

    def __init__(self, url: str, name: str, stop: int) -> None:
        self.store = open_store(url, {})
        self.stopped = Event()
        self.error: StorageError | None = None
        self._content = content_of(name)
        self._left, self._lock, self._go = stop, Lock(), Event()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self.stopped.wait(60)

    def end(self) -> None:
        self._go.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def before_request(self) -> None:
        with self._lock:
            self._left -= 1
            is_due = self._left <= 0
        if is_due and not self._go.is_set():
            self.stopped.set()
            assert self._go.wait(60)

    @property
    def has_run_through(self) -> bool:
        return self._left > 0

    def _run(self) -> None:
        try:
            copy(self.store, self._content)
        except StorageError as exc:
            self.error = exc
        finally:
            self.stopped.set()


def fill(staging: Staging, content: dict[str, bytes]) -> None:
    generation = staging.open()
    for file, data in content.items():
        staging.put(file, len(data), [data])
    staging.seal(generation)
    staging.prepare(prepared(content))


def copy(store: InstanceStore, content: dict[str, bytes]) -> None:
    staging = store.staging(PATH, TOKEN)
    fill(staging, content)
    staging.publish(allow)
    staging.remove()


@contextmanager
def watched(workers: list[Worker]) -> Iterator[None]:
    ask, by_client = HdfsClient._ask, {id(client_of(worker.store)): worker for worker in workers}

    def asked(self: HdfsClient, request: Callable[[object], object], node: str = "") -> object:
        if id(self) in by_client:
            by_client[id(self)].before_request()
        return ask(self, request, node)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HdfsClient, "_ask", asked)
        yield


def overtake(url: str, first: int, second: int) -> bool:
    """One worker stands still before a request, another one before one of its own; the first wakes up, then the
    second. Return whether the first had no such request.
    """
    store = open_store(url, {})
    publish(store, PATH, OLD)
    workers = [Worker(url, "one", first), Worker(url, "two", second)]
    with watched(workers):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.end()
    found = store.look([PATH], "_SUCCESS")[0].availability
    told = f"{first}, {second}: {found}, {[str(worker.error) for worker in workers]}"
    if found is Availability.AVAILABLE:
        seen = read_all(store, PATH)
        assert seen in (OLD, content_of("one"), content_of("two")), f"{told}: {seen}"
        assert seen != OLD or all(worker.error for worker in workers), f"{told}: {seen}"
    else:
        assert found is Availability.PARTIAL, told
    copy(store, content_of("three"))
    assert read_all(store, PATH) == content_of("three"), told
    hidden = client_of(store).list(".feed-assets").files
    assert not hidden, f"{told}: {[*hidden]}"
    return workers[0].has_run_through


def test_what_is_taken_over_right_before_its_publication_is_not_published(hdfs_cluster: HdfsCluster) -> None:
    store = open_store(f"{hdfs_cluster.url}/taken-over", {})
    publish(store, PATH, OLD)
    one, two = (store.staging(PATH, TOKEN) for _ in range(2))
    fill(one, content_of("one"))
    with pytest.raises(StagingLostError):
        one.publish(lambda: fill(two, content_of("two")))
    assert read_all(store, PATH) == OLD
    two.publish(allow)
    assert read_all(store, PATH) == content_of("two")
    assert not client_of(store).list(".feed-assets").files


@pytest.mark.drill
def test_a_worker_that_is_overtaken_harms_nobody(hdfs_cluster: HdfsCluster) -> None:
    random, number = Random(5), 0
    for first in count(1):
        for second in sorted(random.sample(range(1, 80), 5)):
            number += 1
            has_ended = overtake(f"{hdfs_cluster.url}/overtaken-{number}", first, second)
        if has_ended:
            break
    print(f"{number} pairs")
    assert first > 50
