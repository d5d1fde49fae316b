from tests.databases import drilled_database_url as database_url
from tests.databases import state_url

__all__ = ["database_url", "state_url"]
