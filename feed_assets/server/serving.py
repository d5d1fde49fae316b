"""Serving an application by HTTP or HTTPS until a signal ends it. No client keeps it from others, or from its end."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from feed_assets.cli.progress import status_line
from feed_assets.cli.render import say
from feed_assets.clock import open_clock
from feed_assets.command_lines import command_line
from feed_assets.context.errors import ListenRefusedError
from feed_assets.errors import describe_error
from feed_assets.masking import mask_logs
from feed_assets.server.application import build_application
from feed_assets.server.callers import Keeper, is_loopback
from feed_assets.server.guard import Guard
from feed_assets.server.routes import Rights
from feed_assets.server.tokens import Tokens
from feed_assets.settings import Settings
from feed_assets.sql.database import Database

HEADER_SECONDS = 10.0
LINGER_SECONDS = 300.0
END_SECONDS = 30
CONNECTIONS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where and how is served."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False

    @property
    def text(self) -> str:
        """The address as a URL has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What is served."""

    url: str

    @property
    def sentence(self) -> str:
        """Where."""
        return f"serving {self.url}"


def serve(
    settings: Settings, database: Database, address: Address, *, author: str, read_only: bool = False
) -> Iterator[Serving]:
    """Serve a project: yield where as soon as requests are taken, and go on until SIGINT or SIGTERM.

    Raises:
        ListenRefusedError: it would not be safe, the port is taken, or the certificate cannot be read.
    """
    require_safe(settings, database, address)
    certificate = Certificate(address) if address.certificate else None
    keeper = Keeper(
        settings, database, host=address.host, author=author, read_only=read_only, insecure=address.insecure
    )
    server = build_server(Guard(build_application(settings, database), keeper, Rights()), certificate)
    with listen(address) as listener, status_line.waiting_for("requests"):
        at = Address(host=address.host, port=listener.getsockname()[1])
        yield Serving(url=f"{'https' if certificate else 'http'}://{at.text}")
        server.run(sockets=[listener])


def require_safe(settings: Settings, database: Database, address: Address) -> None:
    """Refuse to serve beyond this machine without knowing who asks, or in plain text.

    Raises:
        ListenRefusedError: it would not be safe.
    """
    if is_loopback(address.host):
        return
    now, of_server = open_clock(settings).now(), settings.server
    with database.read() as connection:
        has_token = any(each.is_valid(now) for each in Tokens(connection).all())
    if not has_token and not (of_server.proxies and of_server.author_header):
        raise ListenRefusedError(
            address=address.text,
            reason="others reach it, there is no valid token, and no proxy says who asks",
            next_step=f"Make a token: {command_line('token', 'create', 'reader', '--may', 'reads')}",
        )
    if not (address.certificate or of_server.proxies or address.insecure):
        raise ListenRefusedError(
            address=address.text,
            reason="tokens would cross the network as plain text",
            next_step="Give --certificate and --key, or --insecure, or name the proxies in the setting server.proxies.",
        )


def listen(address: Address) -> socket.socket:
    """Return a socket on which connections come.

    Raises:
        ListenRefusedError: the host is unknown, or the port is taken or forbidden.
    """
    try:
        family, _, _, _, at = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if at[1] != address.port:  # the system has cut it off
            raise OSError(f"there is no port {address.port}")
        return socket.create_server(at[:2], family=family, backlog=CONNECTIONS)
    except (OSError, UnicodeError) as exc:
        raise ListenRefusedError(address=address.text, reason=getattr(exc, "strerror", None) or str(exc)) from exc


class Certificate:
    """A certificate with its key, read again when a file of them has changed."""

    def __init__(self, address: Address) -> None:
        """Raises ListenRefusedError if they cannot be read."""
        assert address.certificate is not None
        self._files = (address.certificate, address.key or address.certificate)
        self._seen = self._look()
        self.context = _new_context()
        try:
            self._load(self.context)
        except OSError as exc:
            reason = f"the certificate or its key cannot be used: {describe_error(exc)}"
            raise ListenRefusedError(address=address.text, reason=reason, next_step="Give other files.") from exc

    async def renew(self) -> None:
        """Read changed files. If they are wrong, which is tried apart, say so, and go on with what was read before."""
        if (seen := self._look()) == self._seen:
            return
        self._seen = seen
        try:
            self._load(_new_context())
            self._load(self.context)
        except OSError as exc:
            names = " or ".join(map(str, dict.fromkeys(self._files)))
            told = f"{names} cannot be used, so the certificate before still is: {describe_error(exc)}."
            say(f"feed-assets: warning: {told} Correct the files; they are read again.", err=True)

    def _load(self, context: ssl.SSLContext) -> None:
        certificate, key = self._files
        context.load_cert_chain(certificate, key, password="")  # without one, OpenSSL asks the terminal

    def _look(self) -> tuple[object, ...]:
        return tuple(map(_look_at, self._files))


def _new_context() -> ssl.SSLContext:
    return ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)


def _look_at(file: Path) -> object:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class _Server(uvicorn.Server):
    def handle_exit(self, _sig: int, _frame: FrameType | None) -> None:
        """End: let requests be answered, but not after a second signal."""
        self.force_exit = self.should_exit
        self.should_exit = True


def build_server(application: ASGIApp, certificate: Certificate | None = None) -> uvicorn.Server:
    """Return a server of an application."""
    config = uvicorn.Config(
        application,
        http=PatientProtocol,
        ws="none",
        loop="asyncio",
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=END_SECONDS,
        callback_notify=certificate.renew if certificate else None,
        timeout_notify=0,
    )
    config.load()
    config.ssl = certificate.context if certificate else None
    mask_logs(logging.getLogger("uvicorn.error"))
    return _Server(config)


class PatientProtocol(H11Protocol):
    """A connection that is given some time for the headers of a request, and to take an answer or send the rest of a
    body that was refused. uvicorn would wait as long as a byte comes now and then.
    """

    header_seconds = HEADER_SECONDS
    linger_seconds = LINGER_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._limit(is_waiting=True)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._limit(is_waiting=self.cycle is None or self.cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._limit(is_waiting=False)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(self.linger_seconds, self.transport.abort)

    def _limit(self, *, is_waiting: bool) -> None:
        if not is_waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif is_waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.header_seconds, self.timeout_keep_alive_handler)
