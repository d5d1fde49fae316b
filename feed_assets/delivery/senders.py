"""Open the sender of a way. Its module is imported on first use."""

from typing import assert_never

from feed_assets.delivery.port import Sender
from feed_assets.delivery.ways import Way
from feed_assets.receivers import Channel

WEBHOOK_THREADS = 8


def open_sender(way: Way) -> Sender:
    """Return a sender for one thread.

    Raises:
        DeliveryError: the package for chats is missing, or it does not know the URL.
    """
    match way.channel:
        case Channel.EMAIL:
            from feed_assets.delivery.mail import MailSender

            return MailSender(way.address, way.mail)
        case Channel.WEBHOOK:
            from feed_assets.delivery.webhook import WebhookSender

            return WebhookSender(way.address, way.secret)
        case Channel.CHAT:
            from feed_assets.delivery.chat import ChatSender

            return ChatSender(way.name, way.address)
        case Channel.COMMAND:
            from feed_assets.delivery.commands import CommandSender

            return CommandSender(way.address)
        case _:
            assert_never(way.channel)


def threads_of(way: Way) -> int:
    """Return how many entities' messages are sent at once on a way."""
    return WEBHOOK_THREADS if way.channel is Channel.WEBHOOK else 1
