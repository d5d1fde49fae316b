"""The table of places where feeds have, or had, their instances. It belongs to the same schema as all other tables."""

from sqlalchemy import BigInteger, Column

from feed_assets.state.column_types import AnyText, Text
from feed_assets.state.schema import define_table

feed_places = define_table(
    "fa_feed_places",
    Column("feed", Text, nullable=False),
    Column("cluster", Text, nullable=False),
    Column("place", BigInteger, nullable=False),
    Column("url", AnyText, nullable=False),
    Column("template", AnyText, nullable=False),
    Column("zone", Text, nullable=False),
    Column("flag", AnyText),
    key=("feed", "cluster", "place"),
)
