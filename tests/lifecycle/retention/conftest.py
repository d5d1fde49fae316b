"""Object storages of real servers on loopback, for sweeps that they interrupt."""

from tests.storage.conftest import azure_server, s3_server

__all__ = ["azure_server", "s3_server"]
