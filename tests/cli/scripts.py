"""Shell scripts that call `feed-assets`: a real shell runs them, and the commands run in this process."""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import Result

from tests.cli.project import run

_PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" > {folder}/call
code=$(cat {folder}/answer)
cat {folder}/out
cat {folder}/err >&2
exit $code
"""
_OVER = "over"


def run_script(script: str, folder: Path, give: Callable[..., Result] = run) -> subprocess.CompletedProcess[str]:
    """Run a script with `sh` in the working directory; `give` gives its commands. Their words have no line breaks."""
    with _commands(folder, give) as path:
        return subprocess.run(
            ["sh"], input=script, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )


@contextmanager
def _commands(folder: Path, give: Callable[..., Result]) -> Iterator[str]:
    """Serve the program `feed-assets`, which is found by the yielded PATH."""
    folder.mkdir()
    program = folder / "feed-assets"
    program.write_text(_PROGRAM.format(folder=folder))
    program.chmod(0o755)
    for name in ("call", "answer"):
        os.mkfifo(folder / name)

    def serve() -> None:
        while (words := (folder / "call").read_text().splitlines()) != [_OVER]:
            done = give(*words)
            (folder / "out").write_text(done.stdout)
            (folder / "err").write_text(done.stderr)
            (folder / "answer").write_text(str(done.exit_code))

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield f"{folder}:{os.environ['PATH']}"
    finally:
        (folder / "call").write_text(f"{_OVER}\n")
        server.join()
