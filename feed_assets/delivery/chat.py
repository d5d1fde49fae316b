"""Send letters to chats, by the package apprise, which knows more than a hundred of them."""

import logging
from typing import Any

from feed_assets.delivery.errors import ChatMissingError, WayError
from feed_assets.delivery.port import DELIVERED, Letter, Outcome, Sender, Verdict
from feed_assets.masking import mask
from feed_assets.topics import MessageLevel

_TYPES = {MessageLevel.INFO: "info", MessageLevel.WARNING: "warning", MessageLevel.ERROR: "failure"}


class ChatSender(Sender):
    """Posts the text of letters, with their keys. Why apprise could not post is what it logs.

    Raises:
        ChatMissingError: apprise is not installed.
        WayError: apprise does not know the scheme, or the URL lacks something.
    """

    def __init__(self, name: str, url: str) -> None:
        try:
            import apprise
        except ImportError as exc:
            raise ChatMissingError(name=name) from exc
        self._apprise: Any = apprise
        self._service: Any = apprise.Apprise(asset=apprise.AppriseAsset(secure_logging=True))
        if not self._service.add(url):
            scheme = url.partition("://")[0]
            raise WayError(
                name=name,
                reason=f"apprise knows no such URL with the scheme {scheme!r}",
                next_step="Correct the URL; https://github.com/caronc/apprise/wiki lists them.",
            )

    def send(self, letter: Letter) -> Outcome:
        with self._apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:
            is_done = self._service.notify(
                body=f"{letter.text}\nkey: {letter.key}",
                title=letter.subject,
                notify_type=_TYPES[letter.message.level],
            )
            said = " ".join(log.getvalue().split())
        if is_done:
            return DELIVERED
        return Outcome(verdict=Verdict.FAILED, error=mask(f"apprise could not post: {said}"[:400]))
