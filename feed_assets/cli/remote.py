"""Commands from afar: a server answers in the place of this project, by the same declarations.

The words are parsed here and judged there, so that a person sees the same; files of the caller are read here, and sent.
"""

import io
import json
import os
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import BadStatusLine, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from pathlib import Path
from socket import SHUT_RDWR
from ssl import SSLCertVerificationError, SSLError
from threading import Timer
from typing import Annotated, Any, NamedTuple, NoReturn
from urllib.parse import quote, urlencode, urlsplit

import click
from click.core import augment_usage_errors
from pydantic import BaseModel, Field

from feed_assets.cli.door import CONSOLE, FILE, PROBLEM, TERMINAL, find_width
from feed_assets.cli.exit_codes import DIFFERENT
from feed_assets.cli.options import name_of, read_files
from feed_assets.cli.progress import status_line
from feed_assets.cli.render import confirm, echo, escape, has_colours, shown
from feed_assets.clock import Stopwatch
from feed_assets.engines.errors import ServiceAwayError, ServiceError
from feed_assets.errors import WrongUsageError
from feed_assets.loading.entity_files import EntityFile
from feed_assets.masking import encodable, remember_unnamed
from feed_assets.operation import Does, Operation

ENV_TOKEN = "FEED_ASSETS_TOKEN"
_CONNECTING, _ANSWERING, _SILENT = 10.0, 600.0, 60.0
"""How many seconds a server has to take a call, to answer it to its end, and for a pause in the answer."""
_LARGEST, _LARGEST_PROBLEM = 256 << 20, 1 << 20  # bytes of an answer
_TELLS = (HTTPStatus.OK, HTTPStatus.FORBIDDEN)
_TOLD = re.compile(rb'\{(?:\s*"(?:out|err|exit_code)"\s*:\s*(?:"(?:[^"\\]++|\\.)*+"|\d)\s*,?){3}\s*\}', re.DOTALL)
"""The form of a `_Told`. Other JSON is not read: it takes fifty times its length in memory."""
_ADDRESS = re.compile(r"(?ai)https?://[\w.:/%\[\]~+,;=&$'()*!-]+")  # without blanks, user, query and fragment
_READ = "Nothing was changed: ask again, or for less."
_KEYED = "It may have been done. Give the command again: what has its key is done once."
_DONE = "It may have been done. Look first, and give the command again if it was not."
_CONFIRMED = frozenset({"yes", "digest", "delete_all", "dry_run", "output"})
"""Options with which nobody is asked."""
_HERE = "Give the command where the project is, without --server and FEED_ASSETS_SERVER."


