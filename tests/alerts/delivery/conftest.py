from tests.receivers import _one_mail_server, _one_receiver, mail_server, receiver

__all__ = [
    "_one_mail_server",
    "_one_receiver",
    "mail_server",
    "receiver",
]
