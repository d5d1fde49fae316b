"""What leaves an inbox, and what does not: each content is in an instance or still there, whoever comes between."""

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.instances.inbox import ingest
from feed_assets.instances.inbox.inbox_files import FileStatus
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.storage.deliveries import DeliveredFile
from feed_assets.storage.local.store import LocalDeliveries
from feed_assets.storage.pool import StorePool
from feed_assets.storage.registry import open_store
from tests.instances.harness import LifecycleHarness
from tests.instances.inbox.test_inboxes import (
    FIRST,
    MINUTE,
    ask,
    contents,
    harness,
    look,
    orders,
    put,
    take,
    taken,
)
from tests.object_servers import ObjectServer, run_azure, run_s3
from tests.storage.harnesses import client_of


def everywhere(lifecycle: LifecycleHarness) -> set[str]:
    """All contents, in instances and in the inbox."""
    files = (lifecycle.root / "primary").rglob("*.json")
    return {path.read_text() for path in files if not path.name.startswith(".")}


def rename_over(path: Path, text: str) -> None:
    """Replace a file as careful producers do, by another one of the same size and time."""
    times = path.stat()
    new = path.with_name(".new")
    new.write_text(text)
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    new.rename(path)


@pytest.mark.parametrize(
    ("owner", "name"), [(ingest._Inbox, "_record_arrival"), (LocalDeliveries, "remove"), (LocalDeliveries, "_remove")]
)
def test_no_version_is_lost_that_is_renamed_over_a_file_while_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    lifecycle = harness(tmp_path)
    paths = [put(lifecycle, f"{n}.json", f"old {n}") for n in range(8)]
    former: Callable[..., Any] = getattr(owner, name)

    def come_between(*args: Any) -> Any:
        for n, path in enumerate(paths):
            if path.exists():
                rename_over(path, f"new {n}")
        return former(*args)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, come_between)
        look(lifecycle)
    look(lifecycle, FIRST + MINUTE)
    assert everywhere(lifecycle) == {f"{age} {n}" for age in ("old", "new") for n in range(8)}
    assert [path.exists() for path in paths] == [False] * 8
    assert [event.files for event in lifecycle.events("orders")] == [8, 8]


def test_no_version_is_lost_that_comes_after_a_removal_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = harness(tmp_path)
    path = put(lifecycle, "1.json", "old")

    remove = ingest._Inbox._remove

    def end(*_: object) -> bool:
        raise KeyboardInterrupt

    def remove_late(inbox: ingest._Inbox, files: Sequence[DeliveredFile]) -> object:
        rename_over(path, "new")
        return remove(inbox, files)

    with monkeypatch.context() as patch:
        patch.setattr(LocalDeliveries, "_is_same", end)
        patch.setattr(ingest._Inbox, "_remove", remove_late)
        with pytest.raises(KeyboardInterrupt):
            take(lifecycle)
    assert not path.exists()
    look(lifecycle, FIRST + MINUTE), look(lifecycle, FIRST + 2 * MINUTE)
    assert (everywhere(lifecycle), path.exists()) == ({"old", "new"}, False)


@pytest.mark.parametrize("loss", ["deleted", "cut", "evicted", "replaced"])
def test_what_is_delivered_again_is_taken_again_once_its_instance_is_gone(tmp_path: Path, loss: str) -> None:
    lifecycle = harness(tmp_path)
    put(lifecycle, "1.json", "one"), put(lifecycle, "2.json", "two")
    look(lifecycle)
    folder = lifecycle.folder("orders", FIRST)
    match loss:
        case "deleted":
            shutil.rmtree(folder)
        case "cut":
            (folder / "1.json").unlink()
        case "evicted":
            lifecycle.evict("orders", FIRST)
        case "replaced":
            replace_recorded(lifecycle)
    put(lifecycle, "1.json", "one")
    assert ask(lifecycle, FIRST + MINUTE) == {"1.json": FileStatus.TAKEN}
    assert contents(lifecycle, FIRST + MINUTE) == {"1.json": "one"}
    put(lifecycle, "1.json", "one")
    assert ask(lifecycle, FIRST + 2 * MINUTE) == {"1.json": FileStatus.KNOWN}


