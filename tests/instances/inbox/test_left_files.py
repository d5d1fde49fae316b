"""Inboxes that leave their files: each version that a look has listed is taken once, or reported as gone before."""

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.instances.inbox import ingest
from feed_assets.instances.inbox.inbox_files import FileStatus
from feed_assets.instances.inbox.store import ListedVersion, ListedVersions, VersionStatus
from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.rebuild.rebuilding import rebuild_instances
from feed_assets.storage.local.store import LocalDeliveries
from tests.instances.harness import LifecycleHarness
from tests.instances.inbox.test_inboxes import (
    FIRST,
    MINUTE,
    InterruptError,
    ask,
    contents,
    harness,
    interrupt,
    look,
    orders,
    preview,
    put,
    take,
    taken,
)


@pytest.fixture
def left(tmp_path: Path) -> LifecycleHarness:
    return harness(tmp_path, leave=True)


def inbox_of(lifecycle: LifecycleHarness) -> Path:
    return lifecycle.root / "primary" / "in" / "orders"


def remembered(lifecycle: LifecycleHarness) -> dict[str, tuple[str, int]]:
    """What became of the newest version of each file, and its event."""
    with lifecycle.database.read() as connection:
        found = ListedVersions(connection, "orders", "primary").known()
    return {each.name: (each.status, each.event) for each in found}


def missed(lifecycle: LifecycleHarness) -> list[ListedVersion]:
    with lifecycle.database.read() as connection:
        return ListedVersions(connection, "orders", "primary").missed(0, 1 << 62)


def trace(folder: Path) -> dict[str, tuple[int, ...]]:
    """What any write in a directory, or a removal from it, would change."""
    paths = [folder, *folder.iterdir()]
    return {path.name: ((seen := path.stat()).st_ino, seen.st_mtime_ns, seen.st_ctime_ns) for path in paths}


def test_each_version_is_taken_once_and_the_directory_is_as_it_was(
    left: LifecycleHarness, caplog: pytest.LogCaptureFixture
) -> None:
    put(left, "1.json", "one"), put(left, "2.json", "two")
    before = trace(inbox_of(left))
    assert look(left).arrived == 1
    assert contents(left, FIRST) == {"1.json": "one", "2.json": "two"}
    assert preview(left) == {"1.json": FileStatus.KNOWN, "2.json": FileStatus.KNOWN}
    assert ask(left, FIRST + MINUTE) == {"1.json": FileStatus.KNOWN, "2.json": FileStatus.KNOWN}
    assert look(left, FIRST + 2 * MINUTE).arrived == 0
    assert trace(inbox_of(left)) == before
    put(left, "1.json", "new")
    assert look(left, FIRST + 3 * MINUTE).arrived == 1
    assert contents(left, FIRST + 3 * MINUTE) == {"1.json": "new"}
    assert remembered(left) == {"1.json": ("TAKEN", 2), "2.json": ("TAKEN", 1)}
    assert (missed(left), caplog.messages) == ([], [])


