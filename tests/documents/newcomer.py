"""A newcomer: an environment with nothing but the installed package, a project, and the commands of the documents."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.orchestration.dagster_home import ROOT, end_group, wait_until
from tests.servers import free_port

_GREEN = """
query ($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) {... on Asset {assetMaterializations(limit: 100) {partition}}}
}
"""


def build_wheel(folder: Path) -> Path:
    """Build the wheel, as `make dist` does in a clone; it lies in a folder `dist`."""
    source = folder / "source"
    shutil.copytree(ROOT / "feed_assets", source / "feed_assets", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "Makefile", "constraints.txt"):
        shutil.copy(ROOT / name, source)
    made = ["make", "-s", "dist", f"VENV={sys.prefix}", f"--old-file={sys.prefix}/.runs"]
    subprocess.run(made, cwd=source, check=True)
    shutil.move(source / "dist", folder / "dist")
    shutil.rmtree(source)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def install(folder: Path, extras: str = "") -> Path:
    """Build the wheel and install it into a new virtual environment; returns the folder of its programs."""
    wheel = build_wheel(folder)
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    person = Newcomer(folder=folder, programs=programs)
    constraints = str(folder / "dist/constraints.txt")
    person.run("pip", "install", "--quiet", "--constraint", constraints, f"{wheel}{extras}", "pytest")
    return programs


@dataclass(frozen=True, kw_only=True)
class Newcomer:
    """Somebody in a folder, whose programs are those of a virtual environment."""

    folder: Path
    programs: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The environment without what the tests have set for themselves."""
        ours = ("DAGSTER", "FEED_ASSETS", "PYTHON", "VIRTUAL_ENV", "AWS_", "PYTEST", "SPARK", "PYSPARK")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**kept, "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}", **self.variables}

    def run(self, *words: str) -> str:
        """Run a command to its end; returns what it says."""
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, f"$ {' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    @contextmanager
    def dagster_dev(self) -> Iterator["Webserver"]:
        """`dagster dev` on a free port, in a group of processes that ends with the block."""
        port = free_port()
        log = self.folder / "dev.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                ["dagster", "dev", "-p", str(port)],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield Webserver(port=port, log=log, begun=time.monotonic())
        finally:
            end_group(process)


@dataclass(frozen=True, kw_only=True)
class Webserver:
    """What Dagster's pages show, asked as the pages ask."""

    port: int
    log: Path
    begun: float

    def green(self, *key: str) -> set[str]:
        """The partitions of an asset that are materialized; none while nobody answers."""
        question = json.dumps({"query": _GREEN, "variables": {"key": {"path": key}}}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/graphql", question, {"Content-Type": "application/json"}
        )
        with suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
            found = json.load(answer)["data"]["assetOrError"].get("assetMaterializations", [])
            return {each["partition"] for each in found}
        return set()

    def wait_for(self, key: str, *partitions: str) -> float:
        """Wait until partitions of an asset, such as `primary/orders`, are green; returns the seconds since the
        start."""
        wait_until(
            lambda: set(partitions) <= self.green(*key.split("/")), lambda: self.log.read_text(errors="replace")[-9000:]
        )
        return time.monotonic() - self.begun
