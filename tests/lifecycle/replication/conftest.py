"""S3 of a real server on loopback, for flows between kinds of storage."""

from tests.storage.conftest import s3_options, s3_server

__all__ = ["s3_options", "s3_server"]
