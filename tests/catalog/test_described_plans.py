"""What a tick does with metadata when it meets other definitions: it repairs, keeps what is only left out, and asks
nothing without news.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import delete, event

from feed_assets.catalog.store import MetadataStore
from feed_assets.catalog.tables import metadata_entities
from feed_assets.catalog.writing import Target, write_metadata
from feed_assets.entities.metadata import MetadataKey, MetadataKind, MetadataValue, Origin, Scope, Update
from tests.definitions.verbs.harness import CLICKS, CLUSTER, COUNTS, EntityHarness, changed

NOTE = MetadataKey(Scope.USER, MetadataKind.PROPERTY, "note")
COLUMNS = changed(CLICKS, schema="id bigint, country string")


def declare(project: EntityHarness, *documents: Mapping[str, Any]) -> None:
    text = yaml.safe_dump_all(documents, sort_keys=False)
    (project.folder / "entities" / "all.yaml").write_text(text)
    project.tick()


def note(project: EntityHarness, path: str, kind: str, name: str) -> None:
    said = Update({NOTE: MetadataValue("mine", Origin.PERSON, "ann")})
    target = Target(path=path, kind=kind, name=name, is_declared=True)
    with project.database.begin() as connection:
        write_metadata(connection, target, [said], author="ann", origin=Origin.PERSON, now=project.now)


def noted(project: EntityHarness) -> set[str]:
    with project.database.read() as connection:
        store = MetadataStore(connection)
        entities = store.below("feed/clicks")
        return {each.path for each in entities if NOTE in store.read(each.id)}


@pytest.fixture
def project(tmp_path: Path) -> EntityHarness:
    entity_project = EntityHarness.at(tmp_path)
    declare(entity_project, CLUSTER, COLUMNS)
    note(entity_project, "feed/clicks", "feed", "clicks")
    for column in ("id", "country"):
        note(entity_project, f"feed/clicks/column/{column}", "column", column)
    return entity_project


def test_what_a_mistake_keeps_out_of_the_plan_keeps_its_metadata(project: EntityHarness) -> None:
    declare(project, CLUSTER, changed(COLUMNS, locations={"data": "/clicks/nothing"}), COUNTS)
    assert noted(project) == {"feed/clicks", "feed/clicks/column/id", "feed/clicks/column/country"}


def test_a_column_that_is_gone_or_has_another_name_leaves_its_metadata(project: EntityHarness) -> None:
    declare(project, CLUSTER, changed(COLUMNS, schema="country string, number bigint"))
    assert noted(project) == {"feed/clicks", "feed/clicks/column/country"}


def test_columns_in_another_order_keep_their_metadata(project: EntityHarness) -> None:
    declare(project, CLUSTER, changed(COLUMNS, schema="country string, id bigint"))
    assert noted(project) == {"feed/clicks", "feed/clicks/column/id", "feed/clicks/column/country"}


def test_a_feed_whose_file_is_gone_has_no_metadata_when_that_is_recorded(project: EntityHarness) -> None:
    declare(project, CLUSTER, changed(CLICKS, name="hits", locations={"data": "/hits/${YEAR}-${MONTH}-${DAY}/${HOUR}"}))
    assert noted(project) == set()


def test_a_tick_with_other_definitions_describes_what_lacks_a_description(project: EntityHarness) -> None:
    with project.database.begin() as connection:
        connection.execute(delete(metadata_entities).where(metadata_entities.c.path == "cluster/primary"))
    declare(project, CLUSTER, COLUMNS, COUNTS)
    with project.database.read() as connection:
        assert MetadataStore(connection).find("cluster/primary") is not None


def test_a_tick_without_news_asks_nothing_about_metadata(project: EntityHarness) -> None:
    asked: list[str] = []
    event.listen(project.database._engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    project.tick()
    assert asked
    assert not [statement for statement in asked if "metadata" in statement]
