"""Whether a request is let in: one function before every route asks for its host, page, caller, right and body.

What no rule names is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

from anyio import CapacityLimiter, fail_after, to_thread
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from feed_assets.operation import Does
from feed_assets.server.bodies import LARGEST
from feed_assets.server.callers import Keeper
from feed_assets.server.problems import problem
from feed_assets.server.routes import HEALTH, PAGE
from feed_assets.sql.errors import StateError

_LOOKUPS = 8
"""How many callers are looked up at once: not by the threads of operations, which may all be at work."""
_DIGITS = 20


@dataclass(frozen=True)
class Guard:
    """An application before another one. The name of who asks is the `author` in the state of the scope.

    `find_right` returns the right that a request needs; None if no rule names it. A body is read here, whole, so that
    what comes behind waits for no client.
    """

    app: ASGIApp
    keeper: Keeper
    find_right: Callable[[Scope], Does | None]
    body_seconds: float = 60.0
    lookups: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_LOOKUPS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] == HEALTH):
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            found = self._look(scope) or await self._ask(scope) or await self._read(scope, receive)
            if isinstance(found, Response):
                await found(scope, receive, send)
            elif found is not None:
                await self.app(scope, _replaying(found, receive), send)

    def _look(self, scope: Scope) -> Response | None:
        """Refuse a request by where it is sent to, and where it comes from."""
        hosts = _values(scope, "Host")
        if len(hosts) != 1 or not self.keeper.has_name(hosts[0]):
            detail = "The host of the request is none of this server's names."
            next_step = "Ask by its IP address, or by a name that whoever runs it has in the setting server.hosts."
            return problem(HTTPStatus.BAD_REQUEST, detail, next_step)
        if any(each.lower().partition("://")[2] != hosts[0].lower() for each in _values(scope, "Origin")):
            return problem(HTTPStatus.FORBIDDEN, "A page of another site cannot ask this server.")
        if scope["scheme"] == "http" and not self.keeper.takes_plain(_client_of(scope)):
            detail = "Whoever listens on the way could read this."
            next_step = "Use https://, and another token." if _values(scope, "Authorization") else "Use https://."
            return problem(HTTPStatus.FORBIDDEN, detail, next_step)
        return None

    async def _ask(self, scope: Scope) -> Response | None:
        """Refuse a request by who asks, and what they may."""
        find = self.keeper.find_caller
        try:
            caller = await to_thread.run_sync(
                find, _client_of(scope), lambda name: _values(scope, name), limiter=self.lookups
            )
        except StateError:
            detail, headers = "Who asks cannot be looked up now.", {"Retry-After": "5"}
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, "Ask again later.", headers=headers)
        if caller is None:
            next_step, headers = "Send a valid token: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"}
            return problem(HTTPStatus.UNAUTHORIZED, "It is not known who asks.", next_step, headers=headers)
        right = self.find_right(scope)
        if right is None:
            return problem(HTTPStatus.NOT_FOUND, f"There is nothing at {scope['path']}.", f"See {PAGE}.")
        if right not in caller.may:
            detail = f"{caller.name!r} may {', '.join(caller.may)}; this needs {right}."
            return problem(HTTPStatus.FORBIDDEN, detail, "Ask for a token with this right.", needs=right)
        if self.keeper.address.read_only and right is not Does.READS:
            return problem(HTTPStatus.FORBIDDEN, f"This server only reads; this {right}.", "Ask another server.")
        scope.setdefault("state", {})["author"] = caller.name
        return None

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
