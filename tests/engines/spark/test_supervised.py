import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from feed_assets.engines.spark import supervised
from feed_assets.engines.spark.supervised import SupervisedProcess

GRANDCHILD = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
TELLS_PID = GRANDCHILD + "print(p.pid, flush=True); p.wait()"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(0, flush=True); time.sleep(60)"
STARTER = """
import os, sys, time
from pathlib import Path
from feed_assets.engines.spark.supervised import SupervisedProcess
process = SupervisedProcess([sys.executable, "-c", sys.argv[1]], env=os.environ, cwd=Path("."), output=None)
print(process.lines.readline().decode(), end="", flush=True)
time.sleep(60)
"""


def start(code: str) -> SupervisedProcess:
    return SupervisedProcess([sys.executable, "-c", code], env=os.environ, cwd=Path.cwd(), output=None)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent (a zombie) does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    until = monotonic() + seconds
    while monotonic() < until:
        if condition():
            return True
        sleep(0.05)
    return condition()


def test_output_and_exit_code_come_through() -> None:
    with start("import sys; print('one'); sys.stderr.write('two'); sys.exit(3)") as process:
        lines = sorted(process.lines.read().split())
        assert (lines, process.wait()) == ([b"one", b"two"], 3)


def test_a_program_ended_by_a_signal_is_reported_as_a_shell_does() -> None:
    with start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)") as process:
        assert process.wait() == 128 + signal.SIGKILL


def test_leaving_the_block_ends_the_program_and_its_children() -> None:
    with start(TELLS_PID) as process:
        grandchild = int(process.lines.readline())
        assert alive(grandchild)
    assert process.poll() is not None
    assert within(5, lambda: not alive(grandchild))


def test_a_stubborn_program_is_ended_by_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "_GRACE_SECONDS", -4.5)
    with start(STUBBORN) as process:
        process.lines.readline()
    assert process.poll() is not None


def test_when_the_starter_is_killed_the_group_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER, TELLS_PID], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        grandchild = int(starter.stdout.readline())
        assert alive(grandchild)
        starter.kill()
    assert within(15, lambda: not alive(grandchild))
