"""The addresses of pages of a server that show a feed, process or instance: for what stands below it."""

from datetime import datetime
from urllib.parse import quote

from feed_assets.timing.dates import render_datetime

HOME = "/ui"


def instance_address(kind: str, name: str, nominal_time: datetime | str) -> str:
    """Return the address of an instance of a feed or process.

    >>> instance_address("feed", "flights", "2013-11-03T05:00Z")
    '/ui/feed/flights/at/2013-11-03T05:00Z'
    """
    time = nominal_time if isinstance(nominal_time, str) else render_datetime(nominal_time)
    return "/".join((HOME, *(quote(each, safe=":+,@=") for each in (kind, name, "at", time))))


def instance_url(server: str, kind: str, name: str, nominal_time: datetime) -> str:
    """Return the URL of the page of an instance, on a server at a URL.

    >>> from datetime import UTC
    >>> instance_url("https://feeds.example.org/", "feed", "flights", datetime(2013, 11, 3, 5, tzinfo=UTC))
    'https://feeds.example.org/ui/feed/flights/at/2013-11-03T05:00Z'
    """
    return server.rstrip("/") + instance_address(kind, name, nominal_time)
