"""Send letters to a program by HTTP: JSON, signed, with the key that makes repeats recognisable."""

import hashlib
import hmac
import json
import ssl
from base64 import b64encode
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import cast
from urllib.parse import unquote, urlsplit

from feed_assets.alerts.delivery.exchange import BoundedResponse, Exchange, has_more
from feed_assets.alerts.delivery.port import DELIVERED, Letter, Outcome, Sender, Verdict
from feed_assets.masking import mask

KEY_HEADER = "Idempotency-Key"
TOPIC_HEADER = "X-Feed-Assets-Topic"
SIGNATURE_HEADER = "X-Feed-Assets-Signature"

_BUSY = frozenset({429, 502, 503, 504})
_AGAIN = frozenset({408})
_MOST_SHOWN = 200


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
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(user.encode()).decode()}"

    def send(self, letter: Letter) -> Outcome:
        body = json.dumps(letter.document, separators=(",", ":")).encode()
        headers = {**self._headers, KEY_HEADER: letter.key, TOPIC_HEADER: letter.message.topic.value}
        if self._secret is not None:
            headers[SIGNATURE_HEADER] = sign(body, self._secret)
        self._exchange.begin()
        return self._send(body, headers)

    def _send(self, body: bytes, headers: dict[str, str]) -> Outcome:
        was_open = self._connection is not None
        try:
            status, reason = self._post(body, headers)
        except (OSError, HTTPException) as exc:
            self.close()
            if was_open and not self._exchange.is_spent:  # the receiver has ended an idle connection
                return self._send(body, headers)
            return Outcome(verdict=Verdict.AWAY, error=mask(f"{type(exc).__name__}: {exc}"))
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
            response.read()
        except (OSError, HTTPException, ValueError):  # the status is the answer, whatever follows it
            self.close()
        return response.status, " ".join(f"{response.reason} {shown.decode('utf-8', 'replace')}".split())

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
