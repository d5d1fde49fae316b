"""What a request gives: parameters, a key, and files of the caller in its body: one file, or several in a zip. Their
names are labels, never paths.
"""

import io
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request

from feed_assets.cli.door import FILE
from feed_assets.definitions.bundles.archive import ZIP_ERRORS, require_plain
from feed_assets.errors import WrongUsageError
from feed_assets.json_form import parse_json
from feed_assets.loading.entity_files import EntityFile
from feed_assets.operation import Operation
from feed_assets.server.calls import list_parameters

LARGEST = 8 << 20
"""Bytes of a body at most, and of what is in a zip."""
MOST_FILES = 10_000
KEY = "Idempotency-Key"
KEYED = ("feed notify", "batch init")
_ZIP = b"PK\x03\x04"


def read_query(request: Request) -> dict[str, Any]:
    """Return the parameters of the query: texts, or of a repeated one a list of texts."""
    several = {name: request.query_params.getlist(name) for name in request.query_params}
    return {name: found if len(found) > 1 else found[0] for name, found in several.items()}


def read_list(request: Request, header: str) -> str | None:
    """Return the list in a header, which may stand in several of its name (RFC 9110, 5.3); None without any."""
    return ", ".join(found) if (found := request.headers.getlist(header)) else None


def read_key(request: Request, operation: Operation, given: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return the key of what is told once, from the header.

    Raises:
        WrongUsageError: the operation has none, or it has another one already.
    """
    keys = request.headers.getlist(KEY)
    if not keys or request.method != "POST":
        return {}
    if operation.name not in KEYED:
        raise WrongUsageError(f"{KEY} is for {' and '.join(KEYED)}: {operation.name} has none. Leave it out.")
    if len(keys) > 1 or given.get("key", keys[0]) != keys[0] or not keys[0]:
        raise WrongUsageError(f"There are several keys, or an empty one. Give one, as {KEY} or as the parameter key.")
    return {"key": keys[0]}


def is_file(request: Request, operation: Operation) -> bool:
    """Return whether the body is the file of an operation: JSON has its parameters, if it can do without a file."""
    is_json = request.headers.get("content-type", "").lower().startswith("application/json")
    return operation.file is not None and (operation.file.is_required or not is_json)


async def read_body(request: Request, operation: Operation) -> dict[str, Any]:
    """Return the parameter of an operation that is a file, from the body; nothing if there is no body.

    Raises:
        WrongUsageError: a zip cannot be read, or has too much, or parameters stand in its place.
    """
    parameter, body = operation.file, await request.body()
    assert parameter is not None
    if not body and "content-type" not in request.headers:
        return {}
    with suppress(ValueError):
        told = parse_json(body) if parameter.is_required else None
        if told and isinstance(told, dict) and told.keys() <= list_parameters(operation).keys():
            raise WrongUsageError(f"The body is the file of {operation.name}. Give its parameters in the query.")
    if parameter.type is not EntityFile:
        named = EntityFile(name=unquote(request.headers.get(FILE, "the body")), content=body)
        return {parameter.name: body if parameter.type == dict[str, str] else named}
    if body.startswith(_ZIP):
        return {parameter.name: read_zip(body)}
    is_xml = body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
    return {parameter.name: (EntityFile(name="body.xml" if is_xml else "body.yaml", content=body),)}


def read_zip(body: bytes) -> tuple[EntityFile, ...]:
    """Return the entity files in a zip.

    Raises:
        WrongUsageError: it cannot be read, or has too much.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            members = [each for each in archive.infolist() if not each.is_dir()]
            if not members:
                raise WrongUsageError("The zip has no files.")
            if len(members) > MOST_FILES or sum(each.file_size for each in members) > LARGEST:
                reason = f"more than {MOST_FILES:,} files or {LARGEST >> 20} MiB"
                raise WrongUsageError(f"The zip has {reason}. Send it in parts.")
            require_plain(members)
            return tuple(
                EntityFile(name=each.filename, content=archive.read(each), problem=each.comment.decode() or None)
                for each in members
            )
    except ZIP_ERRORS as exc:
        raise WrongUsageError(f"The body is no zip that can be read: {exc}.") from exc
