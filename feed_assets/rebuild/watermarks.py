"""Move the watermarks of a rebuilt state past what is done."""

from dataclasses import replace
from datetime import datetime

from feed_assets.context.operation import OperationContext
from feed_assets.log.records import WatermarkKind
from feed_assets.log.watermarks import Watermarks
from feed_assets.plan.records import FeedRecord, ProcessRecord


def move_watermark(context: OperationContext, record: FeedRecord | ProcessRecord, to: datetime | None) -> None:
    """Let the creation or the polls of instances begin at a time, unless they have gone further; None is the end."""
    kind = WatermarkKind.FEED if isinstance(record, FeedRecord) else WatermarkKind.PROCESS
    sequence = record.sequence
    index = sequence.size if to is None else sequence.index(to)
    with context.database.begin() as connection:
        watermarks = Watermarks(connection)
        standing = watermarks.get(kind, *record.key)
        if standing is None or standing.next_time is None or index is None:
            return
        if to is None or standing.next_time < to:
            watermarks.put([replace(standing, next_index=index, next_time=to)])
