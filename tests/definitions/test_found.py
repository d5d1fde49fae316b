"""Edits of the files by other means than commands."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from feed_assets.loading.errors import LocationUnreadableError
from feed_assets.operations.recording import record_declared
from tests.definitions.beds import NOW, StoreBed, feed_text, put, remove


def test_a_file_with_very_many_mistakes_keeps_what_is_right_in_it(bed: StoreBed) -> None:
    bed.change(put("a"), put("b"))
    bed.write(
        "feed/a.yaml", feed_text("a", 2) + "---\n" + "kind: feed\nname: c\n" + "".join(f"k{n}: 1\n" for n in range(300))
    )
    assert bed.hours() == {"a": 2, "b": 1}
    assert [each.action.value for each in bed.store.record_found(NOW)] == ["UPDATED"]


def test_what_is_edited_in_the_folder_is_recorded_once(bed: StoreBed) -> None:
    bed.write("mine.yaml", feed_text("a") + "---\n" + feed_text("b"))
    assert [each.action.value for each in bed.store.record_found(NOW, "ann")] == ["SUBMITTED", "SUBMITTED"]
    assert bed.store.record_found(NOW) == []
    bed.write("mine.yaml", feed_text("a", 2) + "---\n" + feed_text("c"))
    found = bed.store.record_found(NOW, "bob")
    assert [(each.name, each.action.value, each.author, each.origin) for each in found] == [
        ("a", "UPDATED", "bob", "folder"),
        ("b", "DELETED", "bob", "folder"),
        ("c", "SUBMITTED", "bob", "folder"),
    ]
    assert bed.store.record_found(NOW) == []
    assert bed.problems() == []


def test_who_edited_the_folder_is_the_owner_of_the_file(bed: StoreBed) -> None:
    bed.write("a.yaml", feed_text("a"))
    (submitted,) = bed.store.record_found(NOW)
    assert submitted.author == (Path(bed.location) / "a.yaml").owner()
    (Path(bed.location) / "a.yaml").unlink()
    (deleted,) = bed.store.record_found(NOW)
    assert deleted.author == "unknown"


def test_an_entity_that_moves_to_another_file_has_no_new_version(bed: StoreBed) -> None:
    bed.change(put("a"))
    (Path(bed.location) / "feed/a.yaml").unlink()
    bed.write("elsewhere.yaml", "# moved\n" + feed_text("a"))
    assert bed.store.record_found(NOW) == []
    bed.change(put("a", 2))
    assert list(bed.files()) == ["elsewhere.yaml"]


def test_an_entity_with_errors_is_neither_updated_nor_deleted_in_the_record(bed: StoreBed) -> None:
    bed.change(put("a"))
    bed.write("feed/a.yaml", feed_text("a", 0))
    assert bed.store.record_found(NOW) == []
    (quarantined,) = bed.store.load(NOW).quarantined
    assert quarantined.keys == (("feed", "a"),)


def test_entities_that_were_built_in_python_are_not_missed_in_the_folder(bed: StoreBed) -> None:
    feed = bed.store.preview([put("built")], now=NOW).after.bundle.get_feed("built")
    record_declared(bed.database, [feed], NOW)
    assert bed.hours() == {}
    bed.change(put("a"))
    bed.change(remove("a"))
    assert (bed.store.record_found(NOW), bed.hours()) == ([], {})
    assert bed.actions("built") == ["SUBMITTED"]
    assert bed.problems() == []


def test_edits_in_the_folder_are_recorded_before_a_change(bed: StoreBed) -> None:
    bed.change(put("a"))
    bed.write("feed/a.yaml", feed_text("a", 2))
    bed.write("b.yaml", feed_text("b"))
    bed.change(put("a", 3))
    assert [(each.action.value, each.origin) for each in bed.history("a")] == [
        ("SUBMITTED", "a test"),
        ("UPDATED", "folder"),
        ("UPDATED", "a test"),
    ]
    assert bed.actions("b") == ["SUBMITTED"]


def test_a_place_that_is_lost_is_not_taken_for_empty(bed: StoreBed) -> None:
    bed.change(put("a"))
    (Path(bed.location) / "feed/a.yaml").unlink()
    (Path(bed.location) / "feed").rmdir()
    Path(bed.location).rmdir()
    acts: tuple[Callable[[datetime], object], ...] = (
        bed.store.load,
        bed.store.record_found,
        lambda now: bed.change(put("b"), now=now),
    )
    for act in acts:
        with pytest.raises(LocationUnreadableError, match="no such file or folder"):
            act(NOW)
    assert bed.actions("a") == ["SUBMITTED"]
