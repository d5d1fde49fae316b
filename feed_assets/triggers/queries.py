"""Which batches are listed, and which event is meant. It stands by itself since commands read it without tables."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from feed_assets.context.consolidation import PAGE
from feed_assets.entities.common import Kind
from feed_assets.log.records import ProcessInstanceStatus
from feed_assets.operation import Param
from feed_assets.parameters import Offset, OnlyCluster, Process, ProcessCluster, Results

_FEEDS = "Only batches that have taken events of this feed."
_EVENT = "The number of the event, of `queue show` or `feed events`; may be repeated."
_STATES = "Only batches in this state, such as FAILED."


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchQuery:
    """Which batches are listed: of a process, of a cluster, that have taken events of one of some feeds, in one of some
    states, and cut in `start <= time < end`; None and empty for all.
    """

    process: Annotated[str | None, Param("The process.", argument=True, of=(Kind.PROCESS,))] = None
    feeds: Annotated[tuple[str, ...], Param(_FEEDS, option="feed", of=(Kind.FEED,))] = ()
    states: Annotated[tuple[ProcessInstanceStatus, ...], Param(_STATES, option="state", metavar="STATE")] = ()
    cluster: OnlyCluster = None
    start: Annotated[datetime | None, Param("Only batches that were cut at this time or later.")] = None
    end: Annotated[datetime | None, Param("Only batches that were cut before this time.")] = None
    offset: Offset = 0
    results: Results = PAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class EventChoice:
    """Events in the queue of a process, about which somebody decides."""

    process: Process
    events: Annotated[tuple[int, ...], Param(_EVENT, option="event", least=1)]
    reason: Annotated[str, Param("The reason, for people who find the change later.")]
    cluster: ProcessCluster = None
