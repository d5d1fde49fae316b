"""What can be asked for as a feed that is imported."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from feed_assets.entities.common import Kind
from feed_assets.operation import Param
from feed_assets.timing.sequence import Frequency


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRequest:
    """The requested feed."""

    name: Annotated[str, Param("The name of the feed.", argument=True)]
    datasource: Annotated[str, Param("The datasource.", of=(Kind.DATASOURCE,))]
    table: Annotated[str, Param("The table, or schema.table.")]
    cluster: Annotated[str | None, Param("Where its data are; not needed with one cluster.", of=(Kind.CLUSTER,))] = None
    location: Annotated[str | None, Param("Their place; by default /NAME/ and the date.", metavar="PLACE")] = None
    frequency: Annotated[Frequency | None, Param("How often; by default days(1).")] = None
    start: Annotated[datetime | None, Param("The first instance; by default today, at midnight.")] = None
