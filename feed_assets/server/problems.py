"""What a server answers instead of a result: a problem document of RFC 9457, with the next step."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.responses import JSONResponse

from feed_assets.cli.door import PROBLEM
from feed_assets.masking import mask_values

_RETRY_SECONDS = 5


def problem(
    status: int, detail: str, next_step: str = "", *, headers: Mapping[str, str] | None = None, **members: object
) -> JSONResponse:
    """Return the answer for what went wrong, with further members; without secrets. What is away may be back soon.

    >>> problem(404, "There is no such feed.", "List the feeds.").body.decode()[42:]
    '"status":404,"detail":"There is no such feed.","next_step":"List the feeds."}'
    """
    document = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **({"next_step": next_step} if next_step else {}),
        **members,
    }
    retry = {"Retry-After": str(_RETRY_SECONDS)} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return JSONResponse(mask_values(document), status, headers={**retry, **(headers or {})}, media_type=PROBLEM)
