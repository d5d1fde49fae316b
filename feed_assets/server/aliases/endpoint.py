"""Answers the requests by a path that others know."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from feed_assets.cli.door import Door, Screen
from feed_assets.clock import open_clock
from feed_assets.errors import FeedAssetsError, WrongUsageError
from feed_assets.operation import Does, Operation
from feed_assets.operation_list import find_operation
from feed_assets.server.aliases.records import Alias, Asked
from feed_assets.server.aliases.table import ALIASES
from feed_assets.server.answers import refuse, status_of
from feed_assets.server.bodies import read_body, read_key, read_list, read_query
from feed_assets.server.calls import list_parameters, read_given
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.preconditions import call_if_match
from feed_assets.server.waiting import Threads
from feed_assets.settings import DEFAULT_NAMESPACE

_Values = Mapping[str, Any]
_OpenDoor = Callable[[Request, Screen], Door]


def mount_aliases(open_door: _OpenDoor, threads: Threads) -> list[Route]:
    """Return the routes of all aliases."""
    endpoints = [_AliasEndpoint(each, open_door, threads) for each in ALIASES]
    return [Route(each.alias.path, each.respond, methods=[each.alias.method]) for each in endpoints]


@dataclass(frozen=True, slots=True)
class _AliasEndpoint:
    """Answers the requests of one alias."""

    alias: Alias
    open_door: _OpenDoor
    threads: Threads

    async def respond(self, request: Request) -> Response:
        """Read a request, call the operation, and answer in the form of the other system."""
        door, operation = self.open_door(request, Screen()), self.alias.called
        try:
            content = await request.body()
            sent = await read_body(request, operation) if operation.file is not None else {}
            sent |= read_key(request, operation)
        except FeedAssetsError as exc:
            return self._refuse(exc)
        values, tags = {**read_query(request), **request.path_params}, read_list(request, "if-match")
        arguments = door, values, content, sent, tags
        return await self.threads.answer_who_waits(request, operation.does, self._answer, *arguments)

    def _answer(self, door: Door, values: _Values, content: bytes, sent: _Values, tags: str | None) -> Response:
        def ask(name: str, /, **parameters: Any) -> Any:
            operation = find_operation(name)
            assert operation.does is Does.READS or not parameters  # without any, safe mode is only shown
            return _call(door, operation, read_given(operation, parameters))

        namespace, now = door.settings.namespace or DEFAULT_NAMESPACE, open_clock(door.settings).now()
        asked = Asked(values=values, content=content, namespace=namespace, author=door.author, now=now, ask=ask)
        try:
            answer = self.alias.form(self._find(door, asked, sent, tags), asked)
        except Exception as exc:  # noqa: BLE001 - as what an operation raises
            return self._refuse(exc)
        if answer is None:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return self._render(answer, HTTPStatus.OK)

    def _refuse(self, error: Exception) -> Response:
        theirs = {ours: name for name, ours in self.alias.parameters.items() if ours}
        refused = refuse(error, self.alias.statuses, names=theirs)
        if self.alias.refusal is None:
            return refused
        told = self._render(self.alias.refusal(json.loads(bytes(refused.body))["detail"]), refused.status_code)
        told.headers.update({name: value for name, value in refused.headers.items() if name == "retry-after"})
        return told

    def _render(self, answer: Any, status: int) -> Response:
        if isinstance(answer, str):
            return Response(answer, status, media_type=self.alias.media_type)
        return JSONResponse(answer, status)

    def _find(self, door: Door, asked: Asked, sent: _Values, tags: str | None) -> Any:
        """Return the document of the operation, or what stands in its place."""
        try:
            given = (self.alias.given(asked) if callable(self.alias.given) else self.alias.given) or {}
            calls = [{**self._rename(asked), **each} for each in (given if isinstance(given, list) else [given])]
            sent = {name: value for name, value in sent.items() if name not in calls[0]}
            told = [{name: value for name, value in each.items() if value is not None} for each in calls]
            called = self.alias.called
            found = [_call(door, called, {**read_given(called, each), **sent}, tags) for each in told]
            return found if isinstance(given, list) else found[0]
        except FeedAssetsError as exc:
            if self.alias.absent is None or status_of(exc) != HTTPStatus.NOT_FOUND:
                raise
            return self.alias.absent

    def _rename(self, asked: Asked) -> Mapping[str, Any]:
        names, parts = self.alias.parameters, re.findall(r"{([\w.]+)", self.alias.path)
        if unknown := [each for each in asked.values if each not in (*names, *parts)]:
            known = ", ".join(each for each in names if each not in parts) or "none"
            raise WrongUsageError(f"There is no parameter {unknown[0]!r} here. Parameters are {known}.")
        return {names[each]: value for each, value in asked.values.items() if names.get(each)}


def _call(door: Door, operation: Operation, given: _Values, tags: str | None = None) -> Any:
    """Call an operation; return its document, or its text if it has none.

    Raises:
        Exception: what the operation raises.
    """
    has_document = "output" in list_parameters(operation) and given.get("output", "json") == "json"
    told = {**given, "output": "json"} if has_document else given
    outcome = call_if_match(replace(door, screen=Screen()), operation, told, tags)
    if outcome.error is not None:
        raise outcome.error
    found = json.loads(outcome.out) if has_document and outcome.out else None
    is_told = found is not None and "colos" in found  # what each colo has done, if not all have
    if outcome.exit_code and operation.does is not Does.READS and not is_told:
        raise RequestRefusedError(HTTPStatus.CONFLICT, outcome.err.strip() or outcome.out.strip())
    return outcome.out if found is None else found
