"""How far imports by mark have come: the stretch of each published instance."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from feed_assets.context.errors import InstanceQueryError
from feed_assets.context.operation import OperationContext
from feed_assets.engines.port import STRETCH
from feed_assets.entities.flow_names import Transfer, transfer_name
from feed_assets.json_form import NominalTime
from feed_assets.log.events import EventLog
from feed_assets.log.records import FeedEvent, FeedEventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedStretch:
    """The rows that an instance has: above the mark `above`, up to `upto`; the kind of the value comes first. Without
    a mark below it has them from the beginning on.
    """

    cluster: str
    nominal_time: NominalTime
    above: str | None
    upto: str | None
    rows: int | None
    recorded_at: datetime


def list_marks(context: OperationContext, name: str) -> tuple[ImportedStretch, ...]:
    """Return the stretches of a feed's instances, newest first on each cluster.

    Raises:
        InstanceQueryError: the feed has no import by mark.
    """
    context.feeds_of(name, None)
    own = transfer_name(name, Transfer.IMPORT)
    clusters = [key[1] for key, each in context.plan.processes.items() if key[0] == own and each.reads_in_turn]
    if not clusters:
        reason, next_step = "it has no import by mark", "Its instances say by themselves which rows they have."
        raise InstanceQueryError(subject=f"feed {name!r}", reason=reason, next_step=next_step)
    with context.database.read() as connection:
        events = [each for on in clusters for each in EventLog(connection).for_feed(name, on, FeedEventKind.PRODUCED)]
    newest = {each.key: each for each in events if STRETCH in each.payload}
    return tuple(_iter_stretches(newest.values()))


def _iter_stretches(events: Iterable[FeedEvent]) -> Iterator[ImportedStretch]:
    for event in sorted(events, key=lambda each: (each.cluster, -each.nominal_time.timestamp())):
        above, upto = json.loads(str(event.payload[STRETCH]))
        yield ImportedStretch(
            cluster=event.cluster,
            nominal_time=event.nominal_time,
            above=above,
            upto=upto,
            rows=None if (rows := event.payload.get("rows")) is None else int(str(rows)),
            recorded_at=event.recorded_at,
        )
