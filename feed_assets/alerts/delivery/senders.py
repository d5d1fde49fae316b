"""Send letters: to people by electronic mail, to programs by HTTP, to chats by the package apprise, to commands, and to
receivers of OpenLineage.

What one exchange with a receiver may cost is bounded, however it answers: one deadline for all of it, and a few KiB.
"""

import fcntl
import hashlib
import hmac
import json
import os
import shlex
import signal
import smtplib
import ssl
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing
from email.message import EmailMessage
from functools import partial
from http.client import CONTINUE, HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from pathlib import Path
from select import POLLIN, poll
from smtplib import SMTP, SMTP_SSL
from socket import gaierror, socket
from tempfile import TemporaryFile
from typing import IO, Any, assert_never, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from feed_assets.alerts.delivery.errors import ReceiverError
from feed_assets.alerts.delivery.lineage_events import LineageEvents
from feed_assets.alerts.delivery.port import DELIVERED, Letter, Outcome, Sender, Verdict
from feed_assets.alerts.delivery.receivers import Receiver
from feed_assets.clock import TimeBudget
from feed_assets.masking import mask, remember_credentials, remember_unnamed
from feed_assets.receivers import FILE, OPENLINEAGE, Channel, MailSecurity, MailSettings, MessageLevel
from feed_assets.sql.database import Database

WEBHOOK_THREADS = 8
KEY_VARIABLE = "FEED_ASSETS_KEY"
MAIL_KEY_HEADER = "X-Feed-Assets-Key"
KEY_HEADER = "Idempotency-Key"
TOPIC_HEADER = "X-Feed-Assets-Topic"
SIGNATURE_HEADER = "X-Feed-Assets-Signature"

_MOST_SHOWN = 200
_SHORTEST_TOKEN = 12  # a user without a password may be one
_FOR_EVER = 500
_CLOSING = 421
_BUSY = frozenset({429, 502, 503, 504})
_AGAIN = frozenset({408})
_TYPES = {MessageLevel.INFO: "info", MessageLevel.WARNING: "warning", MessageLevel.ERROR: "failure"}
_POST = """
import json, logging, resource, sys, apprise
given = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
logging.basicConfig(format="%(message)s", level=logging.WARNING)
service = apprise.Apprise(asset=apprise.AppriseAsset(secure_logging=True))
service.add(given.pop("url"))
sys.exit(not service.notify(**given))
"""
SECONDS = 10.0
"""How long a receiver may take for an exchange."""
MOST_BYTES = 32 * 1024
"""How many bytes of what it says are read."""

_WHY: dict[type[Exception], str] = {
    FileNotFoundError: "it is not there, nor can it be made: create its folder, or correct the URL",
    IsADirectoryError: "it is a folder: write the path of a file in the URL",
    PermissionError: "this user may not use it: give the right to it, or correct the URL",
    BlockingIOError: "another program writes to it now: it is tried again",
    ConnectionRefusedError: "nothing listens there: start it, or correct host and port",
    gaierror: "there is no such host: correct the URL",
    ssl.SSLError: "no encrypted connection (TLS): correct scheme and port, or let its certificate be trusted:",
}
_BLOCK_BYTES = 64 * 1024


class Exchange:
    """What is left of an exchange; a connection that is kept begins another one with each letter."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin anew."""
        self._budget, self.bytes_left = TimeBudget(SECONDS), MOST_BYTES

    @property
    def is_spent(self) -> bool:
        """Whether the time is used up, or too much was said."""
        return self._budget.is_spent or self.bytes_left < 0

    @property
    def seconds(self) -> float:
        """The seconds that are left; a TimeoutError if there are none."""
        if self._budget.is_spent:
            raise TimeoutError(f"it did not end within {SECONDS:g} s")
        return self._budget.left

    def open(self, line: socket) -> BufferedReader:
        """Return what the receiver says on a line, as long as this exchange allows it."""
        return BufferedReader(_Ear(line, self))


def has_more(line: socket) -> bool:
    """Return whether a receiver has said what nobody has asked for, or has ended the line."""
    asked = poll()
    asked.register(line, POLLIN)
    return bool(asked.poll(0))


class _Ear(RawIOBase):
    def __init__(self, line: socket, exchange: Exchange) -> None:
        self._line, self._exchange = line, exchange
        self._raw: Any = line.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        self._line.settimeout(self._exchange.seconds)
        count: int | None = self._raw.readinto(buffer)
        self._line.settimeout(SECONDS)
        self._exchange.bytes_left -= count or 0
        if self._exchange.bytes_left < 0:
            raise OSError(f"it says more than {MOST_BYTES:,} bytes")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class BoundedResponse(HTTPResponse):
    """The answer of a web server."""

    def __init__(self, exchange: Exchange, line: socket, **more: Any) -> None:
        super().__init__(line, **more)
        self.fp.close()
        self.fp = exchange.open(line)

    def _read_status(self) -> tuple[str, int, str]:
        version, status, reason = super()._read_status()  # type: ignore[misc]
        return version, CONTINUE if 102 <= status < 200 else status, reason  # the answer comes behind it


