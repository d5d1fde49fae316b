"""Decide which versions must be added to the record of definitions to match the files, and add them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from datetime import datetime

from sqlalchemy import Connection

from feed_assets.catalog.store import MetadataStore
from feed_assets.definitions.contents import Contents
from feed_assets.entities.bundle import AnyEntity, entity_digest
from feed_assets.entities.feed import Feed
from feed_assets.entities.process import Process
from feed_assets.issues import EntityKey
from feed_assets.log.definitions.records import DefinitionAction, DefinitionVersion, NewDefinition
from feed_assets.log.definitions.store import Definitions

Newest = Mapping[EntityKey, DefinitionVersion]
"""The newest version of each entity that was ever declared, including deletions."""


def decide_versions(
    contents: Contents,
    newest: Newest,
    keys: Collection[EntityKey] | None = None,
    *,
    author_of: Callable[[str], str],
    origin: str,
    now: datetime,
    change_id: str | None = None,
) -> list[NewDefinition]:
    """Return the versions to record, by key; only of `keys`, if given. `author_of` receives the name of the file.

    An entity that cannot be read keeps its version. So does an entity whose file cannot be read, and one without a file
    because it was built in Python.
    """
    found = []
    hiding = {file.name for file in contents.files.values() if file.hides_entities}
    for key in sorted(contents.documents.keys() | newest.keys() if keys is None else set(keys)):
        last = newest.get(key)
        action = _decide_action(contents, key, None if is_gone(last) else last, hiding)
        if action is None:
            continue
        document = contents.documents.get(key)
        source = document or last
        assert source is not None
        found.append(
            NewDefinition(
                kind=key[0],
                name=key[1],
                action=action,
                digest=document.digest if document else None,
                text=document.text if document else None,
                format=source.format,
                file=source.file,
                author=author_of(source.file),
                origin=origin,
                recorded_at=now,
                change_id=change_id,
            )
        )
    return found


def append_versions(connection: Connection, new: Iterable[NewDefinition]) -> list[DefinitionVersion]:
    """Record versions, and tell every process that has loaded definitions. What is deleted loses its metadata."""
    definitions = Definitions(connection)
    versions = definitions.append(new)
    for gone in versions:
        if gone.action is DefinitionAction.DELETED:
            MetadataStore(connection).forget([f"{gone.kind}/{gone.name}"], gone.author, gone.recorded_at)
    definitions.bump_revision()
    return versions


def find_renamed(gone: Iterable[AnyEntity], come: Iterable[AnyEntity]) -> list[tuple[AnyEntity, AnyEntity]]:
    """Return those entities that seem to have come back under another name: a feed with its data at the same place, a
    process with the same definition.
    """
    by_sign: dict[Hashable, list[AnyEntity]] = defaultdict(list)
    for each in come:
        for sign in _signs(each):
            by_sign[sign].append(each)
    return [
        (old, each)
        for old in gone
        for each in {each.key: each for sign in _signs(old) for each in by_sign.get(sign, ())}.values()
    ]


def _signs(entity: AnyEntity) -> Iterator[Hashable]:
    """Yield what an entity has in common with itself under another name: its places, else its definition."""
    match entity:
        case Feed(has_data=True):
            places = ((cluster, entity.data_on(cluster) or entity.table_on(cluster)) for cluster in entity.clusters)
            yield from (place for place in places if place[1] is not None)
        case Feed() | Process():
            yield entity.kind, entity_digest(entity.model_copy(update={"name": ""}))
        case _:
            pass


def is_in_folder(version: DefinitionVersion) -> bool:
    """Return whether an entity with this newest version is declared in a file, not built in Python."""
    return bool(version.file) and not is_gone(version)


def is_gone(version: DefinitionVersion | None) -> bool:
    """Return whether an entity with this newest version is not declared."""
    return version is None or version.action is DefinitionAction.DELETED


def _decide_action(
    contents: Contents, key: EntityKey, last: DefinitionVersion | None, hiding: Collection[str]
) -> DefinitionAction | None:
    if key in contents.bundle.broken:
        return None
    document = contents.documents.get(key)
    if document is None:
        return DefinitionAction.DELETED if last is not None and last.file and last.file not in hiding else None
    if last is None:
        return DefinitionAction.SUBMITTED
    # The texts are compared first: equal texts mean the same in every release, and hashing is slow.
    is_same = (last.text, last.format) == (document.text, document.format) or last.digest == document.digest
    return None if is_same else DefinitionAction.UPDATED
