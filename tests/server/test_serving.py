"""A server on a socket: where it may be served, its certificate, clients that come slowly or many, and its end."""

import asyncio
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from select import select
from threading import Event, Thread
from time import sleep
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket
from websockets.sync.client import connect

from feed_assets.context.errors import ListenRefusedError
from feed_assets.operation import Does
from feed_assets.server.bodies import LARGEST
from feed_assets.server.guard import Guard
from feed_assets.server.identity.callers import Keeper
from feed_assets.server.identity.tokens import create_token
from feed_assets.server.records import Address
from feed_assets.server.routes import find_rights
from feed_assets.server.serving import Certificate, PatientProtocol, build_server, listen, require_safe
from feed_assets.setting_sections import ServerSettings
from feed_assets.settings import Settings
from feed_assets.sql.database import Database
from tests.server.test_guard import PROXIES

HERE = Address(host="127.0.0.1", port=0)
THERE = Address(host="0.0.0.0", port=3030)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with what has come."""
    assert scope["type"] == "http"
    await PlainTextResponse((await receive())["body"])(scope, receive, send)


@contextmanager
def running(application: ASGIApp, certificate: Certificate | None = None, **more: Any) -> Iterator[int]:
    """Serve an application, and yield the port."""
    server = build_server(application, certificate, **more)
    with listen(HERE) as listener:
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                sleep(0.01)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def guarded(database: Database, body_seconds: float = 60.0, rights: Any = lambda _: (Does.ACTS,)) -> Guard:
    keeper = Keeper(Settings(), database, HERE, "ann")
    return Guard(echo, keeper, rights, body_seconds=body_seconds)


def sent(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """Send bytes, wait between them, and return all that comes until the server closes the connection."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, suppress(ConnectionError):
        for part in parts:
            connection.sendall(part)
            if select([connection], [], [], pause)[0]:
                found += connection.recv(65536)
        while more := connection.recv(65536):
            found += more
    return found


@pytest.mark.parametrize("parts", [(), (b"GET /", *[b"x"] * 50)])
def test_headers_that_do_not_come_are_not_waited_for(monkeypatch: pytest.MonkeyPatch, parts: tuple[bytes, ...]) -> None:
    monkeypatch.setattr(PatientProtocol, "header_seconds", 0.1)
    with running(echo) as port:
        assert sent(port, *parts, pause=0.02).startswith(b"HTTP/1.1 408 ")


def test_a_websocket_may_be_silent_for_longer_than_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        await socket.send_text(await socket.receive_text())

    monkeypatch.setattr(PatientProtocol, "header_seconds", 0.1)
    with running(talk, with_sockets=True) as port, connect(f"ws://127.0.0.1:{port}/") as client:
        sleep(0.3)
        client.send("still there")
        assert client.recv(timeout=10) == "still there"


def test_what_is_no_request_is_refused_with_a_problem_document() -> None:
    with running(echo) as port:
        head, _, body = sent(port, b"GET / HTTP/1.1\r\nHost : x\r\n\r\n").partition(b"\r\n\r\n")
    assert (head[:24], json.loads(body)["detail"]) == (b"HTTP/1.1 400 Bad Request", "Invalid HTTP request received.")
    assert b"application/problem+json" in head


def test_a_target_may_be_a_whole_url_whose_host_counts(database: Database) -> None:
    with running(guarded(database, rights=find_rights)) as port:
        for target, host, status in (
            (f"http://127.0.0.1:{port}/health", "evil.example", 200),
            ("HTTP://LOCALHOST/%64ocs?a", "x", 200),
            (f"http://127.0.0.1:{port}?a=b", "x", 200),
            ("http://evil.example/docs", "127.0.0.1", 400),
            ("http://evil.example@127.0.0.1/docs", "127.0.0.1", 400),
            ("http:///docs", "127.0.0.1", 400),
            ("ftp://127.0.0.1/docs", "127.0.0.1", 404),
        ):
            asked = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            assert sent(port, asked.encode()).startswith(b"HTTP/1.1 %d " % status), target


def test_a_body_that_comes_byte_by_byte_is_told_and_left(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "header_seconds", 0.1)
    head = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    with running(guarded(database, body_seconds=0.1)) as port:
        answer = sent(port, head, *[b"x"] * 50, pause=0.02)
    assert (answer.startswith(b"HTTP/1.1 408 "), answer.count(b"HTTP/1.1")) == (True, 1)


def test_a_body_that_is_too_large_is_told_even_to_who_sends_it_all(database: Database) -> None:
    with running(guarded(database)) as port, closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
        client.request("POST", "/x", body=b"x" * (LARGEST + 1))
        refused = client.getresponse()
        assert (refused.status, b"more than 8 MiB" in refused.read()) == (413, True)
        client.request("POST", "/x", body=b"small")  # on the same connection
        assert client.getresponse().read() == b"small"


def test_many_connections_keep_nobody_out(database: Database) -> None:
    with running(guarded(database)) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
        with closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
            client.request("GET", "/x")
            assert client.getresponse().status == 200
        for each in silent:
            each.close()


def test_of_more_connections_than_are_taken_the_silent_make_room_and_others_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("feed_assets.server.serving.CONNECTIONS", 3)
    ask = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with running(echo) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        refused = sent(port, ask)  # the others have not been silent for long
        assert (refused[:13], b"application/problem+json" in refused, b"retry-after: 5" in refused) == (
            b"HTTP/1.1 503 ",
            True,
            True,
        )
        monkeypatch.setattr("feed_assets.server.serving.SILENT_SECONDS", 0.0)
        assert sent(port, ask).startswith(b"HTTP/1.1 200 ")
        for each in silent:
            assert each.recv(1000).startswith(b"HTTP/1.1 408 ")
            each.close()


