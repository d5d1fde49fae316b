"""What all tests share: fixtures of real servers, started on first use."""

from tests.servers import metastore_port, postgres_url

__all__ = ["metastore_port", "postgres_url"]
