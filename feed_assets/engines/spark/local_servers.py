"""Find, start and use the Spark Connect server that a cluster keeps on this machine.

Ownership is by locks on files in a folder that only this user can enter, because the system releases the locks of a
process that has ended, however it ended:

- Whoever uses the server holds `users`, shared: a run from its first need to its end, and a code location from its
  first tick on. The keeper (`server_keeper.py`) ends the server when nobody does.
- The keeper holds `alive`. An address is valid only while it does; what a killed keeper has left behind is ignored.
- Whoever starts a server holds `start`, and passes it on to the keeper until the server is ready.

The name of the folder contains a digest of everything that a server is started with. After a change, users come to
another folder, so a new server starts, and the old one ends after its last user.
"""

import fcntl
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from time import sleep
from types import MappingProxyType
from typing import IO

from feed_assets.clock import TimeBudget
from feed_assets.engines.errors import ServiceError
from feed_assets.engines.failures import last_lines
from feed_assets.engines.spark.addresses import probe
from feed_assets.engines.spark.server_keeper import ADDRESS, ALIVE, LOG, READY, START, USERS, try_lock
from feed_assets.engines.spark.sessions import session_conf, spark_environment

IDLE_SECONDS = 30.0
"""How long a server waits for its next user: long enough for a code location that is restarted."""

_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
_PLUGINS, _JAVA_OPTIONS = "spark.plugins", "spark.driver.extraJavaOptions"
_DEFAULTS = MappingProxyType(
    {
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
        "spark.connect.execute.reattachable.senderMaxStreamDuration": "20s",
        "spark.connect.execute.manager.detachedTimeout": "30s",
        "spark.connect.execute.manager.maintenanceInterval": "10s",
    }
)
"""Sessions do not see each other's files, as in pyspark's own local server, and work of dead clients is given up."""
_OWN = MappingProxyType({"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"})
_PATIENCE_SECONDS, _POLL_SECONDS = 60.0, 0.2
_NO_MACHINE = "JAVA_GATEWAY_EXITED"
_OF_SPARK = re.compile(r"(?:JAVA|JDK|SPARK|PYSPARK|HADOOP|YARN|HIVE|AWS|AZURE|GOOGLE)_\w+|PYTHONPATH|TZ")
"""Variables of the environment that change what a server does; AWS_SECRET_ACCESS_KEY, HADOOP_CONF_DIR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """The Spark Connect server of a cluster on this machine, running or not. Sessions have the configuration that a
    session of the same `master` would have.
    """

    cluster: str
    master: str
    root: Path
    conf: Mapping[str, str] = field(default_factory=dict)
    catalog: str | None = None
    idle_seconds: float = IDLE_SECONDS

    @property
    def folder(self) -> Path:
        """The folder of its locks, address and log."""
        conf = self.server_conf()
        environment = {name: value for name, value in spark_environment().items() if _OF_SPARK.fullmatch(name)}
        described = [self.cluster, str(self.root.resolve()), conf, environment, sys.executable, version("pyspark")]
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir(), f"feed-assets-spark-{os.geteuid()}", f"{self.cluster}-{digest}")

    def server_conf(self) -> dict[str, str]:
        """Return the configuration that the server is started with.

        A server that has run out of memory ends, because it would answer, but fail; the next run starts another.
        """
        conf = session_conf(master=self.master, conf={**_DEFAULTS, **self.conf}, root=self.root, catalog=self.catalog)
        plugins = ",".join(filter(None, (conf.get(_PLUGINS), _PLUGIN)))
        options = f"{conf.get(_JAVA_OPTIONS, '')} -XX:+ExitOnOutOfMemoryError".strip()
        return {**conf, **_OWN, _PLUGINS: plugins, _JAVA_OPTIONS: options}


class ServerUse:
    """A use of a cluster's server, from its creation to `close` or the end of this process. It starts nothing.

    Raises:
        ServiceError: other users could enter the folder.
    """

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self._folder = _own_folder(server.folder)
        self._users = (self._folder / USERS).open("a")
        fcntl.flock(self._users, fcntl.LOCK_SH)

    @property
    def folder(self) -> Path:
        return self._folder

    def close(self) -> None:
        """End the use."""
        self._users.close()

    def is_running(self) -> bool:
        """Return whether the server has a keeper; a server that has died soon has none."""
        with (self._folder / ALIVE).open("a") as alive:
            return not try_lock(alive, shared=True)

    def find(self) -> str | None:
        """Return the URL of the server, with its token, if it runs and answers."""
        if not self.is_running():
            return None
        try:
            url = (self._folder / ADDRESS).read_text()
        except FileNotFoundError:
            return None
        return url if probe(url) else None

    def connect(self) -> str:
        """Return the URL of the server, with its token; start the server if none runs.

        Raises:
            ServiceError: it does not start, or does not answer.
        """
        if (found := self.find()) is not None:
            return found
        with (self._folder / START).open("a") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            patience = TimeBudget(_PATIENCE_SECONDS)
            while self.is_running():  # perhaps not for long: a keeper whose server has died is about to end
                if (found := self.find()) is not None:
                    return found
                if patience.is_spent:
                    raise self._failure("it runs, but does not answer")
                sleep(_POLL_SECONDS)
            self._start(start)
        if (found := self.find()) is not None:
            return found
        raise self._failure("it ended at once")

    def _start(self, start_lock: IO[str]) -> None:
        """Start a keeper, and return when its server is ready."""
        server, log = self._server, self._folder / LOG
        with ExitStack() as stack:
            keeper = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "feed_assets.engines.spark.server_keeper",
                    str(self._folder),
                    str(start_lock.fileno()),
                ],
                cwd=server.root,
                env={**spark_environment(), "PYTHONWARNINGS": "ignore"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stack.enter_context(log.open("w")),
                pass_fds=[start_lock.fileno()],
                start_new_session=True,
                text=True,
            )
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            stack.enter_context(keeper.stdout)
            with keeper.stdin as stdin:
                json.dump({"conf": server.server_conf(), "idle_seconds": server.idle_seconds}, stdin)
            answer = keeper.stdout.readline().strip()
        if answer != READY:
            keeper.wait()
            raise self._failure(answer or "its keeper ended")

    def _failure(self, reason: str) -> ServiceError:
        log = self._folder / LOG
        if _NO_MACHINE in reason:
            reason = "; ".join(last_lines(log.read_text(errors="replace").splitlines())[-3:])
        return ServiceError(
            service=f"the Spark Connect server of cluster {self._server.cluster}",
            reason=f"it cannot be used: {reason}",
            next_step=f"Check that JAVA_HOME is Java 17 or later, and spark.conf of the cluster; see {log}.",
        )


def _own_folder(folder: Path) -> Path:
    """Make a folder, and the one above it, that only this user can enter.

    Raises:
        ServiceError: there is something else in its place.
    """
    for each in (folder.parent, folder):
        each.mkdir(mode=0o700, exist_ok=True)
        found = each.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ServiceError(
                service="the Spark Connect server of this machine",
                reason=f"others than this user can enter its folder {each}, so an address in it cannot be trusted",
                next_step="Remove the folder, or set TMPDIR to a folder of this user.",
            )
    return folder