class BoundedMail(SMTP):
    """A dialogue with a mail server."""

    def __init__(self, exchange: Exchange, host: str, port: int, **more: Any) -> None:
        self._exchange = exchange
        super().__init__(host, port, timeout=exchange.seconds, **more)

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = self._exchange.open(self.sock)
        return super().getreply()


class BoundedSecureMail(BoundedMail, SMTP_SSL):
    """The same, encrypted from its beginning."""


def run_bounded(words: Sequence[str], document: bytes, environ: Mapping[str, str]) -> tuple[int | None, bytes]:
    """Run a command with a document on its standard input; return how it ended, and what it wrote to its standard
    error. After the deadline it is killed with all that it began, and has not ended.

    It has ended when it has ended itself: nothing waits for what it leaves behind. Its standard error is a pipe that is
    read afterwards, and so takes no more than the system keeps in one.
    """
    with TemporaryFile() as given:
        given.write(document)
        given.seek(0)
        process = subprocess.Popen(
            words,
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )
    with cast(IO[bytes], process.stderr) as said:
        os.set_blocking(said.fileno(), False)
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return code, said.read(_BLOCK_BYTES) or b""


def _away(where: str, error: Exception) -> Outcome:
    """Return that nobody answers: where, why, and what to do."""
    why = next((text for kind, text in _WHY.items() if isinstance(error, kind)), None)
    if why is None or isinstance(error, ssl.SSLError):
        why = f"{why or ''} {type(error).__name__}: {getattr(error, 'verify_message', error)}".strip()
    return Outcome(verdict=Verdict.AWAY, error=mask(f"{where}: {why}"))


def open_sender(receiver: Receiver, database: Database) -> Sender:
    """Return a sender for one thread. Lineage is read from the database.

    Raises:
        DeliveryError: the package for chats is missing, or it does not know the URL.
    """
    match receiver.channel:
        case Channel.EMAIL:
            return MailSender(receiver.address, receiver.mail)
        case Channel.WEBHOOK:
            return WebhookSender(receiver.address, receiver.secret)
        case Channel.CHAT:
            return ChatSender(receiver.name, receiver.address)
        case Channel.COMMAND:
            return CommandSender(receiver.address)
        case Channel.OPENLINEAGE:
            return LineageSender(receiver, database)
        case _:
            assert_never(receiver.channel)


def threads_of(receiver: Receiver) -> int:
    """Return how many entities' messages are sent at once on a receiver."""
    is_web = receiver.channel is Channel.WEBHOOK or receiver.address.startswith(f"{OPENLINEAGE}http")
    return WEBHOOK_THREADS if is_web else 1


class CommandSender(Sender):
    """Runs a command without a shell, one process for each letter, with the JSON document on its standard input. It has
    taken the letter if it ends with 0.
    """

    def __init__(self, address: str) -> None:
        self._words = shlex.split(address.removeprefix("command:"))

    def send(self, letter: Letter) -> Outcome:
        environ = {**os.environ, KEY_VARIABLE: letter.key}
        try:
            code, error = run_bounded(self._words, json.dumps(letter.document).encode(), environ)
        except OSError as exc:
            return _away(self._words[0], exc)
        if code == 0:
            return DELIVERED
        said = mask(" ".join(error[-20 * _MOST_SHOWN :].decode("utf-8", "replace").split()))[-_MOST_SHOWN:]
        end = f"it did not end within {SECONDS:g} s" if code is None else f"it ended with {code}"
        return Outcome(verdict=Verdict.FAILED, error=f"{end}: {said}".rstrip(": "))


