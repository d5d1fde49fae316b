"""The definitions that a server keeps between requests."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from feed_assets.clock import FrozenClock, SystemClock
from feed_assets.definitions import contents, folder
from feed_assets.definitions.journal import Journal
from feed_assets.loading.entity_files import stamp_files
from feed_assets.server.definitions import KeptDefinitions
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database
from tests.cli.project import must
from tests.definitions.verbs.harness import CLICKS
from tests.server.project import open_project, serve

LATER = SystemClock().now() + timedelta(days=1)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    opened = open_project(tmp_path, monkeypatch)
    yield opened
    opened.close()


def test_the_stamp_of_files_is_another_after_each_change_and_none_just_after_one(tmp_path: Path) -> None:
    file = tmp_path / "feeds" / "a.yaml"
    file.parent.mkdir()
    file.write_text("kind: feed")
    assert stamp_files(str(tmp_path), SystemClock().now()) is None, "another change may have the same time"
    before = stamp_files(str(tmp_path), LATER)
    assert before is not None
    assert before == stamp_files(str(tmp_path), LATER)
    seen = file.stat()
    file.write_text("kind: need")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert before != stamp_files(str(tmp_path), LATER), "the size and the time of the content are the same"
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "b.yaml").touch()
    (tmp_path / "notes.txt").touch()
    assert stamp_files(str(tmp_path), LATER) == stamp_files(str(tmp_path), LATER + timedelta(days=1))
    assert len(stamp_files(str(tmp_path), LATER) or ()) == 1
    (tmp_path / "c.yaml").symlink_to("nowhere.yaml")
    assert stamp_files(str(tmp_path), LATER) is None
    assert stamp_files("s3://bucket/entities", LATER) is None
    assert stamp_files(str(file), LATER) is None


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The locations whose files are read, in order."""
    found, read = list[str](), folder.read_entity_files

    def count(location: str) -> Any:
        found.append(location)
        return read(location)

    monkeypatch.setattr(folder, "read_entity_files", count)
    return found


def test_contents_are_read_again_only_after_a_change(
    database: Database, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptDefinitions(load_settings(), database)
    kept.open_context()
    kept.open_context()
    assert len(reads) == 3, "the files have been changed just now"
    monkeypatch.setattr(folder, "SystemClock", lambda: FrozenClock(LATER))
    first, second = (kept.open_context() for _ in range(2))
    assert len(reads) == 4
    assert first.timeline is not second.timeline, "one request refreshes it while another one reads it"
    assert first.plan is second.plan
    (file,) = Path("entities").rglob("counting.yaml")
    file.write_text(f"{file.read_text()}description: changed\n")
    changed = kept.open_context()
    assert (len(reads), changed.plan is first.plan) == (5, False)


def test_questions_about_entities_share_what_is_kept_and_see_each_edit_at_once(
    database: Database, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(database)

    def declared() -> str:
        return str(client.get("/api/v1/entity/definition?kind=process&name=counting").text)

    parsed, parse = list[str](), contents.parse_file
    monkeypatch.setattr(contents, "parse_file", lambda file, values: (parsed.append(file.name), parse(file, values))[1])
    before, number = declared(), len(parsed)
    assert declared() == before
    assert number > 1 == len(parsed) - number + 1, "each file is parsed once"
    (file,) = Path("entities").rglob("counting.yaml")
    text = file.read_text()
    for word in ("one", "two", "six"):  # of one size, within a second
        file.write_text(f"{text}description: {word}\n")
        assert f"description: {word}" in declared()
    moved = file.rename(file.with_name("moved.yaml"))
    assert "description: six" in declared()
    moved.write_text(f"{text}description: [")
    assert "description: six" not in declared(), "the file is half written"
    moved.write_text(text)
    monkeypatch.setattr(folder, "SystemClock", lambda: FrozenClock(LATER))
    assert declared() == before
    read = len(reads)
    assert client.get("/api/v1/entity/list").status_code == client.get("/api/v1/entity/list").status_code == 200
    assert (len(reads), declared()) == (read, before)
    moved.unlink()
    assert (declared() == before, len(reads)) == (False, read + 1)


def test_whoever_asks_in_the_middle_of_a_change_of_several_files_sees_it_whole(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, readers, seen, write = KeptDefinitions(load_settings(), database), list[Thread](), list[int](), Journal._write
    before = len(kept.open_context().plan.feeds)

    def write_and_ask(*change: Any) -> None:
        write(*change)
        readers.append(Thread(target=lambda: seen.append(len(kept.open_context().plan.feeds))))
        readers[-1].start()
        readers[-1].join(0.1)

    monkeypatch.setattr(Journal, "_write", write_and_ask)
    added = [
        {**CLICKS, "name": name, "locations": {"data": f"/{name}/${{YEAR}}-${{MONTH}}-${{DAY}}/${{HOUR}}"}}
        for name in ("one", "two", "three")
    ]
    Path("added.yaml").write_text(yaml.safe_dump_all(added))
    must("apply", "added.yaml", "--yes")
    for each in readers:
        each.join()
    assert seen == [before + len(added)] * len(added)
