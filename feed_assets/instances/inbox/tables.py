"""The table of files taken from inboxes."""

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
)

from feed_assets.sql.column_types import Text
from feed_assets.sql.tables import define_table

taken_files = define_table(
    "fa_taken_files",
    Column("event", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("checksum", Text, nullable=False),
    Index("fa_taken_files_by_content", "feed", "cluster", "checksum"),
    key=("event", "name"),
)
