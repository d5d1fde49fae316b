import errno
import logging
from itertools import count
from pathlib import Path

import pytest

from feed_assets.definitions import folder as folders
from feed_assets.definitions.edits import Put
from feed_assets.definitions.errors import DefinitionsChangedError, DefinitionStoreError
from feed_assets.log.definitions.changes import Changes
from feed_assets.log.definitions.records import ChangeState, Rename
from feed_assets.log.records import WatermarkKind
from feed_assets.log.watermarks import Watermark, Watermarks
from tests.databases import database_url
from tests.definitions.harness import NOW, DefinitionsHarness, feed_text, put, remove
from tests.definitions.workers import die_at, raise_together
from tests.processes import PROCESSES

__all__ = ["database_url"]  # that locks and turns hold between processes is looked at with both databases

OLD, NEW = {"a": 1, "b": 1, "d": 1}, {"a": 2, "c": 1, "d": 2}


def _begin(harness: DefinitionsHarness) -> None:
    """a and d stand in one file, b in another."""
    harness.write("mine.yaml", feed_text("a") + "---\n" + feed_text("d"))
    harness.store.record_found(NOW)
    harness.change(put("b"))


def _change(harness: DefinitionsHarness) -> None:
    harness.change(put("a", 2), remove("b"), put("c"), put("d", 2))


def _states(harness: DefinitionsHarness) -> list[ChangeState]:
    with harness.database.read() as connection:
        return [change.state for change in Changes(connection).all()]


@pytest.mark.both_databases
def test_a_change_that_is_killed_at_any_step_is_made_whole_or_not_at_all(harness: DefinitionsHarness) -> None:
    _begin(harness)
    seen = []
    for step in count(1):
        was_killed = die_at(step, harness, _change)
        found = harness.hours()
        assert found in (OLD, NEW), step
        assert harness.problems() == [], step
        seen.append(found)
        if not was_killed:
            break
        if found == NEW:
            harness.change(put("a"), put("b"), remove("c"), put("d"))
            assert harness.hours() == OLD
    assert (seen[0], seen[-1]) == (OLD, NEW)
    assert seen == sorted(seen, key=lambda each: each == NEW)  # from some step on it is finished
    assert len(seen) > 12


def test_a_recovery_that_is_killed_at_any_step_is_finished_by_the_next(harness: DefinitionsHarness) -> None:
    _begin(harness)
    assert die_at(3, harness, _change)  # the journal has it, the files do not
    assert _states(harness)[-1] is ChangeState.PREPARED
    for step in count(1):
        if not die_at(step, harness, DefinitionsHarness.recover):
            break
    assert harness.hours() == NEW
    assert harness.problems() == []
    assert harness.actions("a") == ["SUBMITTED", "UPDATED"]


def test_a_broken_off_change_of_files_that_others_edited_is_undone(
    harness: DefinitionsHarness, caplog: pytest.LogCaptureFixture
) -> None:
    _begin(harness)
    for step in count(3):
        assert die_at(step, harness, _change)
        if (Path(harness.location) / "feed/c.yaml").exists():
            break
        harness.recover()
        harness.change(put("a"), put("b"), remove("c"), put("d"))
    harness.write("mine.yaml", feed_text("a", 7) + "---\n" + feed_text("d"))

    with caplog.at_level(logging.WARNING):
        (undone,) = harness.recover()

    assert undone.state is ChangeState.UNDONE
    assert "mine.yaml was edited since: it is undone" in caplog.text
    assert harness.hours() == {"a": 7, "b": 1, "d": 1}
    assert harness.actions("a")[-1] != "DELETED"
    assert [problem.split(":")[0] for problem in harness.problems()] == [
        "warning file-edited",
        "warning not-recorded",
    ]
    harness.store.record_found(NOW)
    assert [problem.split(":")[0] for problem in harness.problems()] == ["warning file-edited"]


def test_a_change_that_cannot_be_written_is_undone_at_once(
    harness: DefinitionsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    _begin(harness)
    write = folders._Local._write

    def refuse_third(self: folders._Local, name: str, content: bytes) -> None:
        if name == "mine.yaml" and b"hours(2)" in content:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, name, content)

    monkeypatch.setattr(folders._Local, "_write", refuse_third)
    with pytest.raises(DefinitionStoreError, match="No space left"):
        _change(harness)
    assert harness.hours() == OLD
    assert _states(harness)[-1] is ChangeState.UNDONE
    assert harness.problems() == []


