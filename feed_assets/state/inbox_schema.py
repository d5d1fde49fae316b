"""The table of files that were taken from inboxes. It belongs to the same schema as all other tables."""

from sqlalchemy import BigInteger, Column, Index, PrimaryKeyConstraint, Table

from feed_assets.state.column_types import Text
from feed_assets.state.schema import metadata

taken_files = Table(
    "fa_taken_files",
    metadata,
    Column("event", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("checksum", Text, nullable=False),
    PrimaryKeyConstraint("event", "name", name="fa_taken_files_pk"),
    Index("fa_taken_files_by_content", "feed", "cluster", "checksum"),
    sqlite_with_rowid=False,
)
