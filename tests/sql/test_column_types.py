"""Texts as strangers write them: with NUL, which PostgreSQL refuses, and with bytes that are no text."""

from uuid import UUID

import pytest
from sqlalchemy import String, func, literal, select
from sqlalchemy.dialects import sqlite

from feed_assets.log.instances.feed_instances import FeedInstances
from feed_assets.log.records import FeedKey
from feed_assets.log.tables import cursors
from feed_assets.sql.column_types import AnyText, Digest, Text
from feed_assets.sql.database import Database
from feed_assets.sql.rows import KEY_ROWS, insert_rows, key_rows, render_rows
from feed_assets.sql.tables import metadata
from tests.instances.harness import START

pytestmark = pytest.mark.both_databases


HOSTILE = "a\0b\udcff \U0001f600 é"
RUN = "5b0c0c9e-7c1f-4f0c-9f57-0d3a5a3f6a11"
KEPT = "a\\x00b\\udcff \U0001f600 é"


COLUMNS = [(table, column) for table in metadata.tables.values() for column in table.c]
TEXTS = {
    f"{table}.{column.name}": column for table, column in COLUMNS if isinstance(column.type, Text | AnyText | String)
}


def test_every_column_of_text_keeps_any_text(database: Database) -> None:
    assert len(TEXTS) > 100
    refused = []
    for name, column in TEXTS.items():
        try:
            with database.read() as connection:
                found = connection.scalar(select(literal(HOSTILE, column.type)))
        except Exception:  # noqa: BLE001 - each driver refuses in its own way
            refused.append(name)
        else:
            assert found == (HOSTILE if isinstance(column.type, AnyText) else KEPT), name
    assert refused == []


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        pytest.param("sha256:" + "1c" * 32, b"\xfe" + b"\x1c" * 32, id="digest"),
        pytest.param("1c" * 32, b"\0" + b"\x1c" * 32, id="digits alone"),
        pytest.param("look:" + "1c" * 16, b"\xfd" + b"\x1c" * 16, id="a look"),
        pytest.param("run:" + "1c" * 16, b"run:\0" + b"\x1c" * 16, id="no UUID"),
        pytest.param("sha256:" + RUN, b"sha256:\xff" + UUID(RUN).bytes, id="a UUID behind what is for digests"),
        pytest.param("look:1" + "1c" * 16, b"look:1\0" + b"\x1c" * 16, id="odd number of digits"),
        pytest.param("sha256:" + "1C" * 32, b"sha256:" + b"1C" * 32, id="capitals"),
        pytest.param("run:" + RUN, b"\xfc" + UUID(RUN).bytes, id="a run"),
        pytest.param(RUN, b"\xff" + UUID(RUN).bytes, id="a UUID"),
        pytest.param(RUN.upper(), RUN.upper().encode(), id="another form of it"),
        pytest.param("etag:1c1c-2", b"etag:1c1c-2", id="none"),
        pytest.param("", b"", id="empty"),
        pytest.param(None, None, id="null"),
    ],
)
def test_the_digits_of_a_digest_are_kept_as_bytes(database: Database, told: str | None, kept: bytes | None) -> None:
    assert Digest().process_bind_param(told, sqlite.dialect()) == kept
    with database.read() as connection:
        assert connection.scalar(select(literal(told, Digest()))) == told


def test_rows_in_one_parameter_keep_any_text(database: Database) -> None:
    with database.begin() as connection:
        insert_rows(connection, cursors, ("name", "value"), [(HOSTILE, HOSTILE), ("plain", "\\u0000")])
        found = connection.execute(select(cursors.c.name, cursors.c.value))
        assert {row.name: row.value for row in found} == {KEPT: KEPT, "plain": "\\u0000"}
        rows = key_rows(database.dialect, ("name",))
        same = select(func.count()).select_from(cursors).join(rows, rows.c.name == cursors.c.name)
        assert connection.scalar(same, {KEY_ROWS: render_rows([[HOSTILE]])}) == 1
        assert FeedInstances(connection).get_many([FeedKey(HOSTILE, "primary", START)]) == {}
