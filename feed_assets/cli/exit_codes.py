"""The exit codes of all commands, and which of them an exception is; docs/commands.md explains them."""

from typing import assert_never

from feed_assets.engines.errors import ServiceError
from feed_assets.errors import FeedAssetsError, NoAnswerError, SettingsError, SystemFault, system_fault_of
from feed_assets.loading.errors import LocationUnreadableError
from feed_assets.sql.errors import StateSchemaError, StateUnreachableError
from feed_assets.storage.errors import StorageAwayError

FAILED = 1
WRONG_USAGE = 2
AWAY = WRONG_USAGE
OUR_MISTAKE = 3
DIFFERENT = 4

_OUTSIDE = (
    SettingsError,
    LocationUnreadableError,
    StateUnreachableError,
    StateSchemaError,
    StorageAwayError,
    ServiceError,
    NoAnswerError,
)
"""Errors of the surroundings of a command: nothing was refused, and nothing is wrong with what it was asked."""


def exit_code_of(error: Exception) -> int:
    """Return the exit code of a command that ends with an exception.

    >>> exit_code_of(PermissionError(13, "Permission denied", "data")), exit_code_of(ValueError())
    (1, 3)
    """
    if isinstance(error, FeedAssetsError):
        return AWAY if isinstance(error, _OUTSIDE) else FAILED
    if not isinstance(error, OSError):
        return OUR_MISTAKE
    fault = system_fault_of(error)
    match fault:
        case SystemFault.AWAY:
            return AWAY
        case SystemFault.NO_FILE:
            return WRONG_USAGE
        case SystemFault.REFUSED | SystemFault.FULL:
            return FAILED
        case SystemFault.OTHER:
            return OUR_MISTAKE
        case _:
            assert_never(fault)
