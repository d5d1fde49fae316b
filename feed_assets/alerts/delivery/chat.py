"""Send letters to chats, by the package apprise, which knows more than a hundred of them."""

import json
import os
import sys

from feed_assets.alerts.delivery import exchange
from feed_assets.alerts.delivery.errors import ChatMissingError, WayError
from feed_assets.alerts.delivery.exchange import run_bounded
from feed_assets.alerts.delivery.port import DELIVERED, Letter, Outcome, Sender, Verdict
from feed_assets.masking import mask
from feed_assets.receivers import MessageLevel

_TYPES = {MessageLevel.INFO: "info", MessageLevel.WARNING: "warning", MessageLevel.ERROR: "failure"}


_POST = """
import json, logging, resource, sys, apprise
given = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
logging.basicConfig(format="%(message)s", level=logging.WARNING)
service = apprise.Apprise(asset=apprise.AppriseAsset(secure_logging=True))
service.add(given.pop("url"))
sys.exit(not service.notify(**given))
"""


class ChatSender(Sender):
    """Posts the text of letters, with their keys. Why apprise could not post is what it logs. It works in a process of
    its own, since it reads all that a receiver answers, however long that takes.

    Raises:
        ChatMissingError: apprise is not installed.
        WayError: apprise does not know the scheme, or the URL lacks something.
    """

    def __init__(self, name: str, url: str) -> None:
        try:
            import apprise
        except ImportError as exc:
            raise ChatMissingError(name=name) from exc
        self._url = url
        if not apprise.Apprise().add(url):
            scheme = url.partition("://")[0]
            raise WayError(
                name=name,
                reason=f"apprise knows no such URL with the scheme {scheme!r}",
                next_step="Correct the URL; https://github.com/caronc/apprise/wiki lists them.",
            )

    def send(self, letter: Letter) -> Outcome:
        given = {
            "url": self._url,
            "title": letter.subject,
            "body": f"{letter.text}\nkey: {letter.key}",
            "notify_type": _TYPES[letter.message.level],
        }
        code, error = run_bounded([sys.executable, "-c", _POST], json.dumps(given).encode(), os.environ)
        if code == 0:
            return DELIVERED
        said = " ".join(error.decode("utf-8", "replace").split())
        reason = said if code is not None else f"it did not end within {exchange.SECONDS:g} s"
        return Outcome(verdict=Verdict.FAILED, error=mask(f"apprise could not post: {reason}"[:400]))
