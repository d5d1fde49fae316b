"""Real receivers of messages on free ports of loopback: a program that takes posts, and a mail server."""

import json
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, cast

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.servers import free_port

MAIL_USER, MAIL_PASSWORD = "postmaster", "correct-horse-battery"  # a made-up account of the test's own server


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """What a receiver got: where, with which headers, and the body."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        return cast(dict[str, Any], json.loads(self.body))


def _accept(_: Post) -> int:
    return 200


@dataclass
class Receiver:
    """A web server that keeps what it gets. `answer` says its status; it can die, and come back on the same port. With
    `echoes` it answers with path and headers of the request.
    """

    port: int = field(default_factory=free_port)
    posts: list[Post] = field(default_factory=list)
    answer: Callable[[Post], int] = _accept
    echoes: bool = False
    _taken: list[Post] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None
    _sockets: set[socket.socket] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def taken(self) -> list[dict[str, Any]]:
        """The documents of what it has taken."""
        return [post.document for post in self._taken]

    def live(self) -> None:
        if self._server is None:
            self._server = _Server(("127.0.0.1", self.port), _handler_of(self))
            Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def die(self) -> None:
        """Take no further connection, and break off those that there are."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        with self._lock:
            for each in self._sockets:
                with closing(each):
                    each.shutdown(socket.SHUT_RDWR)
            self._sockets.clear()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks off is no error here."""


def _handler_of(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            with receiver._lock:
                receiver._sockets.add(self.connection)

        def finish(self) -> None:
            with receiver._lock:
                receiver._sockets.discard(self.connection)
            super().finish()

        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            body = self.rfile.read(size)
            if len(body) < size:  # the sender was killed
                self.close_connection = True
                return
            post = Post(path=self.path, headers=dict(self.headers), body=body)
            status = receiver.answer(post)
            with receiver._lock:
                receiver.posts.append(post)
                receiver._taken += [post] if status < 300 else []
            self.send_response(status)
            said = f"{self.path} {self.headers}".encode() if receiver.echoes else b""
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    return Handler


@dataclass
class Mailbox:
    """What a mail server has taken: each as (recipients, mail). `refusals` are what it answers to recipients."""

    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)

    async def handle_RCPT(self, _s: SMTP, _session: Session, envelope: Envelope, address: str, _o: list[str]) -> str:
        if address in self.refusals:
            return self.refusals[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        mail = message_from_bytes(cast(bytes, envelope.content), policy=policy.default)
        self.mails.append((list(envelope.rcpt_tos), cast(EmailMessage, mail)))
        return "250 taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """A mail server with STARTTLS and a login, and the file with its certificate."""

    port: int
    box: Mailbox
    ca_file: str


@pytest.fixture(scope="session")
def _one_receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.die()


@pytest.fixture
def receiver(_one_receiver: Receiver) -> Receiver:
    """The receiver of the session, alive and empty."""
    _one_receiver.live()
    _one_receiver.posts.clear()
    _one_receiver._taken.clear()
    _one_receiver.answer, _one_receiver.echoes = _accept, False
    return _one_receiver


@pytest.fixture(scope="session")
def _one_mail_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MailServer]:
    certificate, key = make_certificate(tmp_path_factory.mktemp("mail"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    box = Mailbox()

    def login(_server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: object) -> AuthResult:
        known = LoginPassword(MAIL_USER.encode(), MAIL_PASSWORD.encode())
        return AuthResult(success=data == known, handled=False)

    port = free_port()
    controller = Controller(
        box, hostname="localhost", port=port, tls_context=context, authenticator=login, auth_require_tls=True
    )
    controller.start()
    yield MailServer(port=port, box=box, ca_file=str(certificate))
    controller.stop()


@pytest.fixture
def mail_server(_one_mail_server: MailServer) -> MailServer:
    """The mail server of the session, with an empty box."""
    _one_mail_server.box.mails.clear()
    _one_mail_server.box.refusals.clear()
    return _one_mail_server


def make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key
