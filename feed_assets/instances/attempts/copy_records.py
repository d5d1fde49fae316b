"""Tell from the record alone whether a replica is behind: its source has other content now than when it was copied."""

from collections.abc import Mapping, Sequence
from typing import Any

from feed_assets.log.records import CONTENT, FeedEvent, FeedEventKind, FeedInstance, ProcessInstance


def copy_of(events: Sequence[FeedEvent], flow: str) -> FeedEvent | None:
    """Return the newest event about a copy by a flow, out of the events of an instance at the target."""
    copies = (
        event
        for event in reversed(events)
        if event.kind is FeedEventKind.REPLICATED and event.payload.get("process") == flow
    )
    return next(copies, None)


def figures_of(copy: FeedEvent | None) -> Mapping[str, Any]:
    """Return the figures of a copy, as `describe_copy` made them."""
    found: Any = copy.payload.get("copy") if copy else None
    return found or {}


def has_changed(
    source: FeedInstance | None,
    source_events: Sequence[FeedEvent],
    run: ProcessInstance | None,
    copy: FeedEvent | None,
) -> bool:
    """Return whether the source has other content than what the newest attempt to copy it has read.

    Args:
        source: the instance at the source.
        source_events: the events of that instance.
        run: the instance of the flow, with the newest attempt.
        copy: the newest event about a copy by the flow; see `copy_of`.
    """
    changes = [event.recorded_at for event in source_events if event.kind in CONTENT]
    if not changes or run is None or run.started_at is None:
        return False
    now = source.manifest_digest if source else None
    then = {digest for frozen in run.inputs for digest in frozen.digests}
    is_same = now is not None and now in {*then, figures_of(copy).get("source_digest")}
    return max(changes) > run.started_at and not is_same
