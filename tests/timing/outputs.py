"""Which feed instance an output expression means, and which process instances write one, as plans ask windows."""

from datetime import datetime

from feed_assets.timing.expressions import TimeExpression
from feed_assets.timing.sequence import InstanceSequence
from feed_assets.timing.windows import Window


def output_index(expression: TimeExpression, nominal_time: datetime, feed: InstanceSequence) -> int | None:
    """The number of the feed instance that a process instance writes; None outside the validity."""
    return next(iter(Window(start=expression, end=expression).indices(nominal_time, feed)), None)


def producers(expression: TimeExpression, feed_index: int, feed: InstanceSequence, process: InstanceSequence) -> range:
    """The numbers of the process instances that write a feed instance: the inverse of `output_index`."""
    return Window(start=expression, end=expression).consumers(feed_index, feed, process)
