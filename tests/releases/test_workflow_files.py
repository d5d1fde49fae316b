import pytest

from feed_assets.releases.store import WorkflowFiles
from feed_assets.sql.database import Database

pytestmark = pytest.mark.both_databases


def test_a_content_is_stored_once_under_its_digest(database: Database) -> None:
    with database.begin() as connection:
        WorkflowFiles(connection).put({"a": b"\x00\xff", "b": b""})
        WorkflowFiles(connection).put({"a": b"another", "c": b"c"})
        WorkflowFiles(connection).put({})
    with database.read() as connection:
        files = WorkflowFiles(connection)
        assert [files.find(digest) for digest in ("a", "b", "c", "d")] == [b"\x00\xff", b"", b"c", None]
        assert files.known(["a", "d", *(f"x{n}" for n in range(1200)), "c"]) == {"a", "c"}
        assert files.known([]) == frozenset()
