"""Answers the requests for pages: a page asks operations in one thread, and is whole before its first byte is sent."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, quote, urlencode
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from feed_assets.access.rights import limited_by
from feed_assets.cli.door import Door, Screen
from feed_assets.cli.render import colour_of, shown
from feed_assets.clock import open_clock
from feed_assets.command_lines import command_line
from feed_assets.entities.common import Kind
from feed_assets.errors import WrongUsageError
from feed_assets.json_form import parse_json
from feed_assets.operation import Operation
from feed_assets.operation_list import find_operation
from feed_assets.server.answers import refuse
from feed_assets.server.bodies import read_query
from feed_assets.server.calls import call, read_given
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.ui import addresses
from feed_assets.server.ui.forms import page_token, seen_as
from feed_assets.server.ui.login import LOGIN, OPEN, WAITING, is_page, lead_on, query_of
from feed_assets.server.ui.records import Asked, Page, View
from feed_assets.server.ui.table import PAGES
from feed_assets.server.ui.tables import as_fields
from feed_assets.server.waiting import Threads
from feed_assets.sql.errors import StateError
from feed_assets.timing.dates import render_datetime

_FOLDER = Path(__file__).parent / "templates"
POLICY = "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'"
"""What a browser may load for a page: what comes of this server."""
_OpenDoor = Callable[[Request, Screen], Door]


def mount_pages(open_door: _OpenDoor, threads: Threads) -> list[Route]:
    """Return the routes of all pages, and of their style."""
    endpoints = [_PageEndpoint(each, open_door, threads) for each in PAGES]
    return [
        *(Route(each, _send_file) for each in addresses.FILES),
        *(Route(each.page.path, each.respond, methods=[each.page.method]) for each in endpoints),
    ]


async def _send_file(request: Request) -> Response:
    return FileResponse(_FOLDER / PurePosixPath(request.url.path).name)


@dataclass(frozen=True, slots=True)
class _PageEndpoint:
    page: Page
    open_door: _OpenDoor
    threads: Threads

    async def respond(self, request: Request) -> Response:
        """Let a thread make the page."""
        door = self.open_door(request, Screen())
        told = read_query(request) if self.page.method == "GET" else read_form(await request.body())
        values = {**told, **request.path_params}
        right = None if self.page.path in WAITING else self.page.right
        return await self.threads.answer_who_waits(request, right, self._make, door, request, values)

    def _make(self, door: Door, request: Request, values: dict[str, Any]) -> Response:
        asked = _ask_through(door, request, values)
        try:
            self._require_kind(request)
            with limited_by(door.rights):
                view = self.page.show(asked)
            if isinstance(view, Response):
                return view
            if isinstance(view, str):
                return RedirectResponse(view, HTTPStatus.SEE_OTHER)
            return _answer(view, asked)
        except Exception as exc:  # noqa: BLE001 - as what an operation raises
            if isinstance(exc, StateError) and self.page.path in OPEN:  # for everybody: its text names the database
                exc = RequestRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "Who asks cannot be looked up now.")
            return _show_problem(request.method, refuse(exc), asked)

    def _require_kind(self, request: Request) -> None:
        kind = request.path_params.get("kind")
        if self.page.path.startswith(f"{addresses.HOME}/{{kind}}/") and kind not in {*Kind}:
            told = f"There are no pages of the kind {kind!r}. Kinds are {', '.join(Kind)}."
            raise RequestRefusedError(HTTPStatus.NOT_FOUND, told)


def read_form(body: bytes) -> dict[str, Any]:
    """Return the fields of a form."""
    told = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: found if len(found) > 1 else found[0] for name, found in told.items()}


def show_refused(scope: Scope, refused: Response, *, everywhere: bool = False) -> Response:
    """Return what is answered to a refused request: of a browser for a page, or `everywhere`, a page or the way to the
    log-in.
    """
    accepted, path = Headers(scope=scope).get("accept", ""), scope["path"]
    if path == "/" and not everywhere and refused.status_code == HTTPStatus.UNAUTHORIZED and "text/html" in accepted:
        return RedirectResponse(addresses.OPERATIONS, HTTPStatus.SEE_OTHER)
    if not (everywhere or is_page(path)) or "text/html" not in accepted or refused.status_code < HTTPStatus.BAD_REQUEST:
        return refused
    if refused.status_code != HTTPStatus.UNAUTHORIZED:
        return _show_problem(scope["method"], refused)
    if Headers(scope=scope).get("sec-fetch-site") == "cross-site" and scope["method"] == "GET":
        return _show_problem("GET", refused, retry=0)  # whoever comes of another site brings the cookie the next time
    back = f"{quote(path)}{query_of(scope)}" if scope["method"] == "GET" else ""
    return RedirectResponse(f"{LOGIN}?{urlencode({'next': back})}" if back else LOGIN, HTTPStatus.SEE_OTHER)


def _show_problem(method: str, refused: Response, asked: Asked | None = None, retry: int | None = None) -> Response:
    """Return a problem document as a page. What is away is asked again by itself."""
    document, status = parse_json(bytes(refused.body)), HTTPStatus(refused.status_code)
    if status is HTTPStatus.SERVICE_UNAVAILABLE and method == "GET":
        retry = int(refused.headers["Retry-After"])
    parts = {"error": document["detail"], "next_step": document.get("next_step", ""), "retry": retry, "status": status}
    answer = _answer(View(template="error.html", title=status.phrase, parts=parts, status=status), asked)
    for name in ("Retry-After", "Allow"):
        if name in refused.headers:
            answer.headers[name] = refused.headers[name]
    return answer


def _answer(view: View, asked: Asked | None) -> Response:
    return HTMLResponse(render(view, asked), view.status, headers={"Content-Security-Policy": POLICY})


def _ask_through(door: Door, request: Request, values: dict[str, Any]) -> Asked:
    kept = replace(door, open_context=cache(door.open_context))  # one look at the definitions for the whole page

    def ask(name: str, /, **given: Any) -> Any:
        told = {each: value for each, value in given.items() if value not in (None, "", ())}
        return ask_operation(kept, find_operation(name), told)

    return Asked(request=request, values=values, now=open_clock(door.settings).now(), door=kept, ask=ask)


def ask_operation(door: Door, operation: Operation, given: dict[str, Any]) -> Any:
    """Return the result of an operation.

    Raises:
        WrongUsageError: a parameter needs a right of its own; the guard has asked only for that of the page.
        Exception: what the operation raises.
    """
    if more := operation.find_rights(given)[1:]:
        raise WrongUsageError(f"A page shows what is known already: one of its parameters needs the right {more[0]}.")
    screen = Screen(takes_results=True)
    outcome = call(replace(door, screen=screen), operation, read_given(operation, given))
    if outcome.error is not None:
        raise outcome.error
    return screen.result


def render(view: View, asked: Asked | None) -> str:
    """Return a page as HTML, without its time and the way out if it is not known who asks."""
    return _environment().get_template(view.template).render(title=view.title, asked=asked, **view.parts)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {"time": _time, "colour": colour_of, "nominal": render_datetime, "is_whole": _is_whole}
    environment.globals |= {"link": addresses, "command": command_line, "lead_on": lead_on}
    environment.globals |= {"page_token": page_token, "seen_as": seen_as, "as_fields": as_fields}
    return environment


def _finalize(value: object) -> object:
    """Return a value without secrets; nothing for None."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else shown(str(value))


def _is_whole(text: str) -> bool:
    """Return whether a text is shown as it is, so that a form can have it."""
    return shown(text) == text


def _time(moment: datetime | None, zone: ZoneInfo | None = None) -> Markup:
    """Return a time in a zone, and in UTC."""
    if moment is None:
        return Markup()
    utc = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    if zone is None or zone.key == "UTC":
        return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(), utc)
    local = f"{moment.astimezone(zone):%Y-%m-%d %H:%M %Z}"
    return Markup('<time datetime="{}">{} <small>{}</small></time>').format(moment.isoformat(), local, utc)
