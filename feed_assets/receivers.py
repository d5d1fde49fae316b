"""Receivers of messages: addresses of people, URLs of programs, and commands; and the settings that name them."""

import re
import shlex
from collections.abc import Mapping
from email.utils import parseaddr
from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated, Self, assert_never
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError


class Topic(StrEnum):
    """The subject of a message, by which readers choose."""

    EVICTION = "eviction"
    METADATA = "metadata"
    INSTANCE = "instance"
    SLA = "sla"
    RETRY = "retry"
    SWEEP = "sweep"
    ENTITY = "entity"
    HEALTH = "health"
    ARRIVAL = "arrival"
    LINEAGE = "lineage"


class MessageLevel(StrEnum):
    """How urgent a message is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")  # ops, data-team
"""The form of the names of receivers in the settings."""

_ADDRESS = re.compile(r"[^@\s,:/]+@[^@\s,:/]+")  # ops@example.com
_CHAT = re.compile(r"[a-z][a-z0-9+.-]*://\S+")  # slack://T0/B0/XX
_REFERENCE = "${"
_CHANNELS = "mailto:, http(s)://, command:, openlineage+http(s)://, openlineage+file:/// or apprise's, as slack://"
OPENLINEAGE = "openlineage+"  # before a URL: openlineage+https://host/api/v1/lineage
FILE = "file://"


class Channel(StrEnum):
    """How a message leaves. Only the settings can name a command."""

    EMAIL = "email"
    WEBHOOK = "webhook"
    CHAT = "chat"
    COMMAND = "command"
    OPENLINEAGE = "openlineage"


def is_address(text: str) -> bool:
    """Return whether a text is an address of electronic mail, in the letters that every mail server takes.

    >>> is_address("ops@example.com"), is_address("not-an-address")
    (True, False)
    """
    return _ADDRESS.fullmatch(text) is not None and text.isascii() and text.isprintable()


def split_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of `mailto:ann@example.org,bob@example.org`, with or without its scheme."""
    rest = text.removeprefix("mailto:").removeprefix("//")
    return tuple(part.strip() for part in rest.split(","))


def channel_of(url: str) -> Channel:
    """Return how messages leave to a receiver of the settings.

    >>> channel_of("mailto:ops@example.com").value, channel_of("slack://T0/B0/XX").value
    ('email', 'chat')
    """
    scheme = url.partition(":")[0]
    if scheme.startswith(OPENLINEAGE.rstrip("+")):
        return Channel.OPENLINEAGE
    return {
        "mailto": Channel.EMAIL,
        "http": Channel.WEBHOOK,
        "https": Channel.WEBHOOK,
        "command": Channel.COMMAND,
    }.get(scheme, Channel.CHAT)


def find_fault(channel: Channel, text: str) -> str | None:
    """Return what is wrong with the address, URL or command of a receiver; None if nothing is.

    References to the environment are not looked into. Whether apprise knows the scheme of a chat is asked later.

    >>> find_fault(Channel.WEBHOOK, "ftp://example.com")
    'it is no URL like https://example.com/hook'
    """
    if _REFERENCE in text:
        return None
    match channel:
        case Channel.EMAIL:
            if not text.isascii():
                return "only ASCII is taken; a domain with other letters is written like ops@xn--bcher-kva.example"
            is_good = all(map(is_address, split_addresses(text)))
            return None if is_good else "it is no address of electronic mail like ops@example.com"
        case Channel.WEBHOOK:
            if not text.isascii():
                return "what is not ASCII must be percent-encoded, as in https://example.com/h%C3%B6ok"
            return None if _is_web(text) else "it is no URL like https://example.com/hook"
        case Channel.CHAT:
            return None if _CHAT.fullmatch(text) else "it is no URL of apprise like slack://T0/B0/XX"
        case Channel.COMMAND:
            try:
                is_good = bool(shlex.split(text.removeprefix("command:")))
            except ValueError:
                return "its quotes are not closed"
            return None if is_good else "it is no command like command:/opt/tell --all"
        case Channel.OPENLINEAGE:
            inner = text.removeprefix(OPENLINEAGE)
            is_file = inner.startswith(f"{FILE}/") and not inner.endswith("/") and inner.isprintable()
            is_good = is_file or (inner.isascii() and _is_web(inner) and urlsplit(inner).path.strip("/") != "")
            expected = f"{OPENLINEAGE}https://host/api/v1/lineage or {OPENLINEAGE}{FILE}/var/lineage.ndjson"
            return None if is_good and inner != text else f"it is no URL like {expected}"
        case _:
            assert_never(channel)