def test_a_port_that_is_taken_is_told(database: Database) -> None:
    with listen(HERE) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)  # else an answer takes 40 ms more
        port = listener.getsockname()[1]
        with pytest.raises(ListenRefusedError, match=rf"127\.0\.0\.1:{port}: nothing can be served here: .*in use"):
            listen(Address(host="127.0.0.1", port=port))
    for host, port in (("127.0.0.1", 70_000), ("no.invalid", 1), (f"{'a' * 64}.x", 1)):
        with pytest.raises(ListenRefusedError, match="nothing can be served here"):
            listen(Address(host=host, port=port))


def test_beyond_this_machine_nothing_is_served_to_whoever_comes(database: Database) -> None:
    require_safe(Settings(), database, HERE)
    with pytest.raises(
        ListenRefusedError, match=r"0\.0\.0\.0:3030: .* no valid token, and no proxy says who asks\. Make"
    ):
        require_safe(Settings(), database, Address(host="0.0.0.0", port=3030, insecure=True))
    require_safe(Settings(server=PROXIES), database, THERE)
    now = datetime.now(UTC)
    create_token(database, "old", [Does.READS], until=now, author="ann", now=now - timedelta(days=1), dry_run=False)
    with pytest.raises(ListenRefusedError, match="no valid token"):
        require_safe(Settings(), database, THERE)
    create_token(database, "loader", [Does.READS], until=None, author="ann", now=now, dry_run=False)
    with pytest.raises(ListenRefusedError, match="tokens would cross the network as plain text"):
        require_safe(Settings(), database, THERE)
    require_safe(Settings(), database, Address(host="0.0.0.0", port=1, insecure=True))
    require_safe(Settings(), database, Address(host="0.0.0.0", port=1, certificate=Path("a.pem")))
    require_safe(Settings(server=ServerSettings.model_validate({"proxies": ["10.0.0.1"]})), database, THERE)


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate and its key, others each time."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    return folder / "certificate.pem", folder / "key.pem"


def test_a_certificate_is_read_again_and_a_wrong_one_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, key = write_certificate(tmp_path)
    certificate = Certificate(Address(host="localhost", port=1, certificate=file, key=key))
    with running(echo, certificate) as port:
        first = ssl.get_server_certificate(("127.0.0.1", port))
        assert first == file.read_text()
        old_key = key.read_bytes()
        write_certificate(tmp_path)
        new_key = key.read_bytes()
        key.write_bytes(old_key)  # as if only one of the files had been replaced
        for _ in range(2):
            asyncio.run(certificate.renew())
        assert ssl.get_server_certificate(("127.0.0.1", port)) == first
        key.write_bytes(new_key)
        while (found := ssl.get_server_certificate(("127.0.0.1", port))) == first:  # the server looks by itself
            sleep(0.02)
        assert found == file.read_text()
    told = f"feed-assets: warning: {file} or {key} cannot be used: SSLError:"
    assert capsys.readouterr().err.count(told) == 1


def test_row_136_a_certificate_that_cannot_be_used_is_told_at_once_and_a_password_opens_its_key(
    tmp_path: Path,
) -> None:
    file, key = write_certificate(tmp_path)
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    key.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    for each in (key, tmp_path / "nowhere", file):
        with pytest.raises(
            ListenRefusedError, match=r"the certificate or its key cannot be used: .*Give other files, or the setting"
        ):
            Certificate(Address(host="localhost", port=1, certificate=file, key=each), "other")
    Certificate(Address(host="localhost", port=1, certificate=file, key=key), "secret")
    with pytest.raises(ListenRefusedError, match=r"Give its key by --key, or another file\."):
        Certificate(Address(host="localhost", port=1, certificate=file))


def test_who_has_asked_is_answered_before_the_end() -> None:
    begun = Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        begun.set()
        await asyncio.sleep(0.3)
        await PlainTextResponse("done")(scope, receive, send)

    with ThreadPoolExecutor() as pool:
        with running(slow) as port:
            answer = pool.submit(sent, port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            begun.wait()
        assert answer.result().endswith(b"done")


@pytest.mark.server
def test_the_command_serves_until_a_signal_ends_it(tmp_path: Path) -> None:
    environ = {**os.environ, "FEED_ASSETS_STATE": f"sqlite:///{tmp_path}/state.db", "PYTHONUNBUFFERED": "1"}
    (tmp_path / "entities").mkdir()
    command = [sys.executable, "-m", "feed_assets", "serve", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environ, text=True, **pipes) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        assert (
            "asked by an IP address or as localhost. Further names go into the setting server.hosts."
            in server.stderr.readline()
        )
        said = server.stdout.readline()
        url = said.split()[1]
        assert said == f"serving {url} (pages: {url}/ui)\n"
        with closing(http.client.HTTPConnection(url.removeprefix("http://"))) as client:
            for path, status in (("/health", 200), ("/ui", 200), ("/api/v1/token/list", 200), ("/nowhere", 404)):
                client.request("GET", path)
                answer = client.getresponse()
                answer.read()
                assert (answer.status, answer.getheader("server")) == (status, None)
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
