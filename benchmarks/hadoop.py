"""Hadoop by one-file Java programs, which measure themselves inside Java."""

import shutil
import subprocess
from pathlib import Path

from benchmarks.probes import ProbeError
from feed_assets.engines.spark.sessions import spark_home

FOLDER = Path(__file__).parent


def run_hadoop(program: str, *arguments: str, expected: int) -> float:
    """Run a program `<program>.java` of this folder, which prints a count and nanoseconds; return the seconds.

    Raises:
        ProbeError: the program failed, its count differs from the expected one, or there is no JDK.
    """
    if shutil.which("javac") is None:
        raise ProbeError("Hadoop is measured by a program of one file: a JDK is needed, not only a Java runtime")
    source = str(FOLDER / f"{program}.java")
    command = ["java", "-Dlog4j2.level=OFF", "-cp", f"{spark_home()}/jars/*", source, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProbeError(f"{program} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    said = done.stdout.split()
    if int(said[-2]) != expected:
        raise ProbeError(f"{program} has counted {said[-2]} instead of {expected}")
    return int(said[-1]) / 1e9
