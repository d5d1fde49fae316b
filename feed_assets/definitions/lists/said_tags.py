"""The tags of entities, as lists show and search them: what files, people and programs say of an entity in a few words.

A property is `name=value`, a tag its name. What a file says needs no state, and counts before it is applied.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from sqlalchemy import Connection

from feed_assets.catalog.store import MetadataStore
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.common import Kind, iter_metadata
from feed_assets.entities.metadata import MetadataKey, MetadataKind
from feed_assets.plan.records import FeedRecord, ProcessRecord

TagsOf: TypeAlias = Callable[[AnyEntity], tuple[str, ...]]


class SaidTags:
    """The tags of all declared entities, as one transaction sees them; costs one read."""

    def __init__(self, connection: Connection) -> None:
        self._said = MetadataStore(connection).said_beside_files(tuple(Kind))

    def of_entity(self, entity: AnyEntity) -> tuple[str, ...]:
        """Return the tags of an entity: first those of its file."""
        return self._render(*entity.key, {each.key: each.value for each in iter_metadata(entity) if not each.column})

    def of_record(self, kind: Kind, record: FeedRecord | ProcessRecord) -> tuple[str, ...]:
        """Return the tags of a feed or process of the plan."""
        said = {each.key: each.value for each in record.facts.metadata if not each.column}
        return self._render(kind.value, record.key[0], said)

    def _render(self, kind: str, name: str, in_file: Mapping[MetadataKey, str]) -> tuple[str, ...]:
        said = {**in_file, **self._said.get(f"{kind}/{name}", {}), **in_file}
        return tuple(key.name if key.kind is MetadataKind.TAG else f"{key.name}={value}" for key, value in said.items())


def has_words(tags: Iterable[str], words: Iterable[str]) -> bool:
    """Return whether each of the words occurs somewhere in the tags, in any case."""
    text = ",".join(tags).lower()
    return all(word.lower() in text for word in words)
