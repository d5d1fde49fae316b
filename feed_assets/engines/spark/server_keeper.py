"""Keep a Spark Connect server as long as somebody uses it: a program of its own, started by `local_servers.py`.

It outlives its starter, because it belongs to all users of a folder. Whoever uses the server holds a shared lock on the
folder's `users`, which the system releases when the process ends, however it ends. Without a user for a while, the
keeper ends the server and itself. While it lives it holds the lock on `alive`, so `address` is valid exactly as long as
that lock is held.

The server's machine reads from a pipe that only the keeper holds: it ends by itself when the keeper is killed.
"""

import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, NoReturn

from feed_assets.engines.failures import render_cause
from feed_assets.engines.spark.sessions import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALIVE, USERS, START, ADDRESS, LOG = "alive", "users", "start", "address", "server.log"
READY = "ready"
HOST = "localhost"
"""The only host to which pyspark sends a token without TLS."""
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_POLL_SECONDS = 0.5
_ENDS_WITHIN = 10.0
_WORKER_SECONDS = 30.0
_START_SECONDS = 120.0


def try_lock(file: IO[str], *, shared: bool = False) -> bool:
    """Lock a file, unless another process holds it; return whether it is locked."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def main(folder: Path, start_lock: int) -> None:
    """Start the server that is described on standard input, answer on standard output, and keep the server.

    `start_lock` is the starter's lock on `start`; it is held until the server is ready.
    """
    request = json.load(sys.stdin)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with (folder / ALIVE).open("a") as alive, (folder / USERS).open("a") as users:
        limit = threading.Timer(_START_SECONDS, _give_up, (f"it did not start within {_START_SECONDS:.0f} seconds",))
        limit.start()
        fcntl.flock(alive, fcntl.LOCK_EX)  # free, but for those who just look whether it is
        alive.truncate(0)
        print(os.getpid(), file=alive, flush=True)
        server = _start(folder, request["conf"])
        limit.cancel()
        try:
            print(READY, flush=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            os.close(start_lock)
            _wait_until_unused(server, users, request["idle_seconds"])
        finally:
            (folder / ADDRESS).unlink(missing_ok=True)
            _end(server)


def _start(folder: Path, conf: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    """Start the server, write its address, and return its process. If that fails, say why and end.

    Its Python workers import from the working directory: of a client, they get no environment.
    """
    token = os.environ[TOKEN] = secrets.token_urlsafe(32)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    try:
        session = start_session(conf)
        port = _port_of(session)
    except Exception as exc:  # noqa: BLE001 - whatever it is, the starter reports it
        _give_up(render_cause(exc))
    new = folder / f"{ADDRESS}.new"
    new.touch(mode=0o600)
    new.write_text(f"sc://{HOST}:{port}/;token={token}")
    new.rename(folder / ADDRESS)
    gateway = session.sparkContext._gateway
    assert gateway is not None
    process: subprocess.Popen[bytes] = gateway.proc
    return process


def _port_of(session: "SparkSession") -> int:
    """Return the free port that the server has chosen, as pyspark's own client finds it."""
    service = getattr(session._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())


def _wait_until_unused(server: "subprocess.Popen[bytes]", users: IO[str], idle_seconds: float) -> None:
    """Return when the server has ended, or has had no user for a while; then `users` is locked, so none can come."""
    unused_since: float | None = None
    idle: set[int] = set()
    looked_at = monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            server.wait(_POLL_SECONDS)
            return
        if monotonic() - looked_at >= _WORKER_SECONDS:
            idle, looked_at = _end_idle_daemons(server.pid, idle), monotonic()
        if not try_lock(users):
            unused_since = None
            continue
        unused_since = unused_since or monotonic()
        if monotonic() - unused_since >= idle_seconds:
            return
        fcntl.flock(users, fcntl.LOCK_UN)


def _end_idle_daemons(server: int, idle_before: set[int]) -> set[int]:
    """End the daemons of Python workers that have had no worker twice in a row, and return those that have none now.

    Spark starts a daemon for each session, ends idle workers after a minute, but keeps the daemons of closed sessions.
    One that it needs after all is started again. Without /proc, none is found.
    """
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    childless = {pid for pid, parent in parents.items() if parent == server} - set(parents.values())
    for pid in childless & idle_before:
        with suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGTERM)
    return childless


def _end(server: "subprocess.Popen[bytes]") -> NoReturn:
    """End the server, and then this process and whatever else is in its group."""
    assert server.stdin is not None
    server.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        server.wait(_ENDS_WITHIN)
    _kill_group()


def _give_up(reason: str) -> NoReturn:
    print(reason, flush=True)
    _kill_group()


def _kill_group() -> NoReturn:
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("this process is in the group")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
