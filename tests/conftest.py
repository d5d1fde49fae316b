"""What all tests share: fixtures of real servers, started on first use."""

from tests.servers import postgres_url

__all__ = ["postgres_url"]