class MailSender(Sender):
    """Sends to an address. What a repeat has in common with the first mail is its `Message-ID`."""

    def __init__(self, address: str, mail: MailSettings) -> None:
        self._to = address
        self._mail = mail
        self._exchange = Exchange()
        self._server: BoundedMail | None = None

    def send(self, letter: Letter) -> Outcome:
        self._exchange.begin()
        return self._send(self._compose(letter))

    def _send(self, message: EmailMessage) -> Outcome:
        was_open = self._server is not None
        try:
            if self._server is None:
                self._server = self._open()
            self._server.send_message(message, from_addr=self._mail.sender, to_addrs=[self._to])
        except smtplib.SMTPRecipientsRefused as exc:
            return self._judge(*exc.recipients[self._to])
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as exc:
            return self._judge(exc.smtp_code, exc.smtp_error)
        except (OSError, smtplib.SMTPException, ValueError) as exc:  # a ValueError: of words that cannot be coded
            self.close()
            if was_open and isinstance(exc, smtplib.SMTPServerDisconnected) and not self._exchange.is_spent:
                return self._send(message)
            return _away(f"the mail server {self._mail.host}:{self._mail.port}", exc)
        return DELIVERED

    def _judge(self, code: int, said: bytes | str) -> Outcome:
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        error = mask(f"the mail server answers {code} {text}")
        if code == _CLOSING:
            self.close()
            return Outcome(verdict=Verdict.AWAY, error=error)
        return Outcome(verdict=Verdict.REFUSED if code >= _FOR_EVER else Verdict.FAILED, error=error)

    def _open(self) -> BoundedMail:
        mail = self._mail
        if mail.security is MailSecurity.TLS:
            server: BoundedMail = BoundedSecureMail(self._exchange, mail.host, mail.port, context=self._trust())
        else:
            server = BoundedMail(self._exchange, mail.host, mail.port)
        try:
            if mail.security is MailSecurity.STARTTLS:
                server.starttls(context=self._trust())
            if mail.user is not None:
                _encode_secret(mail.password or "")
                _encode_secret(f"\0{mail.user}\0{mail.password or ''}")
                server.login(mail.user, mail.password or "")
        except BaseException:
            server.close()
            raise
        return server

    def _trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._mail.ca_file is not None:
            context.load_verify_locations(self._mail.ca_file)
        return context

    def _compose(self, letter: Letter) -> EmailMessage:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self._mail.sender, self._to, letter.subject
        message["Date"] = letter.message.recorded_at
        digest = hashlib.sha256(letter.key.encode()).hexdigest()[:32]
        message["Message-ID"] = f"<{digest}@feed-assets>"
        message[MAIL_KEY_HEADER] = letter.key
        message.set_content(letter.text)
        message.add_alternative(letter.html, subtype="html")
        return message

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


def _encode_secret(text: str) -> str:
    """Return a secret as it is sent, in base64; so it is hidden, too, should the receiver repeat it."""
    code = b64encode(text.encode()).decode()
    remember_unnamed(code.rstrip("="))
    return code


def sign(body: bytes, secret: str) -> str:
    """Return the signature of a body: `sha256=` and the HMAC-SHA256 in hexadecimal digits.

    >>> sign(b"{}", "s")[:15]
    'sha256=143ca8d5'
    """
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class WebhookSender(Sender):
    """Posts to a URL, over one connection as long as the receiver keeps it. No proxy is used, no redirect followed."""

    def __init__(self, url: str, secret: str | None) -> None:
        parts = urlsplit(url)
        self._parts = parts
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secret = secret
        self._exchange = Exchange()
        self._connection: HTTPConnection | None = None
        self._headers = {"Content-Type": "application/json", "User-Agent": "feed-assets"}
        remember_credentials(dict(parse_qsl(parts.query)))
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
            remember_unnamed(password or (user if len(user) >= _SHORTEST_TOKEN else ""))
            self._headers["Authorization"] = f"Basic {_encode_secret(f'{user}:{password}')}"

    def send(self, letter: Letter) -> Outcome:
        body = json.dumps(letter.document, separators=(",", ":")).encode()
        headers = {KEY_HEADER: letter.key, TOPIC_HEADER: letter.message.topic.value}
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = sign(body, self._secret)
        return self.post(body, headers)

    def post(self, body: bytes, headers: Mapping[str, str]) -> Outcome:
        """Post a document."""
        self._exchange.begin()
        return self._send(body, {**self._headers, **headers})

    def _send(self, body: bytes, headers: dict[str, str]) -> Outcome:
        was_open = self._connection is not None
        try:
            status, reason = self._post(body, headers)
        except (OSError, HTTPException) as exc:
            self.close()
            if was_open and not self._exchange.is_spent:  # the receiver has ended an idle connection
                return self._send(body, headers)
            return _away(self._parts.netloc.rpartition("@")[2], exc)
        return _judge(status, reason)

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        if self._connection is not None and self._connection.sock is not None and has_more(self._connection.sock):
            self.close()
        if self._connection is None:
            self._connection = self._open()
        self._connection.request("POST", self._target, body, headers)
        response = self._connection.getresponse()
        shown = b""
        try:
            shown = response.read(_MOST_SHOWN)
            shown += response.read()
        except (OSError, HTTPException, ValueError):  # the status is the answer, whatever follows it
            self.close()
        said = mask(" ".join(shown.decode("utf-8", "replace").split()))[:_MOST_SHOWN]  # not cut within a secret
        return response.status, f"{response.reason} {said}".rstrip()

    def _open(self) -> HTTPConnection:
        host, port, seconds = self._parts.hostname or "", self._parts.port, self._exchange.seconds
        if self._parts.scheme == "https":
            found: HTTPConnection = HTTPSConnection(host, port, timeout=seconds, context=ssl.create_default_context())
        else:
            found = HTTPConnection(host, port, timeout=seconds)
        found.response_class = cast(type[HTTPResponse], partial(BoundedResponse, self._exchange))
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _judge(status: int, reason: str) -> Outcome:
    if 200 <= status < 300:
        return DELIVERED
    error = mask(f"it answers {status} {reason}".rstrip())
    if 300 <= status < 400:
        error = f"{error}: it has moved, and no redirect is followed; correct its URL"
        return Outcome(verdict=Verdict.AWAY, error=error)
    if status in _BUSY:
        return Outcome(verdict=Verdict.AWAY, error=error)
    if status in _AGAIN or status >= 500:
        return Outcome(verdict=Verdict.FAILED, error=error)
    return Outcome(verdict=Verdict.REFUSED, error=error)


