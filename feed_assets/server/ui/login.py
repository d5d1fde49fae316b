"""Who looks at pages with a browser: a token is given once, or an issuer says who it is. A cookie that counts for pages
only has the token, or that of the session.
"""

import hmac
import re
import secrets
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import quote, unquote, urlencode

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from feed_assets.context.errors import VerbRefusedError
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.identity.callers import is_loopback
from feed_assets.server.identity.oidc import Issuer, derive, refused
from feed_assets.server.identity.tokens import SESSION, Tokens, create_token, revoke_token
from feed_assets.server.ui.addresses import FILES, HOME, OPERATIONS, is_of_dagster
from feed_assets.server.ui.records import COOKIE, Asked, View

LOGIN, LOGOUT = f"{HOME}/login", f"{HOME}/logout"
AT_ISSUER, RETURNED = f"{LOGIN}/issuer", f"{LOGIN}/callback"
WAITING = (AT_ISSUER, RETURNED)
"""What waits for the issuer."""
OPEN = (LOGIN, LOGOUT, *WAITING, *FILES)
"""What a browser is shown without knowing who asks."""
_KEPT_SECONDS = 30 * 86_400
_LOG_IN_COOKIE, _LOG_IN_SECONDS = "feed-assets-log-in", 600  # a secret of this log-in, and where it leads on
_PATHS = (HOME, OPERATIONS)
"""To what is there or below a browser sends its cookie."""
_OWN = re.compile(r"/(?!/)[^\\\s]*")  # /ui/feed/clicks?x=1, but not //host
_SameSite = Literal["lax", "strict"]
_Cookie = tuple[str, str, int]
_ACTING = (LOGIN, LOGOUT, f"{HOME}/do/")


def find_bearer(scope: Scope, *, everywhere: bool = False) -> str | None:
    """Return what a browser's cookie says as the header `Authorization`; None if there is that header, or no page, but
    `everywhere`.
    """
    request = HTTPConnection(scope)
    if not (everywhere or is_page(scope["path"])) or "authorization" in request.headers:
        return None
    token = request.cookies.get(COOKIE)
    return f"Bearer {token}" if token else None


def is_page(path: str) -> bool:
    """Return whether the path of a request is that of a page or below it; it may have blanks, as names do.

    >>> [is_page(each) for each in ("/ui", "/ui/feed/x/column/dep delay", "//ui.example", "/uix")]
    [True, True, False, False]
    """
    return any(path == each or path.startswith(f"{each}/") for each in _PATHS)


def lead_on(address: str, *, everywhere: bool = False) -> str:
    """Return an address that a browser has given, if it is that of a page to look at, or, with `everywhere`, of one of
    Dagster's; else that of the first one.

    >>> [lead_on(each) for each in ("/ui/keys", "/ui/../api/v1/settings", "/ui/%2E./x", "https://a.example", LOGOUT)]
    ['/ui/keys', '/ui', '/ui', '/ui', '/ui']
    >>> [lead_on(each, everywhere=True) for each in ("/runs", "//a.example", "/\\\\a.example", "/api/v1/why")]
    ['/runs', '/ui', '/ui', '/ui']
    """
    plain = unquote(address)
    path = plain.partition("?")[0]
    is_own = _OWN.fullmatch(address) is not None and (is_page(path) or (everywhere and is_of_dagster(path)))
    return address if is_own and ".." not in plain and not plain.startswith(_ACTING) else HOME


def query_of(scope: Scope) -> str:
    """Return the query of a request as it stands behind its path."""
    return f"?{text}" if (text := scope.get("query_string", b"").decode("latin-1")) else ""


def show_login(asked: Asked) -> View:
    """Ask for a token, or lead to the issuer."""
    return _ask_again(asked, _find_next(asked), "", HTTPStatus.OK)


def log_in(asked: Asked) -> View | Response:
    """Keep a valid token in a cookie, and lead on."""
    token, address = asked.one("token").strip(), _find_next(asked)
    with asked.door.database.read() as connection:
        found = Tokens(connection).find_valid(token, asked.now)
    if found is None:
        return _ask_again(asked, address, "This token is not valid.")
    response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    _keep(response, asked, (COOKIE, token, _KEPT_SECONDS), *_find_paths(asked), samesite="strict")
    return response


