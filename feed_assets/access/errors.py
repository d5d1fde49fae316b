"""The error of who may not do what is asked."""

from feed_assets.errors import Fault, FeedAssetsError


class AccessRefusedError(FeedAssetsError):
    """Who asks may not do it. Nothing was changed."""

    fault = Fault.RIGHTS

    def __init__(self, *, reason: str, next_step: str) -> None:
        super().__init__(f"{reason}. {next_step}")
