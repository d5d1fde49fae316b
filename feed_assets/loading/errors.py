"""Places of definitions that cannot be read."""

from feed_assets.entities.errors import DefinitionsError


class LocationUnreadableError(DefinitionsError):
    """The place of the entity files does not exist or cannot be read."""
