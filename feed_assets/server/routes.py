"""The routes of the operations, and the right that each request needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.types import Scope

from feed_assets.operation import Does, Operation
from feed_assets.operation_list import list_operations
from feed_assets.server.aliases.table import ALIASES

HEALTH, METRICS, DOCUMENT, PAGE = "/health", "/metrics", "/openapi.json", "/docs"
LOOKS = (METRICS, DOCUMENT, PAGE)
"""What looks at the server and is no operation: for who may read."""


@dataclass(frozen=True, slots=True)
class OperationRoute:
    """The route of an operation: `GET` of what only reads and takes no file, else `POST`."""

    operation: Operation

    @property
    def path(self) -> str:
        """The words of the command."""
        return self.operation.path

    @property
    def method(self) -> str:
        """The method."""
        return self.operation.method


def list_routes() -> tuple[OperationRoute, ...]:
    """Return the routes of all operations that have one."""
    return tuple(OperationRoute(each) for each in list_operations().items if each.has_route)


@dataclass(frozen=True, slots=True)
class Rights:
    """Which right a request needs; asked before every route."""

    of_routes: Mapping[tuple[str, str], Does] = field(
        default_factory=lambda: {(each.method, each.path): each.operation.does for each in list_routes()}
    )

    def __call__(self, scope: Scope) -> Does | None:
        """Return the right; None if no rule names it."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if scope["path"] in LOOKS:
            return Does.READS
        if (found := self.of_routes.get((method, scope["path"]))) is not None:
            return found
        return next((each.called.does for each in ALIASES if each.matches(method, scope["path"])), None)
