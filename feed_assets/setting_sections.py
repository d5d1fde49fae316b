"""The sections of the settings: what is written about entities, who asks a server, sites, clean-up, the demo."""

import re
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    field_validator,
)
from pydantic_core import PydanticCustomError

_DURATION = re.compile(r"(minutes|hours|days|months)\([1-9][0-9]{0,5}\)")  # hours(24)
_COLO = re.compile(r"[A-Za-z0-9_.-]+")
_PATTERN = re.compile(r"[a-z*?-]+/[A-Za-z0-9_*?-]+")  # feed/schema, */owner


class ReplaySettings(BaseModel):
    """Replay of past data: `origin` at the real time `real_start`, then `speed` times as fast, to `until`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    origin: AwareDatetime
    real_start: AwareDatetime
    speed: float = Field(default=1.0, gt=0)
    until: AwareDatetime | None = None


class DemoSettings(BaseModel):
    """Settings of the demo; only the demo can use a clock other than the machine's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    replay: ReplaySettings | None = None


class SystemMetadataSettings(BaseModel):
    """The metadata that this program writes: those whose `KIND/NAME` fits a pattern of `include`, if there are any, and
    none of `exclude`.

    In a pattern, `*` stands for any letters and `?` for one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @field_validator("include", "exclude")
    @classmethod
    def _are_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            if _PATTERN.fullmatch(pattern) is None:
                raise ValueError(pattern)
        return patterns

    def allows(self, kind: str, name: str) -> bool:
        """Return whether a property or tag of an entity of a kind is written.

        >>> SystemMetadataSettings(exclude=("*/owner", "column/*")).allows("feed", "owner")
        False
        """
        subject = f"{kind}/{name}"
        is_included = not self.include or any(fnmatchcase(subject, pattern) for pattern in self.include)
        return is_included and not any(fnmatchcase(subject, pattern) for pattern in self.exclude)


EVERYTHING = SystemMetadataSettings()


class MetadataSettings(BaseModel):
    """With `strict`, people may only write values that CDAP allows. `system` chooses what this program writes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    strict: bool = False
    system: SystemMetadataSettings = EVERYTHING


_WEB = re.compile(r"https?://[\w.:\[\]-]+(?:/[\w./~-]*)?", re.ASCII)


def _check_address(url: str) -> str:
    if _WEB.fullmatch(url) is None:
        raise PydanticCustomError("url", "not an address such as https://feeds.example.org")
    return url


WebAddress = Annotated[str, AfterValidator(_check_address)]
"""Where browsers find something: links begin with it."""


_HEADER = re.compile(r"(?!(?:authorization|cookie|host)$)[a-z0-9-]+", re.IGNORECASE)


def _check_header(name: str) -> str:
    if _HEADER.fullmatch(name) is None:
        raise PydanticCustomError("header", "not the name of a header of its own")
    return name


Header = Annotated[str, AfterValidator(_check_header)]
_Name = Annotated[str, Field(min_length=1)]
ANYWHERE = ("0.0.0.0/0", "::/0")
Networks = Annotated[tuple[IPvAnyNetwork, ...], BeforeValidator(lambda told: ANYWHERE if told == ["*"] else told)]


class ProxyUserSettings(BaseModel):
    """On whose behalf a user may ask a server from `hosts`: of `users` and of members of `groups`; `*` is all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hosts: Networks
    groups: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class ServerSettings(BaseModel):
    """Who asks a server: `proxies` are the addresses or networks of those who say in `author_header` who asks, and in
    `groups_header` in which groups, separated by commas. `proxy_users` may ask on behalf of others. `hosts` are further
    names of the server. `url` is where people reach it, for links to its pages. `key_password` opens the key of its
    certificate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    author_header: Header | None = None
    groups_header: Header | None = None
    proxies: tuple[IPvAnyNetwork, ...] = ()
    proxy_users: dict[str, ProxyUserSettings] = Field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    url: WebAddress | None = None
    key_password: str | None = Field(default=None, repr=False)


class Authorization(StrEnum):
    """What decides who may do what."""

    OFF = "off"
    ACL = "acl"


class AccessSettings(BaseModel):
    """Who may do more than the `acl` of entities grants: `superusers`, by name or by a group, may all; `admins` switch
    safe mode, make tokens, and register extensions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    superusers: tuple[_Name, ...] = ()
    superuser_group: str | None = None
    admins: tuple[str, ...] = ()


class AuditSettings(BaseModel):
    """With which `secret` the rows of the audit are chained, and which one chained older rows, the `former_secret`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secret: str | None = Field(default=None, repr=False)
    former_secret: str | None = Field(default=None, repr=False)


NO_SECRET = AuditSettings()


def _check_issuer(url: str) -> str:
    parts = urlsplit(_check_address(url))
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise PydanticCustomError("https", "not an address with https")
    return url


def _check_scopes(scopes: tuple[str, ...]) -> tuple[str, ...]:
    if "openid" not in scopes:
        raise PydanticCustomError("openid", "not a list with openid")
    return scopes


class OidcSettings(BaseModel):
    """Log-in by an issuer of OpenID Connect, which knows this server as `client_id`. The name of who logs in is the
    claim `name_claim`, the groups are `groups_claim`. Bearer tokens are made for `audience`, by default the client.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: Annotated[str, AfterValidator(_check_issuer)]
    client_id: str = Field(min_length=1)
    client_secret: str | None = Field(default=None, repr=False)
    scopes: Annotated[tuple[str, ...], AfterValidator(_check_scopes)] = ("openid", "profile", "email")
    name_claim: _Name = "preferred_username"
    groups_claim: str = "groups"
    audience: str | None = None


def _check_colo(name: str) -> str:
    if _COLO.fullmatch(name) is None:
        raise PydanticCustomError("colo", "not a name of a colo")
    return name


ColoName = Annotated[str, AfterValidator(_check_colo)]


def _check_token(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise PydanticCustomError("token", "not a token")
    return token


class SiteSettings(BaseModel):
    """A server of one colo: its address, and the token with which the front asks it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: WebAddress
    token: Annotated[str, AfterValidator(_check_token)] = Field(repr=False)


class CleanupSettings(BaseModel):
    """How long what runs have printed is kept, by the unit of the frequency of their process, each like `hours(24)`;
    and `history`, what the state knows of long ago.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    minutes: str = "hours(24)"
    hours: str = "days(3)"
    days: str = "days(12)"
    months: str = "months(3)"
    history: str = "months(12)"

    @field_validator("minutes", "hours", "days", "months", "history")
    @classmethod
    def _is_duration(cls, text: str) -> str:
        if _DURATION.fullmatch(text) is None:
            raise PydanticCustomError("duration", "not a duration")
        return text
