"""Who looks at pages with a browser: a token is given once, and kept in a cookie that counts for pages only."""

import re
from http import HTTPStatus
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from feed_assets.server.callers import is_loopback
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.tokens import Tokens
from feed_assets.server.ui.addresses import FILES, HOME, OPERATIONS
from feed_assets.server.ui.records import COOKIE, Asked, View
from feed_assets.sql.errors import StateError

LOGIN, LOGOUT = f"{HOME}/login", f"{HOME}/logout"
OPEN = (LOGIN, LOGOUT, *FILES)
"""What a browser is shown without knowing who asks."""
_KEPT_SECONDS = 30 * 86_400
_PATHS = (HOME, OPERATIONS)
"""To what is there or below a browser sends its cookie."""
_OWN = re.compile(rf"(?:{'|'.join(_PATHS)})(?:[/?][^\\\s]*)?")  # /ui/feed/clicks?x=1, but neither //host nor /uix
_ACTING = (LOGIN, LOGOUT, f"{HOME}/do/")


def find_bearer(scope: Scope) -> str | None:
    """Return what a browser's cookie says as the header `Authorization`; None if there is that header, or no page."""
    request = Request(scope)
    if not is_page(scope["path"]) or "authorization" in request.headers:
        return None
    token = request.cookies.get(COOKIE)
    return f"Bearer {token}" if token else None


def is_page(path: str) -> bool:
    """Return whether the path of a request is that of a page or below it; it may have blanks, as names do.

    >>> [is_page(each) for each in ("/ui", "/ui/feed/x/column/dep delay", "//ui.example", "/uix")]
    [True, True, False, False]
    """
    return any(path == each or path.startswith(f"{each}/") for each in _PATHS)


def is_own(address: str) -> bool:
    """Return whether an address is that of a page.

    >>> [is_own(each) for each in ("/ui", "/ui/feed/x?y=1", "//ui.example", "/uix", "https://a.example/ui", "/ui/\\n")]
    [True, True, False, False, False, False]
    """
    return _OWN.fullmatch(address) is not None


def lead_on(address: str) -> str:
    """Return an address that a browser has given, if it is that of a page to look at; else that of the first one.

    >>> [lead_on(each) for each in ("/ui/keys", "/ui/../api/v1/settings", "/ui/%2E./x", "https://a.example", LOGOUT)]
    ['/ui/keys', '/ui', '/ui', '/ui', '/ui']
    """
    plain = unquote(address)
    return address if is_own(address) and ".." not in plain and not plain.startswith(_ACTING) else HOME


def query_of(scope: Scope) -> str:
    """Return the query of a request as it stands behind its path."""
    return f"?{text}" if (text := scope.get("query_string", b"").decode("latin-1")) else ""


def show_login(asked: Asked) -> View:
    """Ask for a token."""
    return View(template="login.html", title="Log in", parts={"next": lead_on(asked.one("next")), "is_wrong": False})


def log_in(asked: Asked) -> View | Response:
    """Keep a valid token in a cookie, and lead on."""
    token, address = asked.one("token").strip(), lead_on(asked.one("next"))
    try:
        with asked.door.database.read() as connection:
            found = Tokens(connection).find_valid(token, asked.now)
    except StateError:  # everybody may ask, and its text names the database
        raise RequestRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "Who asks cannot be looked up now.") from None
    if found is None:
        parts = {"next": address, "is_wrong": True}
        return View(template="login.html", title="Log in", parts=parts, status=HTTPStatus.UNAUTHORIZED)
    url, response = asked.request.url, RedirectResponse(address, HTTPStatus.SEE_OTHER)
    is_plain = is_loopback(url.hostname or "") or asked.state.get("insecure", False)
    is_secure = url.scheme == "https" or not is_plain  # a proxy may have taken the TLS away
    for path in _PATHS:
        response.set_cookie(COOKIE, token, _KEPT_SECONDS, path=path, secure=is_secure, httponly=True, samesite="strict")
    return response


def log_out(_: Asked) -> Response:
    """Forget the cookie."""
    response = RedirectResponse(LOGIN, HTTPStatus.SEE_OTHER)
    for path in _PATHS:
        response.delete_cookie(COOKIE, path=path, httponly=True, samesite="strict")
    return response
