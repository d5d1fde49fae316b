"""Real servers of object storages, and one of files, on free ports of loopback: each yields a URL and its options."""

import base64
import getpass
import hashlib
import hmac
import http.client
import logging
import os
import shutil
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from feed_assets.engines.spark.supervised import SupervisedProcess
from tests.servers import free_port, wait_for_port

BUCKET = "instances"
_TOOLS = Path(__file__).parent.parent / ".emulators" / "node_modules" / ".bin"
_AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key that every Azurite has; it is no secret."""


_SOMEBODY = {"Authorization": "AWS4-HMAC-SHA256 Credential=anybody/20260101/us-east-1/s3/aws4_request"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectServer:
    """A server: what a cluster says of a storage in it."""

    url: str
    options: Mapping[str, object]


@contextmanager
def run_s3() -> Iterator[ObjectServer]:
    """An S3 server (moto) with one bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        options = {"key": "anybody", "secret": "anything", "endpoint_url": endpoint, "region": "us-east-1"}
        s3_client(options).create_bucket(Bucket=BUCKET)
        yield ObjectServer(url=f"s3://{BUCKET}", options=options)
    finally:
        server.stop()


def s3_client(options: Mapping[str, object]) -> "boto3.client":
    """A client of botocore, which is none of ours."""
    return boto3.client(
        "s3",
        endpoint_url=options["endpoint_url"],
        aws_access_key_id=options["key"],
        aws_secret_access_key=options["secret"],
        region_name="us-east-1",
    )


@contextmanager
def run_gcs() -> Iterator[ObjectServer]:
    """A server that speaks the XML dialect of Google Cloud Storage, as obstore does, before an S3 server.

    No emulator that package clients install knows this dialect. It keeps generations and their conditions, and 404 for
    the removal of what is gone. It does not look at who asks, and its ETags are those of S3.
    """
    with run_s3() as behind:
        Google.behind = str(behind.options["endpoint_url"]).removeprefix("http://")
        with ThreadingHTTPServer(("127.0.0.1", 0), Google) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                url = f"http://127.0.0.1:{server.server_address[1]}"
                nobody = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
                yield ObjectServer(url=f"gs://{BUCKET}", options={"token": nobody, "endpoint_url": url})
            finally:
                server.shutdown()
                thread.join()


class Google(BaseHTTPRequestHandler):
    """One request to Google Cloud Storage, passed on to an S3 server."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer in one piece: its client would hold back the receipt of a first one for 40 ms
    behind = ""
    generations: dict[str, int] = {}  # noqa: RUF012
    lock = threading.Lock()

    def do_GET(self) -> None:
        self._pass_on()

    def do_HEAD(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        with self.lock:
            self._pass_on()

    def do_PUT(self) -> None:
        with self.lock:
            wanted = self.headers.get("x-goog-if-generation-match")
            if wanted is not None and int(wanted) != self._generation():
                self._answer(412, {}, b"<Error><Code>PreconditionFailed</Code></Error>", self._body())
                return
            self._pass_on()

    def do_DELETE(self) -> None:
        with self.lock:
            if "?" not in self.path and not self._generation():
                self._answer(404, {}, b"<Error><Code>NoSuchKey</Code></Error>", b"")
                return
            self._pass_on()

    def _generation(self) -> int:
        """The generation of the object that is asked for; 0 if there is none."""
        status, _, _ = self._ask("HEAD", self.path, _SOMEBODY, b"")
        return self.generations.setdefault(self.path, 1) if status == 200 else 0

    def _pass_on(self) -> None:
        body = self._body()
        headers = {"Content-Length": str(len(body)), **_SOMEBODY}
        for name, value in self.headers.items():
            if name.lower() in ("range", "content-type"):
                headers[name] = value
            elif name.lower() == "x-goog-copy-source":
                headers["x-amz-copy-source"] = value
        status, found, data = self._ask(self.command, self.path, headers, body)
        key = self.path.partition("?")[0]
        if self.command in ("PUT", "POST") and status == 200 and "partNumber" not in self.path:
            self.generations[key] = self.generations.get(key, 0) + 1
        if self.command == "DELETE":
            self.generations[key] = self.generations.get(key, 0) + 1
        kept = {name: value for name, value in found.items() if name in ("etag", "last-modified", "content-range")}
        length = {"Content-Length": found.get("content-length", "0")} if self.command == "HEAD" else {}
        self._answer(status, {**kept, **length, "x-goog-generation": str(self.generations.get(key, 1))}, data, b"")

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.behind)
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, headers: Mapping[str, str], data: bytes, _: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers and status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def run_azure() -> Iterator[ObjectServer]:
    """Azurite with one container; the test is skipped where it is not installed."""
    command = shutil.which("azurite-blob", path=f"{_TOOLS}{os.pathsep}{os.environ.get('PATH', '')}")
    if command is None:
        pytest.skip("Azurite is not installed: run tests/install_emulators.sh")
    port = free_port()
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent", "--blobPort"]
    folder = Path(tempfile.mkdtemp(prefix="feed-assets-azurite-"))
    try:
        with (folder / "log").open("wb") as log:
            process = SupervisedProcess([command, *options, str(port)], env=os.environ, cwd=folder, output=log)
        with process:
            wait_for_port(port, process)
            endpoint = f"http://127.0.0.1:{port}/devstoreaccount1"
            _make_container(endpoint)
            account = {"account_name": "devstoreaccount1", "account_key": _AZURITE_KEY, "endpoint_url": endpoint}
            yield ObjectServer(url=f"abfs://{BUCKET}", options=account)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_container(endpoint: str) -> None:
    moment = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = f"x-ms-date:{moment}\nx-ms-version:2021-08-06\n"
    text = "PUT" + "\n" * 12 + f"{headers}/devstoreaccount1/devstoreaccount1/{BUCKET}\nrestype:container"
    digest = hmac.new(base64.b64decode(_AZURITE_KEY), text.encode(), hashlib.sha256).digest()
    request = urllib.request.Request(f"{endpoint}/{BUCKET}?restype=container", method="PUT")
    for line in headers.splitlines():
        request.add_header(*line.split(":", 1))
    request.add_header("Authorization", f"SharedKey devstoreaccount1:{base64.b64encode(digest).decode()}")
    urllib.request.urlopen(request).close()


@contextmanager
def run_sftp() -> Iterator[ObjectServer]:
    """An SSH server with keys of its own, which lets this user in; the test is skipped where there is none."""
    command = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))
    if command is None:
        pytest.skip("sshd is not installed: install openssh-server")
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="feed-assets-sshd-"))
    try:
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
        (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
        (folder / "config").write_text(
            f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
            f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nMaxSessions 100\nMaxStartups 100\n"
            f"Subsystem sftp internal-sftp\nPermitRootLogin prohibit-password\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True) if os.getuid() == 0 else None
        with (folder / "log").open("wb") as log:
            arguments = [command, "-D", "-e", "-f", str(folder / "config")]
            process = SupervisedProcess(arguments, env=os.environ, cwd=folder, output=log)
        with process:
            wait_for_port(port, process)
            (folder / "root").mkdir()
            options = {"username": getpass.getuser(), "port": port, "key_filename": str(folder / "user")}
            yield ObjectServer(url=f"sftp://127.0.0.1{folder}/root", options={**options, "look_for_keys": False})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