def test_the_same_content_under_a_new_version_is_read_once_more_and_not_taken(
    left: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(left, "1.json", "one")
    look(left)
    put(left, "1.json", "one", ago=3 * MINUTE), put(left, "copy.json", "one")
    assert ask(left, FIRST + MINUTE) == {"1.json": FileStatus.KNOWN, "copy.json": FileStatus.DUPLICATE}
    monkeypatch.setattr(LocalDeliveries, "chunks", None)
    assert look(left, FIRST + 2 * MINUTE).arrived == 0
    assert remembered(left) == {"1.json": ("TAKEN", 1)}


def test_what_leaves_the_listing_is_forgotten_and_new_when_it_comes_back(left: LifecycleHarness) -> None:
    path = put(left, "1.json", "one")
    look(left)
    path.rename(path.with_name(".aside"))
    put(left, "2.json", "other")
    look(left, FIRST + MINUTE)
    assert remembered(left) == {"2.json": ("TAKEN", 2)}
    path.with_name(".aside").rename(path)
    assert look(left, FIRST + 2 * MINUTE).arrived == 1
    assert contents(left, FIRST + 2 * MINUTE) == {"1.json": "one"}
    put(left, "1.json", "two")
    look(left, FIRST + 3 * MINUTE)
    put(left, "1.json", "one")
    assert look(left, FIRST + 4 * MINUTE).arrived == 1  # of three versions, as others write them: one, two, one


@pytest.mark.parametrize("duplicates", ["refuse", "take"])
def test_what_rotated_under_another_name_is_a_duplicate_while_its_first_name_is_there(
    tmp_path: Path, duplicates: str
) -> None:
    rotating = harness(tmp_path, leave=True, duplicates=duplicates)
    path = put(rotating, "1.json", "one")
    look(rotating)
    for number, text in enumerate(("two", "three"), 1):
        for old in (2, 1):
            if (former := path.with_name(f"{old}.json")).exists():
                former.rename(path.with_name(f"{old + 1}.json"))
        put(rotating, "1.json", text)
        assert look(rotating, FIRST + number * MINUTE).arrived == 1
        rotated = {"2.json": "one"} if number == 1 else {"2.json": "two", "3.json": "one"}
        others = {} if duplicates == "refuse" else rotated
        assert contents(rotating, FIRST + number * MINUTE) == {"1.json": text, **others}


@pytest.mark.parametrize("is_moved", [True, False])
def test_files_whose_directory_was_away_are_not_taken_again_but_others_in_their_place_are(
    left: LifecycleHarness, is_moved: bool
) -> None:
    put(left, "1.json", "one"), put(left, "2.json", "two"), put(left, "3.json", "three")
    look(left)
    folder = inbox_of(left)
    away = folder.rename(folder.with_name("away"))
    if not is_moved:  # the place of a mount that is away
        folder.mkdir()
    assert [look(left, FIRST + minute * MINUTE).arrived for minute in (1, 2)] == [0, 0]
    put(left, "../away/2.json", "two"), (away / "3.json").unlink()
    shutil.rmtree(folder, ignore_errors=True)
    away.rename(folder)
    assert [look(left, FIRST + minute * MINUTE).arrived for minute in (3, 4)] == [1, 0]
    assert contents(left, FIRST + 3 * MINUTE) == {"2.json": "two"}
    assert remembered(left) == {"1.json": ("TAKEN", 1), "2.json": ("TAKEN", 2)}


def test_a_version_that_goes_before_it_is_read_is_reported_once(
    left: LifecycleHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ingest, "MOST_FILES", 2)
    for number in range(5):
        put(left, f"{number}.json", f"old {number}", ago=timedelta(minutes=9 - number))
    look(left)
    put(left, "0.json", "new"), put(left, "3.json", "new and longer")
    (inbox_of(left) / "4.json").unlink()
    chunks = LocalDeliveries.chunks

    def chunks_late(deliveries: LocalDeliveries, name: str, version: str) -> Iterator[bytes | memoryview]:
        if name == "2.json":
            put(left, "2.json", "newest", ago=timedelta(hours=1))
        return chunks(deliveries, name, version)

    with monkeypatch.context() as patch:
        patch.setattr(LocalDeliveries, "chunks", chunks_late)
        look(left, FIRST + MINUTE)
    for minute in range(2, 5):
        look(left, FIRST + minute * MINUTE)
    assert [(each.name, each.size, each.status) for each in missed(left)] == [
        ("3.json", 5, VersionStatus.OVERWRITTEN),
        ("4.json", 5, VersionStatus.REMOVED),
        ("2.json", 5, VersionStatus.OVERWRITTEN),
    ]
    one, two = (each for each in caplog.messages if "went before it was read" in each)
    assert one.endswith(
        "in/orders went before it was read: 3.json (overwritten), 4.json (removed). "
        "`feed-assets feed files orders --cluster primary` tells of all."
    )
    assert "2.json (overwritten)" in two
    texts = [contents(left, event.nominal_time) for event in left.events("orders")]
    assert sorted(text for each in texts for text in each.values()) == [
        "new", "new and longer", "newest", "old 0", "old 1",
    ]  # fmt: skip


POINTS = [
    (ingest._Inbox, "_note", True),
    (ingest._Inbox, "_publish", False),
    (ingest._Inbox, "_publish", True),
    (ingest._Inbox, "_record_arrival", True),
    (FeedInstances, "put", False),
    (ListedVersions, "put", False),
]


@pytest.mark.parametrize(("owner", "name", "after"), POINTS)
def test_after_an_interruption_each_listed_version_is_in_one_instance_or_reported(
    left: LifecycleHarness, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    put(left, "1.json", "one"), put(left, "2.json", "two")
    with monkeypatch.context() as patch:
        interrupt(patch, owner, name, after=after)
        with pytest.raises(InterruptError):
            take(left)
    was_listed = name != "put" or owner is FeedInstances
    was_published = (name, after) in (("_publish", True), ("_record_arrival", True), ("put", False)) and was_listed
    put(left, "1.json", "new")
    for minute in range(1, 4):
        look(left, FIRST + minute * MINUTE)
    texts = [contents(left, event.nominal_time) for event in left.events("orders")]
    found = sorted(text for each in texts for text in each.values())
    assert found == sorted(["new", "two", *(["one"] if was_published else [])])
    reported = [] if was_published or not was_listed else ["1.json"]
    assert [each.name for each in missed(left)] == reported
    assert len(taken(left)) == len(found)
    assert sorted(path.name for path in inbox_of(left).iterdir()) == ["1.json", "2.json"]


def test_what_was_taken_is_taken_again_only_if_it_was_lost_and_somebody_writes_it(left: LifecycleHarness) -> None:
    put(left, "1.json", "one")
    look(left)
    left.evict("orders", FIRST)
    assert ask(left, FIRST + MINUTE) == {"1.json": FileStatus.KNOWN}
    put(left, "1.json", "one", ago=3 * MINUTE)
    assert ask(left, FIRST + MINUTE) == {"1.json": FileStatus.KNOWN}
    put(left, "1.json", "two")
    look(left, FIRST + 2 * MINUTE)
    shutil.rmtree(left.folder("orders", FIRST + 2 * MINUTE))
    assert ask(left, FIRST + 3 * MINUTE) == {"1.json": FileStatus.KNOWN}
    put(left, "1.json", "two", ago=3 * MINUTE)
    assert ask(left, FIRST + 4 * MINUTE) == {"1.json": FileStatus.TAKEN}


def test_without_leave_what_was_taken_and_stands_goes_and_nothing_is_taken_twice(left: LifecycleHarness) -> None:
    put(left, "1.json", "one")
    look(left)
    put(left, "2.json", "two")
    look(left, FIRST + MINUTE)
    shutil.rmtree(left.folder("orders", FIRST))
    left.declare(orders())
    put(left, "3.json", "three")
    assert ask(left, FIRST + 2 * MINUTE) == {
        "1.json": FileStatus.KNOWN,  # what it had is nowhere else
        "2.json": FileStatus.KNOWN,
        "3.json": FileStatus.TAKEN,
    }
    assert [path.name for path in inbox_of(left).iterdir()] == ["1.json"]
    look(left, FIRST + 3 * MINUTE)
    assert (len(left.events("orders")), missed(left)) == (3, [])
    left.declare(orders(leave=True))
    assert ask(left, FIRST + 4 * MINUTE) == {"1.json": FileStatus.KNOWN}


def test_what_waits_beyond_the_limits_is_taken_by_the_next_tick(
    left: LifecycleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest, "MOST_FILES", 2)
    for number in range(5):
        put(left, f"{number}.json", str(number))
    second = timedelta(seconds=1)
    assert [look(left, FIRST + n * second).arrived for n in range(4)] == [1, 1, 1, 0]
    assert look(left, FIRST + 59 * second).polled == 0
    assert {len(contents(left, event.nominal_time)) for event in left.events("orders")} == {1, 2}


def test_another_mode_or_time_makes_a_version_with_the_same_content(left: LifecycleHarness) -> None:
    path = put(left, "1.json", "one")
    look(left)
    path.chmod(0o400)
    os.utime(path, (0, 0))
    assert look(left, FIRST + MINUTE, datetime(2027, 1, 1, tzinfo=UTC)).arrived == 0
    assert remembered(left) == {"1.json": ("TAKEN", 1)}


def test_a_state_that_is_rebuilt_takes_nothing_twice(left: LifecycleHarness) -> None:
    put(left, "1.json", "one"), put(left, "2.json", "two")
    look(left)
    put(left, "2.json", "new")
    look(left, FIRST + MINUTE)
    anew = LifecycleHarness.of(left.root, orders(leave=True), state=f"sqlite:///{left.root}/anew.db")
    rebuild_instances(anew.context(FIRST + MINUTE))
    assert remembered(anew) == {"1.json": ("TAKEN", 1), "2.json": ("TAKEN", 2)}
    assert ask(anew, FIRST + 2 * MINUTE) == {"1.json": FileStatus.KNOWN, "2.json": FileStatus.KNOWN}
    assert preview(anew) == {"1.json": FileStatus.KNOWN, "2.json": FileStatus.KNOWN}
    assert len(anew.events("orders")) == 2
