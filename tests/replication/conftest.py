from tests.instances.interruptions import make_storage
from tests.storage.conftest import azure_server, s3_options, s3_server

__all__ = ["azure_server", "make_storage", "s3_options", "s3_server"]
