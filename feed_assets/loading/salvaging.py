"""Read the locations of an entity that has mistakes, so that its data stay protected while the entity is left out."""

from collections.abc import Mapping
from contextlib import suppress

from pydantic import ValidationError

from feed_assets.entities.bundle import ENTITY_TYPES, AnyEntity
from feed_assets.entities.common import Kind, LocationKind, Validity

_LOCATIONS, _TABLE, _CLUSTERS, _VALIDITY, _STORAGE = "locations", "table", "clusters", "validity", "storage"
_ANY_VALIDITY = {"start": "1970-01-01T00:00Z"}


def salvage(kind: Kind, name: str, value: Mapping[str, object]) -> AnyEntity | None:
    """Return the entity of a document with its readable locations; None if it has none.

    These are the locations and tables of a feed, the directories of a mirror, and the storage of a cluster. Of the rest
    only validities have a meaning.

    >>> mistaken = {"locations": {"data": "/b/${YEAR}"}, "clusters": {"east": {}}, "frequncy": 1}
    >>> salvage(Kind.FEED, "b", mistaken).data_on("east")
    '/b/${YEAR}'
    """
    content = _content(kind, value)
    if content is None:
        return None
    try:
        return ENTITY_TYPES[kind].model_validate({"name": name, **content})
    except ValidationError:
        return None


def _content(kind: Kind, value: Mapping[str, object]) -> dict[str, object] | None:
    match kind:
        case Kind.CLUSTER:
            return {_STORAGE: value[_STORAGE]} if _STORAGE in value else None
        case Kind.FEED:
            return {"frequency": "days(1)", **_clusters(value), **_places(value)}
        case Kind.PROCESS:
            workflow = value.get("workflow")
            mirror = workflow.get("mirror") if isinstance(workflow, Mapping) else None
            if not isinstance(mirror, Mapping):
                return None
            sides = {side: mirror.get(side) for side in ("source", "target")}
            work = {"engine": "directory-mirror", "mirror": sides}
            return {"frequency": "days(1)", **_clusters(value, with_places=False), "workflow": work}
        case _:
            return None


def _clusters(value: Mapping[str, object], *, with_places: bool = True) -> dict[str, object]:
    clusters = value.get(_CLUSTERS)
    entries = clusters if isinstance(clusters, Mapping) else {}
    return {
        _CLUSTERS: {
            name: {_VALIDITY: _validity(entry), **(_places(entry) if with_places else {})}
            for name, entry in entries.items()
        }
    }


def _validity(entry: object) -> object:
    written = entry.get(_VALIDITY) if isinstance(entry, Mapping) else None
    with suppress(ValidationError):
        Validity.model_validate(written)
        return written
    return _ANY_VALIDITY


def _places(value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        return {}
    locations, table = value.get(_LOCATIONS), value.get(_TABLE)
    texts = locations if isinstance(locations, Mapping) else {}
    found = {kind.value: texts[kind.value] for kind in LocationKind if isinstance(texts.get(kind.value), str)}
    return {**({_LOCATIONS: found} if found else {}), **({_TABLE: table} if isinstance(table, str) else {})}
