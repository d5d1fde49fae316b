from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from feed_assets.log.definitions.changes import Changes
from feed_assets.log.definitions.records import Change, ChangeState, FileChange
from tests.definitions.harness import NOW, DefinitionsHarness, feed_text, put, remove

Damage = Callable[[DefinitionsHarness], object]


def _history(harness: DefinitionsHarness) -> None:
    harness.change(put("a"), put("b"))
    harness.change(put("a", 2))
    harness.change(remove("b"))
    harness.change(put("b", 3), put("c"))


def _sql(statement: str) -> Damage:
    def damage(harness: DefinitionsHarness) -> None:
        with harness.database.begin() as connection:
            connection.execute(text(statement))

    return damage


def _prepare(harness: DefinitionsHarness) -> None:
    change = Change(
        change_id="lost",
        number=0,
        state=ChangeState.PREPARED,
        author="me",
        origin="a test",
        begun_at=NOW,
        files=(FileChange.of("feed/z.yaml", None, feed_text("z")),),
        versions=(),
    )
    with harness.database.begin() as connection:
        Changes(connection).prepare(change)


def _edit(name: str, content: str) -> Damage:
    return lambda harness: harness.write(name, content)


def _remove(harness: DefinitionsHarness) -> None:
    (Path(harness.location) / "feed/c.yaml").unlink()


DAMAGES: dict[str, tuple[Damage, set[str]]] = {
    "a change is left open": (_prepare, {"error change-unfinished"}),
    "a change is gone from the journal": (
        _sql("DELETE FROM fa_changes WHERE number = 2"),
        {"error journal-gap", "error change-missing", "warning file-edited"},
    ),
    "a version is gone": (
        _sql("DELETE FROM fa_definitions WHERE name = 'a' AND version = 1"),
        {"error version-missing", "error change-versions"},
    ),
    "a newest version is gone": (
        _sql("DELETE FROM fa_definitions WHERE name = 'a' AND version = 2"),
        {"error change-versions", "error record-differs"},
    ),
    "a version was recorded twice": (
        _sql(
            "INSERT INTO fa_definitions SELECT kind, name, 3, action, digest, text, format, file, author, origin,"
            " recorded_at, change_id FROM fa_definitions WHERE name = 'a' AND version = 2"
        ),
        {"error version-order", "error change-versions"},
    ),
    "versions stand in another order than their changes": (
        _sql(
            "UPDATE fa_definitions SET change_id = (SELECT change_id FROM fa_changes WHERE number = 4)"
            " WHERE name = 'a' AND version = 1"
        ),
        {"error version-order", "error change-versions"},
    ),
    "a text was changed": (
        _sql("UPDATE fa_definitions SET text = replace(text, 'hours(2)', 'hours(4)') WHERE name = 'a' AND version = 2"),
        {"error version-digest"},
    ),
    "a text is gone": (
        _sql("UPDATE fa_definitions SET text = NULL WHERE name = 'a' AND version = 1"),
        {"error version-text"},
    ),
    "a text cannot be read": (
        _sql("UPDATE fa_definitions SET text = 'kind: thing' WHERE name = 'a' AND version = 1"),
        {"warning version-unreadable"},
    ),
    "a deletion was undone by hand": (
        _sql("UPDATE fa_definitions SET action = 'UPDATED' WHERE name = 'b' AND version = 3"),
        {"error version-order", "error change-versions"},
    ),
    "an undone change has versions": (
        _sql("UPDATE fa_changes SET state = 'UNDONE' WHERE number = 4"),
        {"error change-versions", "warning file-edited"},
    ),
    "a file was edited by other means": (
        _edit("feed/a.yaml", feed_text("a", 9)),
        {"warning file-edited", "warning not-recorded"},
    ),
    "a comment was edited by other means": (
        _edit("feed/a.yaml", feed_text("a", 2, "theirs")),
        {"warning file-edited"},
    ),
    "a file was removed by other means": (_remove, {"warning file-edited", "warning not-recorded"}),
    "an entity was added by other means": (_edit("new.yaml", feed_text("new")), {"warning not-recorded"}),
}


def test_a_good_store_has_nothing_to_report(harness: DefinitionsHarness) -> None:
    assert harness.problems() == []
    _history(harness)
    assert harness.problems() == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", DAMAGES)
def test_what_contradicts_a_serial_history_is_found(harness: DefinitionsHarness, name: str) -> None:
    damage, expected = DAMAGES[name]
    _history(harness)
    damage(harness)
    assert {problem.split(":")[0] for problem in harness.problems()} >= expected
    unexpected = {problem.split(":")[0] for problem in harness.problems()} - expected
    assert unexpected <= {"error record-differs", "warning file-edited", "error change-missing"}


def test_a_later_change_over_an_edit_by_other_means_is_only_a_warning(harness: DefinitionsHarness) -> None:
    _history(harness)
    harness.write("feed/a.yaml", feed_text("a", 9))
    harness.change(put("a", 4))
    (problem,) = harness.problems()
    assert problem.startswith("warning file-edited")
    assert "between the changes 2 and 5" in problem
