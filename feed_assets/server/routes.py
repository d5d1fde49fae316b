"""The routes of the operations, the right that each request needs, and what is told of a request that has none."""

from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.responses import RedirectResponse, Response
from starlette.routing import compile_path
from starlette.types import Scope

from feed_assets.operation import Does, Operation
from feed_assets.operation_list import list_operations
from feed_assets.server.aliases.records import Alias
from feed_assets.server.aliases.table import ALIASES
from feed_assets.server.problems import problem
from feed_assets.server.ui.addresses import FILES, OPERATIONS
from feed_assets.server.ui.login import is_page, query_of
from feed_assets.server.ui.records import Page
from feed_assets.server.ui.table import PAGES as UI_PAGES

HEALTH, METRICS, DOCUMENT, PAGE, HOME = "/health", "/metrics", "/openapi.json", OPERATIONS, "/"
PAGES = (DOCUMENT, PAGE, HOME)
"""What tells how to ask: for who may anything at all."""
LOOKS = (HEALTH, METRICS, *PAGES)
"""What looks at the server and is no operation: for who may read, but for the pages and the health."""
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")


def list_routes() -> tuple[Operation, ...]:
    """Return the operations that have a route."""
    return tuple(each for each in list_operations().items if each.has_route)


_pattern_of = cache(lambda path: compile_path(path)[0])


def is_for(rule: Page | Alias, method: str, path: str) -> bool:
    """Return whether a request is for a page, or by a path that others know."""
    return method == rule.method and _pattern_of(rule.path).match(path) is not None


@cache
def _find_operations() -> Mapping[tuple[str, str], Operation]:
    return {(each.method, each.path): each for each in list_routes()}


def find_rights(scope: Scope) -> tuple[Does, ...]:
    """Return the rights that a request needs; none if no rule names them, as of a HEAD of what does more than read."""
    method, path = scope["method"], scope["path"]
    if method == "HEAD":
        return found if (found := find_rights({**scope, "method": "GET"})) == (Does.READS,) else ()
    if path in (*LOOKS, *FILES):
        return (Does.READS,) if method == "GET" else ()
    if (operation := _find_operations().get((method, path))) is not None:
        return operation.find_rights(QueryParams(scope.get("query_string", b"")))
    others: tuple[Page | Alias, ...] = (*UI_PAGES, *ALIASES)
    return next(((each.right,) for each in others if is_for(each, method, path)), ())


def refuse_unknown(scope: Scope) -> Response:
    """Return the answer to a request that no rule names: a page without the slash, another method, no such path."""
    path, plain = scope["path"], scope["path"].rstrip("/")
    if plain != path and is_page(plain) and find_rights({**scope, "path": plain}) == (Does.READS,):
        return RedirectResponse(f"{quote(plain)}{query_of(scope)}", HTTPStatus.PERMANENT_REDIRECT)
    if methods := [each for each in _METHODS if find_rights({**scope, "method": each})]:
        detail = f"{path} is asked by {' or '.join(methods)}, not by {scope['method']}."
        return problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers={"Allow": ", ".join(methods)})
    without = next((each for each in list_operations().items if each.path == path and each.no_route), None)
    detail = (
        f"A server does not offer {without.name}. {without.no_route}" if without else f"There is nothing at {path}."
    )
    return problem(HTTPStatus.NOT_FOUND, detail, f"See {PAGE}.")
