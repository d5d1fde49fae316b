"""What a file says of an entity and its columns, one property or tag at a time, with its place in the file."""

from collections.abc import Iterator
from typing import NamedTuple

from feed_assets.entities.common import ColumnMetadata, Entity
from feed_assets.entities.metadata import MetadataKey, MetadataKind, Scope
from feed_assets.issues import FieldPath


class Saying(NamedTuple):
    """A property or tag that a file says of an entity, or of one of its columns; `value` is "" for a tag."""

    column: str | None
    key: MetadataKey
    value: str
    place: FieldPath


def iter_sayings(entity: Entity) -> Iterator[Saying]:
    """Yield what a file says of an entity, then of its columns. The map `tags`, which is Falcon's, has properties."""
    for name, value in entity.tags.items():
        yield Saying(None, _key(MetadataKind.PROPERTY, name), value, ("tags", name))
    yield from _iter_part(None, entity.metadata, ("metadata",))
    for column, said in entity.metadata.columns.items():
        yield from _iter_part(column, said, ("metadata", "columns", column))


def _iter_part(column: str | None, said: ColumnMetadata, place: FieldPath) -> Iterator[Saying]:
    for name, value in said.properties.items():
        yield Saying(column, _key(MetadataKind.PROPERTY, name), value, (*place, "properties", name))
    for position, tag in enumerate(said.tags):
        yield Saying(column, _key(MetadataKind.TAG, tag), "", (*place, "tags", position))


def _key(kind: MetadataKind, name: str) -> MetadataKey:
    return MetadataKey(Scope.USER, kind, name)