def find_chat_fault(channel: Channel, text: str) -> str | None:
    """Return why apprise cannot post to a chat; None if it can, or if it is not installed. This imports apprise."""
    if channel is not Channel.CHAT or find_spec("apprise") is None:
        return None
    import apprise  # measured: with its plugins it takes most of a second

    return None if apprise.Apprise.instantiate(text) is not None else "apprise knows no such URL"


def describe_receiver(channel: Channel, text: str) -> str:
    """Return a receiver without what may be a secret: of a URL only scheme and host, of a chat only the scheme.

    >>> describe_receiver(Channel.WEBHOOK, "https://hooks.example.com/T0/secret?key=1")
    'https://hooks.example.com/…'
    >>> describe_receiver(Channel.CHAT, "slack://T0/B0/XX")
    'slack://…'
    """
    match channel:
        case Channel.EMAIL:
            return ", ".join(split_addresses(text))
        case Channel.WEBHOOK:
            parts = urlsplit(text)
            host = parts.netloc.rpartition("@")[2]
            return f"{parts.scheme}://{host}/…" if parts.path.strip("/") or parts.query else f"{parts.scheme}://{host}"
        case Channel.OPENLINEAGE:
            return text if FILE in text else OPENLINEAGE + describe_receiver(Channel.WEBHOOK, text[len(OPENLINEAGE) :])
        case Channel.CHAT:
            return f"{text.partition('://')[0]}://…"
        case Channel.COMMAND:
            return "command:" + (text.removeprefix("command:").split() or [""])[0]
        case _:
            assert_never(channel)


def _is_web(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        return is_web and " " not in text and text.isprintable()
    except ValueError:
        return False


class MailSecurity(StrEnum):
    """How the connection with a mail server is encrypted."""

    NONE = "none"
    STARTTLS = "starttls"
    TLS = "tls"


class MailSettings(BaseModel):
    """The mail server, and the sender of mails. `ca_file` has the certificates that are trusted beside the system's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = "localhost"
    port: Annotated[int, Field(gt=0, lt=65536)] = 25
    security: MailSecurity = MailSecurity.NONE
    user: str | None = None
    password: str | None = Field(default=None, repr=False)
    sender: str = "feed-assets@localhost"
    ca_file: str | None = None

    @field_validator("sender")
    @classmethod
    def _is_sender(cls, sender: str) -> str:
        if not sender.isprintable() or not is_address(parseaddr(sender)[1]):
            expected = "an address in ASCII, such as ops@example.com, also behind a name: Ops <ops@example.com>"
            raise PydanticCustomError("receiver", "no sender", {"expected": expected})
        return sender


class ReceiverSettings(BaseModel):
    """A receiver: its `url`, and which messages it gets. An empty choice is no choice.

    `entities` are tags with their values, of which an entity must have all; `*` is any value. A webhook signs with
    `secret`; to a receiver of OpenLineage it is the key of the API. That one gets the topic `lineage`, whole.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(repr=False)
    topics: tuple[Topic, ...] = ()
    levels: tuple[MessageLevel, ...] = ()
    entities: Mapping[str, str] = Field(default_factory=dict)
    secret: str | None = Field(default=None, repr=False)

    @field_validator("url")
    @classmethod
    def _is_receiver(cls, url: str) -> str:
        fault = find_fault(channel_of(url), url)
        if ":" not in url or fault is not None:
            expected = f"the URL of a receiver: {_CHANNELS}" + (f" ({fault})" if fault else "")
            raise PydanticCustomError("receiver", "no receiver", {"expected": expected})
        return url

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.channel is Channel.OPENLINEAGE and (self.topics or self.levels):
            expected = "right: a receiver of OpenLineage gets begin and end of everything; it has no topics and levels"
            raise PydanticCustomError("receiver", "no choice", {"expected": expected})
        return self

    @property
    def channel(self) -> Channel:
        """How messages leave."""
        return channel_of(self.url)
