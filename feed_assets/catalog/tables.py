"""Tables of metadata: described entities, their properties and tags, every change, the index for searches, facts, and
what columns were made of.

They belong to the same schema as all other tables.
"""

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, Table, text

from feed_assets.entities.metadata import MetadataKind, Origin, Scope
from feed_assets.sql.column_types import Choice, Payload, Text, UtcDateTime
from feed_assets.sql.names import NAMES_BY_KIND, NAMES_PATH, NAMES_PROCESS
from feed_assets.sql.tables import define_table, index_where, metadata

# Queries repeat this condition literally, as for the other tables.
HAS_NUMBER = text("number IS NOT NULL")

_Number = BigInteger().with_variant(Integer, "sqlite")
_Ordered = Text().with_variant(Text(collation="C"), "postgresql")
"""A text in the order of its bytes, so that a prefix is a range of the index."""

metadata_entities = Table(
    "fa_metadata_entities",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("uid", Text, nullable=False),
    Column("path", _Ordered, nullable=False, info=NAMES_PATH),
    Column("kind", Text, nullable=False),
    Column("name", _Ordered, nullable=False, info=NAMES_BY_KIND),
    Column("hidden", Boolean, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("created_by", Text, nullable=False),
    Column("described", Text),
    Index("fa_metadata_entities_by_path", "path", unique=True),
    Index("fa_metadata_entities_by_name", "name", "id"),
    Index("fa_metadata_entities_by_age", "created_at", "id"),
)

entity_metadata = define_table(
    "fa_metadata",
    Column("entity", BigInteger, nullable=False),
    Column("scope", Choice(Scope), nullable=False),
    Column("kind", Choice(MetadataKind), nullable=False),
    Column("name", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("origin", Choice(Origin), nullable=False),
    Column("author", Text, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    key=("entity", "scope", "kind", "name"),
)

metadata_changes = Table(
    "fa_metadata_changes",
    metadata,
    Column("seq", _Number, primary_key=True),
    Column("path", Text, nullable=False, info=NAMES_PATH),
    Column("author", Text, nullable=False),
    Column("origin", Choice(Origin), nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    Column("before", Payload),
    Column("after", Payload),
    Index("fa_metadata_changes_by_entity", "path", "seq"),
)

# The weight is in the key, so that a search reads nothing but the index.
search_tokens = define_table(
    "fa_search_tokens",
    Column("token", _Ordered, nullable=False),
    Column("field", _Ordered, nullable=False),
    Column("scope", Choice(Scope), nullable=False),
    Column("entity", BigInteger, nullable=False),
    Column("weight", Integer, nullable=False),
    Column("number", Float),
    Index("fa_search_tokens_by_entity", "entity"),
    Index("fa_search_tokens_by_field", "field", "entity"),
    index_where("fa_search_tokens_by_number", HAS_NUMBER, "field", "number"),
    key=("token", "field", "scope", "entity", "weight"),
)

facts = define_table(
    "fa_facts",
    Column("process", Text, nullable=False, info=NAMES_PROCESS),
    Column("cluster", Text, nullable=False),
    Column("nominal_time", UtcDateTime, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("category", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("recorded_at", UtcDateTime, nullable=False),
    key=("process", "cluster", "nominal_time", "attempt", "category", "name"),
)

column_sets = define_table(
    "fa_column_sets",
    Column("digest", Text, nullable=False),
    Column("content", Payload),
    key=("digest",),
)