def replace_recorded(lifecycle: LifecycleHarness) -> None:
    """Give the instance other content, and record that."""
    (lifecycle.folder("orders", FIRST) / "1.json").write_text("1st")
    row = lifecycle.feed_instances("orders")[FIRST]
    with lifecycle.database.begin() as connection:
        FeedInstances(connection).put([replace(row, manifest_digest="another")])


def test_what_was_published_and_lost_before_its_files_were_removed_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = harness(tmp_path)
    put(lifecycle, "1.json", "one")

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ingest._Inbox, "_remove", end)
        with pytest.raises(KeyboardInterrupt):
            take(lifecycle)
    shutil.rmtree(lifecycle.folder("orders", FIRST))
    assert ask(lifecycle, FIRST + MINUTE) == {"1.json": FileStatus.TAKEN}
    assert contents(lifecycle, FIRST + MINUTE) == {"1.json": "one"}


def test_a_take_that_fails_leaves_no_staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle = harness(tmp_path)
    put(lifecycle, "1.json", "one"), put(lifecycle, "2.json", "two")
    entry = ingest._Inbox._entry

    def fill(inbox: Any, file: Any, copy: Any = None) -> Any:
        if copy is not None and file.name == "2.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return entry(inbox, file, copy)

    with monkeypatch.context() as patch:
        patch.setattr(ingest._Inbox, "_entry", fill)
        for minute in range(3):
            with pytest.raises(OSError, match="No space left"):
                look(lifecycle, FIRST + minute * MINUTE)
            assert lifecycle.staged() == []
    assert look(lifecycle, FIRST + 3 * MINUTE).arrived == 1


@pytest.fixture(params=["s3", "azure"])
def server(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    with {"s3": run_s3, "azure": run_azure}[request.param]() as server:
        yield server


def on_objects(tmp_path: Path, server: ObjectServer) -> LifecycleHarness:
    """The harness with its cluster in a bucket."""
    lifecycle = LifecycleHarness.of(tmp_path, orders(settle="seconds(1)"), scheme="memory")
    options = {**server.options, "scratch": str(tmp_path / "scratch")}
    lifecycle.stores = StorePool(lambda *_: open_store(f"{server.url}/{tmp_path.name}", options))
    return lifecycle


def look_later(lifecycle: LifecycleHarness, minutes: int = 0) -> int:
    """Look once everything has settled, and return how many instances have come."""
    return look(lifecycle, FIRST + minutes * MINUTE, datetime.now(UTC) + timedelta(hours=1)).arrived


@pytest.mark.server
def test_no_version_is_lost_that_is_written_over_an_object_while_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ObjectServer
) -> None:
    lifecycle = on_objects(tmp_path, server)
    client = client_of(lifecycle.store())
    for number in range(4):
        client.put(f"in/orders/{number}.json", b"old %d" % number)
    record = ingest._Inbox._record_arrival

    def come_between(*args: Any) -> int:
        event: int = record(*args)
        for number in range(2):
            client.put(f"in/orders/{number}.json", b"new %d" % number)
        return event

    with monkeypatch.context() as patch:
        patch.setattr(ingest._Inbox, "_record_arrival", come_between)
        assert look_later(lifecycle) == 1
    assert list(client.list("in/orders").files) == ["0.json", "1.json"]
    assert look_later(lifecycle, 1) == 1
    assert client.list("in/orders").files == {}
    assert [each.name[0] for each in taken(lifecycle)] == ["0", "1", "2", "3", "0", "1"]


@pytest.mark.server
def test_an_inbox_on_s3_asks_at_most_six_requests_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = 40
    with run_s3() as server:
        lifecycle = on_objects(tmp_path, server)
        client = client_of(lifecycle.store())
        for number in range(files):
            client.put(f"in/orders/{number}.json", b"%d" % number)
        with caplog.at_level(logging.INFO, "werkzeug"):
            assert look_later(lifecycle) == 1
        assert client.list("in/orders").files == {}
    assert files < len(caplog.messages) <= 6 * files
