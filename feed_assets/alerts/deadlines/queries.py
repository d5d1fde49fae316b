"""What can be asked of missed deadlines."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from feed_assets.log.messages.levels import SlaLevel
from feed_assets.operation import Param
from feed_assets.parameters import Clusters, OnlyKind, OnlyName


@dataclass(frozen=True, slots=True, kw_only=True)
class LateQuery:
    """Which instances are asked for: from `start` to `end`, both inclusive; by default of every feed and process."""

    kind: OnlyKind = None
    name: OnlyName = None
    clusters: Clusters = ()
    start: Annotated[datetime | None, Param("From this nominal time on, which counts; by default all.")] = None
    end: Annotated[datetime, Param("Up to this nominal time, which counts; by default now.", default="now")]
    level: Annotated[SlaLevel | None, Param("Only deadlines of this level.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaQuery(LateQuery):
    """The same from a time that must be given."""

    start: Annotated[datetime, Param("From this nominal time on, which counts; required.")]
