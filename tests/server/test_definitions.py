"""The definitions that a server keeps between requests."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from feed_assets.clock import FrozenClock, SystemClock
from feed_assets.loading.entity_files import stamp_files
from feed_assets.server import definitions
from feed_assets.server.definitions import KeptDefinitions
from feed_assets.settings import load_settings
from feed_assets.sql.database import Database
from tests.server.project import open_project

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


def test_contents_are_read_again_only_after_a_change(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    times, read = list[None](), definitions.read_declared_files

    def count(settings: Any) -> Any:
        times.append(None)
        return read(settings)

    monkeypatch.setattr(definitions, "read_declared_files", count)
    kept = KeptDefinitions(load_settings(), database)
    kept.open_context()
    kept.open_context()
    assert len(times) == 2, "the files have been changed just now"
    monkeypatch.setattr(definitions, "SystemClock", lambda: FrozenClock(LATER))
    first, second = (kept.open_context() for _ in range(2))
    assert len(times) == 3
    assert first.timeline is not second.timeline, "one request refreshes it while another one reads it"
    assert first.plan is second.plan
    (file,) = Path("entities").rglob("counting.yaml")
    file.write_text(f"{file.read_text()}description: changed\n")
    changed = kept.open_context()
    assert (len(times), changed.plan is first.plan) == (4, False)
