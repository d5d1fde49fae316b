"""The real `dagster dev` for tests: its processes by what they do, killed one by one and started again when need be.

Each start is a process group of its own, known by its id; what an earlier one has left (a worker, say) still counts.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.orchestration.dagster_home import Home, end_group, wait_until
from tests.servers import free_port

PATIENCE_SECONDS = 15.0
SELF_HEALING_SECONDS = 25.0
"""`dagster dev` starts a code server again that has gone; what it has not mended by then, it will not mend."""
DAEMON_HEALING_SECONDS = 5.0
"""The daemon alone would do so once a minute."""


class Role(StrEnum):
    """What a process below `dagster dev` does."""

    MAIN = "main"
    DAEMON = "daemon"
    CODE_SERVER = "code server"
    WEBSERVER = "webserver"
    WORKER = "run worker"


_SIGNS = {
    "dagster dev": Role.MAIN,
    "dagster._daemon run": Role.DAEMON,
    "dagster code-server start": Role.CODE_SERVER,
    "dagster api grpc": Role.CODE_SERVER,
    "dagster_webserver": Role.WEBSERVER,
    "multiprocessing.spawn import spawn_main": Role.WORKER,
}
"""Such as `python -m dagster._daemon run --log-level info`."""


@dataclass(slots=True)
class DevServer:
    """`dagster dev` over a home; with `is_bare` only its daemon and code server. `started` counts how often it was."""

    home: Home
    is_bare: bool = False
    started: int = 0
    _lacking_since: float | None = None
    _groups: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start it; returns at once."""
        dev = ("dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(free_port()))
        bare = ("dagster._daemon", "run", "-w", "workspace.yaml")
        process = self.home.start(*(bare if self.is_bare else dev))
        self._groups.append(process)
        self._lacking_since = None
        self.started += 1

    def processes(self) -> dict[Role, list[int]]:
        """The ids of the processes that live, by role; those of the newest start and what older ones have left."""
        found: dict[Role, list[int]] = {role: [] for role in Role}
        groups = {process.pid for process in self._groups}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            with suppress(OSError):
                state, _, group, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                if state != "Z" and int(group) in groups:
                    line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    for sign, role in _SIGNS.items():
                        if sign in line:
                            found[role].append(int(folder.name))
        return found

    def kill(self, worker: int) -> bool:
        """SIGKILL for one process; whether it still was there."""
        try:
            os.kill(worker, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def kill_all(self) -> None:
        """What a machine does that loses its power."""
        for process in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._groups[-1].wait(PATIENCE_SECONDS)

    def is_up(self) -> bool:
        """Whether all services live; below `dagster dev`, a code server is two processes, one before the other."""
        alive = self.processes()
        if self.is_bare:
            return bool(alive[Role.DAEMON] and alive[Role.CODE_SERVER])
        return len(alive[Role.CODE_SERVER]) >= 2 and bool(alive[Role.DAEMON] and alive[Role.WEBSERVER])

    def revive(self) -> bool:
        """Do what somebody does who looks after it: start it again when it has ended or has lost a service. Workers
        are left alone. Returns whether it was started again.
        """
        is_running = self._groups[-1].poll() is None
        if is_running and self.is_up():
            self._lacking_since = None
            return False
        self._lacking_since = self._lacking_since or time.monotonic()
        patience = DAEMON_HEALING_SECONDS if self.is_bare else SELF_HEALING_SECONDS
        if is_running and time.monotonic() < self._lacking_since + patience:
            return False
        if is_running:
            self._groups[-1].terminate()
            with suppress(subprocess.TimeoutExpired):
                self._groups[-1].wait(PATIENCE_SECONDS)
        for role, pids in self.processes().items():
            if role is not Role.WORKER:
                for pid in pids:
                    self.kill(pid)
        self._groups[-1].wait(PATIENCE_SECONDS)
        self.start()
        return True

    def wait_until_up(self) -> None:
        """Until all services live."""

        def is_up() -> bool:
            assert self._groups[-1].poll() is None, self._end_of_log()
            return self.is_up()

        wait_until(is_up, self._end_of_log)

    def _end_of_log(self) -> str:
        return self.home.log()[-5000:]

    def end(self) -> None:
        """End all groups."""
        for process in reversed(self._groups):
            end_group(process)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def dev_server(home: Home, *, is_bare: bool = False) -> Iterator[DevServer]:
    """`dagster dev`, or only daemon and code server, ended with everything that it has started."""
    server = DevServer(home=home, is_bare=is_bare)
    server.start()
    try:
        server.wait_until_up()
        yield server
    finally:
        server.end()
