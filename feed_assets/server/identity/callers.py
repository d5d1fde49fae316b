"""Who asks a server: the holder of a token, who a proxy says it is, or whoever is on this machine."""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import getfqdn, gethostname

from feed_assets.access.principals import Principal
from feed_assets.clock import open_clock
from feed_assets.log.audit import Audit
from feed_assets.log.definitions.records import AuditEntry
from feed_assets.masking import TOKEN_PREFIX
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.identity.oidc import Issuer
from feed_assets.server.identity.tokens import Tokens, is_name, is_person
from feed_assets.server.records import Address
from feed_assets.setting_sections import Authorization
from feed_assets.settings import Settings
from feed_assets.sql.database import Database

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+?)\.?)(?::(\d{0,5}))?")  # [::1]:3030, localhost.
_LAST_PORT = 65_535
MOST_REFUSED = 30
_FORWARDED = ("Forwarded", "Via", "X-Real-IP", *(f"X-Forwarded-{each}" for each in ("For", "Host", "Port", "Proto")))


@dataclass(frozen=True, slots=True)
class Keeper:
    """Whom a server knows that is served at an address; `author` is its own user."""

    settings: Settings
    database: Database
    address: Address
    author: str
    issuer: Issuer | None = None
    refused_at: deque[datetime] = field(default_factory=lambda: deque(maxlen=MOST_REFUSED))

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which it is asked. Those of the machine are for others, who have to say who they are."""
        of_machine = () if is_loopback(self.address.host) else find_machine_names()
        names = ("localhost", self.address.host, *of_machine, *self.settings.server.hosts)
        return tuple(dict.fromkeys(each.lower() for each in names if address_of(each) is None))

    def has_name(self, host: str) -> bool:
        """Return whether a host, with or without a port, is one of this server's names, or an address: a page of
        another site cannot make its own name lead here and be asked as an address.
        """
        found = _HOST.fullmatch(host)
        name = (found[1] or found[2]) if found and int(found[3] or 0) <= _LAST_PORT else ""
        return address_of(name) is not None or name.lower() in self.names

    def takes_plain(self, client: str) -> bool:
        """Return whether a client may ask without TLS."""
        return self.address.insecure or is_loopback(client) or self._is_proxy(client)

    def find_caller(self, client: str, headers: Callable[[str], Sequence[str]]) -> Principal | None:
        """Return who asks; None for whoever has no valid token, is named by no proxy, and is not alone with a server
        that has no tokens, where nobody has rights. What is forwarded never counts as from this machine.

        Raises:
            StateError: the tokens cannot be read.
            ServiceAwayError: nothing is known of the issuer of a token.
            RequestRefusedError: somebody else than a proxy says who asks, in its header; that is in the audit.
        """
        of_server, is_proxy = self.settings.server, self._is_proxy(client)
        if not is_proxy and any(headers(each) for each in (of_server.author_header, of_server.groups_header) if each):
            reason = f"{client} is none of the proxies that say who asks"
            self.note_refusal("log in", client, reason)
            raise RequestRefusedError(HTTPStatus.UNAUTHORIZED, f"{reason}.")
        told = headers("Authorization")
        bearers = [each[7:].strip() for each in told if each[:7].lower() == "bearer "]
        if bearers:
            return self._find_holder(bearers[0], client) if len(told) == 1 else None
        if is_proxy:
            names, told = headers(of_server.author_header or ""), headers(of_server.groups_header or "")
            groups = frozenset(filter(None, (each.strip() for text in told for each in text.split(","))))
            is_known = len(names) == 1 and is_person(names[0]) and all(map(is_name, groups))
            return Principal(name=names[0], groups=groups) if is_known else None
        is_open = self.issuer is None and self.settings.authorization is Authorization.OFF
        is_here = is_open and is_loopback(self.address.host) and is_loopback(client)
        if is_here := is_here and not any(map(headers, _FORWARDED)):
            with self.database.read() as connection:
                kept = [each for each in Tokens(connection).all() if not each.session_of]
            is_here = all(each.revoked_at for each in kept)  # what expires opens nothing
        return Principal(name=self.author) if is_here else None

    def _find_holder(self, bearer: str, client: str) -> Principal | None:
        """Return who holds a token of this server, of a session, or of the issuer."""
        if self.issuer is None or bearer.startswith(TOKEN_PREFIX):
            with self.database.read() as connection:
                found = Tokens(connection).find_valid(bearer, open_clock(self.settings).now())
            return found.principal if found is not None and (self.issuer or not found.session_of) else None
        try:
            return self.issuer.find_holder(bearer)
        except RequestRefusedError as exc:
            self.note_refusal("log in", client, str(exc))
            return None

    def note_refusal(self, action: str, client: str, reason: str, author: str = "unknown") -> None:
        """Write into the audit who was refused as somebody that he is not: so often a minute, as anybody may try."""
        now, details = open_clock(self.settings).now(), {"from": client, "refused": reason}
        if len(self.refused_at) < MOST_REFUSED or now - self.refused_at[0] >= timedelta(minutes=1):
            self.refused_at.append(now)
            with self.database.begin() as connection:
                Audit(connection).append(AuditEntry(recorded_at=now, author=author, action=action, details=details))

    def _is_proxy(self, client: str) -> bool:
        address = address_of(client)
        return address is not None and any(address in each for each in self.settings.server.proxies)


@cache
def find_machine_names() -> tuple[str, ...]:
    """Return the names of this machine. The network may be asked for them, so once."""
    return gethostname(), getfqdn()


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "feeds", "")]
    [True, True, True, True, False, False, False]
    """
    address = address_of(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
