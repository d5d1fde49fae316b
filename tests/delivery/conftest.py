from tests.databases import database, database_url, drilled_database_url
from tests.receivers import _one_mail_server, _one_receiver, mail_server, receiver

__all__ = [
    "_one_mail_server",
    "_one_receiver",
    "database",
    "database_url",
    "drilled_database_url",
    "mail_server",
    "receiver",
]
