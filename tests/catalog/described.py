"""Entities of which people and the program say something, and searches among them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from feed_assets.catalog.commands import drop_metadata
from feed_assets.catalog.editing import remove_metadata, update_metadata
from feed_assets.catalog.search.records import SearchQuery
from feed_assets.catalog.search.search import SearchPage, search
from feed_assets.catalog.writing import Target, write_metadata
from feed_assets.context.operation import OperationContext
from feed_assets.entities.bundle import AnyEntity
from feed_assets.entities.metadata import MetadataKey, MetadataKind, MetadataValue, Origin, Scope, Update
from tests.context.contexts import context_of
from tests.instances.harness import LifecycleHarness


@dataclass(slots=True)
class Described:
    """A project with a state database; each word is said a second after the last."""

    lifecycle: LifecycleHarness

    def later(self) -> OperationContext:
        self.lifecycle.now += timedelta(seconds=1)
        return context_of(self.lifecycle, self.lifecycle.now)

    def say(self, path: str, properties: Mapping[str, str] = {}, tags: Sequence[str] = ()) -> None:
        """Somebody says something of an entity."""
        update_metadata(self.later().by("ann"), path, properties, tags)

    def unsay(self, path: str, name: str, kind: MetadataKind = MetadataKind.PROPERTY) -> None:
        remove_metadata(self.later().by("ann"), path, names=[name], kinds=[kind])

    def drop(self, path: str) -> None:
        drop_metadata(self.later().by("ann"), entity=path)

    def tell(self, path: str, properties: Mapping[str, str] = {}, tags: Sequence[str] = ()) -> None:
        """The program says something of an entity, in the scope SYSTEM."""
        said = {MetadataKey(Scope.SYSTEM, MetadataKind.PROPERTY, name): value for name, value in properties.items()}
        said |= {MetadataKey(Scope.SYSTEM, MetadataKind.TAG, tag): "" for tag in tags}
        values = {key: MetadataValue(value, Origin.SYSTEM, "feed-assets") for key, value in said.items()}
        *_, kind, name = path.split("/")
        target = Target(path=path, kind=kind, name=name, is_declared=True)
        now = self.later().as_of
        with self.lifecycle.database.begin() as connection:
            write_metadata(connection, target, [Update(values)], author="feed-assets", origin=Origin.SYSTEM, now=now)

    def page(self, text: str = "*", **more: Any) -> SearchPage:
        return search(self.lifecycle.database, SearchQuery(text=text, **more))

    def find(self, text: str = "*", **more: Any) -> list[str]:
        """The names that a query finds, in order."""
        return [each.name for each in self.page(text, **more).results]


@contextmanager
def described(root: Path, *entities: AnyEntity, state: str | None = None) -> Iterator[Described]:
    """Entities that have just been declared."""
    found = Described(LifecycleHarness.of(root, *entities, state=state))
    yield found
    found.lifecycle.database.close()
