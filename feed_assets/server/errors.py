"""Errors of requests."""

from http import HTTPStatus

from feed_assets.errors import FeedAssetsError


class RequestRefusedError(FeedAssetsError):
    """A request is refused with a status of its own."""

    def __init__(self, status: int, text: str) -> None:
        self.status = HTTPStatus(status)
        super().__init__(text)
