"""Tables of the versions of definitions, their changes and schedules."""

from sqlalchemy import BigInteger, Column, Index, Table

from feed_assets.log.definitions.records import ChangeState, DefinitionAction, DocumentFormat, ScheduleState
from feed_assets.sql.column_types import Choice, Payload, Text, UtcDateTime
from feed_assets.sql.names import NAMES_BY_KIND
from feed_assets.sql.tables import define_table, metadata

definitions = define_table(
    "fa_definitions",
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False, info=NAMES_BY_KIND),
    Column("version", BigInteger, nullable=False),
    Column("action", Choice(DefinitionAction), nullable=False),
    Column("digest", Text),
    Column("text", Text),
    Column("format", Choice(DocumentFormat), nullable=False),
    Column("file", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("change_id", Text),
    Index("fa_definitions_by_digest", "kind", "name", "digest"),
    Index("fa_definitions_by_change", "change_id"),
    key=("kind", "name", "version"),
)

changes = Table(
    "fa_changes",
    metadata,
    Column("change_id", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("state", Choice(ChangeState), nullable=False),
    Column("author", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("begun_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("content", Payload, nullable=False),
    Index("fa_changes_by_number", "number", unique=True),
    Index("fa_changes_by_state", "state"),
    sqlite_with_rowid=False,
)

schedules = define_table(
    "fa_schedules",
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False, info=NAMES_BY_KIND),
    Column("cluster", Text, nullable=False),
    Column("state", Choice(ScheduleState), nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    Column("scheduled_at", UtcDateTime),
    key=("kind", "name", "cluster"),
)

# A former name stays as it was.
renames = define_table(
    "fa_renames",
    Column("kind", Text, nullable=False),
    Column("former", Text, nullable=False),
    Column("name", Text, nullable=False, info=NAMES_BY_KIND),
    Column("renamed_at", UtcDateTime, nullable=False),
    Column("author", Text, nullable=False),
    key=("kind", "former"),
)
