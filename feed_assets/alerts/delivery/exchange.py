"""What one exchange with a receiver may cost, however it answers: one deadline for all of it, and a few KiB."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from http.client import CONTINUE, HTTPResponse
from io import BufferedReader, RawIOBase
from select import POLLIN, poll
from smtplib import SMTP, SMTP_SSL
from socket import socket
from tempfile import TemporaryFile
from typing import IO, Any, cast

from feed_assets.clock import TimeBudget

SECONDS = 10.0
"""How long a receiver may take for an exchange."""
MOST_BYTES = 32 * 1024
"""How many bytes of what it says are read."""

_PIPE_BYTES = 64 * 1024


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
        return code, said.read(_PIPE_BYTES) or b""
