"""Measurements in fresh processes: a probe is a module of this package whose last output line is a JSON object."""

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
    """A probe ended without a result."""


def run_probe(module: str, *arguments: object, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run `python -m benchmarks.<module>` and return its measurements.

    Raises:
        ProbeError: the probe failed; the message has the end of its output.
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
    """Print progress on stderr."""
    console.print(text, highlight=False, soft_wrap=True)
