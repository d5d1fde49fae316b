"""What the manifest of an output says of the events of its batch, so that a lost state can be rebuilt."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from feed_assets.engines.port import InputEvent

TAKEN = "taken"
"""The key in a manifest's `extra`."""


class TakenEvent(NamedTuple):
    """An event that a batch has taken; `number` is its place in the log as it was."""

    input: str
    feed: str
    nominal_time: datetime
    digest: str | None
    number: int


def render_taken(events: Mapping[str, Sequence[InputEvent]]) -> dict[str, str]:
    """Return what goes into a manifest's `extra` for the events of a batch, by input; nothing without any."""
    found = [
        (name, each.feed, each.nominal_time.isoformat(), each.digest, each.number)
        for name, taken in events.items()
        for each in taken
    ]
    return {TAKEN: json.dumps(found, separators=(",", ":"))} if found else {}


def parse_taken(extra: Mapping[str, str]) -> tuple[TakenEvent, ...]:
    """Return the events that a manifest names. Raises `ValueError`, `TypeError` or `RecursionError` if it is damaged.

    >>> from datetime import UTC
    >>> event = InputEvent(number=7, feed="a", nominal_time=datetime(2026, 1, 1, tzinfo=UTC), recorded_at=datetime.max)
    >>> parse_taken(render_taken({"a": [event]})) == (TakenEvent("a", "a", event.nominal_time, None, 7),)
    True
    """
    rows = json.loads(extra.get(TAKEN, "[]"))
    return tuple(
        TakenEvent(str(name), str(feed), datetime.fromisoformat(time), digest, int(number))
        for name, feed, time, digest, number in rows
    )
