"""The application that serves operations: a route for each, derived from its declaration, and what looks at the server.

A request is a call of an operation in a thread; its answer is whole before the first byte of it is sent.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from http import HTTPStatus
from typing import Any

from anyio import CapacityLimiter, to_thread
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from feed_assets.access.principals import find_machine_user
from feed_assets.cli.door import CONSOLE, TERMINAL, AskSites, Door, Outcome, Screen
from feed_assets.errors import FeedAssetsError, WrongUsageError
from feed_assets.json_form import parse_json
from feed_assets.metrics.collecting import SERIES_LIMIT, Scraper
from feed_assets.metrics.expositions import build_registry
from feed_assets.operation import Operation
from feed_assets.server.aliases.endpoint import mount_aliases
from feed_assets.server.answers import answer, refuse, status_of
from feed_assets.server.bodies import is_file, read_body, read_key, read_list, read_query
from feed_assets.server.calls import list_parameters, read_given
from feed_assets.server.definitions import KeptDefinitions
from feed_assets.server.limiting import Limiting
from feed_assets.server.openapi import describe_routes
from feed_assets.server.page import POLICY, render_page
from feed_assets.server.preconditions import call_if_match, has_tag, tag_of
from feed_assets.server.problems import problem
from feed_assets.server.routes import DOCUMENT, HEALTH, HOME, METRICS, PAGES, list_routes, refuse_unknown
from feed_assets.server.ui.endpoint import mount_pages
from feed_assets.server.ui.records import COOKIE
from feed_assets.server.waiting import Threads
from feed_assets.setting_sections import Authorization
from feed_assets.settings import Settings
from feed_assets.sql.database import Database

_NARROWEST = 20
_PAGES = 8
"""The page has the name under which the server is asked, and it may have some."""


@dataclass(frozen=True, slots=True)
class Served:
    """A project as it is served."""

    settings: Settings
    database: Database
    definitions: KeptDefinitions
    settings_stamp: object = None
    ask_sites: AskSites | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known of every answer: that the settings are no longer those of their file."""
        if self.settings_stamp == _stamp_of(self.settings):
            return ()
        return (f"{self.settings.file} has changed since the server was started: start it again.",)

    threads: Threads = field(default_factory=Threads)

    def open_door(self, request: Request, screen: Screen) -> Door:
        """Return the door of a request."""
        state = request.scope.get("state", {})
        return Door(
            settings=self.settings,
            database=self.database,
            principal=state.get("principal") or find_machine_user(),
            open_context=self.definitions.open_context,
            open_store=lambda: self.definitions.store,
            screen=screen,
            rights=state.get("rights"),
            ask_sites=self.ask_sites,
        )

    async def respond(self, operation: Operation, request: Request) -> Response:
        """Read a request for an operation, call it, and answer."""
        try:
            given = read_given(operation, await _read_values(request, operation))
            given |= read_key(request, operation, given)
            if is_file(request, operation):
                given |= await read_body(request, operation)
        except (FeedAssetsError, ValueError) as exc:
            is_told = isinstance(exc, FeedAssetsError)
            return refuse(exc if is_told else WrongUsageError(f"The body must be a JSON object of parameters: {exc}."))
        is_console = CONSOLE in (read_list(request, "accept") or "")
        if not is_console and "output" in list_parameters(operation):
            given.setdefault("output", "json")
        door = self.open_door(request, _screen_of(request) if is_console else Screen())
        arguments = door, operation, given, read_list(request, "if-match")
        outcome = await self.threads.answer_who_waits(request, operation.does, call_if_match, *arguments)
        if is_console:
            return _on_console(outcome)
        return _with_tag(request, answer(operation, outcome, given, self.notes))


