"""Protect the record of definitions: from another project on the same database, and from files that disappear.

The record knows the places that have declared its entities. A place that it does not know, and that lacks many of the
recorded entities, is another project. A known place that lacks many of them may have lost its files.
"""

import json
from collections.abc import Callable, Collection, Iterable

from sqlalchemy import Connection

from feed_assets.definitions.errors import ForeignDefinitionsError, MassDeletionError
from feed_assets.definitions.recording import is_gone
from feed_assets.issues import EntityKey
from feed_assets.state.cursors import Cursors
from feed_assets.state.database import Database
from feed_assets.state.definition_records import DefinitionAction, NewDefinition
from feed_assets.state.definitions import Definitions

PLACES_CURSOR = "definitions/places"
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


def require_few_deleted(place: str, versions: Iterable[NewDefinition], declared: int, share: float) -> None:
    """Require that versions to be recorded delete no more of the declared entities than may disappear at once.

    Raises:
        MassDeletionError: they do.
    """
    deleted = [each for each in versions if each.action is DefinitionAction.DELETED]
    if is_mass_deletion(len(deleted), declared, share):
        names = tuple(f"{each.kind} {each.name!r}" for each in deleted)
        raise MassDeletionError(location=place, deleted=names, declared=declared)


def find_places(connection: Connection) -> tuple[str, ...]:
    """Return the places that have declared entities of the record."""
    text = Cursors(connection).get(PLACES_CURSOR)
    return tuple(json.loads(text)["places"]) if text else ()


def add_place(connection: Connection, place: str) -> None:
    """Record that a place declares entities of the record."""
    places = sorted({*find_places(connection), place})
    Cursors(connection).put(PLACES_CURSOR, json.dumps({"version": _VERSION, "places": places}))
