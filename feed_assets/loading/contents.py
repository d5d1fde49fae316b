"""What an entity says, as plain values that can be written and read again."""

from typing import Any

from feed_assets.entities.cluster import LOCAL_MASTER, Cluster, InterfaceType
from feed_assets.entities.common import Entity, Kind
from feed_assets.loading.interpolation import escape_references


def content_of(entity: Entity) -> dict[str, Any]:
    """The JSON values of an entity by the keys of its files, without what is the default anyway."""
    content: dict[str, Any] = entity.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if isinstance(entity, Cluster) and InterfaceType.SPARK in entity.interfaces:
        content.setdefault("spark", {"master": LOCAL_MASTER})  # or the interface would stand for it
    return content


def escaped_content(entity: Entity) -> dict[str, Any]:
    """The same, written so that nothing in it is taken for a reference to the outside."""
    escaped: dict[str, Any] = escape_references(content_of(entity), with_variables=entity.kind is Kind.CLUSTER)
    return escaped
