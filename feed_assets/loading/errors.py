"""Errors of locations that cannot be read."""

from feed_assets.entities.errors import DefinitionsError


class LocationUnreadableError(DefinitionsError):
    """The location of the entity files does not exist or cannot be read."""
