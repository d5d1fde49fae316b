"""Who asks a server: the holder of a token, who a proxy says it is, or whoever is on this machine."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from feed_assets.clock import open_clock
from feed_assets.operation import Does
from feed_assets.server.tokens import Tokens
from feed_assets.settings import Settings
from feed_assets.sql.database import Database

_HOST = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|([A-Za-z0-9._-]+)(?::\d{1,5})?")  # [::1]:3030, localhost
_LONGEST = 200
_FORWARDED = ("Forwarded", "X-Forwarded-For")
LOCALHOST = "localhost"

Headers = Callable[[str], Sequence[str]]
"""Returns the values of a header."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they may."""

    name: str
    may: tuple[Does, ...] = tuple(Does)


class Keeper:
    """Who and what a server knows; `author` is its own user, and `host` is where it is served."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        host: str,
        author: str,
        read_only: bool = False,
        insecure: bool = False,
    ) -> None:
        self.read_only = read_only
        self._settings = settings
        self._database = database
        self._author = author
        self._is_local = is_loopback(host)
        self._takes_plain = insecure or self._is_local
        self._names = {LOCALHOST, *map(_name_of, (host, *settings.server.hosts))}
        self._proxies = tuple(ip_network(each, strict=False) for each in settings.server.proxies)

    def has_name(self, host: str) -> bool:
        """Return whether a host, with or without a port, is one of this server's, or this machine."""
        found = _HOST.fullmatch(host)
        name = _name_of(found[1] or found[2]) if found else ""
        return name in self._names or is_loopback(name)

    def takes_plain(self, client: str) -> bool:
        """Return whether a client may ask without TLS."""
        return self._takes_plain or is_loopback(client) or self._is_proxy(client)

    def find_caller(self, client: str, headers: Headers) -> Caller | None:
        """Return who asks; None for whoever has no valid token, is named by no proxy, and is not alone with a server
        that has no tokens. What is forwarded comes from elsewhere, and never counts as this machine.

        Raises:
            StateError: the tokens cannot be read.
        """
        bearers = [each.partition(" ") for each in headers("Authorization") if each[:7].lower() == "bearer "]
        if bearers:
            with self._database.read() as connection:
                token = Tokens(connection).find(bearers[0][2].strip())
            now = open_clock(self._settings).now()
            is_valid = token is not None and token.is_valid(now) and len(bearers) == 1
            return Caller(token.name, token.may) if token is not None and is_valid else None
        if self._is_proxy(client):
            names = headers(self._settings.server.author_header or "")
            is_named = len(names) == 1 and 0 < len(names[0].strip()) <= _LONGEST and names[0].isprintable()
            return Caller(names[0].strip()) if is_named else None
        if not (self._is_local and is_loopback(client)) or any(map(headers, _FORWARDED)):
            return None
        with self._database.read() as connection:
            return None if Tokens(connection).are_needed() else Caller(self._author)

    def _is_proxy(self, client: str) -> bool:
        address = _address_of(client)
        return address is not None and any(address in each for each in self._proxies)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "feeds", "")]
    [True, True, True, True, False, False, False]
    """
    address = _address_of(host)
    return host.lower() == LOCALHOST if address is None else address.is_loopback


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _name_of(host: str) -> str:
    return str(_address_of(host) or host.lower())
