"""The Spark sessions of runs, and the servers that a code location uses. Imports no pyspark until a run begins."""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import dagster as dg

from feed_assets.engines.spark.local_servers import LocalServer, ServerUse
from feed_assets.engines.spark.sessions import session_conf
from feed_assets.plan.records import ClusterRecord

if TYPE_CHECKING:
    from dagster_pyspark import LazyPySparkResource


class LocationServers:
    """The servers that a code location uses, one for each cluster that keeps one, until its process ends."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._uses: dict[str, ServerUse] = {}

    def use(self, cluster: ClusterRecord) -> ServerUse | None:
        """Return the use of a cluster's server as it is now configured; None if the cluster keeps none.

        It ends the use of the server of a former configuration, but starts no server: the first run does.

        Raises:
            ServiceError: the server's folder cannot be trusted.
        """
        before = self._uses.get(cluster.name)
        server = local_server(cluster, self._root) if cluster.keeps_server else None
        if before is not None and (server is None or before.folder != server.folder):
            self._uses.pop(cluster.name).close()
        if server is not None and cluster.name not in self._uses:
            self._uses[cluster.name] = ServerUse(server)
        return self._uses.get(cluster.name)


def spark_definition(cluster: ClusterRecord, root: Path) -> dg.ResourceDefinition:
    """Return the resource for a cluster's Spark session. Each run opens one session, when its work first needs it.

    The resource has no config schema: Dagster stores defaults of a schema, with the secrets in them.
    """

    @contextmanager
    def open_resource(context: dg.InitResourceContext) -> "Iterator[LazyPySparkResource]":
        if not cluster.keeps_server:
            yield spark_resource(cluster, root)
            return
        from feed_assets.orchestration.location.local_server import LocalServerResource

        resource = LocalServerResource.of(
            local_server(cluster, root), context.run.run_id if context.run else str(uuid4())
        )
        try:
            yield resource
        finally:
            resource.close()

    return dg.ResourceDefinition(resource_fn=open_resource, description=f"The Spark session of cluster {cluster.name}.")


@cache
def resource_of_process(cluster: ClusterRecord, root: Path) -> "LazyPySparkResource":
    """Return the resource for the sessions of a cluster that this process opens outside of runs, until it ends."""
    if not cluster.keeps_server:
        return spark_resource(cluster, root)
    from feed_assets.orchestration.location.local_server import LocalServerResource

    resource = LocalServerResource.of(local_server(cluster, root), str(uuid4()))
    atexit.register(resource.close)
    return resource


def spark_resource(cluster: ClusterRecord, root: Path) -> "LazyPySparkResource":
    """Return the resource for the session of a cluster that keeps no server."""
    from dagster_pyspark import LazyPySparkResource

    conf = session_conf(
        master=cluster.spark_master,
        remote=cluster.spark_remote,
        conf=dict(cluster.spark_conf),
        root=root,
        catalog=cluster.catalog,
    )
    return LazyPySparkResource(spark_config=conf)


def local_server(cluster: ClusterRecord, root: Path) -> LocalServer:
    """Return the server that a cluster keeps."""
    assert cluster.spark_master is not None
    return LocalServer(
        cluster=cluster.name,
        master=cluster.spark_master,
        conf=dict(cluster.spark_conf),
        root=root,
        catalog=cluster.catalog,
    )
