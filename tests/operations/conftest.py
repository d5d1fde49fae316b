from tests.databases import database_url, state_url

__all__ = ["database_url", "state_url"]
