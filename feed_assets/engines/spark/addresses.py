"""Check that a cluster's Spark can be reached, without starting a session."""

import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from feed_assets.engines.errors import ServiceAwayError, ServiceError

if TYPE_CHECKING:
    from pyspark.sql.connect.client import SparkConnectClient

_YARN_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_CONNECT_PORT = 15002
_SECONDS = 3.0
_ANSWER_SECONDS = 15.0
_FEW_RETRIES = MappingProxyType({"max_retries": 2})
_HOST_PORT = re.compile(r"(?:[A-Za-z][\w+.-]*://)?([\w.-]+):([0-9]+)/?")  # host:8032, rm://host:8032


def check_spark_master(master: str, environ: Mapping[str, str], resource_manager: str | None = None) -> None:
    """Connect to the hosts of a master. `local` has no hosts; `yarn` needs its configuration instead.

    `resource_manager` is the `host:port` that a cluster declares for it.

    Raises:
        ServiceError: the hosts do not answer, or the configuration is missing.
    """
    if master.startswith("spark://"):
        _reach_one(f"Spark at {master}", [_split(part) for part in master.removeprefix("spark://").split(",")])
    elif master.startswith("k8s://"):
        address = urlsplit(master.removeprefix("k8s://") if "://" in master[6:] else f"https://{master[6:]}")
        port = address.port or (80 if address.scheme == "http" else 443)
        _reach_one(f"Kubernetes at {master}", [(address.hostname or "", port)])
    elif master == "yarn":
        _check_yarn(environ)
        found = _HOST_PORT.fullmatch(resource_manager or "")
        if found is not None:
            _reach_one(f"the execute interface {resource_manager}", [(found[1], int(found[2]))])


def check_spark_remote(url: str) -> None:
    """Ask a Spark Connect server at a URL such as `sc://127.0.0.1:15002` for a setting.

    Raises:
        ServiceError: nothing listens there, or it is not a Spark Connect server.
    """
    from pyspark.errors import PySparkException

    address, service = urlsplit(url), f"Spark Connect at {bare_url(url)}"
    _reach_one(service, [(address.hostname or "", address.port or _CONNECT_PORT)])
    client = open_client(url)
    try:
        client.get_configs("spark.app.name")
        client.release_session()
    except PySparkException as exc:
        reason = "it does not answer as a Spark Connect server does"
        next_step = "Check the address, and the server's log."
        raise ServiceAwayError(service=service, reason=reason, next_step=next_step) from exc
    finally:
        client.close()


def probe(url: str) -> bool:
    """Return whether a Spark Connect server answers at a URL."""
    try:
        check_spark_remote(url)
    except ServiceError:
        return False
    return True


def open_client(url: str) -> "SparkConnectClient":
    """Return a client for short calls to a Spark Connect server.

    A call that is not answered fails after `_ANSWER_SECONDS`, and is repeated twice if there is no connection. By
    default, both take many minutes, in which a process that wants to end waits, too.
    """
    from grpc import ClientCallDetails, UnaryUnaryClientInterceptor
    from pyspark.sql.connect.client import DefaultChannelBuilder, SparkConnectClient

    class Deadline(UnaryUnaryClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, call: Callable[..., Any], details: Any, request: object) -> Any:
            limited = ClientCallDetails()
            for name in ("method", "metadata", "credentials", "wait_for_ready", "compression"):
                setattr(limited, name, getattr(details, name))
            limited.timeout = _ANSWER_SECONDS
            return call(limited, request)

    builder = DefaultChannelBuilder(url)
    builder.add_interceptor(Deadline())
    return SparkConnectClient(connection=builder, retry_policy=dict(_FEW_RETRIES))


def _check_yarn(environ: Mapping[str, str]) -> None:
    folder = next((environ[name] for name in _YARN_FOLDERS if environ.get(name)), None)
    if folder is None or not Path(folder).is_dir():
        reason = "neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set" if folder is None else f"{folder} is not a folder"
        raise ServiceError(
            service="Spark on YARN",
            reason=f"its configuration is missing: {reason}",
            next_step="Set HADOOP_CONF_DIR to the folder of yarn-site.xml.",
        )


def _reach_one(service: str, hosts: list[tuple[str, int]]) -> None:
    """Return as soon as one of the hosts accepts a connection."""
    reasons = []
    for host, port in hosts:
        try:
            socket.create_connection((host, port), timeout=_SECONDS).close()
            return
        except OSError as exc:
            reasons.append(f"{host}:{port}: {exc.strerror or exc}")
    raise ServiceAwayError(
        service=service,
        reason=f"no answer at {', '.join(reasons)}",
        next_step="Check host and port, and that it runs.",
    )


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def bare_url(url: str) -> str:
    """Return a Spark Connect address without its parameters, which may contain a token."""
    return url.partition("/;")[0]