def test_an_edit_that_comes_while_files_are_written_is_kept(
    harness: DefinitionsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    _begin(harness)
    write = folders._Local._write

    def edit_meanwhile(self: folders._Local, name: str, content: bytes) -> None:
        write(self, name, content)
        if name == "feed/c.yaml":
            harness.write("mine.yaml", feed_text("a", 7) + "---\n" + feed_text("d"))

    monkeypatch.setattr(folders._Local, "_write", edit_meanwhile)
    with pytest.raises(DefinitionsChangedError, match=r"mine\.yaml changed"):
        _change(harness)
    assert harness.hours() == {"a": 7, "b": 1, "d": 1}
    assert _states(harness)[-1] is ChangeState.UNDONE


def test_a_change_that_somebody_else_has_undone_is_not_recorded(harness: DefinitionsHarness) -> None:
    """As when the connection that holds the turn is lost, and another process takes the change for broken off."""
    _begin(harness)
    write = folders._Local._write

    def undo_meanwhile(self: folders._Local, name: str, content: bytes) -> None:
        write(self, name, content)
        with harness.database.read() as connection:
            prepared = Changes(connection).prepared()
        for change in prepared:
            with harness.database.begin() as connection:
                assert Changes(connection).end(change, ChangeState.UNDONE, NOW)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folders._Local, "_write", undo_meanwhile)
        with pytest.raises(DefinitionsChangedError):
            harness.change(put("b", 2))
    assert harness.actions("b") == ["SUBMITTED"]


@pytest.mark.both_databases
@pytest.mark.parametrize("layout", ["files", "one file"])
def test_changes_of_several_processes_are_neither_lost_nor_mixed(
    harness: DefinitionsHarness, database_url: str, layout: str
) -> None:
    names = ("a", "b", "c")
    if layout == "one file":
        harness.write("all.yaml", "---\n".join(feed_text(name) for name in names))
    workers = [
        PROCESSES.Process(target=raise_together, args=(database_url, harness.location, name, (), 8)) for name in names
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert harness.hours() == {"a": 9, "b": 9, "c": 9}
    for name in names:
        assert [each.version for each in harness.history(name)] == list(range(1, len(harness.history(name)) + 1))
        assert [each.author for each in harness.history(name)][-8:] == [name] * 8
    assert harness.problems() == []


@pytest.mark.both_databases
def test_a_reader_sees_all_of_a_change_or_nothing(harness: DefinitionsHarness, database_url: str) -> None:
    harness.change(put("a"), put("b"), put("c"))
    worker = PROCESSES.Process(target=raise_together, args=(database_url, harness.location, "a", ("b", "c"), 40))
    worker.start()
    seen = set()
    while worker.is_alive():
        frequencies = set(harness.hours().values())
        assert len(frequencies) == 1
        seen |= frequencies
    worker.join()
    assert len(seen) > 1
    assert set(harness.hours().values()) == {41}


def _rename(harness: DefinitionsHarness, old: str = "a", new: str = "z") -> None:
    text = feed_text("a", comment="all of it").replace("name: a", f"name: {new}")
    change = Rename(kind="feed", former=old, name=new, renamed_at=NOW, author="me")
    harness.store.change([Put(text=text, replaces=("feed", old))], author="me", origin="a test", now=NOW, rename=change)


def _watermarks(harness: DefinitionsHarness) -> set[str]:
    with harness.database.read() as connection:
        return {each.entity for each in Watermarks(connection).all(WatermarkKind.FEED)}


def test_a_new_name_is_in_files_and_record_or_in_neither_wherever_it_is_killed(harness: DefinitionsHarness) -> None:
    _begin(harness)
    with harness.database.begin() as connection:
        mark = Watermark(kind=WatermarkKind.FEED, entity="a", cluster="primary", next_index=7, next_time=NOW)
        Watermarks(connection).put([mark])
    seen = []
    for step in count(1):
        was_killed = die_at(step, harness, _rename)
        name = "z" if "z" in harness.hours() else "a"
        assert harness.hours() == {name: 1, "b": 1, "d": 1}, step
        assert _watermarks(harness) == {name}, step
        assert harness.problems() == [], step
        seen.append(name)
        _rename(harness)  # again
        assert _watermarks(harness) == {"z"}, step
        assert harness.problems() == [], step
        _rename(harness, "z", "a")
        assert _watermarks(harness) == {"a"}, step
        if not was_killed:
            break
    assert seen[0] == "a"
    assert seen[-1] == "z"
    assert seen == sorted(seen)
    assert len(seen) > 6
