"""Write the place behind a page of a search as a text, and read it again."""

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime

from feed_assets.entities.errors import MetadataRefusedError
from feed_assets.json_form import parse_json
from feed_assets.state.search_records import Position, SearchOrder

MOST_RESULTS = 1000
_VERSION = 1
_LARGEST = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStart:
    """The beginning of a page of `limit` results. One that has a place is read from there, however many `offset` are
    before it now.
    """

    offset: int
    limit: int
    after: Position | None = None


def render_cursor(start: PageStart, order: SearchOrder) -> str:
    """Return the beginning of a page, which has a place, as a cursor."""
    assert start.after is not None
    value, entity = start.after
    text = value.isoformat() if isinstance(value, datetime) else value
    content = json.dumps([_VERSION, order.value, text, entity, start.offset, start.limit], separators=(",", ":"))
    return base64.urlsafe_b64encode(content.encode()).decode()


def parse_cursor(text: str, order: SearchOrder) -> PageStart:
    """Return the beginning of the page at a cursor.

    Raises:
        MetadataRefusedError: no search in this order has given it.
    """
    try:
        version, sort, value, entity, offset, limit = parse_json(base64.urlsafe_b64decode(text.encode()))
        is_ours = (version, sort, str(value).isprintable()) == (_VERSION, order.value, True)
        if not is_ours or not (0 < entity < _LARGEST and 0 <= offset < _LARGEST and 0 < limit <= MOST_RESULTS):
            raise ValueError(text)
        place = datetime.fromisoformat(value).astimezone(UTC) if order.is_by_age else str(value)
        return PageStart(offset=int(offset), limit=int(limit), after=Position(place, int(entity)))
    except (ValueError, TypeError) as exc:
        raise MetadataRefusedError(
            entity=f"cursor {text[:40]!r}",
            reason="no search in this order has given it",
            next_step="Search again without a cursor.",
        ) from exc
