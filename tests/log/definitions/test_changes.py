from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select, text

from feed_assets.log.definitions.changes import Changes
from feed_assets.log.definitions.records import Change, ChangeState, DefinitionAction, FileChange, digest_content
from feed_assets.log.definitions.tables import changes
from feed_assets.sql.database import Database
from feed_assets.sql.errors import StateError
from tests.log.definitions.test_store import definition
from tests.log.samples import HOUR, START

pytestmark = pytest.mark.both_databases


DONE, UNDONE, PREPARED = ChangeState.DONE, ChangeState.UNDONE, ChangeState.PREPARED


def change(change_id: str = "one", **fields: Any) -> Change:
    given: dict[str, Any] = {
        "change_id": change_id,
        "number": 0,
        "state": PREPARED,
        "author": "me",
        "origin": "a test",
        "begun_at": START,
        "files": (FileChange.of("feed/a.yaml", None, "name: a – “é”\r\n"), FileChange.of("feed/b.yaml", "b\n", None)),
        "versions": (definition("a"), definition("b", DefinitionAction.DELETED, text=None, digest=None)),
    }
    return Change(**given | fields)


def prepare(database: Database, given: Change) -> Change:
    with database.begin() as connection:
        return Changes(connection).prepare(given)


def end(database: Database, given: Change, state: ChangeState) -> bool:
    with database.begin() as connection:
        return Changes(connection).end(given, state, START + HOUR)


def test_a_prepared_change_comes_back_whole(database: Database) -> None:
    prepared = prepare(database, change())
    assert prepared.number == 1
    with database.read() as connection:
        journal = Changes(connection)
        assert journal.prepared() == [prepared]
        assert journal.has_prepared()
        assert journal.find("one") == prepared
        assert journal.find("two") is None


def test_numbers_grow_by_one(database: Database) -> None:
    numbers = [prepare(database, change(name)).number for name in ("one", "two", "three")]
    with database.read() as connection:
        assert (numbers, Changes(connection).last_number()) == ([1, 2, 3], 3)


@pytest.mark.parametrize("state", [DONE, UNDONE])
def test_a_change_that_has_ended_keeps_digests_and_forgets_contents(database: Database, state: ChangeState) -> None:
    prepared = prepare(database, change())
    assert end(database, prepared, state)
    with database.read() as connection:
        journal = Changes(connection)
        (ended,) = journal.all()
        assert (journal.prepared(), journal.has_prepared()) == ([], False)
        assert "“é”" not in str(connection.scalar(text("SELECT content FROM fa_changes")))
    assert (ended.state, ended.ended_at) == (state, START + HOUR)
    assert [(each.file, each.before, each.after) for each in ended.files] == [
        ("feed/a.yaml", None, None),
        ("feed/b.yaml", None, None),
    ]
    assert [each.after_digest for each in ended.files] == [digest_content("name: a – “é”\r\n".encode()), None]
    assert ended.versions == tuple(replace(version, text=None) for version in prepared.versions)


def test_a_change_ends_once(database: Database) -> None:
    prepared = prepare(database, change())
    assert end(database, prepared, UNDONE)
    assert not end(database, prepared, DONE)
    with database.read() as connection:
        found = Changes(connection).find("one")
    assert found is not None
    assert found.state is UNDONE


def test_a_change_that_was_never_prepared_cannot_end(database: Database) -> None:
    assert not end(database, change(), DONE)


def test_a_change_is_noted_once(database: Database) -> None:
    prepare(database, change())
    with pytest.raises(StateError):
        prepare(database, change())
    with database.read() as connection:
        assert len(connection.execute(select(changes.c.number)).all()) == 1
