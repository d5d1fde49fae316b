"""Name what works on instances: Dagster runs by their ids, and by names of their own what is no run: commands, programs
elsewhere, and workers of sweeps, of which a process on the same machine can tell whether they are still alive.
"""

import hashlib
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


COMMAND = "repair:"
"""The prefix of the names of commands that work on instances; no run id has it."""
ELSEWHERE = "batch:"
"""The prefix of the names of programs elsewhere that have taken a batch; no run id has it."""

_RUN = "run:"


def name_repair(author: str) -> str:
    """Return a name for one repair by this process.

    >>> name_repair("ann").startswith("repair:ann:")
    True
    """
    return f"{COMMAND}{author}:{name_holder()}"


def name_elsewhere(author: str, key: str | None = None) -> str:
    """Return a name for one attempt of somebody's program elsewhere; of a key of theirs it is always the same one.

    >>> name_elsewhere("ann").startswith("batch:ann:")
    True
    >>> name_elsewhere("ann", "k-1")
    'batch:ann:7c35c5a1785d20704e44d5de4beb81c1'
    """
    digest = None if key is None else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{ELSEWHERE}{author}:{digest or secrets.token_hex(4)}"


def is_elsewhere(run_id: str) -> bool:
    """Return whether this is the name of a program elsewhere.

    >>> is_elsewhere(name_elsewhere("ann")), is_elsewhere(name_repair("ann"))
    (True, False)
    """
    return run_id.startswith(ELSEWHERE)


def is_command(run_id: str) -> bool:
    """Return whether this is the name of a command or of a program elsewhere, which Dagster does not know.

    >>> is_command(name_repair("ann")), is_command("4a1c9bd2-7f5e-4d0c-8a27-d1c0c5a0e1f2")
    (True, False)
    """
    return run_id.startswith((COMMAND, ELSEWHERE))


def is_dead_command(run_id: str) -> bool:
    """Return whether a command was a process of this machine that has ended; False if that is unknown.

    >>> is_dead_command(name_repair("ann")), is_dead_command("4a1c9bd2-7f5e-4d0c-8a27-d1c0c5a0e1f2")
    (False, False)
    """
    return is_command(run_id) and is_dead(run_id.rpartition(":")[2])


def origin_of(run_id: str) -> str:
    """Return the origin of an event.

    >>> origin_of("repair:ann:1f"), origin_of("4a1c")
    ('repair:ann:1f', 'run:4a1c')
    """
    return run_id if is_command(run_id) else f"{_RUN}{run_id}"


def find_run(origin: str) -> str | None:
    """Return the run that an origin names; None if it names something else.

    >>> find_run("run:4a1c"), find_run("repair:ann:1f")
    ('4a1c', None)
    """
    return origin.removeprefix(_RUN) if origin.startswith(_RUN) else None


def describe_run(run_id: str | None) -> str:
    """Describe the worker in a phrase.

    >>> describe_run("repair:ann:1f"), describe_run("batch:ann:1f"), describe_run("4a1c")
    ('a repair by ann', 'work elsewhere by ann', 'run 4a1c')
    """
    if run_id is None or not is_command(run_id):
        return f"run {run_id}"
    if is_elsewhere(run_id):
        return f"work elsewhere by {run_id.removeprefix(ELSEWHERE).rpartition(':')[0]}"
    return f"a repair by {run_id.removeprefix(COMMAND).rpartition(':')[0]}"
