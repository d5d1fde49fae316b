"""Whether a request is let in: one function before every route asks for its host, page, caller, right and body.

What no rule names is refused.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from urllib.parse import quote, unquote

from anyio import CapacityLimiter, fail_after, move_on_after, to_thread
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from feed_assets.access.principals import Principal
from feed_assets.clock import open_clock
from feed_assets.engines.errors import ServiceAwayError
from feed_assets.masking import get_logger, mask
from feed_assets.operation import Does
from feed_assets.server.bodies import LARGEST
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.identity.callers import Keeper
from feed_assets.server.identity.on_behalf import ask_on_behalf, take_names
from feed_assets.server.problems import problem
from feed_assets.server.routes import HEALTH, PAGES, find_rights, refuse_unknown
from feed_assets.server.ui.addresses import is_of_dagster
from feed_assets.server.ui.endpoint import show_refused
from feed_assets.server.ui.login import OPEN, find_bearer, is_page
from feed_assets.server.with_dagster.asker import GRAPHQL, WEBSOCKET, find_all_rights
from feed_assets.sql.errors import StateError

_LOOKUPS = 8
"""How many callers are looked up at once: not by the threads of operations, which may all be at work."""
_DIGITS = 20
_GOING_AWAY, _POLICY = 1001, 1008
"""Why a websocket is closed (RFC 6455, 7.4.1)."""
_URL = re.compile(rb"https?://([^/]*)(/.*)?", re.IGNORECASE)  # http://127.0.0.1:3030/health
_SHOWN = 200
_CHALLENGE = {"WWW-Authenticate": "Bearer"}
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_logger = get_logger(__name__)
_FOREIGN = "A page of another site cannot ask this server."
_OWN_SITE = {"same-origin", "none"}
"""What a browser says of a request of a page of this server, or of whoever has typed its address."""


@dataclass(frozen=True)
class Guard:
    """An application before another one. Who asks is the `principal` in the state of the scope.

    A body is read here, whole, so that what comes behind waits for no client.
    """

    app: ASGIApp
    keeper: Keeper
    rights: Callable[[Scope], tuple[Does, ...]] | None = None
    body_seconds: float = 60.0
    socket_seconds: float = 600.0
    lookups: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_LOOKUPS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it. One that is refused, or has failed, is a line in the log."""

        async def tell(message: Message) -> None:
            if (status := message.get("status", 0)) in _REFUSED or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                self._log(scope, status)
            await send(message)

        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        scope = _in_origin_form(scope)
        if scope["type"] == "http" and scope["path"] == HEALTH:
            await self.app(scope, receive, tell)
        elif scope["type"] == "websocket":
            await self._connect(scope, receive, send)
        elif scope["type"] == "http":
            found = self._look(scope) or await self._ask(scope) or await self._read(scope, receive)
            if isinstance(found, Response):
                await show_refused(scope, found, everywhere=self._is_of_dagster(scope))(scope, receive, tell)
            elif found is not None:
                await self.app(scope, _replaying(found, receive), tell)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a websocket in, for some minutes: a page opens another one, and is asked again."""
        asked = {**scope, "method": WEBSOCKET}
        if self._look(asked) is not None or await self._ask(asked) is not None:
            self._log(asked, HTTPStatus.FORBIDDEN)
            await send({"type": "websocket.close", "code": _POLICY})
            return
        with move_on_after(self.socket_seconds) as limit:
            await self.app({**scope, "state": asked["state"]}, receive, send)
        if limit.cancelled_caught:
            await send({"type": "websocket.close", "code": _GOING_AWAY})

    def _log(self, scope: Scope, status: int) -> None:
        asked = f"{_client_of(scope) or '-'} {scope['method']} {quote(mask(scope['path']), safe='/*')[:_SHOWN]}"
        _logger.warning(f"{open_clock(self.keeper.settings).now():%Y-%m-%dT%H:%M:%SZ} {asked} {status}")

    def _is_of_dagster(self, scope: Scope) -> bool:
        return self.keeper.address.with_dagster and is_of_dagster(scope["path"])

    def _find_rights(self, scope: Scope) -> tuple[Does, ...]:
        return (self.rights or (find_all_rights if self.keeper.address.with_dagster else find_rights))(scope)

    def _look(self, scope: Scope) -> Response | None:
        """Refuse a request by where it is sent to, and where it comes from."""
        hosts = _values(scope, "Host")
        if len(hosts) != 1 or not self.keeper.has_name(hosts[0]):
            detail = "The host of the request is none of this server's names."
            next_step = "Ask by its IP address, or by a name that whoever runs it has in the setting server.hosts."
            return problem(HTTPStatus.BAD_REQUEST, detail, next_step)
        own = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}  # a proxy may have taken the TLS away
        if not {each.lower() for each in _values(scope, "Origin")} <= own:
            return problem(HTTPStatus.FORBIDDEN, _FOREIGN)
        if scope["scheme"] in ("http", "ws") and not self.keeper.takes_plain(_client_of(scope)):
            detail = "Whoever listens on the way could read this."
            next_step = "Use https://, and another token." if _values(scope, "Authorization") else "Use https://."
            return problem(HTTPStatus.FORBIDDEN, detail, next_step)
        return None

    async def _ask(self, scope: Scope) -> Response | None:
        """Refuse a request by who asks, and what they may."""
        if scope["path"] in OPEN and self._find_rights(scope):
            scope.setdefault("state", {}).update(keeper=self.keeper)
            is_foreign = scope["method"] == "POST" and not _is_of_own_site(scope)
            return problem(HTTPStatus.FORBIDDEN, _FOREIGN) if is_foreign else None
        try:
            caller = await to_thread.run_sync(self._find_caller, scope, limiter=self.lookups)
        except (StateError, ServiceAwayError):
            detail = "Who asks cannot be looked up now."
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, "Ask again later.")
        except RequestRefusedError as exc:
            return problem(exc.status, str(exc), headers=_CHALLENGE if exc.status == HTTPStatus.UNAUTHORIZED else {})
        if caller is None:
            next_step = "Send a valid token: Authorization: Bearer TOKEN."
            return problem(HTTPStatus.UNAUTHORIZED, "It is not known who asks.", next_step, headers=_CHALLENGE)
        rights = self._find_rights(scope)
        if not rights and self._is_of_dagster(scope):
            return problem(HTTPStatus.METHOD_NOT_ALLOWED, f"{scope['path']} is not asked by {scope['method']}.")
        if not rights:
            return refuse_unknown(scope)
        more = [each for each in rights if each is not Does.READS]
        if (more or scope["path"] == GRAPHQL) and not _is_of_own_site(scope):
            return problem(HTTPStatus.FORBIDDEN, _FOREIGN)  # of an image or a link, which have no Origin
        lacks = [each for each in rights if each not in caller.may]
        if lacks and (scope["path"] not in PAGES or self._is_of_dagster(scope)):
            detail = f"This needs the right {lacks[0]}; {caller.author!r} has {', '.join(caller.may)}."
            return problem(HTTPStatus.FORBIDDEN, detail, "Ask for a token with this right.", needs=lacks[0])
        address = self.keeper.address
        if address.read_only and more:
            reason = f"This server only reads; this needs {more[0]}."
            return problem(HTTPStatus.FORBIDDEN, reason, "Ask another server.")
        may = tuple(each for each in caller.may if each is Does.READS or not address.read_only)
        scope.setdefault("state", {}).update(principal=replace(caller, may=may))
        return None

    def _find_caller(self, scope: Scope) -> Principal | None:
        """Return who asks, or is asked for. The cookie of a browser counts where nothing else says who."""
        client, names = _client_of(scope), take_names(scope)
        found = self.keeper.find_caller(client, lambda name: _values(scope, name))
        if found is None and (told := find_bearer(scope, everywhere=self._is_of_dagster(scope))):
            found = self.keeper.find_caller(client, lambda name: [told] if name == "Authorization" else [])
        if names and is_page(scope["path"]):
            raise RequestRefusedError(HTTPStatus.BAD_REQUEST, "Pages are for who looks at them: leave doAs out.")
        return ask_on_behalf(self.keeper, found, names, client) if found and names else found

    async def _read(self, scope: Scope, receive: Receive) -> Response | bytes | None:
        """Return the body; None if the client has gone. Refuse one that is too large or takes too long."""
        length = next(iter(_values(scope, "Content-Length")), "0")
        too_large = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body has more than {LARGEST >> 20} MiB.")
        if len(length) > _DIGITS or int(length) > LARGEST:
            return too_large
        body = bytearray()
        try:
            with fail_after(self.body_seconds):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if len(body) > LARGEST:
                        return too_large
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            return problem(HTTPStatus.REQUEST_TIMEOUT, f"The body has not come within {self.body_seconds:g} seconds.")
        return None


def _in_origin_form(scope: Scope) -> Scope:
    """Return a request with a path and a host, also if its target is a whole URL (RFC 9112, 3.2.2)."""
    if (found := _URL.fullmatch(scope.get("raw_path") or b"")) is None:
        return scope
    path = found[2] or b"/"
    headers = [(b"host", found[1]), *(each for each in scope["headers"] if each[0] != b"host")]
    return {**scope, "path": unquote(path.decode()), "raw_path": path, "headers": headers}


def _is_of_own_site(scope: Scope) -> bool:
    return set(_values(scope, "Sec-Fetch-Site")) <= _OWN_SITE


def _values(scope: Scope, name: str) -> list[str]:
    return [
        value.decode("utf-8", "replace") for key, value in scope["headers"] if key.decode("latin-1") == name.lower()
    ]


def _client_of(scope: Scope) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that is read already, and then what else comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return left.pop() if left else await receive()

    return replay
