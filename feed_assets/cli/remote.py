"""Commands from afar: a server answers in the place of this project, by the same declarations.

The words are parsed here and judged there, so that a person sees the same; files of the caller are read here, and sent.
"""

import io
import json
import os
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from ssl import SSLCertVerificationError, SSLError
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, urlencode, urlsplit

import click
from click.core import augment_usage_errors

from feed_assets.cli.door import CONSOLE, FILE, TERMINAL, find_width
from feed_assets.cli.options import name_of, read_files
from feed_assets.cli.progress import status_line
from feed_assets.cli.render import confirm, echo, has_colours
from feed_assets.engines.errors import ServiceError
from feed_assets.errors import WrongUsageError
from feed_assets.loading.entity_files import EntityFile
from feed_assets.masking import encodable, remember_unnamed
from feed_assets.operation import Operation

ENV_TOKEN = "FEED_ASSETS_TOKEN"
_CONNECTING, _ANSWERING = 10.0, 600.0
"""How many seconds a server has to take a call, and to answer it."""
_CONFIRMED = frozenset({"yes", "digest", "delete_all", "dry_run", "output"})
"""Options with which nobody is asked."""
_HERE = "Give the command where the project is, without --server and FEED_ASSETS_SERVER."


class Question(NamedTuple):
    """A request for an operation; `target` is its path and query, below the server's address."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None


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
    if "confirm" in operation.given and not ctx.params.keys() & _CONFIRMED:
        question = _confirm(server, question, headers)
    told = send(server, question, headers)
    for name in ("out", "err"):
        echo(told[name], err=name == "err", nl=False)
    ctx.exit(told["exit_code"])


def _confirm(server: str, question: Question, headers: Mapping[str, str]) -> Question:
    """Ask a person whether to do what the server would do, and return the request for just that."""
    asked = f"{question.target}{'&' if '?' in question.target else '?'}"
    told = send(server, question._replace(target=f"{asked}dry_run=true"), headers)
    would, has_plan, digest = told["out"].rstrip().rpartition("\nPlan ")
    if has_plan:
        confirm(f"{would}\nApply this?")
    return question._replace(target=f"{asked}digest={digest}") if has_plan else question


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
    file, body, headers = operation.file, None, {}
    if file is not None and file.name in given:
        name, body = _read_file(ctx, by_name[file.name], given.pop(file.name))
        headers = {"Content-Type": "application/octet-stream", FILE: quote(encodable(name))}
    values = {name_of(by_name[name]): "true" if value is True else value for name, value in given.items()}
    if operation.method == "POST" and file is None:
        headers, body = {"Content-Type": "application/json"}, json.dumps(values).encode()
        return Question("POST", operation.path, headers, body)
    query = urlencode(values, doseq=True, errors="surrogateescape")
    return Question(operation.method, f"{operation.path}?{query}" if query else operation.path, headers, body)


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


def send(server: str, question: Question, headers: Mapping[str, str]) -> Mapping[str, Any]:
    """Send a request to a server, and return what it tells: `out`, `err` and `exit_code`."""
    try:
        parts = urlsplit(server)
        host, port, is_safe = parts.hostname, parts.port, parts.scheme == "https"
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or parts.username or parts.query or parts.fragment:
        raise WrongUsageError(f"{server!r} is no address of a server. Write it as https://feeds.example.org:3030.")
    connection = (HTTPSConnection if is_safe else HTTPConnection)(host, port, timeout=_CONNECTING)
    next_step = "Check its address, and that it runs."
    try:
        with status_line.waiting_for(server):
            connection.connect()
            connection.sock.settimeout(_ANSWERING)
            next_step = "What was asked may be done. Give the command again: nothing is done twice."
            target = f"{parts.path.rstrip('/')}{question.target}"
            with suppress(BrokenPipeError, ConnectionResetError):  # what is too large is not read to its end
                connection.request(question.method, target, question.body, {**question.headers, **headers})
            return _read_answer(server, question, connection.getresponse())
    except SSLCertVerificationError as exc:
        reason, next_step = (
            f"it is not trusted: {exc.verify_message}",
            "Name the file of its authority by SSL_CERT_FILE.",
        )
    except SSLError as exc:
        reason, next_step = f"it has not answered: {exc}", "If it is one of plain HTTP, write http:// in its address."
    except (OSError, HTTPException) as exc:
        if isinstance(exc, ConnectionResetError | HTTPException) and not is_safe:
            next_step = f"If it is one of HTTPS, write https:// in its address. {next_step}"
        reason = f"it has not answered: {getattr(exc, 'strerror', '') or exc or type(exc).__name__}"
    finally:
        connection.close()
    raise ServiceError(service=f"server {server}", reason=reason.rstrip("."), next_step=next_step)


def _read_answer(server: str, question: Question, answer: HTTPResponse) -> Mapping[str, Any]:
    try:
        told = json.loads(answer.read())
    except ValueError:
        told = None
    match told, answer.headers.get("Location"):
        case {"out": str(), "err": str(), "exit_code": int()}, _:
            return dict(told)
        case {"status": HTTPStatus.UNAUTHORIZED, "detail": str(reason)}, _:
            next_step = f"A token that holds is needed in {ENV_TOKEN}, or in the file of --token-file."
        case {"status": HTTPStatus.NOT_FOUND | HTTPStatus.METHOD_NOT_ALLOWED}, _:
            path = urlsplit(server).path.rstrip("/")
            reason = f"it has no {path}{question.target.partition('?')[0]}"
            next_step = "It is of another version of feed-assets: use the same one."
            next_step = f"Check {path} in its address." if path else next_step
        case {"detail": str(reason)}, _:
            next_step = told.get("next_step") or "Ask who runs it."
        case _, str(place):
            reason, next_step = f"it sends on to {place}, where nothing was sent", "If that is right, name it instead."
        case _:
            reason = f"it is no server of feed-assets: it answers {answer.status} {answer.reason}"
            next_step = "Check its address."
    raise ServiceError(service=f"server {server}", reason=reason.rstrip("."), next_step=next_step)
