"""What a request is answered: the status of what came of a call, and one form for all that is refused."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import click
from starlette.responses import Response

from feed_assets.alerts.delivery.errors import UnknownReceiverError
from feed_assets.cli.exit_codes import AWAY, OUR_MISTAKE, exit_code_of
from feed_assets.context.errors import InstanceNotThereError, InstanceQueryError
from feed_assets.entities.errors import DefinitionsError, EntityNotFoundError
from feed_assets.errors import WrongUsageError
from feed_assets.json_form import render_document
from feed_assets.loading.errors import LocationUnreadableError
from feed_assets.operation import Does, Operation
from feed_assets.server.calls import Outcome
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.problems import problem
from feed_assets.storage.errors import InstanceNotFoundError
from feed_assets.timing.errors import TimingError

RETRY_SECONDS = 5
CONSOLE = "application/vnd.feed-assets.console+json"
"""The media type of an answer as a terminal shows it: `out`, `err` and `exit_code`."""
JSON = "application/json"
_STATUS: tuple[tuple[tuple[type[Exception], ...], HTTPStatus], ...] = (
    ((EntityNotFoundError, UnknownReceiverError, InstanceNotThereError, InstanceNotFoundError), HTTPStatus.NOT_FOUND),
    ((click.ClickException, WrongUsageError, TimingError, InstanceQueryError), HTTPStatus.BAD_REQUEST),
    ((LocationUnreadableError,), HTTPStatus.SERVICE_UNAVAILABLE),
    ((DefinitionsError,), HTTPStatus.UNPROCESSABLE_ENTITY),
)


def status_of(error: Exception) -> HTTPStatus:
    """Return the status of an answer that is an error; what is refused in the present state is a conflict."""
    if isinstance(error, RequestRefusedError):
        return error.status
    for kinds, status in _STATUS:
        if isinstance(error, kinds):
            return status
    by_code = {AWAY: HTTPStatus.SERVICE_UNAVAILABLE, OUR_MISTAKE: HTTPStatus.INTERNAL_SERVER_ERROR}
    return by_code.get(exit_code_of(error), HTTPStatus.CONFLICT)


def answer(operation: Operation, outcome: Outcome, output: str) -> Response:
    """Return the answer to a call whose result has the form `output`."""
    if outcome.error is not None:
        return refuse(outcome.error)
    if outcome.exit_code and operation.does is not Does.READS:
        return problem(HTTPStatus.CONFLICT, outcome.err.strip() or outcome.out.strip())
    is_json = operation.plain and outcome.out.startswith("{")
    media_type = media_type_of("json" if is_json else output)
    return Response(outcome.out, status_code=operation.answers, media_type=media_type)


def media_type_of(form: str) -> str:
    """Return the media type of a form of a result."""
    return {"json": JSON, "csv": "text/csv"}.get(form, "text/plain")


def refuse(error: Exception, statuses: Mapping[int, int] = MappingProxyType({})) -> Response:
    """Return the answer to a request that ends with an error: its sentence, and the issues of definitions. `statuses`
    has those that others know for some of ours.
    """
    ours = status_of(error)
    status = HTTPStatus(statuses.get(ours, ours))
    members: Mapping[str, Any] = {}
    if isinstance(error, DefinitionsError) and error.issues:
        members = {"issues": render_document(issues=error.issues)["issues"]}
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        return problem(status, f"An internal error, {type(error).__name__}. The server's log has more.")
    text = error.format_message() if isinstance(error, click.ClickException) else str(error)
    refused = problem(status, text, **members)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        refused.headers["Retry-After"] = str(RETRY_SECONDS)
    return refused
