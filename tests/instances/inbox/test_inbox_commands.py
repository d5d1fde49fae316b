"""`feed take` and `feed files`: what is in an inbox, what becomes of it, and which files an event has brought."""

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from feed_assets.clock import FrozenClock
from feed_assets.context.operation import open_context
from feed_assets.context.tick import open_tick
from feed_assets.instances.inbox import ingest
from feed_assets.instances.inbox.ingest import apply_inboxes
from feed_assets.settings import load_settings
from feed_assets.sql.database import open_database
from tests.cli.pasting import Pasting, of, paste
from tests.cli.project import ok, run, shown
from tests.projects import declare, enter

__all__ = ["paste"]

ON = {"clusters": {"here": {"validity": {"start": "2026-01-01T00:00Z"}}}}
PLACE = "${YEAR}-${MONTH}-${DAY}/${HOUR}${MINUTE}${SECOND}"
ENTITIES = [
    {"kind": "cluster", "name": "here", "storage": "file://${PROJECT_ROOT}/data"},
    {
        "kind": "feed",
        "name": "orders",
        "instances": "as-they-come",
        "inbox": {"directory": "/in/orders", "pattern": "*.json"},
        "format": "json",
        "locations": {"data": f"/orders/{PLACE}"},
        **ON,
    },
    {"kind": "feed", "name": "clicks", "instances": "as-they-come", "locations": {"data": f"/clicks/{PLACE}"}, **ON},
    {"kind": "feed", "name": "approval", "signal": True, **ON},
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter(tmp_path, monkeypatch)
    declare(tmp_path, *ENTITIES)
    return tmp_path


def put(project: Path, name: str, text: str, minutes: int = 5) -> Path:
    path = project / "data" / "in" / "orders" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    written = (datetime.now(UTC) - timedelta(minutes=minutes)).timestamp()
    os.utime(path, (written, written))
    return path


def seen(*more: str) -> dict[str, str]:
    """What `feed take` says of each file."""
    (inbox,) = shown("feed", "take", "orders", *more)["inboxes"]
    return {file["name"]: file["status"] for file in inbox["files"]}


def tick(project: Path) -> None:
    """Look into the inbox as a sensor does, two minutes from now."""
    context = open_context(load_settings({}, start=project), open_database(f"sqlite:///{project}/state.db"))
    now = datetime.now(UTC) + timedelta(minutes=2)
    apply_inboxes(open_tick(replace(context, as_of=now, real_clock=FrozenClock(now)), "here"))


def files(*more: str, feed: str = "orders") -> list[list[str]]:
    """The rows of `feed files`, without the folder of each path."""
    header, *rows = (line.split(",") for line in ok(run("feed", "files", feed, *more, "--output", "csv")).splitlines())
    assert header == ["path", "size", "checksum", "event"]
    return [[row[0].rpartition("/")[2], row[1], row[2][:7], row[3]] for row in rows]


def test_the_inbox_is_shown_and_emptied(project: Path) -> None:
    put(project, "a.json", "{}"), put(project, "b.json", "[]"), put(project, "c.json", "", minutes=0)
    found = {"a.json": "READY", "b.json": "READY", "c.json": "SETTLING"}
    assert seen("--dry-run") == found
    assert (project / "data/in/orders/a.json").exists()
    result = run("feed", "take", "orders")
    assert "a.json\t2\tTAKEN\t20" in ok(result)
    assert f"feed 'orders' on here: 3 files in file://{project}/data/in/orders" in result.stderr
    put(project, "a.json", "{}"), put(project, "d.json", "[]")
    assert seen() == {"a.json": "KNOWN", "d.json": "DUPLICATE", "c.json": "SETTLING"}
    (audited,) = shown("admin", "audit")["audit"]
    assert (audited["action"], audited["author"], audited["details"]["files"]) == ("feed take", "ann", 2)


def test_a_name_that_cannot_be_recorded_stays_with_a_sentence_and_the_others_are_taken(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = f"{'n' * 230}.json"
    for name in (os.fsdecode(b"\xff.json"), long, "line\nbreak.json", "ü ?*[%41]#+&.json"):
        put(project, name, name.encode(errors="replace").decode())
    left = {"\\xff.json": "STUCK", "line\nbreak.json": "STUCK", long: "STUCK"}
    assert seen("--dry-run").items() >= left.items()
    tick(project)
    assert seen() == left
    told = "".join(caplog.messages)
    said = "stays in the inbox: its name is not UTF-8, or has control characters; give it another one."
    assert f"/\\xff.json {said}" in told
    assert f"break.json {said}" in told
    assert "its name has 235 bytes, but a file here has at most 233; give it a shorter one." in told
    assert len(list((project / "data/in/orders").iterdir())) == 3
    assert len(list((project / "data/orders").rglob("ü*.json"))) == 1


def test_files_tell_of_one_that_waits_for_its_time(project: Path) -> None:
    put(project, "a.json", "{}"), put(project, "b.json", "[]", minutes=-60)
    assert seen() == {"a.json": "TAKEN", "b.json": "AHEAD"}
    result = run("feed", "files", "orders", "--output", "csv")
    assert "in the inbox of feed orders on here waits b.json: its time is 20" in result.stderr
    assert len(ok(result).splitlines()) == 2


def test_a_large_inbox_is_emptied_whole_and_ticks_remember_what_stays(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ingest, "MOST_FILES", 2)
    put(project, "a.json", "{}", minutes=9)
    for name in ("b", "c", "d", "e"):
        put(project, f"{name}.json", "{}", minutes=8)
    put(project, "z.json", "[]"), put(project, "zz.json", "1")
    assert set(seen().items()) >= {("a.json", "TAKEN"), ("e.json", "DUPLICATE"), ("z.json", "TAKEN")}
    assert seen("--dry-run") == dict.fromkeys(("b.json", "c.json", "d.json", "e.json"), "DUPLICATE")
    caplog.clear()
    tick(project)
    assert caplog.messages == []


def test_bd_37_files_of_a_range_of_events_are_listed_with_both_ends(project: Path) -> None:
    for number in range(1, 5):
        put(project, f"{number}.json", str(number))
        seen()
    assert [row[3] for row in files("--from-event", "2", "--to-event", "3")] == ["2", "3"]
    assert files("--from-event", "2", "--to-event", "2") == [["2.json", "1", "blake3:", "2"]]
    assert files("--from-event", "5") == []
    assert len(files()) == 4
    document = shown("feed", "files", "orders")
    times = [each["nominal_time"] for each in document["files"]]
    assert len(files("--start", times[1], "--end", times[2])) == 2


def test_files_that_nobody_has_read_have_no_checksum_and_those_that_are_gone_are_named(project: Path) -> None:
    time = "2026-01-02T03:04:05Z"
    folder = project / "data/clicks/2026-01-02/030405"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "part-0.csv").write_text("click")
    ok(run("feed", "notify", "clicks", time))
    assert files(feed="clicks") == [["part-0.csv", "5", "", "1"]]
    (folder / "part-1.csv").write_text("more")
    ok(run("feed", "notify", "clicks", time, "--again"))
    changed = run("feed", "files", "clicks", "--output", "csv")
    assert (
        "event 1, 2026-01-02T03:04:05Z: its files are not known any more: event 2 has brought other" in changed.stderr
    )
    assert [row[3] for row in files(feed="clicks")] == ["2", "2"]
    shutil.rmtree(folder)
    gone = shown("feed", "files", "clicks", "--from-event", "2")
    assert [each["reason"] for each in gone["unlisted"]] == ["the instance is not there any more"]


def test_what_was_taken_stays_known_without_its_instance(project: Path) -> None:
    put(project, "a.json", "{}")
    seen()
    shutil.rmtree(project / "data/orders")
    assert files() == [["a.json", "2", "blake3:", "1"]]


def test_safe_mode_takes_nothing(project: Path) -> None:
    put(project, "a.json", "{}")
    ok(run("admin", "safemode", "on", "--reason", "storage moves"))
    refused = run("feed", "take", "orders")
    assert (refused.exit_code, "safe mode" in refused.stderr) == (1, True)
    assert seen("--dry-run") == {"a.json": "READY"}


@of("instances.inbox.ingest._Inbox._warn: feed take")
def test_what_ticks_leave_is_taken_once_nothing_speaks_against_it(
    project: Path, paste: Pasting, caplog: pytest.LogCaptureFixture
) -> None:
    left = put(project, "a.json", "{}"), put(project, "b.json", "{}")
    assert seen("--dry-run") == {"a.json": "READY", "b.json": "READY"}
    tick(project)
    put(project, "b.json", "[]")
    assert "TAKEN" in paste(caplog.text, "feed take").stdout
    assert [path.exists() for path in left] == [False, False]


@of("instances.inbox.ingest._Inbox._note: feed files")
def test_what_went_before_it_was_read_is_said_by_the_log_and_listed(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, paste: Pasting
) -> None:
    monkeypatch.setattr(ingest, "MOST_FILES", 1)
    leaving = {**ENTITIES[1], "inbox": {"directory": "/in/orders", "leave": True}}
    declare(project, ENTITIES[0], leaving)
    put(project, "a.json", "{}", minutes=9), put(project, "b.json", "[]", minutes=8)
    tick(project)
    put(project, "b.json", "[1]", minutes=7)
    tick(project)
    (said,) = (each for each in caplog.messages if "went before it was read: b.json (overwritten)" in each)
    result = paste(said, "feed files")
    assert "b.json: a version of 2 bytes (" in result.stderr
    assert ") was never read: it was overwritten after a look had listed it" in result.stderr
    (missed,) = shown("feed", "files", "orders", "--from-event", "1", "--to-event", "1")["missed"]
    assert (missed["name"], missed["size"], missed["status"]) == ("b.json", 2, "OVERWRITTEN")
    assert shown("feed", "files", "orders", "--from-event", "2")["missed"] == []
    assert seen("--dry-run") == {"a.json": "KNOWN", "b.json": "KNOWN"}
