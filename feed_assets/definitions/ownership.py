"""Protect the record of definitions: from another project on the same database, and from files that disappear.

The record knows the places that have declared its entities, and which did so last. A place that it does not know, and
that lacks many of the recorded entities, is another project. A known place that lacks many of them may have lost its
files. One that another has replaced, and that differs, must not take turns with it.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from feed_assets.definitions.contents import ContentsReader
from feed_assets.definitions.errors import ForeignDefinitionsError, MassDeletionError, ReplacedDefinitionsError
from feed_assets.definitions.folder import open_folder
from feed_assets.definitions.recording import is_gone
from feed_assets.entities.bundle import AnyEntity
from feed_assets.issues import EntityKey
from feed_assets.loading.entity_files import values_of
from feed_assets.log.cursors import Cursors
from feed_assets.log.definitions.records import DefinitionAction, NewDefinition
from feed_assets.log.definitions.store import Definitions
from feed_assets.settings import Settings
from feed_assets.sql.database import Database

PLACES_CURSOR = "definitions/places"
PYTHON_ORIGIN = "python"
"""The origin of versions of entities that were built in Python."""
FEWEST = 3
"""Fewer deletions than these need no confirmation."""

_VERSION = 1


def is_mass_deletion(deleted: int, declared: int, share: float) -> bool:
    """Return whether deleting some of the declared entities at once needs a confirmation.

    >>> is_mass_deletion(3, 5, 0.5), is_mass_deletion(2, 2, 0.5), is_mass_deletion(3, 6, 0.5)
    (True, False, False)
    """
    return deleted >= FEWEST and deleted > share * declared


def require_own_record(
    database: Database, place: str, share: float, find_declared: Callable[[], Collection[EntityKey]]
) -> None:
    """Require that a place may use a database: it is known to the record, or declares most of what is recorded.

    `find_declared` is called only for an unknown place. A place that declares nothing is left to `require_few_deleted`.

    Raises:
        ForeignDefinitionsError: the record belongs to another project.
    """
    with database.read() as connection:
        places = find_places(connection)
        if place in places:
            return
        recorded = {key for key, version in Definitions(connection).newest().items() if not is_gone(version)}
    declared = find_declared() if recorded else ()
    lacking = len(recorded.difference(declared))
    if declared and lacking > share * len(recorded):
        raise ForeignDefinitionsError(
            location=place, database=database.name, places=places, recorded=len(recorded), lacking=lacking
        )


def require_own_database(database: Database, settings: Settings, declared: Sequence[AnyEntity] | None = None) -> None:
    """Require that a database does not belong to another project. Costs one read for a known place.

    `declared` are entities that were built in Python; None reads the files that the settings name.

    Raises:
        ForeignDefinitionsError: the database records the definitions of another project.
    """
    folder = open_folder(settings.entities_location)

    def find_declared() -> Collection[EntityKey]:
        if declared is not None:
            return {entity.key for entity in declared}
        return ContentsReader(folder, values_of(settings)).read().documents.keys() if folder.exists() else ()

    place = folder.location if declared is None else place_of_python(settings)
    require_own_record(database, place, settings.unconfirmed_deletions, find_declared)


def place_of_python(settings: Settings) -> str:
    """Return the name of the place of entities that were built in Python."""
    return f"{settings.root} ({PYTHON_ORIGIN})"


def require_few_deleted(place: str, versions: Iterable[NewDefinition], declared: int, share: float) -> None:
    """Require that versions to be recorded delete no more of the declared entities than may disappear at once.

    Raises:
        MassDeletionError: they do.
    """
    deleted = [each for each in versions if each.action is DefinitionAction.DELETED]
    if is_mass_deletion(len(deleted), declared, share):
        names = tuple(f"{each.kind} {each.name!r}" for each in deleted)
        raise MassDeletionError(location=place, deleted=names, declared=declared)


def require_not_replaced(connection: Connection, place: str, origin: str, versions: Iterable[NewDefinition]) -> None:
    """Require that versions to be recorded do not come from a place that another one has replaced.

    Two places that declare different entities would otherwise delete each other's with every tick. Entities in files
    and entities built in Python leave each other alone, so `origin` says which of the two these are.

    Raises:
        ReplacedDefinitionsError: they do.
    """
    last = _load(connection).get("last", {}).get(origin)
    if last not in (None, place) and place in find_places(connection):
        names = tuple(f"{each.kind} {each.name!r}" for each in versions)
        raise ReplacedDefinitionsError(location=place, by=last, differing=names)


def find_places(connection: Connection) -> tuple[str, ...]:
    """Return the places that have declared entities of the record."""
    return tuple(_load(connection).get("places", ()))


def put_place(connection: Connection, place: str, origin: str) -> None:
    """Record that a place declares the entities of this origin; it replaces the one that did so before."""
    places = sorted({*find_places(connection), place})
    last = {**_load(connection).get("last", {}), origin: place}
    Cursors(connection).put(PLACES_CURSOR, json.dumps({"version": _VERSION, "places": places, "last": last}))


def _load(connection: Connection) -> dict[str, Any]:
    text = Cursors(connection).get(PLACES_CURSOR)
    return dict(json.loads(text)) if text else {}
