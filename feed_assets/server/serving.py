"""Serving an application by HTTP or HTTPS until a signal ends it. No client keeps it from others, or from its end."""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import FrameType

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from feed_assets.cli.door import AskSites
from feed_assets.cli.progress import status_line
from feed_assets.cli.render import say
from feed_assets.clock import open_clock
from feed_assets.command_lines import command_line
from feed_assets.context.errors import ListenRefusedError
from feed_assets.errors import SettingsError, describe_error
from feed_assets.masking import mask_logs
from feed_assets.server.application import build_application
from feed_assets.server.guard import Guard
from feed_assets.server.identity.callers import Keeper, is_loopback
from feed_assets.server.identity.oidc import Issuer
from feed_assets.server.identity.tokens import Tokens
from feed_assets.server.problems import problem
from feed_assets.server.records import Address
from feed_assets.settings import Settings, resolve_references
from feed_assets.sql.database import Database

CONNECTIONS = 500
SILENT_SECONDS = 1.0
END_SECONDS = 30
LINGER_SECONDS = 300.0
_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def serve(
    settings: Settings, database: Database, address: Address, author: str, ask_sites: AskSites | None = None
) -> Iterator[Address]:
    """Serve a project, or with `ask_sites` as the front of others: yield where as soon as requests are taken, and go on
    until SIGINT or SIGTERM.

    Raises:
        ListenRefusedError: it would not be safe, the port is taken, or the certificate cannot be read.
        SettingsError: the issuer of the settings is none, or they are those of a front.
    """
    if settings.colos and ask_sites is None:
        reason, next_step = "they make this project a front", f"Start it by `{command_line('front')}`."
        raise SettingsError(setting="colos", reason=reason, tried=settings.tried, next_step=next_step)
    require_safe(settings, database, address)
    issuer = Issuer(settings.oidc, settings.tried) if settings.oidc is not None else None
    if issuer is not None and (fault := issuer.find_fault()) is not None:
        if isinstance(fault, SettingsError):
            raise fault
        say(f"feed-assets: warning: {fault}", err=True)
    password = resolve_references("server.key_password", settings.server.key_password, os.environ, settings.tried)
    certificate = Certificate(address, password or "") if address.has_tls else None
    keeper = Keeper(settings, database, address, author, issuer)
    asked = f"asked by an IP address or as {', '.join(keeper.names)}"
    say(f"feed-assets: {asked}. Further names go into the setting server.hosts.", err=True)
    with listen(address) as listener, ExitStack() as stack:
        dagster = None
        if address.with_dagster:
            from feed_assets.server.with_dagster.webserver import open_webserver

            dagster = stack.enter_context(open_webserver(settings, database))
        guard = Guard(build_application(settings, database, dagster, ask_sites), keeper)
        stack.enter_context(status_line.waiting_for("requests"))
        yield replace(address, port=listener.getsockname()[1])
        build_server(guard, certificate, with_sockets=address.with_dagster).run(sockets=[listener])


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
    if not has_token and not (of_server.proxies and of_server.author_header) and settings.oidc is None:
        reason = "others reach it, there is no valid token, and no proxy says who asks"
        next_step = f"Make a token: {command_line('token', 'create', 'reader', '--may', 'reads')}"
        raise ListenRefusedError(address=address.text, reason=reason, next_step=next_step)
    if not (address.has_tls or of_server.proxies or address.insecure):
        reason = "tokens would cross the network as plain text"
        next_step = "Give --certificate and --key, or --insecure, or name the proxies in the setting server.proxies."
        raise ListenRefusedError(address=address.text, reason=reason, next_step=next_step)


def listen(address: Address) -> socket.socket:
    """Return a socket on which connections come.

    Raises:
        ListenRefusedError: the host is unknown, or the port is taken or forbidden.
    """
    host, port = address.host, address.port
    try:
        family, *_, at = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        if at[1] != port:  # the system has cut it off
            raise OSError(f"there is no port {port}")
        listener = socket.create_server(at[:2], family=family, backlog=CONNECTIONS)
        # Measured: else the body of an answer waits 40 ms for the client to confirm its headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, UnicodeError) as exc:
        raise ListenRefusedError(address=address.text, reason=getattr(exc, "strerror", None) or str(exc)) from exc


class Certificate:
    """A certificate with its key, read again when a file of them has changed. A password opens a locked key."""

    def __init__(self, address: Address, password: str = "") -> None:
        """Raises ListenRefusedError if they cannot be read."""
        self._files = [each for each in (address.certificate, address.key) if each is not None]
        self._password = password  # without one, the terminal would be asked
        self._read: list[bytes] = []
        self._told = ""
        self.context = _new_context()
        try:
            self._read_again()
        except OSError as exc:
            reason = f"the certificate or its key cannot be used: {describe_error(exc)}"
            others = "Give other files, or the setting server.key_password."
            next_step = others if address.key else "Give its key by --key, or another file."
            raise ListenRefusedError(address=address.text, reason=reason, next_step=next_step) from exc

    async def renew(self) -> None:
        """Read changed files. If they are wrong, say so, and go on with what was read before."""
        try:
            self._read_again()
        except OSError as exc:
            told = f"{' or '.join(map(str, self._files))} cannot be used: {describe_error(exc)}"
            if told != self._told:
                say(f"feed-assets: warning: {told}. The certificate before still is. Correct the files.", err=True)
            self._told = told

    def _read_again(self) -> None:
        found = [each.read_bytes() for each in self._files]
        if found != self._read:
            for context in (_new_context(), self.context):  # first one that may be spoiled
                context.load_cert_chain(self._files[0], self._files[-1], self._password)
            self._read, self._told = found, ""


def _new_context() -> ssl.SSLContext:
    return ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)


def build_server(
    application: ASGIApp, certificate: Certificate | None = None, *, with_sockets: bool = False
) -> uvicorn.Server:
    """Return a server of an application, which may have websockets."""
    config = uvicorn.Config(
        application,
        http=PatientProtocol,
        ws="websockets-sansio" if with_sockets else "none",
        loop="asyncio",
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=END_SECONDS,
        callback_notify=certificate.renew if certificate else None,
        timeout_notify=0,
    )
    config.load()
    config.ssl = certificate.context if certificate else None
    mask_logs(logging.getLogger("uvicorn.error"))
    return _Server(config)


class _Server(uvicorn.Server):
    def handle_exit(self, _sig: int, _frame: FrameType | None) -> None:
        """End: let requests be answered, but not after a second signal."""
        self.force_exit = self.should_exit
        self.should_exit = True


class PatientProtocol(H11Protocol):
    """A connection that is given some time for the headers of a request, and to take an answer or send the rest of a
    body that was refused. uvicorn would wait as long as a byte comes now and then.
    """

    header_seconds = 10.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) >= CONNECTIONS:  # whoever has said nothing yet makes room
            late = self.loop.time() + self.header_seconds - SILENT_SECONDS
            for each in self.connections - {self}:
                if isinstance(each, PatientProtocol) and each._deadline is not None and each._deadline.when() < late:
                    each._give_up()

    def handle_events(self) -> None:
        is_full = len(self.connections) >= CONNECTIONS
        self.app = problem(503, "Too many are connected.") if is_full else self.config.loaded_app
        super().handle_events()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.get_protocol() is self:
            self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        refused = problem(400, msg, headers={"Connection": "close"})
        head = h11.Response(status_code=400, headers=refused.raw_headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=bytes(refused.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def _give_up(self) -> None:
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.write(_TOO_LATE)
        self.timeout_keep_alive_handler()

    def _watch(self) -> None:
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.header_seconds, self._give_up)
        elif not is_waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
