"""Run programs in a process group of their own that ends with the process that started it, even if that is killed.

The program runs below a small supervisor (this file as a script, standard library only) that reads from a pipe. Only
the starter holds the other end. When the pipe closes, by intent or because the starter was killed, the supervisor ends
the group.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import IO

_GRACE_SECONDS = 10.0


class SupervisedProcess(AbstractContextManager["SupervisedProcess", None]):
    """A running program and all processes it starts. As a context manager, it ends the program on exit.

    Standard output and error go, together, to `output`, or to the pipe `lines` if `output` is None.
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

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The id of the process and of its process group."""
        return self._process.pid

    @property
    def lines(self) -> IO[bytes]:
        assert self._process.stdout is not None, "the output goes to a file"
        return self._process.stdout

    def poll(self) -> int | None:
        """Return the exit code as a shell reports it (128 + n for signal n), or None while the program runs."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        return self._process.wait(timeout)

    def stop(self) -> None:
        """End the group: SIGTERM first, SIGKILL after ten seconds. Has no effect if it has already ended."""
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
    """Run a command in this process's group, and return its exit code, 128 + n for signal n.

    When standard input closes or a SIGTERM arrives, the whole group gets a SIGTERM. A SIGKILL follows as soon as the
    command has ended, or after ten seconds. When the command ends by itself, the rest of its group gets a SIGTERM.
    """
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: _end_group(ending))
    signal.signal(signal.SIGINT, _leave_to_the_command)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_end_when_input_closes, args=(ending,), daemon=True).start()
    code = child.wait()
    if ending.is_set():
        os.killpg(0, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    return code if code >= 0 else 128 - code


def _end_group(ending: threading.Event) -> None:
    if ending.is_set():
        return
    ending.set()
    timer = threading.Timer(_GRACE_SECONDS, os.killpg, (0, signal.SIGKILL))
    timer.daemon = True
    timer.start()
    os.killpg(0, signal.SIGTERM)


def _end_when_input_closes(ending: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    _end_group(ending)


def _leave_to_the_command(_number: int, _frame: FrameType | None) -> None:
    """Ignore a SIGINT: the command is in the group and receives it too; the supervisor waits for its end."""


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))
