from tests.databases import database, state_url
from tests.databases import drilled_database_url as database_url
from tests.lifecycle.interruptions import make_storage
from tests.storage.conftest import azure_server, s3_options, s3_server

__all__ = ["azure_server", "database", "database_url", "make_storage", "s3_options", "s3_server", "state_url"]
