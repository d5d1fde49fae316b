"""Open the sender of a way: its module is imported on first use. That of commands needs no package."""

import json
import os
import shlex
from typing import assert_never

from feed_assets.alerts.delivery import exchange
from feed_assets.alerts.delivery.exchange import run_bounded
from feed_assets.alerts.delivery.port import DELIVERED, Letter, Outcome, Sender, Verdict
from feed_assets.alerts.delivery.ways import Way
from feed_assets.masking import mask
from feed_assets.receivers import Channel

WEBHOOK_THREADS = 8
KEY_VARIABLE = "FEED_ASSETS_KEY"

_MOST_SHOWN = 200


def open_sender(way: Way) -> Sender:
    """Return a sender for one thread.

    Raises:
        DeliveryError: the package for chats is missing, or it does not know the URL.
    """
    match way.channel:
        case Channel.EMAIL:
            from feed_assets.alerts.delivery.mail import MailSender

            return MailSender(way.address, way.mail)
        case Channel.WEBHOOK:
            from feed_assets.alerts.delivery.webhook import WebhookSender

            return WebhookSender(way.address, way.secret)
        case Channel.CHAT:
            from feed_assets.alerts.delivery.chat import ChatSender

            return ChatSender(way.name, way.address)
        case Channel.COMMAND:
            return CommandSender(way.address)
        case _:
            assert_never(way.channel)


def threads_of(way: Way) -> int:
    """Return how many entities' messages are sent at once on a way."""
    return WEBHOOK_THREADS if way.channel is Channel.WEBHOOK else 1


class CommandSender(Sender):
    """Runs a command without a shell, one process for each letter, with the JSON document on its standard input. It has
    taken the letter if it ends with 0.
    """

    def __init__(self, address: str) -> None:
        self._words = shlex.split(address.removeprefix("command:"))

    def send(self, letter: Letter) -> Outcome:
        environ = {**os.environ, KEY_VARIABLE: letter.key}
        try:
            code, error = run_bounded(self._words, json.dumps(letter.document).encode(), environ)
        except OSError as exc:
            return Outcome(verdict=Verdict.AWAY, error=mask(f"{type(exc).__name__}: {exc}"))
        if code == 0:
            return DELIVERED
        said = " ".join(error[-_MOST_SHOWN:].decode("utf-8", "replace").split())
        end = f"it did not end within {exchange.SECONDS:g} s" if code is None else f"it ended with {code}"
        return Outcome(verdict=Verdict.FAILED, error=mask(f"{end}: {said}".rstrip(": ")))
