"""Records the definitions of a location, so that releases can refer to recorded versions."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from feed_assets.definitions.folder import digest_as_written
from feed_assets.definitions.ownership import (
    PYTHON_ORIGIN,
    find_places,
    place_of_python,
    put_place,
    require_few_deleted,
    require_not_replaced,
)
from feed_assets.definitions.recording import is_gone
from feed_assets.definitions.store import FOLDER_ORIGIN, open_store
from feed_assets.entities.bundle import AnyEntity
from feed_assets.issues import EntityKey
from feed_assets.loading.entity_files import digest_files, read_declared_files, values_of
from feed_assets.loading.yaml_writer import render_yaml
from feed_assets.log.definitions.records import DefinitionAction, DefinitionVersion, DocumentFormat, NewDefinition
from feed_assets.log.definitions.store import Definitions
from feed_assets.plan.location import Location
from feed_assets.releases.pinning import store_pinned_files
from feed_assets.settings import Settings
from feed_assets.sql.database import Database

_NOBODY = "unknown"


def record_location(database: Database, settings: Settings, location: Location, as_of: datetime) -> bool:
    """Record the definitions of a location and the files of its workflows, unless they are already recorded.

    Returns:
        Whether the location equals the record; False if its files have changed meanwhile.

    Raises:
        DefinitionsError: the files cannot be read, or many of the declared entities have disappeared at once.
    """
    if not store_pinned_files(database, location.plan, settings.root):
        return False
    if location.declared is not None:
        record_declared(database, location.declared, as_of, settings)
        return True
    values = values_of(settings)
    if digest_files(read_declared_files(settings), values) != location.digest:
        return False
    store = open_store(database, settings)
    store.record_found(as_of)
    with database.read() as connection:
        is_new_place = store.folder.location not in find_places(connection)
    if is_new_place:
        with database.begin() as connection:
            put_place(connection, store.folder.location, FOLDER_ORIGIN)
    return digest_files(read_declared_files(settings), values) == location.digest


def record_declared(
    database: Database, entities: Sequence[AnyEntity], as_of: datetime, settings: Settings
) -> list[DefinitionVersion]:
    """Record entities that were built in Python: the new, the changed and the removed ones.

    Raises:
        MassDeletionError: many of them have disappeared at once.
        ReplacedDefinitionsError: another place has replaced this one.
    """
    place = place_of_python(settings)
    with database.changing_definitions():
        with database.read() as connection:
            newest = Definitions(connection).newest()
            is_new_place = place not in find_places(connection)
        found = [_found(entity, newest, as_of) for entity in entities]
        declared = {entity.key for entity in entities}
        known = [key for key, version in newest.items() if not is_gone(version) and version.origin == PYTHON_ORIGIN]
        gone = [_version(*key, DefinitionAction.DELETED, as_of) for key in known if key not in declared]
        require_few_deleted(place, gone, len(known), settings.unconfirmed_deletions)
        versions = [version for version in (*found, *gone) if version is not None]
        if not versions and not is_new_place:
            return []
        with database.begin() as connection:
            require_not_replaced(connection, place, PYTHON_ORIGIN, versions)
            put_place(connection, place, PYTHON_ORIGIN)
            definitions = Definitions(connection)
            appended = definitions.append(versions)
            if appended:
                definitions.bump_revision()
    return appended


def _found(entity: AnyEntity, newest: Mapping[EntityKey, DefinitionVersion], as_of: datetime) -> NewDefinition | None:
    text = render_yaml(entity)
    digest = digest_as_written(entity, text, DocumentFormat.YAML)
    last = newest.get(entity.key)
    if last is None or is_gone(last):
        return _version(*entity.key, DefinitionAction.SUBMITTED, as_of, digest, text)
    if last.digest == digest:
        return None
    return _version(*entity.key, DefinitionAction.UPDATED, as_of, digest, text)


def _version(
    kind: str, name: str, action: DefinitionAction, as_of: datetime, digest: str | None = None, text: str | None = None
) -> NewDefinition:
    return NewDefinition(
        kind=kind,
        name=name,
        action=action,
        digest=digest,
        text=text,
        format=DocumentFormat.YAML,
        file="",
        author=_NOBODY,
        origin=PYTHON_ORIGIN,
        recorded_at=as_of,
    )
