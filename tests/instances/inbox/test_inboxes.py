"""Inboxes: files that hold still become one instance, each content once, whoever is interrupted."""

import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.entities.feed import Feed
from feed_assets.instances.arrival.polling import ArrivalResult
from feed_assets.instances.inbox import ingest
from feed_assets.instances.inbox.asking import preview_files
from feed_assets.instances.inbox.inbox_files import FileStatus, SeenFile, find_files, list_inbox
from feed_assets.instances.inbox.ingest import apply_inboxes, take_files
from feed_assets.instances.inbox.store import TakenFile, TakenFiles
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.storage.errors import PathRefusedError
from feed_assets.storage.local.calls import LocalCalls
from feed_assets.storage.local.store import LocalDeliveries
from feed_assets.storage.pool import StorePool
from feed_assets.storage.registry import open_store
from tests.instances.harness import START, LifecycleHarness, at, validity
from tests.object_servers import BUCKET, ObjectServer, s3_client

FIRST = at("01T06:00")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""The time of storage."""
MINUTE = timedelta(minutes=1)


def orders(**inbox: Any) -> Feed:
    return Feed(
        name="orders",
        instances="as-they-come",
        frequency="seconds(1)",
        inbox={"directory": "/in/orders", "pattern": "*.json", **inbox},
        format="json",
        locations={"data": "/orders/${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"},
        clusters={"primary": validity(START, None)},
    )


def harness(tmp_path: Path, **inbox: Any) -> LifecycleHarness:
    return LifecycleHarness.of(tmp_path, orders(**inbox))


def put(lifecycle: LifecycleHarness, name: str, text: str, ago: timedelta = 2 * MINUTE) -> Path:
    """Put a file into the inbox that was written some time ago."""
    path = lifecycle.folder("orders", START).parents[2] / "in" / "orders" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    written = (NOW - ago).timestamp()
    os.utime(path, (written, written))
    return path


def look(lifecycle: LifecycleHarness, as_of: datetime = FIRST, real_now: datetime = NOW) -> ArrivalResult:
    return apply_inboxes(lifecycle.open_tick(as_of, real_clock=FrozenClock(real_now)))


def ask(lifecycle: LifecycleHarness, as_of: datetime = FIRST) -> dict[str, FileStatus]:
    """What becomes of each file when somebody asks for it."""
    return {each.name: each.status for each in take(lifecycle, as_of)}


def take(lifecycle: LifecycleHarness, as_of: datetime = FIRST) -> tuple[SeenFile, ...]:
    record = lifecycle.feed("orders")
    found = list_inbox(lifecycle.context(FIRST), record)
    return take_files(lifecycle.context(as_of, real_clock=FrozenClock(NOW)), record, found, is_asked=True)


def preview(lifecycle: LifecycleHarness) -> dict[str, FileStatus]:
    record = lifecycle.feed("orders")
    found = preview_files(lifecycle.context(NOW), record, find_files(lifecycle.stores, record))
    return {each.name: each.status for each in found}


def contents(lifecycle: LifecycleHarness, time: datetime) -> dict[str, str]:
    folder = lifecycle.folder("orders", time)
    return {path.name: path.read_text() for path in folder.glob("[a-z0-9]*.json")}


def taken(lifecycle: LifecycleHarness) -> list[TakenFile]:
    events = [event.seq for event in lifecycle.events("orders")]
    with lifecycle.database.read() as connection:
        return TakenFiles(connection).of_events(events)


def test_files_that_have_settled_become_one_instance_at_the_second_of_the_look(tmp_path: Path) -> None:
    lifecycle = harness(tmp_path)
    one, two = put(lifecycle, "1.json", "one"), put(lifecycle, "2.json", "two")
    young = put(lifecycle, "3.json", "thr", ago=MINUTE - timedelta(seconds=1))
    assert look(lifecycle) == ArrivalResult(polled=3, arrived=1)
    (event,) = lifecycle.events("orders")
    assert (event.nominal_time, event.origin, event.files, event.bytes) == (FIRST, "inbox", 2, 6)
    assert contents(lifecycle, FIRST) == {"1.json": "one", "2.json": "two"}
    assert [(each.event, each.name, each.size) for each in taken(lifecycle)] == [(1, "1.json", 3), (1, "2.json", 3)]
    assert (one.exists(), two.exists(), young.read_text()) == (False, False, "thr")
    row = lifecycle.feed_instances("orders")[FIRST]
    assert (row.manifest_digest, row.event_seq) == (event.manifest_digest, 1)
    assert lifecycle.staged() == []
    assert list(lifecycle.store().trash().sweeps()) == []


def test_a_look_is_due_after_each_settle_and_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    lifecycle = harness(tmp_path)
    look(lifecycle)
    put(lifecycle, "1.json", "one")
    assert look(lifecycle, FIRST + timedelta(seconds=59)).polled == 0
    assert look(lifecycle, FIRST - MINUTE).arrived == 1
    put(lifecycle, "2.json", "two")
    assert look(lifecycle, FIRST).arrived == 1


def test_only_files_with_fitting_names_are_taken(tmp_path: Path) -> None:
    lifecycle = harness(tmp_path)
    for name in ("a.csv", ".a.json", "_a.json", "a.json.part", "below/a.json", "folder.json/a.json"):
        put(lifecycle, name, name)
    assert look(lifecycle) == ArrivalResult()
    put(lifecycle, "a.json", "")
    assert ask(lifecycle) == {"a.json": FileStatus.EMPTY}
    assert lifecycle.events() == []


def test_a_file_put_twice_is_loaded_once_and_another_name_with_its_bytes_is_refused_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lifecycle = harness(tmp_path)
    put(lifecycle, "1.json", "one")
    look(lifecycle)
    again, other = put(lifecycle, "1.json", "one"), put(lifecycle, "copy.json", "one")
    for minute in range(1, 4):
        assert look(lifecycle, FIRST + minute * MINUTE).arrived == 0
    assert (again.exists(), other.exists()) == (False, True)
    assert preview(lifecycle) == {"copy.json": FileStatus.DUPLICATE}
    (told,) = caplog.messages
    assert "copy.json stays in the inbox: its content is that of '1.json'." in told
    assert "`feed-assets feed take orders --cluster primary` tries again" in told
    put(lifecycle, "1.json", "other")
    assert look(lifecycle, FIRST + 4 * MINUTE).arrived == 1
    assert len(lifecycle.events("orders")) == 2


def test_of_two_files_with_the_same_bytes_the_older_one_is_taken(tmp_path: Path) -> None:
    lifecycle = harness(tmp_path)
    put(lifecycle, "a.json", "one"), put(lifecycle, "z.json", "one", ago=3 * MINUTE)
    look(lifecycle)
    assert contents(lifecycle, FIRST) == {"z.json": "one"}
    assert preview(lifecycle) == {"a.json": FileStatus.DUPLICATE}


def test_an_inbox_can_take_duplicates(tmp_path: Path) -> None:
    lifecycle = harness(tmp_path, duplicates="take")
    put(lifecycle, "1.json", "one"), put(lifecycle, "2.json", "one")
    look(lifecycle)
    put(lifecycle, "1.json", "one"), put(lifecycle, "3.json", "one")
    assert ask(lifecycle, FIRST + MINUTE) == {"1.json": FileStatus.KNOWN, "3.json": FileStatus.TAKEN}


def test_a_file_that_is_written_between_the_look_and_its_reading_stays(tmp_path: Path) -> None:
    lifecycle = harness(tmp_path)
    grown, gone = put(lifecycle, "1.json", "one"), put(lifecycle, "2.json", "two")
    piped, linked = put(lifecycle, "3.json", "three"), put(lifecycle, "4.json", "four")
    record = lifecycle.feed("orders")
    found = list_inbox(lifecycle.context(FIRST), record)
    put(lifecycle, "1.json", "one and more", ago=timedelta(0))
    gone.unlink()
    piped.unlink()
    os.mkfifo(piped)  # nobody writes into it, and nobody waits for that
    linked.rename(linked.with_name("_4"))
    linked.symlink_to("_4")
    seen = take_files(lifecycle.context(FIRST, real_clock=FrozenClock(NOW)), record, found)
    assert [each.status for each in seen] == [FileStatus.CHANGING] * 4
    assert [each.name for each in find_files(lifecycle.stores, record)] == ["1.json"]  # a link is no delivery
    assert grown.read_text() == "one and more"
    assert lifecycle.events() == []


def test_a_file_that_is_written_while_it_is_taken_stays_and_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = harness(tmp_path)
    put(lifecycle, "1.json", "one"), put(lifecycle, "2.json", "two")
    with monkeypatch.context() as patch:
        interrupt(patch, ingest._Inbox, "_publish")
        with pytest.raises(InterruptError):
            take(lifecycle)
    rewritten = put(lifecycle, "1.json", "new")
    assert look(lifecycle, FIRST + MINUTE).arrived == 2
    assert contents(lifecycle, FIRST) == {"2.json": "two"}
    assert contents(lifecycle, FIRST + MINUTE) == {"1.json": "new"}
    assert not rewritten.exists()


class InterruptError(Exception):
    """The end of a process."""


def interrupt(patch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool = False) -> None:
    """Let a call end the process, before it does something or after."""
    former: Callable[..., Any] = getattr(owner, name)

    def ended(*args: Any, **kwargs: Any) -> None:
        if after:
            former(*args, **kwargs)
        raise InterruptError

    patch.setattr(owner, name, ended)


POINTS = [
    (ingest._Inbox, "_publish", False),
    (ingest._Inbox, "_publish", True),
    (ingest._Inbox, "_record_arrival", True),
    (ingest._Inbox, "_remove", True),
    (FeedInstances, "put", False),
    (LocalCalls, "move", True),
    (LocalCalls, "remove_file", False),
]


@pytest.mark.parametrize(("owner", "name", "after"), POINTS)
def test_after_an_interruption_the_next_look_goes_on_with_the_same_files_and_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    lifecycle = harness(tmp_path)
    put(lifecycle, "1.json", "one"), put(lifecycle, "2.json", "two")
    with monkeypatch.context() as patch:
        interrupt(patch, owner, name, after=after)
        with pytest.raises(InterruptError):
            take(lifecycle)
    later = put(lifecycle, "3.json", "three")
    look(lifecycle, FIRST + MINUTE)
    look(lifecycle, FIRST + 2 * MINUTE)
    assert [event.nominal_time for event in lifecycle.events("orders")] == [FIRST, FIRST + MINUTE]
    assert contents(lifecycle, FIRST) == {"1.json": "one", "2.json": "two"}
    assert [each.name for each in taken(lifecycle)] == ["1.json", "2.json", "3.json"]
    assert list(later.parent.iterdir()) == []
    assert {path.name for path in lifecycle.folder("orders", FIRST).parent.iterdir()} == {"060000", "060100"}


def test_two_programs_at_once_take_a_file_once(tmp_path: Path) -> None:
    lifecycle = harness(tmp_path)
    for number in range(20):
        put(lifecycle, f"{number}.json", str(number))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: take(lifecycle), range(4)))
    take(lifecycle, FIRST + MINUTE)
    names = [each.name for each in taken(lifecycle)]
    assert sorted(names) == sorted(f"{number}.json" for number in range(20))
    assert preview(lifecycle) == {}


def test_a_look_that_is_overtaken_while_it_stages_ends_and_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle, entry, calls = harness(tmp_path), ingest._Inbox._entry, list[str]()
    for number in range(3):
        put(lifecycle, f"{number}.json", str(number))

    def overtaken(inbox: Any, file: Any, copy: Any = None) -> Any:
        if copy is not None:
            calls.append(file.name)
            if file.name == "0.json" and calls.count(file.name) == 1:
                take(lifecycle, FIRST + MINUTE)
        return entry(inbox, file, copy)

    monkeypatch.setattr(ingest._Inbox, "_entry", overtaken)
    assert take(lifecycle) == ()
    assert calls.count("0.json") == 2
    assert contents(lifecycle, FIRST) == {f"{number}.json": str(number) for number in range(3)}
    assert preview(lifecycle) == {}


def test_a_file_that_cannot_be_removed_is_told_once_and_no_second_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lifecycle = harness(tmp_path)
    stuck = put(lifecycle, "1.json", "one")

    def refuse(_self: LocalCalls, _folder: int, name: str, *_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)

    with monkeypatch.context() as patch:
        patch.setattr(LocalCalls, "move", refuse)
        for minute in range(3):
            look(lifecycle, FIRST + minute * MINUTE)
        assert ask(lifecycle, FIRST + 3 * MINUTE) == {"1.json": FileStatus.STUCK}
        assert look(lifecycle, FIRST + 5 * MINUTE).arrived == 0
    (told,) = caplog.messages
    assert "1.json stays in the inbox: it was taken, but it cannot be removed: this user lacks the permission." in told
    assert len(lifecycle.events("orders")) == 1
    assert ask(lifecycle, FIRST + 6 * MINUTE) == {"1.json": FileStatus.KNOWN}
    assert not stuck.exists()


def test_a_file_that_cannot_be_read_keeps_no_other_from_being_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = harness(tmp_path)
    put(lifecycle, "1.json", "one"), put(lifecycle, "2.json", "two")
    read = LocalDeliveries.chunks

    def refuse(deliveries: LocalDeliveries, name: str, version: str) -> Iterator[bytes | memoryview]:
        if name == "1.json":
            raise PathRefusedError(store="file:///", path="1.json", reason="it is of somebody else")
        return read(deliveries, name, version)

    monkeypatch.setattr(LocalDeliveries, "chunks", refuse)
    assert look(lifecycle).arrived == 1
    assert preview(lifecycle) == {"1.json": FileStatus.STUCK}


def test_a_link_in_an_inbox_is_no_file(tmp_path: Path) -> None:
    lifecycle = harness(tmp_path)
    put(lifecycle, "1.json", "one").rename(lifecycle.folder("orders", START).parents[2] / "elsewhere.json")
    (lifecycle.folder("orders", START).parents[2] / "in" / "orders" / "1.json").symlink_to("../../elsewhere.json")
    assert preview(lifecycle) == {}


def test_ticks_leave_large_files_to_those_who_ask_and_take_so_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MOST_FILES", 2)
    monkeypatch.setattr(ingest, "LARGEST_IN_TICKS", 5)
    lifecycle = harness(tmp_path)
    for name, text in {"1.json": "one", "2.json": "two", "3.json": "six", "4.json": "eleven"}.items():
        put(lifecycle, name, text)
    for minute in range(4):
        look(lifecycle, FIRST + minute * MINUTE)
    assert [len(contents(lifecycle, FIRST + minute * MINUTE)) for minute in range(4)] == [1, 1, 1, 0]
    assert preview(lifecycle) == {"4.json": FileStatus.TOO_LARGE}
    assert ask(lifecycle, FIRST + 4 * MINUTE) == {"4.json": FileStatus.TAKEN}


def test_an_inbox_of_another_directory_forgets_what_it_left_and_ends_what_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = harness(tmp_path)
    put(lifecycle, "1.json", "one")
    with monkeypatch.context() as patch:
        interrupt(patch, ingest._Inbox, "_publish", after=True)
        with pytest.raises(InterruptError):
            take(lifecycle)
    lifecycle.declare(orders(directory="/in/elsewhere"))
    look(lifecycle)
    assert [event.nominal_time for event in lifecycle.events("orders")] == [FIRST]


@pytest.mark.parametrize("scheme", ["memory"])
def test_objects_are_taken_as_files_are(tmp_path: Path, scheme: str) -> None:
    lifecycle = LifecycleHarness.of(tmp_path, orders(settle="seconds(1)"), scheme=scheme)
    staging = lifecycle.store().stage("in/orders", "by-hand")
    staging.local_path.mkdir(parents=True, exist_ok=True)
    for name in ("1.json", "2.json"):
        (staging.local_path / name).write_text(name)
    lifecycle.store().publish(staging, flag=None, guard=lambda: None, extra={})
    later = datetime.now(UTC) + timedelta(seconds=5)
    assert look(lifecycle, FIRST, later).arrived == 1
    assert lifecycle.store().all_files("in/orders") == (".feed-assets.manifest.json",)
    assert [each.name for each in taken(lifecycle)] == ["1.json", "2.json"]


def test_a_file_that_another_program_takes_while_it_is_opened_is_gone_and_no_fault_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle = harness(tmp_path)
    file = put(lifecycle, "1.json", "one")
    record = lifecycle.feed("orders")
    found = list_inbox(lifecycle.context(FIRST), record)
    open_folder = LocalCalls.opened_below

    @contextmanager
    def open_late(calls: LocalCalls, root: str, path: str) -> Iterator[int]:
        with open_folder(calls, root, path) as folder:
            file.unlink(missing_ok=True)
            yield folder

    monkeypatch.setattr(LocalCalls, "opened_below", open_late)
    (seen,) = take_files(lifecycle.context(FIRST, real_clock=FrozenClock(NOW)), record, found)
    assert seen.status is FileStatus.CHANGING


@pytest.mark.server
def test_a_key_that_nobody_can_take_stays_with_a_sentence_and_the_others_are_taken(
    tmp_path: Path, s3_server: ObjectServer, caplog: pytest.LogCaptureFixture
) -> None:
    lifecycle, root = harness(tmp_path), f"{s3_server.url}/{tmp_path.name}"
    options = {**s3_server.options, "scratch": str(tmp_path / "scratch")}
    lifecycle.stores = StorePool(lambda *_: open_store(root, options))
    client = s3_client(s3_server.options)
    odd = {"/y.json", "b\x01.json"}
    for name in ("a.json", *odd):
        client.put_object(Bucket=BUCKET, Key=f"{tmp_path.name}/in/orders/{name}", Body=name.encode())
    later = datetime.now(UTC) + 2 * MINUTE
    assert look(lifecycle, real_now=later) == ArrivalResult(polled=3, arrived=1)
    assert look(lifecycle, FIRST + MINUTE, later) == ArrivalResult(polled=2)
    assert [each.name for each in taken(lifecycle)] == ["a.json"]
    told = [each for each in caplog.messages if "stays in the inbox" in each]
    assert len(told) == 2
    empty = "its key has an empty part (`//`); give it another one"
    again = "After you have changed that, `feed-assets feed take orders --cluster primary` tries again."
    assert f"feed orders on primary: {root}/in/orders//y.json stays in the inbox: {empty}. {again}" in told
    assert ask(lifecycle) == dict.fromkeys(odd, FileStatus.STUCK)
