"""The base of the errors in the life of instances."""

from feed_assets.errors import FeedAssetsError


class LifecycleError(FeedAssetsError):
    """An instance cannot take its next step."""
