"""The session of a run on the Spark Connect server that its cluster keeps. Imports pyspark, which only runs need."""

from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr

from feed_assets.engines.spark.local_servers import LocalServer, ServerUse
from feed_assets.engines.spark.sessions import close_session, connect


class LocalServerResource(LazyPySparkResource):
    """A run's session on the server that its cluster keeps; its id is the run's."""

    _server: LocalServer = PrivateAttr()
    _run_id: str = PrivateAttr()
    _use: ServerUse | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, server: LocalServer, run_id: str) -> "LocalServerResource":
        """Return the resource of a run."""
        resource = cls(spark_config=server.server_conf())
        resource._server, resource._run_id = server, run_id
        return resource

    def _init_session(self) -> None:
        """Open the session, or another one if the server has died since."""
        if self._use is None:
            self._use = ServerUse(self._server)
        if self._spark_session is not None and self._use.is_running():
            return
        self._end_session()
        self._spark_session = connect(self._use.connect(), self._run_id)

    def close(self) -> None:
        """Close the session, and end the use of the server."""
        self._end_session()
        if self._use is not None:
            self._use.close()

    def _end_session(self) -> None:
        if self._spark_session is not None:
            close_session(self._spark_session)
            self._spark_session = None
