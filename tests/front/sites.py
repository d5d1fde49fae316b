"""A front and the servers of two colos, east and west, as processes on this machine."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from click.testing import Result

from feed_assets.log.definitions.store import Definitions
from feed_assets.operation import Does
from feed_assets.server.identity.tokens import create_token
from feed_assets.sql.database import open_database
from tests.cli.project import run
from tests.databases import open_migrated

COLOS = ("east", "west")
GUARDED = {
    "authorization": "acl",
    "access": {"superusers": ["ann"]},
    "server": {"proxy_users": {"front": {"hosts": ["127.0.0.1"], "users": ["*"]}}},
}
"""Settings with which entities say who may what, and the front asks sites on behalf of others."""
_HOURLY = "${YEAR}/${MONTH}/${DAY}/${HOUR}"


def cluster(name: str, colo: str, root: Path) -> dict[str, Any]:
    """A cluster in a colo, with its data in a folder."""
    return {"kind": "cluster", "name": name, "colo": colo, "storage": f"file://{root}/{name}"}


def feed(name: str, *clusters: str, **fields: Any) -> dict[str, Any]:
    """An hourly feed on clusters; a second one, if any, gets copies of the first."""
    entries = {
        each: {"type": "target" if place else "source", "validity": {"start": "2026-01-01T00:00Z"}}
        for place, each in enumerate(clusters)
    }
    common = {"kind": "feed", "name": name, "frequency": "hours(1)", "format": "csv", "availability_flag": "_SUCCESS"}
    return {**common, "locations": {"data": f"/{name}/{_HOURLY}"}, "clusters": entries, **fields}


class Sites:
    """The folders, addresses and processes of a front and two sites."""

    def __init__(self, folder: Path, *, is_guarded: bool) -> None:
        self.folder = folder
        self.tokens = dict[tuple[str, str], str]()
        """The files with the tokens, by who asks and whom."""
        self.processes = dict[str, "subprocess.Popen[str]"]()
        self._ports = {name: _free_port() for name in (*COLOS, "front")}
        colos = {}
        for name in (*COLOS, "front"):
            (folder / name / "entities").mkdir(parents=True)
            with closing(open_migrated(self.state(name))) as database:
                for user in ("ann", "bob", "front"):
                    now = datetime.now(UTC)
                    made = create_token(database, user, tuple(Does), None, author="root", now=now, dry_run=False)
                    file = folder / f"{user}-{name}.token"
                    file.write_text(made.bearer or "")
                    self.tokens[user, name] = str(file)
                if name in COLOS:
                    colos[name] = {"url": self.address(name), "token": made.bearer}
            role = {"colo": name, "front": "front"} if name in COLOS else {"colos": colos}
            written = {"state": self.state(name), "schedule": "explicit", **role, **(GUARDED if is_guarded else {})}
            (folder / name / "feed_assets.yaml").write_text(yaml.safe_dump(written))

    def state(self, name: str) -> str:
        """The URL of the state of one."""
        return f"sqlite:///{self.folder}/{name}.db"

    def address(self, name: str) -> str:
        """The URL of the server of one."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def start(self, name: str) -> None:
        """Start a server, and wait until it takes requests."""
        command = [sys.executable, "-m", "feed_assets", "front" if name == "front" else "serve"]
        self.processes[name] = subprocess.Popen(
            [*command, "--port", str(self._ports[name])],
            cwd=self.folder / name,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait(self, name: str) -> None:
        """Wait until a server takes requests."""
        stdout = self.processes[name].stdout
        assert stdout is not None
        assert "http:" in stdout.readline(), f"{name} has not started"

    def kill(self, name: str) -> None:
        """End a server at once."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def write(self, *documents: Mapping[str, Any]) -> str:
        """Write a file, and return its name."""
        file = self.folder / f"{'-'.join(each['name'] for each in documents)}.yaml"
        file.write_text(yaml.safe_dump_all(documents, sort_keys=False))
        return str(file)

    def ask(self, *words: str, name: str = "front", user: str = "ann") -> Result:
        """Give a command to a server."""
        return run("--server", self.address(name), "--token-file", self.tokens[user, name], *words)

    def start_again(self, name: str) -> None:
        """Start a server that was killed."""
        self.start(name)
        self.wait(name)

    def record(self, name: str) -> list[tuple[str, str, int, str, str | None]]:
        """Every version that one has recorded: kind, name, version, action and digest."""
        with closing(open_database(self.state(name))) as database, database.read() as connection:
            keys = sorted(Definitions(connection).newest())
            found = [each for key in keys for each in Definitions(connection).history(*key)]
        return [(each.kind, each.name, each.version, each.action.value, each.digest) for each in found]


@contextmanager
def started(folder: Path, *, is_guarded: bool = False) -> Iterator[Sites]:
    """Start all three, and declare a cluster of each colo; what still runs is ended."""
    sites = Sites(folder, is_guarded=is_guarded)
    try:
        for name in COLOS:
            sites.start(name)
        for name in COLOS:
            sites.wait(name)
        sites.start("front")
        sites.wait("front")
        both = [cluster(f"{colo}-1", colo, folder / "data") for colo in COLOS]
        result = sites.ask("entity", "submit", sites.write(*both))
        assert result.exit_code == 0, result.output
        yield sites
    finally:
        for name in [*sites.processes]:
            sites.kill(name)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
