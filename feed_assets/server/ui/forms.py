"""Forms of pages: they change words, acknowledgements and holds. Each is an operation, and leads back to its page."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

from feed_assets.context.preconditions import demanding
from feed_assets.operation import Does
from feed_assets.server.errors import RequestRefusedError
from feed_assets.server.ui.addresses import HOME
from feed_assets.server.ui.login import lead_on
from feed_assets.server.ui.records import Asked, Page, View

_OF_PAGE = ("page", "back", "seen")
"""What a form has besides the parameters of its operation: the token, where it leads, and the value that was seen."""
_CHANGES = 1000


@cache
def _secret() -> bytes:
    return secrets.token_bytes()


def page_token(author: str) -> str:
    """Return the token of the forms of somebody's pages: another site cannot know it, nor another process."""
    return hmac.new(_secret(), author.encode(), "sha256").hexdigest()


def seen_as(value: str | None) -> str:
    """Return what a form carries of a value that was seen: it may have lines, or be hidden; "" if there is none."""
    return "" if value is None else hashlib.sha256(value.encode()).hexdigest()


def _read(asked: Asked) -> dict[str, Any]:
    """Return the parameters of a form.

    Raises:
        RequestRefusedError: its page is not of this process, or not of who sends it.
    """
    if not hmac.compare_digest(asked.one("page").encode(), page_token(asked.door.author).encode()):
        told = "This page was made before the server was started anew, or for somebody else. Load it again."
        raise RequestRefusedError(HTTPStatus.FORBIDDEN, f"{told} Nothing was changed.")
    return {name: value for name, value in asked.values.items() if name not in _OF_PAGE}


def _send(asked: Asked) -> str:
    given = _read(asked)
    asked.ask(asked.request.url.path.removeprefix(f"{HOME}/do/").replace("/", " "), **given)
    return lead_on(asked.one("back"))


def _put(asked: Asked) -> View | str:
    _read(asked)
    value = asked.one("value")
    change = {"properties": {asked.one("name"): value}}
    return _change_property(asked, "metadata put", change, value, (asked.one("seen"), seen_as(value)))


def _remove(asked: Asked) -> View | str:
    _read(asked)
    change = {"names": [asked.one("name")]}
    return _change_property(asked, "metadata remove", change, None, (asked.one("seen"), seen_as(None)))


def _change_property(
    asked: Asked, operation: str, change: Mapping[str, Any], wanted: str | None, known: tuple[str, str]
) -> View | str:
    """Change a property that still is as it was seen, or is as wanted already; else show what another one has said."""
    entity, name, found = asked.one("entity"), asked.one("name"), []

    def check() -> None:
        said = asked.ask("metadata get", entity=entity, scope="user").metadata
        value = next((each.value for each in said if each.name == name and each.kind == "property"), None)
        if seen_as(value) not in known:
            found.append(value)
            raise RequestRefusedError(HTTPStatus.CONFLICT, "Somebody else has changed it. Nothing was changed.")

    try:
        with demanding(check):
            asked.ask(operation, entity=entity, **change)
    except RequestRefusedError:
        parts = {"operation": operation, "entity": entity, "name": name, "theirs": found[0], "ours": wanted}
        parts |= {"change": _find_change(asked, entity, name), "back": lead_on(asked.one("back"))}
        return View(template="conflict.html", title=name, parts=parts, status=HTTPStatus.CONFLICT)
    return lead_on(asked.one("back"))


def _find_change(asked: Asked, entity: str, name: str) -> Any:
    """Return the newest change of a property."""
    changes = asked.ask("metadata history", entity=entity, scope="user", limit=str(_CHANGES)).items
    said = ((each, of) for each in changes for of in (*each.additions.values(), *each.deletions.values()))
    return next((each for each, of in said if name in of["properties"]), None)


FORMS = tuple(
    Page(f"{HOME}/do/{name.replace(' ', '/')}", show, "POST", Does.ACTS)
    for name, show in {
        "metadata put": _put,
        "metadata remove": _remove,
        "metadata tag": _send,
        "metadata untag": _send,
        "sla ack": _send,
        "hold add": _send,
        "hold release": _send,
    }.items()
)
