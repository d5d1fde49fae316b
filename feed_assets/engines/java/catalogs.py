"""Query Hive metastores with Hive's own client in a Java machine."""

import threading

from py4j.protocol import Py4JError

from feed_assets.engines.errors import ServiceAwayError
from feed_assets.engines.java.machine import JavaMachine, explain_java

_SETTINGS = {
    "hive.metastore.connect.retries": "1",
    "hive.metastore.failure.retries": "0",
    "hive.metastore.client.connect.retry.delay": "0s",
    "hive.metastore.client.socket.timeout": "8s",
    "hive.metastore.schema.verification": "false",
}


class Catalog:
    """A connection to the metastores of one address. It uses the first that answers. Thread-safe.

    Raises:
        ServiceError: none of them answers.
    """

    def __init__(self, machine: JavaMachine, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        view = machine.view
        try:
            conf = view.org.apache.hadoop.hive.conf.HiveConf()
            for name, value in {**_SETTINGS, "hive.metastore.uris": metastores_of(address)}.items():
                conf.set(name, value)
            self._client = view.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)
            self._client.getAllDatabases()
        except Py4JError as exc:
            raise self._refused(exc) from exc

    def find_keys(self, database: str, table: str) -> tuple[str, ...] | None:
        """Return the partition keys of a table; None if it does not exist, nor if its database does not.

        Raises:
            ServiceError: the metastore no longer answers.
        """
        try:
            with self._lock:
                if not self._client.tableExists(database, table):
                    return None
                return tuple(key.getName() for key in self._client.getTable(database, table).getPartitionKeys())
        except Py4JError as exc:
            raise self._refused(exc) from exc

    def close(self) -> None:
        """Close the connection."""
        try:
            with self._lock:
                self._client.close()
        except Py4JError as exc:
            raise self._refused(exc) from exc

    def _refused(self, exc: Py4JError) -> ServiceAwayError:
        return ServiceAwayError(
            service=f"the catalog {self._address}",
            reason=f"it does not answer: {explain_java(exc)}",
            next_step="Check host and port, and that a Hive metastore runs there.",
        )


def metastores_of(address: str) -> str:
    """Return the metastores of an address, each with its scheme, in the form that Hive expects.

    >>> metastores_of("thrift://one:9083, two:9083")
    'thrift://one:9083,thrift://two:9083'
    """
    hosts = (part.strip().removeprefix("thrift://") for part in address.split(","))
    return ",".join(f"thrift://{host}" for host in hosts if host)
