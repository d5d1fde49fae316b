"""Name the workers of sweeps, so that a process on the same machine can tell whether a worker is still alive."""

import os
import secrets
import socket
from pathlib import Path


def name_holder() -> str:
    """Return a name for one run of one worker in this process: host, process id, start time and a random part.

    >>> is_dead(name_holder())
    False
    """
    process = os.getpid()
    return f"{socket.gethostname()}/{process}/{_find_start_time(process) or 0}/{secrets.token_hex(3)}"


def is_dead(holder: str) -> bool:
    """Return whether a holder was a process of this machine that has ended; False if that is unknown.

    >>> is_dead("elsewhere/1/0/abcdef"), is_dead("a run of Dagster")
    (False, False)
    """
    host, *rest = holder.split("/")
    if host != socket.gethostname() or len(rest) != 3 or not (rest[0].isdigit() and rest[1].isdigit()):
        return False
    return Path("/proc/self").exists() and _find_start_time(int(rest[0])) != int(rest[1])


def _find_start_time(process: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if there is no process with this id."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