def build_application(
    settings: Settings, database: Database, dagster: ASGIApp | None = None, ask_sites: AskSites | None = None
) -> Starlette:
    """Return the application of a project, with Dagster's webserver at `/` if that is given; no guard is before it.
    That of a front asks the servers of its colos.
    """
    served = Served(settings, database, KeptDefinitions(settings, database), _stamp_of(settings), ask_sites)
    document = _one_by_one(_tell_document)
    registry = build_registry(Scraper(settings, database, SERIES_LIMIT).scrape)
    limits = [Middleware(Limiting, served.definitions.find_rights)]
    return Starlette(
        middleware=limits if settings.authorization is Authorization.ACL else [],
        routes=[
            *(Route(each.path, partial(served.respond, each), methods=[each.method]) for each in list_routes()),
            *mount_aliases(served.open_door, served.threads),
            *mount_pages(served.open_door, served.threads),
            Route(HEALTH, _one_by_one(partial(_tell_health, database))),
            Route(METRICS, _one_by_one(partial(_tell_metrics, registry))),
            *(Route(path, document) for path in PAGES if dagster is None or path != HOME),
            *([Mount(HOME, dagster)] if dagster is not None else []),
        ],
        exception_handlers={HTTPStatus.NOT_FOUND: _miss, HTTPStatus.METHOD_NOT_ALLOWED: _miss},
    )


def _stamp_of(settings: Settings) -> object:
    try:
        found = settings.file.stat() if settings.file is not None else None
    except OSError as exc:
        return exc.errno
    return found and (found.st_ino, found.st_mtime_ns, found.st_size)


async def _miss(request: Request, _: Exception) -> Response:
    return refuse_unknown(request.scope)


async def _read_values(request: Request, operation: Operation) -> Mapping[str, Any]:
    """Return the parameters: of the query, or of the JSON object that is the body of what acts, if it is no file."""
    values = read_query(request)
    if request.method != "POST" or is_file(request, operation):
        return values
    body = await request.body()
    told = parse_json(body) if body else {}
    if not isinstance(told, dict):
        raise ValueError("it is another value")
    if twice := sorted(values.keys() & told.keys()):
        raise WrongUsageError(f"{', '.join(twice)} stands in the query and in the body.")
    return {**values, **told}


def _screen_of(request: Request) -> Screen:
    terminal = dict(part.partition("=")[::2] for part in request.headers.get(TERMINAL, "").split(";"))
    width = re.fullmatch("[0-9]{1,4}", terminal.get("columns", ""))
    return Screen(width=max(int(width[0]), _NARROWEST) if width else None, has_colours=terminal.get("colours") == "yes")


def _on_console(outcome: Outcome) -> Response:
    told = {"out": outcome.out, "err": outcome.err, "exit_code": outcome.exit_code}
    is_refused = outcome.error is not None and status_of(outcome.error) is HTTPStatus.FORBIDDEN  # a line in the log
    return Response(json.dumps(told), HTTPStatus.FORBIDDEN if is_refused else HTTPStatus.OK, media_type=CONSOLE)


def _with_tag(request: Request, response: Response) -> Response:
    """Give an answer to a question its tag; to who has it already, only that it has not changed."""
    if request.method not in ("GET", "HEAD") or response.status_code != HTTPStatus.OK:
        return response
    tag = tag_of(bytes(response.body))
    if has_tag(read_list(request, "if-none-match") or "", tag, f"W/{tag}"):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return response


def _one_by_one(tell: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint with a thread of its own, so that it never waits for operations."""
    limiter = CapacityLimiter(1)

    async def respond(request: Request) -> Response:
        return await to_thread.run_sync(tell, request, limiter=limiter)

    return respond


def _tell_health(database: Database, _: Request) -> Response:
    """Answer whether the server can do its work."""
    try:
        with database.read():
            return JSONResponse({"status": "ok"})
    except FeedAssetsError:  # everybody may ask, and its text names the database
        return problem(503, "The database does not answer.")


def _tell_metrics(registry: CollectorRegistry, request: Request) -> Response:
    """Collect the metrics of the record anew, in the form that the scraper accepts."""
    render, media_type = choose_encoder(read_list(request, "accept") or "")
    try:
        return Response(render(registry), headers={"Content-Type": media_type})
    except FeedAssetsError as exc:
        return refuse(exc)


def _tell_document(request: Request) -> Response:
    """Describe the routes, to a program or on the page for people; each is made once."""
    if request.url.path == DOCUMENT:
        return _with_tag(request, Response(_render_document(), media_type="application/json"))
    needs_token = "authorization" in request.headers or COOKIE in request.cookies
    page = _render_page(str(request.base_url).rstrip("/"), needs_token=needs_token)
    return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})


_render_document = cache(lambda: JSONResponse(describe_routes()).body)


@lru_cache(_PAGES)
def _render_page(server: str, *, needs_token: bool) -> bytes:
    return render_page(describe_routes(), server, needs_token=needs_token).encode()
