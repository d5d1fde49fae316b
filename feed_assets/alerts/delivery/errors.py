"""Errors of receivers."""

from collections.abc import Sequence

from feed_assets.errors import Fault, FeedAssetsError


class DeliveryError(FeedAssetsError):
    """A receiver cannot be used."""


class ReceiverError(DeliveryError):
    """A receiver of the settings is wrong, or lacks something."""

    def __init__(self, *, name: str, reason: str, next_step: str) -> None:
        self.reason, self.next_step = reason, next_step
        super().__init__(f"receiver {name!r}: {reason}. {next_step}")


class UnknownReceiverError(DeliveryError):
    """No receiver of this name is declared."""

    fault = Fault.MISSING

    def __init__(self, *, name: str, similar: Sequence[str], known: Sequence[str]) -> None:
        hint = f"Did you mean {similar[0]!r}? " if similar else ""
        there = f"There are {', '.join(known)}" if known else "There is none: declare it in the setting notify"
        super().__init__(f"receiver {name!r}: no receiver of this name is declared. {hint}{there}.")