class Question(NamedTuple):
    """A request for an operation; `target` is its path and query, below the server's address."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None
    if_broken: str = _DONE
    """The next step if it was sent, and not answered to the end."""
    if_unknown: str = f"A token that holds is needed in {ENV_TOKEN}, or in the file of --token-file."
    """The next step if the server does not know who asks."""


class _Told(BaseModel, strict=True):
    """What a server answers that has called the operation."""

    out: str
    err: str
    exit_code: Annotated[int, Field(ge=0, le=DIFFERENT)]


class _Problem(BaseModel, strict=True):
    """What it answers when it does not come to that."""

    detail: str
    next_step: str = ""


def ask(ctx: click.Context, operation: Operation | None, server: str) -> NoReturn:
    """Ask a server for what a command asks for, print its answer, and end with its exit code.

    Raises:
        WrongUsageError: a server is not asked for this.
        ServiceError: the server is away, is none of feed-assets, or refuses.
    """
    if operation is None or operation.no_route:
        reason = f"it does not offer this. {'' if operation is None else operation.no_route}"
        raise ServiceError(service=f"server {server}", reason=reason.rstrip(". "), next_step=_HERE)
    question, headers = build_question(ctx, operation), {"Accept": CONSOLE}
    if (token := _read_token(ctx.find_root().params.get("token_file"))) is not None:
        headers["Authorization"] = f"Bearer {token}"
    if (width := find_width()) is not None:
        headers[TERMINAL] = f"columns={width};colours={'yes' if has_colours() else 'no'}"
    if (name := ctx.find_root().params.get("do_as")) is not None:
        question = on_behalf_of(name, question)
    if "confirm" in operation.given and not ctx.params.keys() & _CONFIRMED:
        question = _confirm(server, question, headers)
    told = send(server, question, headers)
    for name in ("out", "err"):
        echo(escape(told[name], keeps_colours=has_colours()), err=name == "err", nl=False)
    ctx.exit(told["exit_code"])


def on_behalf_of(name: str, question: Question) -> Question:
    """Return a request that is asked on behalf of somebody."""
    mark = "&" if "?" in question.target else "?"
    return question._replace(target=f"{question.target}{mark}doAs={quote(name, errors='surrogateescape')}")


def _confirm(server: str, question: Question, headers: Mapping[str, str]) -> Question:
    """Ask a person whether to do what the server would do, and return the request for just that."""
    asked = f"{question.target}{'&' if '?' in question.target else '?'}"
    told = send(server, question._replace(target=f"{asked}dry_run=true", if_broken=_READ), headers)
    would, has_plan, digest = told["out"].rstrip().rpartition("\nPlan ")
    if has_plan:
        confirm(f"{would}\nApply this?")
    return question._replace(target=f"{asked}digest={quote(digest)}") if has_plan else question


def build_question(ctx: click.Context, operation: Operation) -> Question:
    """Return the request for what a command asks for; its parameters are words, by name.

    Raises:
        WrongUsageError: it has a parameter that only the command has.
    """
    given, by_name = dict(ctx.params), {str(param.name): param for param in ctx.command.params}
    if "author" in given:
        raise WrongUsageError("--author is not for servers: the author of a change is the name of the token.")
    if local := [each.name for each in operation.parameters if each.param.local and each.name in given]:
        hint = by_name[local[0]].get_error_hint(ctx)
        raise WrongUsageError(f"{hint} is only for where the project is. Leave it out, or run it there.")
    file, sent = operation.file, None
    if file is not None and file.name in given:
        sent = _read_file(ctx, by_name[file.name], given.pop(file.name))
    values = {name_of(by_name[name]): "true" if value is True else value for name, value in given.items()}
    return ask_for(operation, values, sent)


def ask_for(operation: Operation, values: Mapping[str, Any], sent: tuple[str, bytes] | None = None) -> Question:
    """Return the request for an operation, with its parameters by name, and the name and content of its file."""
    file, body, headers = operation.file, None, dict[str, str]()
    if sent is not None:
        name, body = sent
        headers = {"Content-Type": "application/octet-stream", FILE: quote(encodable(name))}
    is_read = operation.does is Does.READS or "dry_run" in values
    if_broken = _READ if is_read else _KEYED if "key" in values else _DONE
    if operation.method == "POST" and file is None:
        headers, body = {"Content-Type": "application/json"}, json.dumps(values).encode()
        return Question("POST", operation.path, headers, body, if_broken)
    query = urlencode(values, doseq=True, errors="surrogateescape")
    target = f"{operation.path}?{query}" if query else operation.path
    return Question(operation.method, target, headers, body, if_broken)


def _read_file(ctx: click.Context, param: click.Parameter, given: Any) -> tuple[str, bytes]:
    """Read the files of the caller, as the command does where it runs; return their name in messages, and the body."""
    with augment_usage_errors(ctx, param):
        read = param.type_cast_value(ctx, given)
    if isinstance(read, dict):
        return "", "\n".join(f"{name}={value}" for name, value in read.items()).encode()
    return ("", pack_files(read_files(read))) if isinstance(read, tuple | list) else (str(read.name), read.read())


def pack_files(files: Iterable[EntityFile]) -> bytes:
    """Return entity files in a zip, by their names in messages; what could not be read, with the reason."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a file that is named twice is there twice
        for each in files:
            member = zipfile.ZipInfo(encodable(each.name))
            member.comment = (each.problem or "").encode()
            archive.writestr(member, each.content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _read_token(file: str | None) -> str | None:
    """Return the token in a file, or else in the environment."""
    token = (os.environ.get(ENV_TOKEN, "") if file is None else Path(file).read_text("utf-8", "replace")).strip()
    if not token:
        if file is not None:
            raise WrongUsageError(f"{file} is empty. Write the token into it.")
        return None
    remember_unnamed(token)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise WrongUsageError(f"What {file or ENV_TOKEN} has is no token. Copy it again: it is one word of ASCII.")
    return token


def send(
    server: str, question: Question, headers: Mapping[str, str], *, seconds: float | None = None
) -> Mapping[str, Any]:
    """Send a request to a server that begins to answer within so many seconds, and ends within twice as many; return
    what it tells: `out`, `err` and `exit_code`.
    """
    seconds = _ANSWERING if seconds is None else seconds
    try:
        parts = urlsplit(server if _ADDRESS.fullmatch(server) else "")
        host, port, is_safe = parts.hostname, parts.port, parts.scheme == "https"
    except ValueError:
        host = None
    if not host:
        raise WrongUsageError(f"{server!r} is no address of a server. Write it as https://feeds.example.org:3030.")
    connection = (HTTPSConnection if is_safe else HTTPConnection)(host, port, timeout=_CONNECTING)
    fault: type[ServiceError] = ServiceAwayError
    next_step, watch = "Nothing was sent. Check its address, and that it runs.", Stopwatch()
    try:
        with status_line.waiting_for(server):
            connection.connect()
            connection.sock.settimeout(seconds)
            next_step = question.if_broken
            target = f"{parts.path.rstrip('/')}{question.target}"
            with suppress(BrokenPipeError, ConnectionResetError):  # what is too large is not read to its end
                connection.request(question.method, target, question.body, {**question.headers, **headers})
            return _judge(server, question, *_read_answer(connection, watch, min(2 * seconds, _ANSWERING)))
    except SSLCertVerificationError as exc:
        reason, fault = f"it is not trusted: {exc.verify_message}", ServiceError
        next_step = "Name the file of its authority by SSL_CERT_FILE."
    except (OSError, HTTPException, UnicodeError) as exc:
        if isinstance(exc, SSLError) and next_step != question.if_broken:
            next_step = "If it is one of plain HTTP, write http:// in its address."
        elif isinstance(exc, ConnectionResetError | BadStatusLine) and not is_safe and watch.seconds < seconds:
            next_step = f"If it is one of HTTPS, write https:// in its address. {next_step}"
        what = "its answer breaks off" if isinstance(exc, IncompleteRead) else getattr(exc, "strerror", "") or exc
        reason = f"it has not answered: {what or type(exc).__name__}"
        reason = reason if watch.seconds < _ANSWERING else f"it has not answered to the end in {_ANSWERING:g} seconds"
    finally:
        connection.close()
    raise fault(service=f"server {server}", reason=shown(reason).rstrip(".\r\n"), next_step=shown(next_step))


def _read_answer(connection: HTTPConnection, watch: Stopwatch, seconds: float) -> tuple[HTTPResponse, bytearray]:
    """Read an answer, which may be long and late. After so many seconds it is cut off."""
    sock, content = connection.sock, bytearray()
    timer = Timer(seconds, sock.shutdown, [SHUT_RDWR])
    timer.start()
    try:
        with connection.getresponse() as answer:
            if not answer.isclosed():
                sock.settimeout(_SILENT)
            while part := answer.read1(1 << 16):
                content += part
                if len(content) > _LARGEST:
                    raise HTTPException(f"its answer has more than {_LARGEST:,} bytes")
    finally:
        timer.cancel()
    if answer.length or watch.seconds >= seconds:
        raise IncompleteRead(b"")
    return answer, content


def _judge(server: str, question: Question, answer: HTTPResponse, content: bytearray) -> Mapping[str, Any]:
    told, kind = None, answer.headers.get_content_type()
    with suppress(ValueError):
        if kind == CONSOLE and answer.status in _TELLS and _TOLD.fullmatch(content):
            return _Told.model_validate_json(content).model_dump()
        if kind == PROBLEM and answer.status >= HTTPStatus.BAD_REQUEST and len(content) <= _LARGEST_PROBLEM:
            told = _Problem.model_validate_json(content)
    match answer.status, told:
        case HTTPStatus.UNAUTHORIZED, _Problem(detail=reason):
            next_step = question.if_unknown
        case HTTPStatus.NOT_FOUND | HTTPStatus.METHOD_NOT_ALLOWED, _Problem():
            path = urlsplit(server).path.rstrip("/")
            reason = f"it has no {path}{question.target.partition('?')[0]}"
            next_step = "It is of another version of feed-assets: use the same one."
            next_step = f"Check {path} in its address." if path else next_step
        case _, _Problem(detail=reason, next_step=next_step):
            next_step = next_step or "Ask who runs it."
        case status, _ if status < HTTPStatus.BAD_REQUEST and (place := answer.headers.get("Location")):
            reason, next_step = f"it sends on to {place}, where nothing was sent", "If that is right, name it instead."
        case status, _:
            reason = f"it is no server of feed-assets: it answers {status} {answer.reason}"
            is_away = status >= HTTPStatus.INTERNAL_SERVER_ERROR  # says what stands before it
            next_step = question.if_broken if is_away else "Check its address."
    fault = ServiceError if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR else ServiceAwayError
    raise fault(service=f"server {server}", reason=shown(reason).rstrip("."), next_step=shown(next_step))