def lead_to_issuer(asked: Asked) -> Response | str:
    """Let a browser log in at the issuer. Raises ServiceAwayError if it is away."""
    if (issuer := _find_issuer(asked)) is None:
        return LOGIN
    secret = secrets.token_hex(32)
    response = RedirectResponse(issuer.find_address(_find_return(asked), secret), HTTPStatus.SEE_OTHER)
    kept = f"{secret}.{quote(_find_next(asked), safe='')}"
    _keep(response, asked, (_LOG_IN_COOKIE, kept, _LOG_IN_SECONDS), LOGIN)
    return response


def end_log_in(asked: Asked) -> View | Response | str:
    """Begin the session of who was led back by the issuer, and lead on."""
    if (issuer := _find_issuer(asked)) is None:
        return LOGIN
    request = asked.request
    secret, _, address = request.cookies.get(_LOG_IN_COOKIE, "").partition(".")
    address, client = _find_next(asked, unquote(address)), request.client.host if request.client else ""
    try:
        if not secret or not hmac.compare_digest(asked.one("state").encode(), derive(secret, "state").encode()):
            raise refused("this browser has not asked for it")
        if fault := asked.one("error"):
            raise refused(f"the issuer says {fault[:60]!r}")
        principal = issuer.redeem(_find_return(asked), asked.one("code"), secret)
    except RequestRefusedError as exc:
        asked.state["keeper"].note_refusal("log in", client, str(exc))
        return _ask_again(asked, address, str(exc))
    told: dict[str, Any] = {"author": principal.name, "session_of": principal.name, "now": asked.now, "dry_run": False}
    until, groups = asked.now + SESSION, sorted(principal.groups)
    name = f"session-{secrets.token_hex(8)}"
    token = create_token(asked.door.database, name, principal.may, until, groups, **told).bearer or ""
    response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    _keep(response, asked, (COOKIE, token, int(SESSION.total_seconds())), *_find_paths(asked))
    response.delete_cookie(_LOG_IN_COOKIE, path=LOGIN, httponly=True)
    return response


def _ask_again(asked: Asked, address: str, wrong: str, status: HTTPStatus = HTTPStatus.UNAUTHORIZED) -> View:
    at_issuer = f"{AT_ISSUER}?{urlencode({'next': address})}"
    issuer, is_out = _find_issuer(asked), asked.one("out")
    parts = {"next": address, "wrong": wrong, "issuer": issuer, "at_issuer": at_issuer}
    parts["log_out"] = issuer.log_out_address if issuer is not None and is_out else None
    return View(template="login.html", title="Log in", parts=parts, status=status)


def _find_issuer(asked: Asked) -> Issuer | None:
    keeper = asked.state.get("keeper")
    return None if keeper is None else keeper.issuer


def _find_return(asked: Asked) -> str:
    """Return where the issuer leads back: below the setting `server.url`, or as the server was asked."""
    return f"{(asked.door.settings.server.url or str(asked.request.base_url)).rstrip('/')}{RETURNED}"


def _keep(response: Response, asked: Asked, cookie: _Cookie, *paths: str, samesite: _SameSite = "lax") -> None:
    """Let the browser keep a cookie: its name, value and seconds. Who is led back by the issuer brings a lax one."""
    url, keeper = asked.request.url, asked.state.get("keeper")
    is_plain = is_loopback(url.hostname or "") or (keeper is not None and keeper.address.insecure)
    is_secure = url.scheme == "https" or not is_plain  # a proxy may have taken the TLS away
    for path in paths:
        response.set_cookie(*cookie, path=path, secure=is_secure, httponly=True, samesite=samesite)


def _has_dagster(asked: Asked) -> bool:
    keeper = asked.state.get("keeper")
    return keeper is not None and keeper.address.with_dagster


def _find_next(asked: Asked, address: str | None = None) -> str:
    return lead_on(asked.one("next") if address is None else address, everywhere=_has_dagster(asked))


def _find_paths(asked: Asked) -> tuple[str, ...]:
    """Return to what a browser sends its cookie: also to Dagster's pages, where they are served."""
    return (*_PATHS, "/") if _has_dagster(asked) else _PATHS


def log_out(asked: Asked) -> Response:
    """Forget the cookie, and end the session."""
    database, now = asked.door.database, asked.now
    with database.read() as connection:
        found = Tokens(connection).find_valid(asked.request.cookies.get(COOKIE, ""), now)
    address = LOGIN
    if found is not None and found.session_of:
        address = f"{LOGIN}?out=yes"
        with suppress(VerbRefusedError):  # it was ended meanwhile
            revoke_token(database, found.name, author=found.session_of, now=now, dry_run=False)
    response = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    for path in _find_paths(asked):
        response.delete_cookie(COOKIE, path=path, httponly=True, samesite="strict")
    return response