class ChatSender(Sender):
    """Posts the text of letters, with their keys. Why apprise could not post is what it logs. It works in a process of
    its own, since it reads all that a receiver answers, however long that takes.

    Raises:
        ReceiverError: apprise is not installed, or does not know the scheme, or the URL lacks something.
    """

    def __init__(self, name: str, url: str) -> None:
        try:
            import apprise
        except ImportError as exc:
            reason, next_step = "the package apprise is not installed", "Install it: pip install 'feed-assets[chat]'"
            raise ReceiverError(name=name, reason=reason, next_step=next_step) from exc
        self._url = url
        if not apprise.Apprise().add(url):
            scheme = url.partition("://")[0]
            raise ReceiverError(
                name=name,
                reason=f"apprise knows no such URL with the scheme {scheme!r}",
                next_step="Correct the URL; https://github.com/caronc/apprise/wiki lists them.",
            )

    def send(self, letter: Letter) -> Outcome:
        given = {
            "url": self._url,
            "title": letter.subject,
            "body": f"{letter.text}\nkey: {letter.key}",
            "notify_type": _TYPES[letter.message.level],
        }
        code, error = run_bounded([sys.executable, "-c", _POST], json.dumps(given).encode(), os.environ)
        if code == 0:
            return DELIVERED
        said = " ".join(error.decode("utf-8", "replace").split())
        reason = said if code is not None else f"it did not end within {SECONDS:g} s"
        return Outcome(verdict=Verdict.FAILED, error=mask(f"apprise could not post: {reason}")[:400])


class LineageSender(Sender):
    """Composes an event of OpenLineage when a letter is sent, and posts it, or appends it to a file.

    Differs from OpenLineage's own client: that takes as long as a receiver drips, sends again by itself, asks the
    environment for proxies, and may leave half a line behind.
    """

    def __init__(self, receiver: Receiver, database: Database) -> None:
        address = receiver.address.removeprefix(OPENLINEAGE)
        assert receiver.plan is not None
        self._database = database
        self._events = partial(LineageEvents, plan=receiver.plan, namespace=receiver.namespace)
        self._file = address.removeprefix(FILE) if address.startswith(FILE) else None
        self._web = WebhookSender(address, None)
        self._key = {} if receiver.secret is None else {"Authorization": f"Bearer {receiver.secret}"}

    def send(self, letter: Letter) -> Outcome:
        with self._database.read() as connection:
            event = self._events(connection).compose(letter.message)
        body = json.dumps(event, sort_keys=True, separators=(",", ":")).encode()
        if self._file is None:
            return self._web.post(body, {KEY_HEADER: letter.key, **self._key})
        try:
            append_line(self._file, body)
        except OSError as exc:
            return _away(self._file, exc)
        return DELIVERED

    def close(self) -> None:
        self._web.close()


def append_line(path: str, line: bytes) -> None:
    """Append an event to a file, down to the disk. What follows the last newline is removed before: a kill, or a full
    disk, has left it of another one.

    Raises:
        OSError: this is no file of events, it cannot be written, or somebody else writes to it now.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK  # a pipe that nobody reads would hold us up
    with closing(os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no file")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.pread(file.fileno(), 1, 0) not in (b"", b"{"):
            raise OSError("it has something else than events: write another URL")
        end, whole = found.st_size, 0
        while end and not whole:
            begin = max(0, end - _BLOCK_BYTES)
            whole = os.pread(file.fileno(), end - begin, begin).rfind(b"\n") + 1
            end = begin + whole
        os.ftruncate(file.fileno(), end)
        left = memoryview(line + b"\n")
        while left:
            left = left[os.write(file.fileno(), left) :]
        os.fdatasync(file.fileno())
        if not found.st_size:  # the name of a new file is on the disk only with its folder
            folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
