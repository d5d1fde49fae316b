"""What a page is: an address, the right that it needs, and a function that asks operations and returns a view."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from feed_assets.cli.door import Door
from feed_assets.context.operation import OperationContext
from feed_assets.errors import Fault, FeedAssetsError
from feed_assets.operation import Does
from feed_assets.server import records

COOKIE = "feed-assets-token"
"""The cookie of a browser that has given its token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a page shows: a template, its title, and what the template needs."""

    template: str
    title: str
    parts: Mapping[str, Any] = field(default_factory=dict)
    status: HTTPStatus = HTTPStatus.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(records.Asked):
    """A request for a page."""

    request: Request
    now: datetime
    door: Door
    ask: Callable[..., Any]
    """Asks an operation for its result: `ask("entity status", kind="feed", name="clicks")`."""

    def find(self, name: str, /, **given: Any) -> Any:
        """Return the result of an operation; None if what it is asked about is not there, or has no such thing."""
        try:
            return self.ask(name, **given)
        except FeedAssetsError as exc:
            if exc.fault not in (Fault.MISSING, Fault.ASKED):
                raise
            return None

    @property
    def state(self) -> Mapping[str, Any]:
        """What the guard has found."""
        found: Mapping[str, Any] = self.request.scope.get("state", {})
        return found

    @property
    def acts(self) -> bool:
        """Whether who asks may act on the entity of the page, if it is of one, and sees forms."""
        rights, key = self.door.rights, (self.values.get("kind"), self.values.get("name"))
        return Does.ACTS in self.door.principal.may and (
            rights is None or not all(key) or rights.acts((str(key[0]), str(key[1])))
        )

    @property
    def address(self) -> str:
        """The address of the page, without the server."""
        url = self.request.url
        return f"{url.path}?{url.query}" if url.query else url.path

    @property
    def has_cookie(self) -> bool:
        """Whether there is a token to forget."""
        return COOKIE in self.request.cookies

    @property
    def context(self) -> OperationContext:
        """The definitions and the record."""
        return self.door.open_context()


@dataclass(frozen=True)
class Page:
    """A page: its path in Starlette's form, and what it shows. A form that is sent needs more than the right to read;
    `show` then returns the address to which it leads.
    """

    path: str
    show: Callable[[Asked], View | Response | str]
    method: str = "GET"
    right: Does = Does.READS
