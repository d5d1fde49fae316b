from datetime import UTC, datetime

import pytest

from feed_assets.catalog.store import MetadataStore
from feed_assets.sql.database import Database

pytestmark = pytest.mark.both_databases


NOW = datetime(2013, 11, 3, tzinfo=UTC)


def test_described_entities_have_ids_by_which_they_are_found(database: Database) -> None:
    with database.begin() as connection:
        store = MetadataStore(connection)
        new = [(f"feed/{name}", "feed", name, "ann") for name in ("a", "b")]
        other = store.add(new, NOW, {"feed/a": "one"})["feed/b"].uid
    with database.read() as connection:
        store = MetadataStore(connection)
        assert store.ids_of(["feed/b", "feed/a", "feed/c"]) == {"feed/a": "one", "feed/b": other}
        assert store.paths_of(["one", "two"]) == {"one": "feed/a"}
