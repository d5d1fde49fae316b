from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import DefinitionAction, DocumentFormat, NewDefinition
from feed_assets.log.definitions.store import REVISION_CURSOR, Definitions
from feed_assets.sql.database import Database
from tests.log.samples import START

pytestmark = pytest.mark.both_databases


SUBMITTED, UPDATED, DELETED, _ = DefinitionAction


def definition(name: str = "clicks", action: DefinitionAction = SUBMITTED, **fields: Any) -> NewDefinition:
    given: dict[str, Any] = {
        "kind": "feed",
        "name": name,
        "action": action,
        "digest": f"digest of {name}",
        "text": f"name: {name} – “é”\n",
        "format": DocumentFormat.YAML,
        "file": f"feed/{name}.yaml",
        "author": "me",
        "origin": "a test",
        "recorded_at": START,
    }
    return NewDefinition(**given | fields)


def append(database: Database, *new: NewDefinition) -> list[int]:
    with database.begin() as connection:
        return [version.version for version in Definitions(connection).append(new)]


def test_versions_of_an_entity_are_numbered_from_one(database: Database) -> None:
    assert append(database, definition("a"), definition("b")) == [1, 1]
    assert append(database, definition("a", UPDATED), definition("a", DELETED), definition("c")) == [2, 3, 1]
    assert append(database, definition("a", kind="process")) == [1]
    assert append(database) == []


def test_the_record_knows_who_declared_an_entity_since_its_last_deletion(database: Database) -> None:
    def by(author: str, hour: int, action: DefinitionAction, name: str = "a") -> NewDefinition:
        return definition(name, action, author=author, recorded_at=START + timedelta(hours=hour))

    append(database, by("ann", 0, SUBMITTED), by("bob", 1, UPDATED), by("cleo", 2, DELETED))
    append(database, by("dan", 3, SUBMITTED, "b"), by("eve", 4, DELETED, "b"), by("ida", 8, SUBMITTED, "c"))
    append(database, by("fred", 5, SUBMITTED), by("gus", 6, UPDATED), by("hal", 7, UPDATED))
    with database.read() as connection:
        found = Definitions(connection).recorded()
    assert {key: (each.version, each.created_by, each.updated_by) for key, each in found.items()} == {
        ("feed", "a"): (6, "fred", "hal"),
        ("feed", "c"): (1, "ida", "ida"),
    }
    assert found["feed", "a"].created_at == START + timedelta(hours=5)
    assert found["feed", "a"].updated_at == START + timedelta(hours=7)


def test_a_version_comes_back_as_it_was_recorded(database: Database) -> None:
    new = definition("a", format=DocumentFormat.XML, change_id="change", recorded_at=START + timedelta(microseconds=7))
    append(database, new)
    with database.read() as connection:
        found = Definitions(connection).find_version("feed", "a", 1)
    assert found is not None
    assert {name: getattr(found, name) for name in NewDefinition.__dataclass_fields__} == {
        name: getattr(new, name) for name in NewDefinition.__dataclass_fields__
    }
    assert found.key == ("feed", "a")


def test_the_newest_of_each_entity_is_found_deletions_included(database: Database) -> None:
    append(database, definition("a"), definition("b"), definition("a", UPDATED), definition("b", DELETED, text=None))
    with database.read() as connection:
        definitions = Definitions(connection)
        newest = definitions.newest()
        assert {key: (each.version, each.action) for key, each in newest.items()} == {
            ("feed", "a"): (2, UPDATED),
            ("feed", "b"): (2, DELETED),
        }
        assert definitions.find_newest("feed", "b") == newest["feed", "b"]
        assert definitions.find_newest("feed", "c") is None


def test_a_version_is_found_by_number(database: Database) -> None:
    day = timedelta(days=1)
    append(database, definition("a", digest="one", recorded_at=START, change_id="first"))
    append(database, definition("a", UPDATED, digest="two", recorded_at=START + day, change_id="second"))
    append(database, definition("a", UPDATED, digest="one", recorded_at=START + 2 * day, change_id="second"))
    with database.read() as connection:
        definitions = Definitions(connection)
        found = definitions.find_version("feed", "a", 3)
        assert found is not None
        assert (found.version, found.digest) == (3, "one")
        assert [each.version for each in definitions.history("feed", "a")] == [1, 2, 3]
        assert definitions.find_version("feed", "a", 4) is None


def test_the_whole_record_comes_entity_by_entity(database: Database) -> None:
    append(database, definition("b"), definition("a"))
    append(database, definition("b", UPDATED), definition("a", kind="cluster"))
    with database.read() as connection:
        found = [(each.kind, each.name, each.version) for each in Definitions(connection).all()]
    assert found == [("cluster", "a", 1), ("feed", "a", 1), ("feed", "b", 1), ("feed", "b", 2)]


def test_the_revision_grows_to_a_number_that_a_restored_database_does_not_reach(database: Database) -> None:
    revisions = [0]
    for _ in range(2):
        with database.begin() as connection:
            definitions = Definitions(connection)
            assert definitions.revision() == revisions[-1]
            definitions.bump_revision()
            revisions.append(definitions.revision())
    assert revisions == sorted(set(revisions))
    with database.begin() as connection:
        Cursors(connection).put(REVISION_CURSOR, str(revisions[1]))
        Definitions(connection).bump_revision()
        assert Definitions(connection).revision() not in revisions


def test_names_are_never_statements(database: Database) -> None:
    name = "a'; DROP TABLE fa_definitions; --"
    append(database, definition(name), definition('b" OR 1=1'))
    assert append(database, replace(definition(name), action=UPDATED)) == [2]


@pytest.mark.parametrize("count", [2000])
def test_appending_looks_only_at_the_entities_in_question(database: Database, count: int) -> None:
    append(database, *(definition(f"e{n}") for n in range(count)))
    assert append(database, definition("e7", UPDATED), definition("new")) == [2, 1]
