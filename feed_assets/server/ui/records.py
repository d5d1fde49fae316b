"""What a page is: an address, the right that it needs, and a function that asks operations and returns a view."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from typing import Any

from starlette.routing import compile_path

from feed_assets.cli.door import Door
from feed_assets.context.operation import OperationContext
from feed_assets.errors import Fault, FeedAssetsError, WrongUsageError
from feed_assets.operation import Does


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a page shows: a template, its title, and what the template needs."""

    template: str
    title: str
    parts: Mapping[str, Any] = field(default_factory=dict)
    status: HTTPStatus = HTTPStatus.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for a page."""

    path: str
    values: Mapping[str, Any]
    """The parts of its path and query: texts, or of a repeated one a list of texts."""
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

    def one(self, name: str, default: str = "") -> str:
        """Return the one value of a part.

        Raises:
            WrongUsageError: it is there more than once.
        """
        value = self.values.get(name, default)
        if isinstance(value, str):
            return value
        raise WrongUsageError(f"The parameter {name!r} has one value; {len(value)} were given.")

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
    show: Callable[[Asked], View | str]
    method: str = "GET"
    right: Does = Does.READS

    @cached_property
    def _pattern(self) -> Any:
        return compile_path(self.path)[0]

    def matches(self, method: str, path: str) -> bool:
        """Return whether a request is for this page."""
        return method == self.method and self._pattern.match(path) is not None
