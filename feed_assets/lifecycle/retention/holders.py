"""Who works on a sweep: a name for this process that says, on the same machine, whether it is still alive."""

import os
import secrets
import socket
from pathlib import Path


def name_holder() -> str:
    """A name for one run of one worker in this process, of its host, its number and when it began.

    >>> is_dead(name_holder())
    False
    """
    process = os.getpid()
    return f"{socket.gethostname()}/{process}/{_begun(process) or 0}/{secrets.token_hex(3)}"


def is_dead(holder: str) -> bool:
    """Whether a holder was a process of this machine that has ended; False where that cannot be said.

    >>> is_dead("elsewhere/1/0/abcdef"), is_dead("a run of Dagster")
    (False, False)
    """
    host, *rest = holder.split("/")
    if host != socket.gethostname() or len(rest) != 3 or not (rest[0].isdigit() and rest[1].isdigit()):
        return False
    return Path("/proc/self").exists() and _begun(int(rest[0])) != int(rest[1])


def _begun(process: int) -> int | None:
    """When a process began, in ticks since the machine did; None if there is none of this number."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
