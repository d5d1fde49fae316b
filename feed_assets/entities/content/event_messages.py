"""What an event says to those who take it, and what that may be: the same for notices, functions and programs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from feed_assets.errors import shorten

PAYLOAD_AT_MOST = 65_536
"""The bytes of a payload's JSON."""

LONGEST_MARKING = 200
MARKING = "marking"
"""The note of a manifest that has the marking of the event, so that a state that is rebuilt has it, too."""
NO_ROWS = "(no rows)"
"""The marking of an event that brings nothing new: an empty increment. It wakes no trigger."""
PAYLOAD_REMEDY = 'Write the content into the data, and a hint here: a JSON object such as {"rows": 12}.'
MARKING_REMEDY = "Write a short word such as 2026-01-01_DAILY_END."


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMessage:
    """What an event says: values by name, and a word by which batches may end."""

    payload: Mapping[str, object] = field(default_factory=dict)
    marking: str | None = None

    @property
    def notes(self) -> Mapping[str, str]:
        """What the manifest keeps of it."""
        return {MARKING: self.marking} if self.marking else {}


def find_payload_fault(payload: object) -> str | None:
    """Return why a payload cannot be kept, as a clause; None if it can.

    >>> find_payload_fault({"rows": 12}), find_payload_fault([1])
    (None, 'its payload is a list, not an object with values by name')
    """
    if not isinstance(payload, Mapping):
        return f"its payload is a {type(payload).__name__}, not an object with values by name"
    try:
        size = len(json.dumps(dict(payload), allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as exc:
        return f"its payload is not JSON: {exc}"
    return f"its payload has {size:,} bytes, more than {PAYLOAD_AT_MOST:,}" if size > PAYLOAD_AT_MOST else None


def find_marking_fault(marking: object) -> str | None:
    """Return why a marking cannot be kept, as a clause; None if it can."""
    if marking is None:
        return None
    if not isinstance(marking, str):
        return f"its marking is a {type(marking).__name__}, not a text"
    if 0 < len(marking) <= LONGEST_MARKING and marking.isprintable():
        return None
    return f"its marking {shorten(marking, 20)!r} is empty, longer than {LONGEST_MARKING} characters or not printable"
