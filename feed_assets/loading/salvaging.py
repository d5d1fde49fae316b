"""Read the locations of a feed that has mistakes, so that its data stay protected while the feed is left out."""

from collections.abc import Mapping

from pydantic import ValidationError

from feed_assets.entities.common import LocationKind
from feed_assets.entities.feed import Feed

_LOCATIONS, _TABLE, _CLUSTERS = "locations", "table", "clusters"
_ANY_VALIDITY = {"start": "1970-01-01T00:00Z"}


def salvage_feed(name: str, value: Mapping[str, object]) -> Feed | None:
    """Return a feed with the readable locations of a document, on the clusters that it names; None if it has none.

    Only its locations and tables have a meaning.

    >>> mistaken = {"locations": {"data": "/b/${YEAR}"}, "clusters": {"east": {}}, "frequncy": 1}
    >>> salvage_feed("b", mistaken).data_on("east")
    '/b/${YEAR}'
    """
    clusters = value.get(_CLUSTERS)
    if not isinstance(clusters, dict):
        return None
    content = {
        "name": name,
        "frequency": "days(1)",
        _CLUSTERS: {cluster: {"validity": _ANY_VALIDITY, **_places(entry)} for cluster, entry in clusters.items()},
        **_places(value),
    }
    try:
        return Feed.model_validate(content)
    except ValidationError:
        return None


def _places(value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        return {}
    locations, table = value.get(_LOCATIONS), value.get(_TABLE)
    texts = locations if isinstance(locations, Mapping) else {}
    found = {kind.value: texts[kind.value] for kind in LocationKind if isinstance(texts.get(kind.value), str)}
    return {**({_LOCATIONS: found} if found else {}), **({_TABLE: table} if isinstance(table, str) else {})}
