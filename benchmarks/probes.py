"""Measuring in fresh processes: a probe is a module of this package that prints one JSON object as its last line."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
console = Console(stderr=True)


class ProbeError(Exception):
    """A probe that ended without a result."""


def run_probe(module: str, *arguments: object, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run `python -m benchmarks.<module>` and return what it measured.

    Raises:
        ProbeError: it failed; the end of what it wrote is in the message.
    """
    command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **(environ or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ProbeError(f"{module} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def say(text: str) -> None:
    """Progress, on stderr."""
    console.print(text, highlight=False, soft_wrap=True)
