"""What a request is answered: the status of what came of a call, and one form for all that is refused."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import click
from starlette.responses import Response

from feed_assets.cli.door import Outcome
from feed_assets.cli.exit_codes import AWAY, OUR_MISTAKE, exit_code_of
from feed_assets.cli.options import name_of
from feed_assets.entities.errors import DefinitionsError
from feed_assets.errors import MOST_CHARACTERS, Fault, FeedAssetsError
from feed_assets.json_form import parse_json, render_document
from feed_assets.masking import get_logger, mask
from feed_assets.operation import Does, Operation
from feed_assets.operation_list import list_operations
from feed_assets.orchestration.errors import RunsNotStoppedError, WebserverError
from feed_assets.retention.errors import FeedsUnrestoredError, FeedsUnsweptError
from feed_assets.server.calls import list_parameters
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.problems import problem
from feed_assets.sql.errors import StateError
from feed_assets.storage.errors import StorageFullError

JSON = "application/json"
NOTES = "Feed-Assets-Notes"
"""The header with what is to be known besides a result, such as what is left out for its errors."""
_STATUS: Mapping[Fault, HTTPStatus] = MappingProxyType(
    {
        Fault.MISSING: HTTPStatus.NOT_FOUND,
        Fault.ASKED: HTTPStatus.BAD_REQUEST,
        Fault.CONTENT: HTTPStatus.UNPROCESSABLE_ENTITY,
        Fault.STATE: HTTPStatus.CONFLICT,
        Fault.RIGHTS: HTTPStatus.FORBIDDEN,
    }
)
_HALF_DONE = (FeedsUnrestoredError, FeedsUnsweptError, RunsNotStoppedError, StorageFullError, WebserverError)
"""Errors of the surroundings after which something may be done already: the same call goes on."""
_WHOLE = re.compile("a valid integer( range)?")
_OPTION = re.compile(r"--([a-z][a-z-]*)")  # as in "--num-results"
_logger = get_logger(__name__)


def status_of(error: Exception) -> HTTPStatus:
    """Return the status of an answer that is an error."""
    if isinstance(error, RequestRefusedError):
        return error.status
    if isinstance(error, click.ClickException | click.Abort):
        return HTTPStatus.BAD_REQUEST
    code = exit_code_of(error)
    if code == OUR_MISTAKE:
        return HTTPStatus.INTERNAL_SERVER_ERROR
    is_outside = isinstance(error, _HALF_DONE) or type(error) is StateError
    if code == AWAY or is_outside or not isinstance(error, FeedAssetsError):
        return HTTPStatus.SERVICE_UNAVAILABLE
    return _STATUS[error.fault]


def answer(operation: Operation, outcome: Outcome, given: Mapping[str, Any], notes: Sequence[str] = ()) -> Response:
    """Return the answer to a call with its parameters; what was tried only, or changed nothing, has made nothing. What
    the command says besides the result is in a header, together with `notes`.
    """
    said = outcome.err.rpartition("feed-assets: ")[0] if outcome.error is not None else outcome.err
    notes = [each for each in (*said.splitlines(), *notes) if each.strip()]
    if outcome.error is not None:
        return refuse(outcome.error, operation=operation, notes=notes)
    output = given.get("output", "text")
    is_json = output == "json" or (operation.plain and outcome.out.startswith("{"))
    told = parse_json(outcome.out) if is_json and operation.does is not Does.READS else {}
    if outcome.exit_code and operation.does is not Does.READS:
        detail = outcome.err.strip() or "Not all of it was done: the result says what."
        return problem(HTTPStatus.CONFLICT, detail, result=told or outcome.out)
    is_tried = click.BOOL.convert(given.get("dry_run", False), None, None) or told.get("is_change") is False
    media_type = media_type_of("json" if is_json else output)
    noted = mask("; ".join(notes)).encode("ascii", "backslashreplace").decode()[:MOST_CHARACTERS]
    headers = {NOTES: noted} if notes else {}
    return Response(outcome.out, HTTPStatus.OK if is_tried else operation.answers, headers, media_type)


def media_type_of(form: str) -> str:
    """Return the media type of a form of a result."""
    return {"json": JSON, "csv": "text/csv", "svg": "image/svg+xml"}.get(form, "text/plain")


def refuse(
    error: Exception,
    statuses: Mapping[int, int] = MappingProxyType({}),
    operation: Operation | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
    notes: Sequence[str] = (),
) -> Response:
    """Return the answer to a request that ends with an error: its sentence, and the issues of definitions. `statuses`
    has those that others know for some of ours, and `names` theirs of some parameters. Parameters of an operation are
    called as requests call them. `notes` say what else is to be known.
    """
    ours = status_of(error)
    status = HTTPStatus(statuses.get(ours, ours))
    members: Mapping[str, Any] = {}
    if isinstance(error, DefinitionsError) and error.issues:
        members = {"issues": render_document(issues=error.issues)["issues"]}
    members = {**members, **({"notes": notes} if notes else {})}
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        _logger.error("a request ends with an internal error", exc_info=error)
        return problem(status, f"An internal error, {type(error).__name__}. The server's log has more.")
    return problem(status, describe_error(error, operation, names), **members)


def describe_error(
    error: Exception, operation: Operation | None = None, names: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the sentence of an error, in which parameters are called as requests call them."""
    if isinstance(error, OSError):
        return f"The system of the server refuses: {error.strerror}."
    if not isinstance(error, click.ClickException):
        return as_requests(str(error), operation, names)
    param = error.param if isinstance(error, click.BadParameter) else None
    if isinstance(error, click.MissingParameter) and param is not None:
        return f"The parameter {names.get(name_of(param), name_of(param))} is missing."
    text = as_requests(error.message if param is not None else error.format_message(), operation, names)
    return f"The parameter {names.get(name_of(param), name_of(param))}: {text}" if param is not None else text


def as_requests(text: str, operation: Operation | None, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a text in which parameters are called as requests call them, and a command has its route, too."""
    known = list_parameters(operation) if operation is not None else ()
    text, command, words = _WHOLE.sub("a whole number", text).partition("feed-assets ")
    text = _OPTION.sub(
        lambda found: names.get(name, name) if (name := found[1].replace("-", "_")) in known else found[0], text
    )
    routes = (each for each in (list_operations().items if command else ()) if each.has_route)
    route = max((each for each in routes if words.startswith(each.name)), key=lambda each: len(each.name), default=None)
    return f"{text}{f'{route.method} {route.path}, as by ' if route else ''}{command}{words}"
