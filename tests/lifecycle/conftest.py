from tests.databases import database, state_url
from tests.databases import drilled_database_url as database_url

__all__ = ["database", "database_url", "state_url"]
