"""Edits of the files by other means than commands."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from feed_assets.definitions.errors import ForeignDefinitionsError, ReplacedDefinitionsError
from feed_assets.definitions.store import record_declared
from feed_assets.loading.errors import LocationUnreadableError
from feed_assets.settings import Settings
from tests.definitions.harness import NOW, DefinitionsHarness, feed_text, put, remove


def test_a_file_with_very_many_mistakes_keeps_what_is_right_in_it(harness: DefinitionsHarness) -> None:
    harness.change(put("a"), put("b"))
    harness.write(
        "feed/a.yaml", feed_text("a", 2) + "---\n" + "kind: feed\nname: c\n" + "".join(f"k{n}: 1\n" for n in range(300))
    )
    assert harness.hours() == {"a": 2, "b": 1}
    assert [each.action.value for each in harness.store.record_found(NOW)] == ["UPDATED"]


def test_what_is_edited_in_the_folder_is_recorded_once(harness: DefinitionsHarness) -> None:
    harness.write("mine.yaml", feed_text("a") + "---\n" + feed_text("b"))
    assert [each.action.value for each in harness.store.record_found(NOW, "ann")] == ["SUBMITTED", "SUBMITTED"]
    assert harness.store.record_found(NOW) == []
    harness.write("mine.yaml", feed_text("a", 2) + "---\n" + feed_text("c"))
    found = harness.store.record_found(NOW, "bob")
    assert [(each.name, each.action.value, each.author, each.origin) for each in found] == [
        ("a", "UPDATED", "bob", "folder"),
        ("b", "DELETED", "bob", "folder"),
        ("c", "SUBMITTED", "bob", "folder"),
    ]
    assert harness.store.record_found(NOW) == []
    assert harness.problems() == []


def test_who_edited_the_folder_is_the_owner_of_the_file(harness: DefinitionsHarness) -> None:
    harness.write("a.yaml", feed_text("a"))
    (submitted,) = harness.store.record_found(NOW)
    assert submitted.author == (Path(harness.location) / "a.yaml").owner()
    (Path(harness.location) / "a.yaml").unlink()
    (deleted,) = harness.store.record_found(NOW)
    assert deleted.author == "unknown"


def test_an_entity_that_moves_to_another_file_has_no_new_version(harness: DefinitionsHarness) -> None:
    harness.change(put("a"))
    (Path(harness.location) / "feed/a.yaml").unlink()
    harness.write("elsewhere.yaml", "# moved\n" + feed_text("a"))
    assert harness.store.record_found(NOW) == []
    harness.change(put("a", 2))
    assert list(harness.files()) == ["elsewhere.yaml"]


def test_an_entity_with_errors_is_neither_updated_nor_deleted_in_the_record(harness: DefinitionsHarness) -> None:
    harness.change(put("a"))
    harness.write("feed/a.yaml", feed_text("a", 0))
    assert harness.store.record_found(NOW) == []
    (quarantined,) = harness.store.load(NOW).quarantined
    assert quarantined.keys == (("feed", "a"),)


def test_entities_that_were_built_in_python_are_not_missed_in_the_folder(harness: DefinitionsHarness) -> None:
    feed = harness.store.preview([put("built")], now=NOW).after.bundle.bundle.get_feed("built")
    record_declared(harness.database, [feed], NOW, Settings())
    assert harness.hours() == {}
    harness.change(put("a"))
    harness.change(remove("a"))
    assert (harness.store.record_found(NOW), harness.hours()) == ([], {})
    assert harness.actions("built") == ["SUBMITTED"]
    assert harness.problems() == []


def test_edits_in_the_folder_are_recorded_before_a_change(harness: DefinitionsHarness) -> None:
    harness.change(put("a"))
    harness.write("feed/a.yaml", feed_text("a", 2))
    harness.write("b.yaml", feed_text("b"))
    harness.change(put("a", 3))
    assert [(each.action.value, each.origin) for each in harness.history("a")] == [
        ("SUBMITTED", "a test"),
        ("UPDATED", "folder"),
        ("UPDATED", "a test"),
    ]
    assert harness.actions("b") == ["SUBMITTED"]


def test_a_place_that_is_lost_is_not_taken_for_empty(harness: DefinitionsHarness) -> None:
    harness.change(put("a"))
    (Path(harness.location) / "feed/a.yaml").unlink()
    (Path(harness.location) / "feed").rmdir()
    Path(harness.location).rmdir()
    acts: tuple[Callable[[datetime], object], ...] = (
        harness.store.load,
        harness.store.record_found,
        lambda now: harness.change(put("b"), now=now),
    )
    for act in acts:
        with pytest.raises(LocationUnreadableError, match="no such file or folder"):
            act(NOW)
    assert harness.actions("a") == ["SUBMITTED"]


def test_two_places_that_differ_do_not_take_turns(harness: DefinitionsHarness, tmp_path: Path) -> None:
    other = DefinitionsHarness(database=harness.database, location=str(tmp_path / "other"))
    for each in (harness, other):
        each.write("mine.yaml", feed_text("a") + "---\n" + feed_text("b"))
    other.write("more.yaml", feed_text("c"))
    harness.store.record_found(NOW)
    assert [each.name for each in other.store.record_found(NOW)] == ["c"]
    with pytest.raises(ReplacedDefinitionsError, match=r"feed 'c' differs: two projects use one database") as refused:
        harness.store.record_found(NOW)
    assert str(tmp_path / "other") in str(refused.value)
    assert other.store.record_found(NOW) == []
    assert harness.actions("c") == ["SUBMITTED"]
    harness.store.record_found(NOW, "ann", may_delete_all=True)  # as `apply` does once it is confirmed
    with pytest.raises(ReplacedDefinitionsError):
        other.store.record_found(NOW)
    assert harness.actions("c") == ["SUBMITTED", "DELETED"]


def test_of_two_projects_that_find_an_empty_record_the_later_one_is_refused(
    harness: DefinitionsHarness, tmp_path: Path
) -> None:
    other = DefinitionsHarness(database=harness.database, location=str(tmp_path / "other"))
    harness.write("mine.yaml", feed_text("a"))
    other.write("its.yaml", feed_text("b"))
    harness.store.record_found(NOW)
    with pytest.raises(ForeignDefinitionsError, match="it belongs to another project"):
        other.store.record_found(NOW)
    assert harness.actions("a") == ["SUBMITTED"]
