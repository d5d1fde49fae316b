"""Other programs in a process group of their own, which ends with whoever started it, however that one ends.

The program runs below a small supervisor (this file as a script, standard library only) that reads from a pipe whose
other end only the starter holds. When the pipe closes, by intent or because the starter was killed, it ends the group.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO

_GRACE_SECONDS = 10.0


class SupervisedProcess:
    """A running program and everything it starts. As a context manager it is ended on the way out.

    Standard output and error go, together, to `output`, or to the pipe `lines` when that is None.
    """

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path, output: IO[bytes] | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).resolve()), *command],
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if output is None else output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> "SupervisedProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Also the id of the process group."""
        return self._process.pid

    @property
    def lines(self) -> IO[bytes]:
        assert self._process.stdout is not None, "the output goes to a file"
        return self._process.stdout

    def poll(self) -> int | None:
        """The exit code as a shell reports it (128 + n for signal n), or None while the program runs."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        return self._process.wait(timeout)

    def stop(self) -> None:
        """End the group: politely, and after ten seconds by force. Nothing happens when it has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_GRACE_SECONDS + 5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def supervise(command: Sequence[str]) -> int:
    """Run a command in this process's group until it ends or standard input closes or a SIGTERM comes."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    end = _ending(child)
    signal.signal(signal.SIGTERM, lambda _number, _frame: end())
    threading.Thread(target=_when_input_closes, args=(end,), daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _ending(child: "subprocess.Popen[bytes]") -> Callable[[], None]:
    def end() -> None:
        child.terminate()
        timer = threading.Timer(_GRACE_SECONDS, os.killpg, (os.getpgrp(), signal.SIGKILL))
        timer.daemon = True
        timer.start()

    return end


def _when_input_closes(end: Callable[[], None]) -> None:
    while os.read(0, 4096):
        pass
    end()


def _stay_on_group_signals(_number: int, _frame: FrameType | None) -> None:
    """A SIGINT for the whole group reaches the program by itself; the supervisor waits for its end."""


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _stay_on_group_signals)
    sys.exit(supervise(sys.argv[1:]))
