"""Convert an entity to plain values that can be written to a file and read again."""

from typing import Any

from feed_assets.entities.cluster import LOCAL_MASTER, Cluster, InterfaceType
from feed_assets.entities.common import Entity, Kind
from feed_assets.loading.interpolation import escape_references


def content_of(entity: Entity) -> dict[str, Any]:
    """Return an entity's JSON values under the keys used in files, leaving out defaults."""
    content: dict[str, Any] = entity.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if isinstance(entity, Cluster) and InterfaceType.SPARK in entity.interfaces:
        content.setdefault("spark", {"master": LOCAL_MASTER})  # else the interface would name the master
    return content


def escaped_content(entity: Entity) -> dict[str, Any]:
    """Return `content_of` the entity with `${` escaped, so that no text is read as a reference to an outside value."""
    escaped: dict[str, Any] = escape_references(content_of(entity), with_variables=entity.kind is Kind.CLUSTER)
    return escaped
